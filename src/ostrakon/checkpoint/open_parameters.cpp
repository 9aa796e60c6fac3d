// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/open_parameters.hpp>

#include <algorithm>
#include <filesystem>
#include <map>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/hdf5/hdf5.hpp>
#include <ostrakon/checkpoint/adapters/adapted_source.hpp>
#include <ostrakon/checkpoint/folder.hpp>
#include <ostrakon/checkpoint/huggingface/huggingface_source.hpp>
#include <ostrakon/checkpoint/huggingface/other_weights.hpp>
#include <ostrakon/checkpoint/reader.hpp>
#include <ostrakon/checkpoint/weights_file.hpp>

namespace ostrakon::checkpoint {
bool looks_like_hdf5(const std::string& path) {
  // Other types are not opened, as opening a pipe waits for its writer.
  if (type_of(path) != std::filesystem::file_type::regular) return false;
  std::string found(8, '\0');
  const PlainFile file(path, PlainFile::Mode::read);
  return file.read_up_to(0, 8, found.data()) == 8 && found == "\x89HDF\r\n\x1a\n";
}

model::DecoderSettings without_adapters(model::DecoderSettings settings) {
  settings.lora = {};
  return settings;
}

namespace {

using Shape = std::vector<std::int64_t>;

constexpr std::int64_t verify_block_elements = 1 << 20;

/// Shapes keyed by parameter name, "block.3.attention.qkv.weight".
using Shapes = std::map<std::string, Shape>;

/// Throws Error unless the parameters and shapes are exactly those of the model. The number of
/// learned positions may differ, as the model's settings don't contain it.
void require_parameters_of(const model::DecoderSettings& settings, const Shapes& found,
                           const std::string& what) {
  Shapes expected;
  for (const model::Parameter& parameter : parameters_of(settings, 1))
    expected[parameter.full_name()] = parameter.shape;
  for (const auto& [name, shape] : found) {
    const auto ours = expected.find(name);
    require(settings.lora.exist() || !model::is_of_adapter(name), what, ": parameter ", name,
            " is an adapter's, of which the model has none; expected the keys of section lora that "
            "it was trained with, or weights merged by ostrakon-checkpoint export --merge");
    require(ours != expected.end(), what, ": parameter ", name,
            " is no part of the model that the settings describe");
    Shape wanted = ours->second;
    if (name == "embedding.position.weight" && shape.size() == wanted.size()) wanted[0] = shape[0];
    require(shape == wanted, what, ": parameter ", name, " has the shape ", hdf5::shape_text(shape),
            "; expected ", hdf5::shape_text(wanted), " for the model that the settings describe");
  }
  for (const auto& [name, shape] : expected)
    require(found.count(name) > 0, what, ": the model's parameter ", name, " is not in it");
}

/// The parameters of a checkpoint. Other arrays are not read.
class CheckpointParameters : public ParameterSource {
 public:
  CheckpointParameters(const std::string& folder, Weights weights) : reader_(folder) {
    if (weights == Weights::averages) reader_.take_averages();
  }

  Shapes shapes() const {
    Shapes found;
    for (const ParameterEntry& entry : reader_.manifest().parameters)
      found[entry.owner + "." + entry.name] = entry.shape;
    return found;
  }

  void read(const std::string& owner, const std::string& parameter, const Shape& shape,
            std::int64_t first, std::int64_t count, float* values) override {
    reader_.read(owner, parameter, shape, first, count, values);
  }

  void verify() override {
    const Manifest& manifest = reader_.manifest();
    for (std::size_t file = 0; file < manifest.files.size(); ++file)
      reader_.verify_structure(static_cast<int>(file));
    std::vector<float> values(verify_block_elements);
    for (const ParameterEntry& entry : manifest.parameters)
      for (std::int64_t first = 0; first < entry.elements(); first += verify_block_elements)
        reader_.read(entry.owner, entry.name, entry.shape, first,
                     std::min(verify_block_elements, entry.elements() - first), values.data());
  }

  bool checks_what_it_reads() const override { return reader_.checks_what_it_reads(); }

  std::string deck() const override { return reader_.manifest().deck; }

  std::string tokenizer() const override { return reader_.manifest().tokenizer; }

  std::string huggingface_config() const override { return reader_.manifest().huggingface_config; }

 private:
  CheckpointReader reader_;
};

std::unique_ptr<ParameterSource> open_safetensors(const std::string& path,
                                                  const model::DecoderSettings& settings,
                                                  std::int64_t tokens) {
  const std::string config_path = huggingface_config_next_to(path);
  if (config_path.empty()) return std::make_unique<HuggingFaceSource>(path, settings);
  const HuggingFaceConfig config = load_huggingface_config(config_path);
  require_same_model(config, settings, tokens);
  return std::make_unique<HuggingFaceSource>(path, settings, config);
}

Shapes shapes_of(const WeightsReader& file) {
  Shapes found;
  for (const WeightsReader::Entry& entry : file.parameters())
    found[entry.unit + "." + entry.parameter] = entry.shape;
  return found;
}

/// Checks a config.json kept in a weights file or checkpoint, if its model began with one.
void require_kept_config(const ParameterSource& source, const std::string& path,
                         const model::DecoderSettings& settings, std::int64_t tokens) {
  const std::string kept = source.huggingface_config();
  if (!kept.empty())
    require_same_model(parse_huggingface_config(kept, text("config.json kept in ", path)), settings,
                       tokens);
}

bool have_adapters(const Shapes& shapes) {
  return std::any_of(shapes.begin(), shapes.end(),
                     [](const auto& one) { return model::is_of_adapter(one.first); });
}

/// Parameters, and whether adapters are among them.
struct Opened {
  std::unique_ptr<ParameterSource> parameters;
  bool has_adapters = false;
};

Opened open_file(const std::string& path, const model::DecoderSettings& settings,
                 std::int64_t tokens, const RequireDeck& require_deck, Weights weights) {
  const auto require_model = [&](const ParameterSource& source, const Shapes& shapes,
                                 const std::string& what) {
    if (require_deck) require_deck(source.deck());
    const model::DecoderSettings model =
        have_adapters(shapes) ? settings : without_adapters(settings);
    require_parameters_of(model, shapes, what);
    require_kept_config(source, path, settings, tokens);
  };
  if (is_checkpoint(path)) {
    auto parameters = std::make_unique<CheckpointParameters>(path, weights);
    const Shapes shapes = parameters->shapes();
    require_model(*parameters, shapes, text("checkpoint '", path, "'"));
    return {std::move(parameters), have_adapters(shapes)};
  }
  require(weights == Weights::parameters, "'", path,
          "' is no checkpoint; expected one, as only these have averages beside parameters");
  // Before config.json is read, as another format is the first thing to know.
  require_no_other_weights(path);
  if (!looks_like_hdf5(path))
    return {open_safetensors(path, without_adapters(settings), tokens), false};
  auto file = std::make_unique<WeightsReader>(path);
  const Shapes shapes = shapes_of(*file);
  require_model(*file, shapes, text("weights file '", path, "'"));
  return {std::move(file), have_adapters(shapes)};
}

}  // namespace

std::unique_ptr<ParameterSource> open_parameters(const std::string& path,
                                                 const model::DecoderSettings& settings,
                                                 std::int64_t tokens,
                                                 const RequireDeck& require_deck, Weights weights) {
  const std::string broken = broken_link(path);
  require(broken.empty(), broken);
  require(is_there(path), "'", path, "' does not exist; expected weights or a checkpoint");
  Opened opened = open_file(path, settings, tokens, require_deck, weights);
  if (!settings.lora.exist() || opened.has_adapters) return std::move(opened.parameters);
  return std::make_unique<AdaptedSource>(std::move(opened.parameters), nullptr);
}

std::unique_ptr<ParameterSource> add_adapters(std::unique_ptr<ParameterSource> base,
                                              const std::string& folder,
                                              const model::DecoderSettings& settings,
                                              std::int64_t tokens) {
  const HuggingFaceModel model = {
      without_adapters(settings), tokens, DType::fp32, {}, base->huggingface_config()};
  auto reader = std::make_unique<PeftReader>(folder, family_of(model), settings);
  return std::make_unique<AdaptedSource>(std::move(base), std::move(reader));
}

}  // namespace ostrakon::checkpoint
