// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/adapters/peft_reader.hpp>

#include <algorithm>
#include <cmath>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/hdf5/hdf5.hpp>
#include <ostrakon/base/print.hpp>
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

/// Whether PEFT has an adapter in the module of tensor `name` if `target` is one of
/// target_modules.
bool is_of_target(const std::string& name, const std::string& target) {
  for (const char* const which : {".lora_A.weight", ".lora_B.weight"}) {
    const std::string end = "." + target + which;
    if (name.size() > end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0)
      return true;
  }
  return false;
}

/// Throws Error unless the file has tensors of all of target_modules, and of these alone. PEFT
/// would begin with new adapters of modules without tensors, and leave out the others' tensors.
void require_targets(const PeftConfig& config, const SafetensorsReader& file) {
  const auto& tensors = file.tensors();
  if (config.targets.empty()) return;
  for (const std::string& target : config.targets)
    require(std::any_of(tensors.begin(), tensors.end(),
                        [&](const auto& one) { return is_of_target(one.first, target); }),
            "'", config.path, "': target_modules has ", target, ", of which ", peft_tensors_name,
            " has no tensor; expected the modules of its tensors");
  for (const auto& [name, tensor] : tensors)
    require(std::any_of(config.targets.begin(), config.targets.end(),
                        [&, &of = name](const auto& one) { return is_of_target(of, one); }),
            "'", config.path, "': target_modules has no name of the module of tensor ", name,
            " in ", peft_tensors_name, "; expected the modules of its tensors");
}

/// Whether two scales of adapters differ by rounding alone, such as of sqrt(rank).
bool are_alike(double a, double b) {
  constexpr double most = 1e-6;
  return std::abs(a - b) <= most * std::max(std::abs(a), std::abs(b));
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
  require_targets(config, file);
  return lora;
}

PeftReader::PeftReader(const std::string& folder, const Family& family,
                       const model::DecoderSettings& settings)
    : family_(family),
      settings_(settings),
      config_(read_peft_config(folder)),
      file_(tensors_of(folder)) {
  const model::LoraSettings theirs = lora_of_peft(folder, family, settings), &ours = settings.lora;
  const auto require_same = [&](bool is_same, const char* key, const auto& in_it,
                                const auto& in_ours) {
    require(is_same, "'", config_.path, "': lora.", key, " is ", in_it, " there, but ", in_ours,
            " in the deck; expected the same");
  };
  require_same(theirs.rank == ours.rank, "rank", theirs.rank, ours.rank);
  require_same(are_alike(theirs.alpha, ours.alpha), "alpha",
               print("%.10g", theirs.alpha) +
                   (config_.rank_stabilized ? " (use_rslora: lora_alpha sqrt(r))" : ""),
               print("%.10g", ours.alpha));
  require_same(theirs.layers == ours.layers, "targets", shown(theirs.layers), shown(ours.layers));
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
