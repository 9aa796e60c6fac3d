// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace ostrakon::train {

/// How the next token is chosen from a model's logits.
struct SamplingSettings {
  double temperature = 0.8;  ///< 0: always the likeliest token
  int top_k = 0;             ///< choose among this many likeliest tokens; 0: all
  double top_p = 1.0;        ///< in (0, 1]: choose among the nucleus of this probability; 1: all
  std::uint64_t seed = 1;
  std::uint64_t sample = 0;  ///< other numbers give other texts with the same seed
};

/// A possible next token. Its probability is its weight over the sum of all weights.
struct Candidate {
  std::int32_t token;
  double weight;
};

/// Returns the possible next tokens, likeliest first; of equally likely ones the smaller id is
/// first. Their weights are exp(logit / temperature), the largest being 1. `temperature` is applied
/// first, then `top_k`, then `top_p`: the nucleus is the fewest likeliest tokens whose
/// probabilities sum to top_p or more (Holtzman et al. 2020, The Curious Case of Neural Text
/// Degeneration). At temperature 0 it is the likeliest token alone. Throws Error where a logit is
/// not finite.
std::vector<Candidate> candidates(const std::vector<float>& logits,
                                  const SamplingSettings& sampling);

/// Draws one of candidates(logits, sampling): the one whose interval of [0, 1) contains `uniform`.
std::int32_t draw(const std::vector<float>& logits, const SamplingSettings& sampling,
                  double uniform);

}  // namespace ostrakon::train
