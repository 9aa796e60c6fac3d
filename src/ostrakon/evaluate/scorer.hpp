// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/evaluate/sequences.hpp>
#include <ostrakon/trainer/trainer.hpp>
#include <vector>

namespace ostrakon::evaluate {

/// What a model says of the tokens of a sequence that are predicted and count.
struct Score {
  double log_probability = 0.0;  ///< the sum of the tokens' natural log-probabilities
  std::int64_t tokens = 0;       ///< how many there are
  bool is_greedy = true;         ///< whether no other token is likelier than any of them

  /// Nats per token; 0 without tokens.
  double loss() const { return tokens > 0 ? -log_probability / static_cast<double>(tokens) : 0.0; }
};

/// How sequences are cut into samples: see windows().
struct WindowSettings {
  std::int64_t context = 1;  ///< tokens that the trainer's model reads at once
  std::int64_t stride = 1;
};

/// Returns the score of each sequence, the same on all ranks, with state and settings of `trainer`,
/// which make_evaluating_trainer() has made. Losses of tokens, as float, are summed exactly, and
/// the sum is rounded to double once: no bit depends on the ranks if none of a loss does.
/// Collective, with equal sequences on all ranks; throws CollectiveError where a rank can't read a
/// sequence, and where a loss is not finite.
std::vector<Score> score(train::Trainer& trainer, const Sequences& sequences,
                         const WindowSettings& cut);

}  // namespace ostrakon::evaluate
