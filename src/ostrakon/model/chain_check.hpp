// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/model/chain_unit.hpp>
#include <vector>

// What can be wrong with the units of a chain. Throws Error that names the unit.

namespace ostrakon::model {

/// The largest sizes of a chain, in elements or bytes: far above any machine's memory, and far
/// enough below 2^63 for what is computed from them.
constexpr std::int64_t largest_chain = std::int64_t{1} << 50;

/// Their names, sizes, phases, parameters and whom they are tied to.
void check_chain(const std::vector<ChainUnitDescription>& units);

/// After the owners of parameters are set: no two of them, in any units, have one full name.
void require_different_parameters(const std::vector<ChainUnitDescription>& units);

}  // namespace ostrakon::model
