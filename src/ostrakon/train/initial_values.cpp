// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/train/initial_values.hpp>

#include <algorithm>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/random.hpp>
#include <ostrakon/math/transfer.hpp>

namespace ostrakon::train {

void make_initial_values(const Exec& exec, const std::vector<ParameterSlice>& slices,
                         std::int64_t begin, std::int64_t count, std::uint64_t seed,
                         float* values) {
  math::fill(exec, values, count, 0.0f);
  for (const ParameterSlice& slice : slices) {
    const std::int64_t first = std::max(slice.offset, begin);
    const std::int64_t some = std::min(slice.offset + slice.count, begin + count) - first;
    if (some <= 0) continue;
    float* const at = values + (first - begin);
    switch (slice.parameter->initializer) {
      case model::Initializer::zeros:
        break;
      case model::Initializer::ones:
        math::fill(exec, at, some, 1.0f);
        break;
      case model::Initializer::normal:
        math::fill_normal(exec, at, some, math::random_key(seed, slice.parameter->full_name()),
                          slice.first + (first - slice.offset), slice.parameter->deviation);
        break;
    }
  }
}

void read_values(const Exec& exec, const std::vector<ParameterSlice>& slices, std::int64_t begin,
                 std::int64_t count, checkpoint::ParameterSource& weights, float* values) {
  constexpr std::int64_t most = std::int64_t{1} << 20;
  std::vector<float> read(static_cast<std::size_t>(std::min(count, most)));
  math::fill(exec, values, count, 0.0f);
  for (const ParameterSlice& slice : slices) {
    const model::Parameter& parameter = *slice.parameter;
    const std::int64_t end = std::min(slice.offset + slice.count, begin + count);
    for (std::int64_t first = std::max(slice.offset, begin); first < end; first += most) {
      const std::int64_t some = std::min(most, end - first);
      weights.read(parameter.owner, parameter.name, parameter.shape,
                   slice.first + (first - slice.offset), some, read.data());
      math::copy_to_device(exec, read.data(), values + (first - begin),
                           static_cast<std::size_t>(some));
    }
  }
}

}  // namespace ostrakon::train
