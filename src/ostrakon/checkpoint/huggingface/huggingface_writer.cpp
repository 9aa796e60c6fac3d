// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/huggingface/huggingface_writer.hpp>

#include <algorithm>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <ostrakon/base/print.hpp>
#include <ostrakon/checkpoint/huggingface/safetensors.hpp>
#include <ostrakon/checkpoint/json_file.hpp>
#include <utility>

namespace ostrakon::checkpoint {
namespace {

constexpr std::int64_t block_elements = 1 << 20;

/// Writes a Hugging Face tensor that consists of rows of our parameter, a block at a time.
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

/// Writes a Hugging Face tensor (in, out), the transpose of our whole parameter (out, in).
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

/// A tensor to write, and the parameter that contains it.
struct Output {
  model::Parameter parameter;
  HuggingFaceTensor tensor;
};

std::vector<Output> outputs_of(const model::DecoderSettings& settings,
                               const HuggingFaceOutput& how) {
  const std::string prefix = prefix_of(how.family);
  std::vector<Output> outputs;
  for (const model::Parameter& p : parameters_of(settings, how.positions))
    for (HuggingFaceTensor& t :
         huggingface_tensors(how.family, settings, prefix, p.owner, p.name, p.shape))
      outputs.push_back({p, std::move(t)});
  return outputs;
}

void write_outputs(const std::string& path, const std::vector<Output>& outputs,
                   const HuggingFaceOutput& how, ParameterSource& source) {
  std::vector<SafetensorsWriter::Tensor> tensors;
  for (const Output& output : outputs) tensors.push_back({output.tensor.name, output.tensor.shape});
  std::map<std::string, std::string> metadata = how.metadata;
  metadata["format"] = "pt";  // required by transformers
  SafetensorsWriter writer(path, how.dtype, std::move(tensors), metadata);
  std::vector<float> buffer;
  for (const Output& output : outputs) {
    if (output.tensor.transposed)
      write_transposed(output.parameter, output.tensor, source, writer, buffer);
    else
      write_rows(output.parameter, output.tensor, source, writer, buffer);
  }
  writer.finish();
}

std::int64_t bytes_of(const Output& output, DType dtype) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : output.tensor.shape) elements *= extent;
  return elements * ostrakon::bytes_of(dtype);
}

/// Distributes the tensors in order, as many per shard as fit.
std::vector<std::vector<Output>> in_shards(const std::vector<Output>& outputs, DType dtype,
                                           std::int64_t shard_bytes) {
  std::vector<std::vector<Output>> shards(1);
  std::int64_t left = shard_bytes;
  for (const Output& output : outputs) {
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
    for (const Output& one : shards[i]) {
      files[one.tensor.name] = name;
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
