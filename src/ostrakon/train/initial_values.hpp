// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/checkpoint/parameter_source.hpp>
#include <ostrakon/math/view.hpp>
#include <ostrakon/train/shard_layout.hpp>
#include <vector>

// These fill `values` with as many elements as it has, from `begin` on, of a part of a flat
// parameter that has `slices`, with zeros in the gaps.

namespace ostrakon::train {

/// Makes what the parameters' initializers say: a function of `seed`, the parameter's name and the
/// element.
void make_initial_values(const Exec& exec, const std::vector<ParameterSlice>& slices,
                         std::int64_t begin, std::uint64_t seed, View<float*> values);

/// Reads them from `weights`. Throws what that throws.
void read_values(const Exec& exec, const std::vector<ParameterSlice>& slices, std::int64_t begin,
                 checkpoint::ParameterSource& weights, View<float*> values);

}  // namespace ostrakon::train
