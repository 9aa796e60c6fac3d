// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <ostrakon/base/dtype.hpp>
#include <ostrakon/checkpoint/families/family.hpp>
#include <ostrakon/checkpoint/parameter_source.hpp>
#include <ostrakon/model/decoder.hpp>
#include <string>

namespace ostrakon::checkpoint {

/// Options for writing a model in Hugging Face's format. Names have the prefix of models with a
/// head, "transformer." or "model.".
struct HuggingFaceOutput {
  const Family* family = nullptr;
  std::int64_t positions = 1;                   ///< rows of the learned position table
  DType dtype = DType::fp32;                    ///< fp32 or bf16
  std::map<std::string, std::string> metadata;  ///< added to {"format": "pt"} of each file
};

/// Writes a model as one safetensors file, in blocks; of a tensor with another order of elements
/// than ours, one whole parameter at a time is in memory.
void write_huggingface(const std::string& path, const model::DecoderSettings& settings,
                       const HuggingFaceOutput& output, ParameterSource& source);

/// Writes into an existing folder: tensors in order fill files of at most `shard_bytes` bytes of
/// data, model-00001-of-0000N.safetensors; a larger tensor gets its own file. The index,
/// model.safetensors.index.json, is written last. If one file is enough, it is model.safetensors,
/// without an index. Returns the number of tensor files.
int write_huggingface_shards(const std::string& folder, const model::DecoderSettings& settings,
                             std::int64_t shard_bytes, const HuggingFaceOutput& output,
                             ParameterSource& source);

}  // namespace ostrakon::checkpoint
