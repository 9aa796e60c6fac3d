// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/adapters/peft_reader.hpp>

#include <ostrakon/base/error.hpp>
#include <ostrakon/base/hdf5/hdf5.hpp>
#include <ostrakon/checkpoint/adapters/peft_tensors.hpp>

namespace ostrakon::checkpoint {
namespace {

std::string block(std::int64_t layer) { return "block." + std::to_string(layer); }

std::string tensors_of(const std::string& folder) { return folder + "/" + peft_tensors_name; }

/// Names of layers by PEFT's, for messages.
std::string shown(const std::set<std::string>& layers) {
  std::string targets;
  for (const model::AdaptableLayer& one : model::adaptable_layers)
    if (layers.count(one.layer) > 0) targets += (targets.empty() ? "" : ", ") + text(one.target);
  return targets.empty() ? "none" : targets;
}

}  // namespace

model::LoraSettings lora_of_peft(const std::string& folder, const Family& family,
                                 const model::DecoderSettings& settings) {
  const PeftConfig config = read_peft_config(folder);
  const SafetensorsReader file(tensors_of(folder));
  model::LoraSettings lora;
  lora.rank = config.rank;
  lora.alpha = config.alpha;
  lora.layers.clear();
  std::size_t expected = 0;
  for (const AdaptedRows& layer : adaptable_rows(settings)) {
    std::int64_t blocks = 0;
    for (std::int64_t i = 0; i < settings.layers; ++i) {
      const auto tensors = huggingface_tensors(family.names_for(settings), settings,
                                               family.names_for(settings).prefix, block(i),
                                               layer.parameter, layer.shape);
      for (const HuggingFaceTensor& tensor : tensors)
        if (tensor.first_row == layer.first && tensor.rows == layer.rows &&
            file.has(peft_name(tensor, "lora_A")))
          ++blocks;
    }
    if (blocks == 0) continue;
    require(blocks == settings.layers, "'", file.path(), "': ", blocks, " of ", settings.layers,
            " blocks have an adapter of ", layer.layer, "; expected all, or none");
    lora.layers.insert(layer.layer);
    expected += 2 * static_cast<std::size_t>(blocks);
  }
  require(!lora.layers.empty(), "'", file.path(),
          "' has no adapter of a layer of this model; the first of its tensors is ",
          file.tensors().empty() ? "none" : file.tensors().begin()->first);
  require(file.tensors().size() == expected, "'", file.path(), "' has ", file.tensors().size(),
          " tensors, of which ", expected, " are adapters of ", shown(lora.layers),
          "; expected no others");
  return lora;
}

PeftReader::PeftReader(const std::string& folder, const Family& family,
                       const model::DecoderSettings& settings)
    : family_(family),
      settings_(settings),
      config_(read_peft_config(folder)),
      file_(tensors_of(folder)) {
  const model::LoraSettings theirs = lora_of_peft(folder, family, settings), &ours = settings.lora;
  const auto require_alike = [&](const char* key, const auto& in_it, const auto& in_ours) {
    require(in_it == in_ours, "'", config_.path, "': lora.", key, " is ", in_it, " there, but ",
            in_ours, " in the deck; expected the same");
  };
  require_alike("rank", theirs.rank, ours.rank);
  require_alike("alpha", theirs.alpha, ours.alpha);
  require_alike("targets", shown(theirs.layers), shown(ours.layers));
  for (std::int64_t i = 0; i < settings.layers; ++i)
    for (const AdaptedRows& layer : adapted_rows(settings)) {
      const HuggingFaceTensor module = adapted_module(family, settings, block(i), layer);
      for (const auto& [which, expected] :
           {std::pair{"lora_A", std::vector<std::int64_t>{ours.rank, layer.inputs()}},
            std::pair{"lora_B", std::vector<std::int64_t>{layer.rows, ours.rank}}}) {
        const std::string name = peft_name(module, which);
        const std::vector<std::int64_t>& shape = file_.tensor(name).shape;
        require(shape == expected, "'", file_.path(), "': tensor ", name, " has the shape ",
                hdf5::shape_text(shape), "; expected ", hdf5::shape_text(expected));
      }
    }
}

std::vector<float> PeftReader::read(const std::string& owner, const std::string& parameter) {
  for (const AdaptedRows& layer : adapted_rows(settings_)) {
    const bool is_a = parameter == layer.lora_a();
    if (!is_a && parameter != layer.lora_b()) continue;
    const HuggingFaceTensor module = adapted_module(family_, settings_, owner, layer);
    const std::string name = peft_name(module, is_a ? "lora_A" : "lora_B");
    const std::int64_t elements = file_.tensor(name).elements();
    std::vector<float> theirs(static_cast<std::size_t>(elements));
    file_.read(name, 0, elements, theirs.data());
    if (is_a) return theirs;
    std::vector<float> ours(theirs.size());
    to_our_order(module, settings_.lora.rank, theirs.data(), ours.data());
    return ours;
  }
  throw Error(text("'", file_.path(), "' has no adapter '", parameter, "' of '", owner, "'"));
}

}  // namespace ostrakon::checkpoint
