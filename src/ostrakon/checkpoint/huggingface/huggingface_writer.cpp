// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/huggingface/huggingface_writer.hpp>

#include <algorithm>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/print.hpp>
#include <ostrakon/checkpoint/huggingface/huggingface_tensors.hpp>
#include <ostrakon/checkpoint/huggingface/safetensors.hpp>
#include <ostrakon/checkpoint/json_file.hpp>
#include <utility>

namespace ostrakon::checkpoint {
namespace {

constexpr std::int64_t block_elements = 1 << 20;

/// Rows of a parameter that are a tensor, or a slice of one.
struct TensorPiece {
  model::Parameter parameter;
  HuggingFaceTensor tensor;

  std::int64_t columns() const { return parameter.shape.size() == 2 ? parameter.shape[1] : 1; }
  std::int64_t first() const { return tensor.first_row * columns(); }
  std::int64_t elements() const { return tensor.rows * columns(); }
};

/// A tensor to write, and its pieces in order.
struct TensorOutput {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<TensorPiece> pieces;
};

/// Writes a piece a block at a time.
void write_rows(const TensorPiece& piece, ParameterSource& source, SafetensorsWriter& writer,
                std::vector<float>& buffer) {
  const model::Parameter& parameter = piece.parameter;
  for (std::int64_t at = 0; at < piece.elements(); at += block_elements) {
    const std::int64_t count = std::min(block_elements, piece.elements() - at);
    buffer.resize(static_cast<std::size_t>(count));
    source.read(parameter.owner, parameter.name, parameter.shape, piece.first() + at, count,
                buffer.data());
    writer.write(piece.tensor.name, buffer.data(), count);
  }
}

/// Writes a piece whose elements are in another order than ours.
void write_reordered(const TensorPiece& piece, ParameterSource& source, SafetensorsWriter& writer,
                     std::vector<float>& buffer) {
  const model::Parameter& parameter = piece.parameter;
  buffer.resize(static_cast<std::size_t>(piece.elements()));
  source.read(parameter.owner, parameter.name, parameter.shape, piece.first(), piece.elements(),
              buffer.data());
  std::vector<float> theirs(buffer.size());
  to_their_order(piece.tensor, piece.columns(), buffer.data(), theirs.data());
  writer.write(piece.tensor.name, theirs.data(), piece.elements());
}

std::vector<TensorOutput> outputs_of(const model::DecoderSettings& settings,
                                     const HuggingFaceOutput& how) {
  const TensorNames names = how.family->names_for(settings);
  std::vector<TensorOutput> outputs;
  std::map<std::string, std::size_t> known;
  for (const model::Parameter& p : parameters_of(settings, how.positions))
    for (HuggingFaceTensor& t :
         huggingface_tensors(names, settings, names.prefix, p.owner, p.name, p.shape)) {
      const auto [at, is_new] = known.emplace(t.name, outputs.size());
      if (is_new) outputs.push_back({t.name, t.shape, {}});
      TensorOutput& output = outputs[at->second];
      require(t.slice == static_cast<std::int64_t>(output.pieces.size()), "tensor ", t.name,
              " begins with slice ", t.slice, "; expected all of them in order");
      output.pieces.push_back({p, std::move(t)});
    }
  for (const TensorCopy& copy : module_copies(names, settings, names.prefix)) {
    TensorOutput output = outputs[known.at(copy.of)];
    output.name = copy.name;
    for (TensorPiece& piece : output.pieces) piece.tensor.name = copy.name;
    outputs.push_back(std::move(output));
  }
  return outputs;
}

void write_outputs(const std::string& path, const std::vector<TensorOutput>& outputs,
                   const HuggingFaceOutput& how, ParameterSource& source) {
  std::vector<SafetensorsWriter::Tensor> tensors;
  for (const TensorOutput& output : outputs) tensors.push_back({output.name, output.shape});
  std::map<std::string, std::string> metadata = how.metadata;
  metadata["format"] = "pt";  // required by transformers
  SafetensorsWriter writer(path, how.dtype, std::move(tensors), metadata);
  std::vector<float> buffer;
  for (const TensorOutput& output : outputs)
    for (const TensorPiece& piece : output.pieces) {
      if (piece.tensor.is_plain())
        write_rows(piece, source, writer, buffer);
      else
        write_reordered(piece, source, writer, buffer);
    }
  writer.finish();
}

std::int64_t bytes_of(const TensorOutput& output, DType dtype) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : output.shape) elements *= extent;
  return elements * ostrakon::bytes_of(dtype);
}

/// Distributes the tensors in order, as many per shard as fit.
std::vector<std::vector<TensorOutput>> in_shards(const std::vector<TensorOutput>& outputs,
                                                 DType dtype, std::int64_t shard_bytes) {
  std::vector<std::vector<TensorOutput>> shards(1);
  std::int64_t left = shard_bytes;
  for (const TensorOutput& output : outputs) {
    const std::int64_t bytes = bytes_of(output, dtype);
    if (bytes > left && !shards.back().empty()) {
      shards.emplace_back();
      left = shard_bytes;
    }
    shards.back().push_back(output);
    left -= bytes;
  }
  return shards;
}

/// Returns a name such as "model-00002-of-00014.safetensors".
std::string shard_name(std::size_t number, std::size_t of) {
  TextWriter name;
  name << std::setfill('0') << "model-" << std::setw(5) << number << "-of-" << std::setw(5) << of
       << ".safetensors";
  return name.str();
}

}  // namespace

void write_huggingface(const std::string& path, const model::DecoderSettings& settings,
                       const HuggingFaceOutput& output, ParameterSource& source) {
  write_outputs(path, outputs_of(settings, output), output, source);
}

int write_huggingface_shards(const std::string& folder, const model::DecoderSettings& settings,
                             std::int64_t shard_bytes, const HuggingFaceOutput& output,
                             ParameterSource& source) {
  const auto shards = in_shards(outputs_of(settings, output), output.dtype, shard_bytes);
  if (shards.size() == 1) {
    write_outputs(folder + "/model.safetensors", shards[0], output, source);
    return 1;
  }
  std::int64_t bytes = 0;
  nlohmann::ordered_json files = nlohmann::ordered_json::object();
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string name = shard_name(i + 1, shards.size());
    write_outputs(folder + "/" + name, shards[i], output, source);
    for (const TensorOutput& one : shards[i]) {
      files[one.name] = name;
      bytes += bytes_of(one, output.dtype);
    }
  }
  const nlohmann::ordered_json index = {{"metadata", {{"total_size", bytes}}},
                                        {"weight_map", std::move(files)}};
  write_text_file(folder + "/model.safetensors.index.json", "safetensors index",
                  index.dump(2) + "\n");
  return static_cast<int>(shards.size());
}

}  // namespace ostrakon::checkpoint
