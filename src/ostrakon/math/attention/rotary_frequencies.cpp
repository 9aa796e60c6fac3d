// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/attention/rotary_frequencies.hpp>

#include <algorithm>
#include <cmath>
#include <ostrakon/base/error.hpp>

namespace ostrakon::math {
namespace {

constexpr double turn = 6.283185307179586;

/// Divides low frequencies by the factor, and some of those between low and high ones by less.
void scale_as_llama3(const RotarySettings& s, std::vector<double>& radians) {
  const auto length = static_cast<double>(s.original_length);
  for (double& frequency : radians) {
    const double wavelength = turn / frequency;
    if (wavelength < length / s.high_factor) continue;
    const double low = frequency / s.factor;
    const double part = (length / wavelength - s.low_factor) / (s.high_factor - s.low_factor);
    frequency = wavelength > length / s.low_factor ? low : (1.0 - part) * low + part * frequency;
  }
}

/// Divides by the factor what turns less than beta_slow times in the original length, nothing of
/// what turns more than beta_fast times, and between these pairs a part that grows evenly.
void scale_as_yarn(const RotarySettings& s, std::vector<double>& radians) {
  const auto rotated = 2.0 * static_cast<double>(radians.size());
  const auto pair_that_turns = [&](double times) {
    return rotated * std::log(static_cast<double>(s.original_length) / (times * turn)) /
           (2.0 * std::log(s.base));
  };
  double first = pair_that_turns(s.beta_fast), last = pair_that_turns(s.beta_slow);
  if (s.truncate) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(first, 0.0);
  last = std::min(last, rotated - 1.0);
  if (first == last) last += 0.001;  // a step
  for (std::size_t i = 0; i < radians.size(); ++i) {
    const double part = std::clamp((static_cast<double>(i) - first) / (last - first), 0.0, 1.0);
    radians[i] = radians[i] / s.factor * part + radians[i] * (1.0 - part);
  }
}

/// The factor of sines and cosines by the formula of YaRN, or of LongRoPE.
double factor_by_formula(const RotarySettings& s) {
  if (s.factor <= 1.0) return 1.0;
  if (s.scaling == RotaryScaling::yarn) return 0.1 * std::log(s.factor) + 1.0;
  return std::sqrt(1.0 + std::log(s.factor) / std::log(static_cast<double>(s.original_length)));
}

bool is_positive(double value) { return value > 0.0 && std::isfinite(value); }

}  // namespace

std::int64_t rotated_elements(const RotarySettings& settings, std::int64_t head_width) {
  return static_cast<std::int64_t>(settings.share * static_cast<double>(head_width));
}

RotaryFrequencies make_rotary_frequencies(const RotarySettings& settings, std::int64_t head_width,
                                          std::int64_t tokens) {
  require_possible(settings, head_width, "rotary frequencies: ", "");
  const std::int64_t rotated = rotated_elements(settings, head_width);
  RotaryFrequencies made;
  for (std::int64_t i = 0; i < rotated / 2; ++i)
    made.radians.push_back(
        std::pow(settings.base, -2.0 * static_cast<double>(i) / static_cast<double>(rotated)));
  switch (settings.scaling) {
    case RotaryScaling::none:
      return made;
    case RotaryScaling::linear:
      for (double& frequency : made.radians) frequency /= settings.factor;
      return made;
    case RotaryScaling::llama3:
      scale_as_llama3(settings, made.radians);
      return made;
    case RotaryScaling::yarn:
      scale_as_yarn(settings, made.radians);
      break;
    case RotaryScaling::longrope: {
      const std::vector<double>& factors =
          tokens > settings.original_length ? settings.long_factors : settings.short_factors;
      for (std::size_t i = 0; i < factors.size(); ++i) made.radians[i] /= factors[i];
      break;
    }
  }
  made.factor =
      settings.attention_factor > 0.0 ? settings.attention_factor : factor_by_formula(settings);
  return made;
}

void require_possible(const RotarySettings& s, std::int64_t head_width, const std::string& where,
                      const std::string& prefix) {
  const auto require_that = [&](bool holds, const char* field, const auto& value,
                                const auto&... expected) {
    require(holds, where, prefix, field, " = ", value, expected...);
  };
  require_that(s.base >= 1.0 && std::isfinite(s.base), "base", s.base, "; expected at least 1");
  require_that(s.share > 0.0 && s.share <= 1.0, "share", s.share,
               "; expected more than 0 and at most 1");
  const std::int64_t rotated = rotated_elements(s, head_width), pairs = rotated / 2;
  require_that(rotated >= 2 && rotated % 2 == 0, "share", s.share, " of heads of width ",
               head_width, " rotates ", rotated,
               " elements; expected an even number of at least 2, as positions turn pairs");
  if (s.scaling == RotaryScaling::none) return;
  const std::string with = text(" with ", prefix, "scaling = ", name(s.scaling), "; expected ");
  require_that(is_positive(s.factor), "factor", s.factor, with, "a number above 0");
  if (s.scaling == RotaryScaling::linear) return;
  const bool is_longrope = s.scaling == RotaryScaling::longrope;
  const std::int64_t least = is_longrope ? 2 : 1;
  require_that(s.original_length >= least, "original_length", s.original_length, with, least,
               " or more tokens, those of the sequences that the model was trained on first");
  if (s.scaling == RotaryScaling::llama3) {
    require_that(is_positive(s.low_factor), "low_factor", s.low_factor, with, "a number above 0");
    require_that(s.high_factor > s.low_factor && std::isfinite(s.high_factor), "high_factor",
                 s.high_factor, with, "more than ", prefix, "low_factor = ", s.low_factor);
    return;
  }
  require_that(s.attention_factor >= 0.0 && std::isfinite(s.attention_factor), "attention_factor",
               s.attention_factor, with, "a number above 0, or none of its own");
  if (s.scaling == RotaryScaling::yarn) {
    require_that(s.base > 1.0, "base", s.base, with, "more than 1");
    require_that(is_positive(s.beta_slow), "beta_slow", s.beta_slow, with, "a number above 0");
    require_that(s.beta_fast >= s.beta_slow && std::isfinite(s.beta_fast), "beta_fast", s.beta_fast,
                 with, "at least ", prefix, "beta_slow = ", s.beta_slow);
    return;
  }
  const auto require_factors = [&](const char* field, const std::vector<double>& factors) {
    const auto count = static_cast<std::int64_t>(factors.size());
    require(count == pairs, where, prefix, field, " has ", count, " numbers", with, pairs,
            ", one for each pair of the ", rotated, " elements of a head that are rotated");
    for (double factor : factors)
      require(is_positive(factor), where, prefix, field, " has ", factor, with, "numbers above 0");
  };
  require_factors("short_factors", s.short_factors);
  require_factors("long_factors", s.long_factors);
}

}  // namespace ostrakon::math
