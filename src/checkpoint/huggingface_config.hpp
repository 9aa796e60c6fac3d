// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <ostrakon/base/number.hpp>
#include <ostrakon/model/decoder.hpp>
#include <string>

namespace ostrakon::checkpoint {

/// What the config.json beside Hugging Face's tensors says of a model.
struct HuggingFaceConfig {
  model::DecoderSettings model;
  std::int64_t positions = 1;  ///< tokens that it looks back on, at most
};

/// Reads a config.json of GPT-2 or Llama. Throws Error, naming the file and the key, where it is
/// none, or of a model that Decoder does not compute: another activation, scaled rotary
/// frequencies, biases where ours has none. Keys that change nothing of what is computed are not
/// looked at. Sizes are as the file has them: whether they go together is not checked.
HuggingFaceConfig read_huggingface_config(const std::string& path);

/// The text of one. `number`: in which the tensors are. `end_of_text`: the token that begins and
/// ends documents, where it is known. Throws Error where the model is of neither family.
std::string write_huggingface_config(const HuggingFaceConfig& config, Number number,
                                     std::optional<std::int64_t> end_of_text);

}  // namespace ostrakon::checkpoint
