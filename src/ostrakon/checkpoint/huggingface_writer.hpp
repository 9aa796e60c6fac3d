// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <ostrakon/base/dtype.hpp>
#include <ostrakon/checkpoint/huggingface_names.hpp>
#include <ostrakon/checkpoint/parameter_source.hpp>
#include <ostrakon/model/decoder.hpp>
#include <string>

namespace ostrakon::checkpoint {

/// How Hugging Face's files of a model are written. Names begin with "transformer." or "model.", as
/// those of models with a head do.
struct HuggingFaceOutput {
  Family family = Family::llama;
  std::int64_t positions = 1;                   ///< rows of the table of learned positions
  DType dtype = DType::fp32;                    ///< fp32 or bf16
  std::map<std::string, std::string> metadata;  ///< of each file, besides {"format": "pt"}
};

/// Writes a model as one safetensors file, in pieces: of GPT-2 one whole parameter at a time is in
/// memory.
void write_huggingface(const std::string& path, const model::DecoderSettings& settings,
                       const HuggingFaceOutput& output, ParameterSource& source);

/// Writes into a folder that is there: tensors in order fill files of at most `shard_bytes` bytes
/// of data, model-00001-of-0000N.safetensors; a larger tensor has one for itself. The index,
/// model.safetensors.index.json, is written last. Where one file takes all, it is model.safetensors
/// and there is no index. Returns the number of files of tensors.
int write_huggingface_shards(const std::string& folder, const model::DecoderSettings& settings,
                             std::int64_t shard_bytes, const HuggingFaceOutput& output,
                             ParameterSource& source);

}  // namespace ostrakon::checkpoint
