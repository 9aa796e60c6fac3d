// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/checkpoint/parameter_source.hpp>
#include <ostrakon/math/view.hpp>
#include <ostrakon/trainer/state/shard_layout.hpp>
#include <vector>

// The functions of this file fill `values`, elements from `begin` on of a part of a flat parameter
// with `slices`. Gaps are filled with zeros.

namespace ostrakon::train {

/// Computes initial values by the parameters' initializers: a function of `seed`, the parameter's
/// name and the element.
void make_initial_values(const Exec& exec, const std::vector<ParameterSlice>& slices,
                         std::int64_t begin, std::uint64_t seed, View<float*> values);

/// Reads values from `weights`. Throws whatever `weights` throws.
void read_values(const Exec& exec, const std::vector<ParameterSlice>& slices, std::int64_t begin,
                 checkpoint::ParameterSource& weights, View<float*> values);

}  // namespace ostrakon::train
