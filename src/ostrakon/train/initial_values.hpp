// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/checkpoint/parameter_source.hpp>
#include <ostrakon/math/portability.hpp>
#include <ostrakon/train/shard_layout.hpp>
#include <vector>

// Elements [begin, begin + count) of a part of a flat parameter that has `slices`, into `values`
// (count, device memory), with zeros in the gaps.

namespace ostrakon::train {

/// As the parameters' initializers say: a function of `seed`, the parameter's name and the element.
void make_initial_values(const Exec& exec, const std::vector<ParameterSlice>& slices,
                         std::int64_t begin, std::int64_t count, std::uint64_t seed, float* values);

/// As `weights` has them. Throws what it throws.
void read_values(const Exec& exec, const std::vector<ParameterSlice>& slices, std::int64_t begin,
                 std::int64_t count, checkpoint::ParameterSource& weights, float* values);

}  // namespace ostrakon::train
