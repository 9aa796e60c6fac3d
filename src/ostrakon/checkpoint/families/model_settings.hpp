// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <ostrakon/model/decoder.hpp>
#include <string>
#include <vector>

namespace ostrakon::checkpoint {

/// A key of a deck's section `model` that changes what is computed.
struct ModelKey {
  const char* name;
  nlohmann::json (*get)(const model::DecoderSettings& settings);
  bool in_float = false;  ///< numbers that are equal in fp32 are equal: they are used in fp32
};
const std::vector<ModelKey>& model_keys();

/// Returns settings that compute the same on sequences of `tokens` tokens, with one form for what
/// can be said in several: patterns of layers in the fewest words, biases one by one, scales that
/// are the default as such, and default values of what has no effect.
model::DecoderSettings canonical(model::DecoderSettings settings, std::int64_t tokens);

/// A key of a deck by which two models differ, and the values of both, as in a deck.
struct ModelDifference {
  std::string key;  ///< "rotary_base"
  std::string theirs, ours;
};
std::vector<ModelDifference> model_differences(const model::DecoderSettings& theirs,
                                               const model::DecoderSettings& ours,
                                               std::int64_t tokens);

/// Says biases by `bias` where they are alike, as short decks do.
void shorten_biases(model::DecoderSettings& settings);

}  // namespace ostrakon::checkpoint
