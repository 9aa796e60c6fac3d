// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/trainer/state/initial_values.hpp>

#include <algorithm>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/random.hpp>
#include <ostrakon/math/transfer.hpp>

namespace ostrakon::train {

void make_initial_values(const Exec& exec, const std::vector<ParameterSlice>& slices,
                         std::int64_t begin, std::uint64_t seed, View<float*> values) {
  const std::int64_t count = values.size();
  math::fill(exec, values, 0.0f);
  for (const ParameterSlice& slice : slices) {
    const std::int64_t first = std::max(slice.offset, begin);
    const std::int64_t some = std::min(slice.offset + slice.count, begin + count) - first;
    if (some <= 0) continue;
    const View<float*> at = values.range(first - begin, first - begin + some);
    switch (slice.parameter->initializer) {
      case model::Initializer::zeros:
        break;
      case model::Initializer::ones:
        math::fill(exec, at, 1.0f);
        break;
      case model::Initializer::normal: {
        const std::uint64_t key = math::random_key(seed, slice.parameter->full_name());
        std::int64_t done = 0;
        slice.elements.range(first - slice.offset, some)
            .for_each([&](std::int64_t element, std::int64_t run) {
              math::fill_normal(exec, at.range(done, done + run), key, element,
                                slice.parameter->deviation);
              done += run;
            });
        break;
      }
    }
  }
}

void read_values(const Exec& exec, const std::vector<ParameterSlice>& slices, std::int64_t begin,
                 checkpoint::ParameterSource& weights, View<float*> values) {
  constexpr std::int64_t most = std::int64_t{1} << 20;
  const std::int64_t count = values.size();
  std::vector<float> read;
  math::fill(exec, values, 0.0f);
  for (const ParameterSlice& slice : slices) {
    const model::Parameter& parameter = *slice.parameter;
    const std::int64_t end = std::min(slice.offset + slice.count, begin + count);
    for (std::int64_t first = std::max(slice.offset, begin); first < end; first += most) {
      const std::int64_t some = std::min(most, end - first);
      read.resize(static_cast<std::size_t>(some));
      float* to = read.data();
      slice.elements.range(first - slice.offset, some)
          .for_each([&](std::int64_t element, std::int64_t run) {
            weights.read(parameter.owner, parameter.name, parameter.shape, element, run, to);
            to += run;
          });
      math::copy_to_device(exec, host_view(read),
                           values.range(first - begin, first - begin + some));
    }
  }
}

}  // namespace ostrakon::train
