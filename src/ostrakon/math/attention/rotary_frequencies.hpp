// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/math/attention/rotary_settings.hpp>
#include <string>
#include <vector>

namespace ostrakon::math {

/// How the rotated elements of a head turn: the first 2 * pairs() of its elements, of which element
/// i pairs with element i + pairs(). Elements behind these are left as they are.
struct RotaryFrequencies {
  std::vector<double> radians;  ///< that each pair turns per position
  double factor = 1.0;          ///< of sines and cosines

  std::int64_t pairs() const { return static_cast<std::int64_t>(radians.size()); }
};

/// Elements of a head of this width that are rotated: share * head_width, rounded down.
std::int64_t rotated_elements(const RotarySettings& settings, std::int64_t head_width);

/// base^(-2 i / rotated elements) for pair i, scaled as the settings say, for sequences of `tokens`
/// tokens. linear: Chen et al. 2023, "Extending Context Window of Large Language Models via
/// Positional Interpolation"; llama3: as the code of Llama 3.1 has it; yarn: Peng et al. 2023,
/// sections 3.2 and 3.4; longrope: Ding et al. 2024, with the factors of short sequences for up to
/// original_length tokens. Throws Error for settings that require_possible refuses.
RotaryFrequencies make_rotary_frequencies(const RotarySettings& settings, std::int64_t head_width,
                                          std::int64_t tokens);

/// Throws Error for settings that contradict each other, or give no pairs in a head of this width.
/// Messages begin with `where` and name fields behind `prefix`, as "rotary.share" or
/// "model.rotary_share".
void require_possible(const RotarySettings& settings, std::int64_t head_width,
                      const std::string& where, const std::string& prefix);

}  // namespace ostrakon::math
