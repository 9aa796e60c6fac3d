// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/base/names.hpp>
#include <vector>

namespace ostrakon::math {

/// How the frequencies of rotary positions are scaled for sequences longer than those that a model
/// was trained on first.
enum class RotaryScaling {
  none,
  linear,   ///< all divided by `factor`
  llama3,   ///< low ones divided by `factor`, high ones as they are, those between interpolated
  yarn,     ///< Peng et al. 2023, "YaRN", section 3.2
  longrope  ///< each pair's divided by a factor of its own
};
constexpr Named<RotaryScaling> rotary_scaling_names[] = {{RotaryScaling::none, "none"},
                                                         {RotaryScaling::linear, "linear"},
                                                         {RotaryScaling::llama3, "llama3"},
                                                         {RotaryScaling::yarn, "yarn"},
                                                         {RotaryScaling::longrope, "longrope"}};
constexpr const char* name(RotaryScaling scaling) { return name_in(rotary_scaling_names, scaling); }

/// Rotary positions of heads. Fields that `scaling` does not use have no effect.
struct RotarySettings {
  double base = 10000.0;
  double share = 1.0;  ///< of a head's width, from its first element on, that is rotated
  RotaryScaling scaling = RotaryScaling::none;
  double factor = 1.0;
  std::int64_t original_length = 0;  ///< tokens of the sequences of the first training
  double low_factor = 1.0;           ///< llama3: wavelengths above original_length / low_factor
  double high_factor = 4.0;          ///< llama3: wavelengths below original_length / high_factor
  double beta_fast = 32.0;           ///< yarn: rotations in original_length, from which on none
  double beta_slow = 1.0;            ///< yarn: up to which all of the factor is applied
  bool truncate = true;              ///< yarn: bounds between these are rounded to whole pairs
  /// yarn, longrope: factor of sines and cosines; 0: by the formula of their papers.
  double attention_factor = 0.0;
  /// longrope: a factor of each pair, for sequences up to original_length and for longer ones.
  std::vector<double> short_factors = {}, long_factors = {};
};

}  // namespace ostrakon::math
