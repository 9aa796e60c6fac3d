// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/hdf5.hpp>
#include <ostrakon/checkpoint/folder.hpp>
#include <ostrakon/checkpoint/huggingface.hpp>
#include <ostrakon/checkpoint/json_file.hpp>
#include <ostrakon/checkpoint/reader.hpp>
#include <ostrakon/checkpoint/weights_file.hpp>
#include <set>
#include <sstream>
#include <utility>

namespace ostrakon::checkpoint {
namespace {

using Shape = std::vector<std::int64_t>;

constexpr std::int64_t block_elements = 1 << 20;

constexpr const char* output_head = "lm_head.weight";

/// What tensors of a family begin with in a model with a head.
const char* prefix_of(Family family) { return family == Family::gpt2 ? "transformer." : "model."; }

const char* embedding_of(Family family) {
  return family == Family::gpt2 ? "wte.weight" : "embed_tokens.weight";
}

bool ends_with(const std::string& text, const std::string& ending) {
  return text.size() >= ending.size() &&
         text.compare(text.size() - ending.size(), ending.size(), ending) == 0;
}

/// Tables of what does not change in training, which older files carry along.
bool is_constant(const std::string& name) {
  return ends_with(name, ".attn.bias") || ends_with(name, ".attn.masked_bias") ||
         ends_with(name, ".rotary_emb.inv_freq");
}

/// Theirs for our name of a layer: those that are below each other in ours, with their rows.
struct Layer {
  std::string name;
  std::int64_t rows;
};

[[noreturn]] void unknown(const std::string& owner, const std::string& parameter) {
  throw Error(
      text("parameter '", parameter, "' of '", owner, "' has no name in Hugging Face's models"));
}

std::vector<Layer> gpt2_layers(const std::string& owner, const std::string& name,
                               std::int64_t rows) {
  static const std::map<std::string, const char*> in_block = {
      {"attention.norm", "ln_1"},       {"attention.qkv", "attn.c_attn"},
      {"attention.out", "attn.c_proj"}, {"mlp.norm", "ln_2"},
      {"mlp.up", "mlp.c_fc"},           {"mlp.down", "mlp.c_proj"}};
  if (owner == "embedding" && name == "token") return {{"wte", rows}};
  if (owner == "embedding" && name == "position") return {{"wpe", rows}};
  if (owner == "head" && name == "norm") return {{"ln_f", rows}};
  const auto found = in_block.find(name);
  if (owner.rfind("block.", 0) != 0 || found == in_block.end()) unknown(owner, name);
  return {{"h." + owner.substr(6) + "." + found->second, rows}};
}

std::vector<Layer> llama_layers(const model::DecoderSettings& settings, const std::string& owner,
                                const std::string& name, std::int64_t rows) {
  static const std::map<std::string, const char*> in_block = {
      {"attention.norm", "input_layernorm"},
      {"attention.out", "self_attn.o_proj"},
      {"mlp.norm", "post_attention_layernorm"},
      {"mlp.down", "mlp.down_proj"}};
  if (owner == "embedding" && name == "token") return {{"embed_tokens", rows}};
  if (owner == "head" && name == "norm") return {{"norm", rows}};
  if (owner.rfind("block.", 0) != 0) unknown(owner, name);
  const std::string block = "layers." + owner.substr(6) + ".";
  const std::int64_t queries = settings.heads * settings.head_width();
  const std::int64_t keys = settings.kv_heads * settings.head_width();
  if (name == "attention.qkv")
    return {{block + "self_attn.q_proj", queries},
            {block + "self_attn.k_proj", keys},
            {block + "self_attn.v_proj", keys}};
  if (name == "mlp.gate_up")
    return {{block + "mlp.gate_proj", settings.ffn_width},
            {block + "mlp.up_proj", settings.ffn_width}};
  const auto found = in_block.find(name);
  if (found == in_block.end()) unknown(owner, name);
  return {{block + found->second, rows}};
}

/// "attention.qkv" and "weight" of "attention.qkv.weight".
std::pair<std::string, std::string> split_name(const std::string& parameter) {
  const std::size_t dot = parameter.rfind('.');
  if (dot == std::string::npos) return {parameter, ""};
  return {parameter.substr(0, dot), parameter.substr(dot + 1)};
}

}  // namespace

Family family_of(const model::DecoderSettings& settings) {
  using model::Activation;
  using model::Positions;
  const bool layernorm = settings.norm == math::NormKind::layernorm;
  const bool learned = settings.positions == Positions::learned;
  const bool gelu = settings.activation == Activation::gelu;
  if (layernorm && learned && gelu && settings.bias && settings.kv_heads == settings.heads)
    return Family::gpt2;
  if (!layernorm && !learned && !gelu && !settings.bias) return Family::llama;
  throw Error(text(
      "a model with norm ", layernorm ? "layernorm" : "rmsnorm", ", positions ",
      learned ? "learned" : "rotary", ", activation ", gelu ? "gelu" : "swiglu", ", bias ",
      settings.bias ? "true" : "false", ", heads ", settings.heads, " and kv_heads ",
      settings.kv_heads,
      " has no counterpart at Hugging Face; expected GPT-2 (layernorm, learned, gelu, bias true, "
      "as many kv_heads as heads) or Llama (rmsnorm, rotary, swiglu, bias false)"));
}

std::vector<HuggingFaceTensor> huggingface_tensors(const model::DecoderSettings& settings,
                                                   const std::string& prefix,
                                                   const std::string& owner,
                                                   const std::string& parameter,
                                                   const Shape& shape) {
  const Family family = family_of(settings);
  require(shape.size() == 1 || shape.size() == 2, "parameter '", parameter, "' of '", owner,
          "' has the shape ", hdf5::shape_text(shape), "; expected a vector or a matrix");
  if (owner == "head" && parameter == "output.weight")
    return {{output_head, shape, 0, shape[0], false}};
  const auto [name, what] = split_name(parameter);
  if (what != "weight" && what != "bias") unknown(owner, parameter);
  const std::vector<Layer> layers = family == Family::gpt2
                                        ? gpt2_layers(owner, name, shape[0])
                                        : llama_layers(settings, owner, name, shape[0]);
  const bool transposed = family == Family::gpt2 && owner != "embedding" && shape.size() == 2;
  std::vector<HuggingFaceTensor> tensors;
  std::int64_t row = 0;
  for (const Layer& layer : layers) {
    Shape theirs = shape;
    theirs[0] = layer.rows;
    if (transposed) std::swap(theirs[0], theirs[1]);
    tensors.push_back(
        {prefix + layer.name + "." + what, std::move(theirs), row, layer.rows, transposed});
    row += layer.rows;
  }
  require(row == shape[0], "parameter '", parameter, "' of '", owner, "' has the shape ",
          hdf5::shape_text(shape), "; the model's settings say ", row, " rows");
  return tensors;
}

std::vector<model::Parameter> parameters_of(const model::DecoderSettings& settings,
                                            std::int64_t positions) {
  const model::Decoder<float> decoder(settings, {1, positions});
  std::vector<model::Parameter> parameters;
  for (int u = 0; u < decoder.units(); ++u) {
    const std::vector<model::Parameter>& more = decoder.unit(u).parameters();
    parameters.insert(parameters.end(), more.begin(), more.end());
  }
  return parameters;
}

// ---- HuggingFaceSource

HuggingFaceSource::HuggingFaceSource(const std::string& path,
                                     const model::DecoderSettings& settings)
    : settings_(settings), file_(path) {
  const Family family = family_of(settings);
  const std::string embedding = embedding_of(family);
  const std::string prefix = prefix_of(family);
  prefix_ = file_.has(prefix + embedding) ? prefix : "";
  require(file_.has(prefix_ + embedding), "'", path, "' is no ",
          family == Family::gpt2 ? "GPT-2" : "Llama",
          ", which the model's settings describe: it has no tensor ", embedding, " or ", prefix,
          embedding);
  require_complete();
  require_tied();
}

std::int64_t HuggingFaceSource::positions() const {
  if (settings_.positions != model::Positions::learned) return 1;
  const SafetensorsTensor& table = file_.tensor(prefix_ + "wpe.weight");
  require(table.shape.size() == 2 && table.shape[0] > 0, "'", file_.path(), "': tensor ", prefix_,
          "wpe.weight has the shape ", hdf5::shape_text(table.shape), "; expected positions, ",
          settings_.width);
  return table.shape[0];
}

void HuggingFaceSource::require_shape(const HuggingFaceTensor& tensor) const {
  const Shape& found = file_.tensor(tensor.name).shape;
  require(found == tensor.shape, "'", file_.path(), "': tensor ", tensor.name, " has the shape ",
          hdf5::shape_text(found), "; expected ", hdf5::shape_text(tensor.shape));
}

void HuggingFaceSource::require_complete() {
  std::set<std::string> expected;
  for (const model::Parameter& parameter : parameters_of(settings_, positions()))
    for (const HuggingFaceTensor& tensor : huggingface_tensors(settings_, prefix_, parameter.owner,
                                                               parameter.name, parameter.shape)) {
      require_shape(tensor);
      expected.insert(tensor.name);
    }
  for (const auto& [name, tensor] : file_.tensors()) {
    const bool tied_head = settings_.tie_embeddings && name == output_head;
    require(expected.count(name) > 0 || tied_head || is_constant(name), "'", file_.path(),
            "': tensor ", name, " ", hdf5::shape_text(tensor.shape),
            " is no part of the model that the settings describe");
  }
}

/// Some files hold a tied matrix twice. Where they differ, the model is not tied.
void HuggingFaceSource::require_tied() {
  if (!settings_.tie_embeddings || !file_.has(output_head)) return;
  const std::string embedding = prefix_ + embedding_of(family_of(settings_));
  const Shape shape = {settings_.vocabulary, settings_.width};
  require_shape({output_head, shape, 0, settings_.vocabulary, false});
  // A few rows tell: reading it all would take each rank long.
  constexpr std::int64_t samples = 16;
  std::vector<float> ours(static_cast<std::size_t>(settings_.width)), theirs = ours;
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    const std::int64_t row = sample * (settings_.vocabulary - 1) / (samples - 1);
    file_.read(embedding, row * settings_.width, settings_.width, ours.data());
    file_.read(output_head, row * settings_.width, settings_.width, theirs.data());
    require(ours == theirs, "'", file_.path(), "': row ", row, " of ", output_head,
            " is not that of ", embedding,
            ", but the model's tie_embeddings is true; expected one matrix for both");
  }
}

void HuggingFaceSource::read(const std::string& owner, const std::string& parameter,
                             const Shape& shape, std::int64_t first, std::int64_t count,
                             float* values) {
  const auto tensors = huggingface_tensors(settings_, prefix_, owner, parameter, shape);
  const std::int64_t columns = shape.size() == 2 ? shape[1] : 1;
  require(first >= 0 && count >= 0 && first <= shape[0] * columns - count, "elements ", first,
          " to ", first + count, " of parameter '", parameter, "' of '", owner,
          "' asked for; its shape is ", hdf5::shape_text(shape));
  for (const HuggingFaceTensor& tensor : tensors) {
    require_shape(tensor);
    const std::int64_t offset = tensor.first_row * columns;
    const std::int64_t begin = std::max(first, offset);
    const std::int64_t end = std::min(first + count, offset + tensor.rows * columns);
    if (begin >= end) continue;
    if (tensor.transposed)
      read_transposed(tensor, begin - offset, end - begin, values + (begin - first));
    else
      file_.read(tensor.name, begin - offset, end - begin, values + (begin - first));
  }
}

/// Elements [first, first + count) of the transpose of a tensor (in, out).
void HuggingFaceSource::read_transposed(const HuggingFaceTensor& tensor, std::int64_t first,
                                        std::int64_t count, float* values) {
  const std::int64_t in = tensor.shape[0];
  const std::int64_t out = tensor.shape[1];
  const std::int64_t first_column = first / in;
  const std::int64_t columns = (first + count - 1) / in + 1 - first_column;
  // Of each of their rows, some columns: read one by one where they are a small part of the whole.
  const bool few = columns * 8 < out;
  const std::int64_t rows_at_once = few ? 1 : std::max<std::int64_t>(1, block_elements / out);
  for (std::int64_t row = 0; row < in; row += rows_at_once) {
    const std::int64_t rows = std::min(rows_at_once, in - row);
    const std::int64_t elements = (rows - 1) * out + columns;
    buffer_.resize(static_cast<std::size_t>(elements));
    file_.read(tensor.name, row * out + first_column, elements, buffer_.data());
    for (std::int64_t c = 0; c < columns; ++c) {
      const std::int64_t start = (first_column + c) * in - first;  // of our row, in `values`
      const std::int64_t begin = std::max(row, -start);
      const std::int64_t end = std::min(row + rows, count - start);
      for (std::int64_t i = begin; i < end; ++i) values[start + i] = buffer_[(i - row) * out + c];
    }
  }
}

// ---- writing

namespace {

/// Writes their tensor, which is rows of our parameter, a block at a time.
void write_rows(const model::Parameter& parameter, const HuggingFaceTensor& tensor,
                ParameterSource& source, SafetensorsWriter& writer, std::vector<float>& buffer) {
  const std::int64_t columns = parameter.shape.size() == 2 ? parameter.shape[1] : 1;
  const std::int64_t first = tensor.first_row * columns;
  const std::int64_t elements = tensor.rows * columns;
  for (std::int64_t at = 0; at < elements; at += block_elements) {
    const std::int64_t count = std::min(block_elements, elements - at);
    buffer.resize(static_cast<std::size_t>(count));
    source.read(parameter.owner, parameter.name, parameter.shape, first + at, count, buffer.data());
    writer.write(tensor.name, buffer.data(), count);
  }
}

/// Writes their tensor (in, out), the transpose of our whole parameter (out, in).
void write_transposed(const model::Parameter& parameter, const HuggingFaceTensor& tensor,
                      ParameterSource& source, SafetensorsWriter& writer,
                      std::vector<float>& buffer) {
  const std::int64_t in = tensor.shape[0];
  const std::int64_t out = tensor.shape[1];
  buffer.resize(static_cast<std::size_t>(in * out));
  source.read(parameter.owner, parameter.name, parameter.shape, 0, in * out, buffer.data());
  std::vector<float> row(static_cast<std::size_t>(out));
  for (std::int64_t i = 0; i < in; ++i) {
    for (std::int64_t o = 0; o < out; ++o) row[o] = buffer[o * in + i];
    writer.write(tensor.name, row.data(), out);
  }
}

/// A tensor to write, and the parameter that it is made of.
struct Output {
  model::Parameter parameter;
  HuggingFaceTensor tensor;
};

std::vector<Output> outputs_of(const model::DecoderSettings& settings, std::int64_t positions) {
  const std::string prefix = prefix_of(family_of(settings));
  std::vector<Output> outputs;
  for (const model::Parameter& p : parameters_of(settings, positions))
    for (HuggingFaceTensor& t : huggingface_tensors(settings, prefix, p.owner, p.name, p.shape))
      outputs.push_back({p, std::move(t)});
  return outputs;
}

void write_outputs(const std::string& path, const std::vector<Output>& outputs,
                   const HuggingFaceOutput& how, ParameterSource& source) {
  std::vector<SafetensorsWriter::Tensor> tensors;
  for (const Output& output : outputs) tensors.push_back({output.tensor.name, output.tensor.shape});
  std::map<std::string, std::string> metadata = how.metadata;
  metadata["format"] = "pt";  // their libraries ask for it
  SafetensorsWriter writer(path, how.number, std::move(tensors), metadata);
  std::vector<float> buffer;
  for (const Output& output : outputs) {
    if (output.tensor.transposed)
      write_transposed(output.parameter, output.tensor, source, writer, buffer);
    else
      write_rows(output.parameter, output.tensor, source, writer, buffer);
  }
  writer.finish();
}

std::int64_t bytes_of(const Output& output, Number number) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : output.tensor.shape) elements *= extent;
  return elements * ostrakon::bytes_of(number);
}

/// In order, as many into each as fit.
std::vector<std::vector<Output>> in_shards(const std::vector<Output>& outputs, Number number,
                                           std::int64_t shard_bytes) {
  std::vector<std::vector<Output>> shards(1);
  std::int64_t left = shard_bytes;
  for (const Output& output : outputs) {
    const std::int64_t bytes = bytes_of(output, number);
    if (bytes > left && !shards.back().empty()) {
      shards.emplace_back();
      left = shard_bytes;
    }
    shards.back().push_back(output);
    left -= bytes;
  }
  return shards;
}

/// "model-00002-of-00014.safetensors"
std::string shard_name(std::size_t number, std::size_t of) {
  std::ostringstream name;
  name << std::setfill('0') << "model-" << std::setw(5) << number << "-of-" << std::setw(5) << of
       << ".safetensors";
  return name.str();
}

}  // namespace

void write_huggingface(const std::string& path, const model::DecoderSettings& settings,
                       std::int64_t positions, const HuggingFaceOutput& output,
                       ParameterSource& source) {
  write_outputs(path, outputs_of(settings, positions), output, source);
}

int write_huggingface_shards(const std::string& folder, const model::DecoderSettings& settings,
                             std::int64_t positions, std::int64_t shard_bytes,
                             const HuggingFaceOutput& output, ParameterSource& source) {
  const auto shards = in_shards(outputs_of(settings, positions), output.number, shard_bytes);
  if (shards.size() == 1) {
    write_outputs(folder + "/model.safetensors", shards[0], output, source);
    return 1;
  }
  std::int64_t bytes = 0;
  nlohmann::ordered_json files = nlohmann::ordered_json::object();
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string name = shard_name(i + 1, shards.size());
    write_outputs(folder + "/" + name, shards[i], output, source);
    for (const Output& one : shards[i]) {
      files[one.tensor.name] = name;
      bytes += bytes_of(one, output.number);
    }
  }
  const nlohmann::ordered_json index = {{"metadata", {{"total_size", bytes}}},
                                        {"weight_map", std::move(files)}};
  write_text_file(folder + "/model.safetensors.index.json", "safetensors index",
                  index.dump(2) + "\n");
  return static_cast<int>(shards.size());
}

// ---- either format

bool looks_like_hdf5(const std::string& path) {
  // Who opens a pipe waits for its writer.
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  std::ifstream stream(path, std::ios::binary);
  std::string found(8, '\0');
  stream.read(found.data(), static_cast<std::streamsize>(found.size()));
  return stream.gcount() == 8 && found == "\x89HDF\r\n\x1a\n";
}

namespace {

/// Names of parameters, "block.3.attention.qkv.weight", and their shapes.
using Shapes = std::map<std::string, Shape>;

/// Neither a parameter less than the model has, nor one more, nor one of another shape; but for the
/// number of learned positions, which the model's settings don't say.
void require_parameters_of(const model::DecoderSettings& settings, const Shapes& found,
                           const std::string& what) {
  Shapes expected;
  for (const model::Parameter& parameter : parameters_of(settings, 1))
    expected[parameter.full_name()] = parameter.shape;
  for (const auto& [name, shape] : found) {
    const auto ours = expected.find(name);
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

/// Parameters of a checkpoint. What else is in it is not read.
class CheckpointParameters : public ParameterSource {
 public:
  CheckpointParameters(const std::string& folder, const model::DecoderSettings& settings)
      : reader_(folder) {
    Shapes found;
    for (const ParameterEntry& entry : reader_.manifest().parameters)
      found[entry.owner + "." + entry.name] = entry.shape;
    require_parameters_of(settings, found, text("checkpoint '", folder, "'"));
  }

  void read(const std::string& owner, const std::string& parameter, const Shape& shape,
            std::int64_t first, std::int64_t count, float* values) override {
    reader_.read(owner, parameter, shape, first, count, values);
  }

  void verify() override {
    const Manifest& manifest = reader_.manifest();
    for (std::size_t file = 0; file < manifest.files.size(); ++file)
      reader_.verify_structure(static_cast<int>(file));
    std::vector<float> values(block_elements);
    for (const ParameterEntry& entry : manifest.parameters)
      for (std::int64_t first = 0; first < entry.elements(); first += block_elements)
        reader_.read(entry.owner, entry.name, entry.shape, first,
                     std::min(block_elements, entry.elements() - first), values.data());
  }

  bool checks_what_it_reads() const override { return reader_.checks_what_it_reads(); }

 private:
  CheckpointReader reader_;
};

}  // namespace

std::unique_ptr<ParameterSource> open_parameters(const std::string& path,
                                                 const model::DecoderSettings& settings) {
  if (is_checkpoint(path)) return std::make_unique<CheckpointParameters>(path, settings);
  if (!looks_like_hdf5(path)) return std::make_unique<HuggingFaceSource>(path, settings);
  auto file = std::make_unique<WeightsReader>(path);
  Shapes found;
  for (const WeightsReader::Entry& entry : file->parameters())
    found[entry.unit + "." + entry.parameter] = entry.shape;
  require_parameters_of(settings, found, text("weights file '", path, "'"));
  return file;
}

}  // namespace ostrakon::checkpoint
