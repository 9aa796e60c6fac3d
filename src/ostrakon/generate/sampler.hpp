// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace ostrakon::train {

/// How the next token is chosen from a model's logits: by the repetition penalty, the temperature,
/// top-k, top-p and min-p, in this order.
struct SamplingSettings {
  double temperature = 0.8;  ///< 0: always the likeliest token
  int top_k = 0;             ///< choose among this many likeliest tokens; 0: all
  double top_p = 1.0;        ///< in (0, 1]: choose among the nucleus of this probability; 1: all
  /// In [0, 1]: choose among tokens that are at least this times as likely as the likeliest one
  /// (Nguyen et al. 2024, Turning Up the Heat); 0: all.
  double min_p = 0.0;
  /// Above 0: what logits of tokens that the text has are divided by, or multiplied by where they
  /// are negative (Keskar et al. 2019, CTRL, section 4.1); 1: they stay.
  double repetition_penalty = 1.0;
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
/// first, then `top_k`, then `top_p`, then `min_p`: the nucleus is the fewest likeliest tokens
/// whose probabilities sum to top_p or more (Holtzman et al. 2020, The Curious Case of Neural Text
/// Degeneration). The repetition penalty has no part in it. At temperature 0 it is the likeliest
/// token alone. Throws Error where a logit is not finite.
std::vector<Candidate> candidates(const std::vector<float>& logits,
                                  const SamplingSettings& sampling);

/// Returns logits with the repetition penalty for the tokens in `seen`, however often they are
/// there.
std::vector<float> penalized(const std::vector<float>& logits, double penalty,
                             const std::vector<std::int32_t>& seen);

/// Draws one of candidates(logits, sampling): the one whose interval of [0, 1) contains `uniform`.
std::int32_t draw(const std::vector<float>& logits, const SamplingSettings& sampling,
                  double uniform);

}  // namespace ostrakon::train
