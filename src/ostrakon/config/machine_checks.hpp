// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/simulate/machine.hpp>
#include <string>
#include <vector>

namespace ostrakon::config {

/// Units of machine files, in SI units.
namespace machine_units {
constexpr double giga = 1e9, tera = 1e12, micro = 1e-6, percent = 1e-2;
constexpr double gigabit = giga / 8.0;  ///< in bytes
}  // namespace machine_units

/// Throws Error where a rate of the machine is above a limit that it states, too: what the maker
/// says of products, lines or memory. The message begins with `name`, and gives both keys.
void check_limits(const simulate::Machine& machine, const std::string& name);

/// Returns a line for each key of a machine that changes no time of a step: the key, its value, and
/// why.
std::vector<std::string> keys_without_effect(const simulate::Machine& machine);

/// Returns the keys, each with its value and why, by which steps with elements of `element_bytes`
/// may compute faster than at the peak of MFU.
std::vector<std::string> keys_above_peak(const simulate::Machine& machine,
                                         std::int64_t element_bytes);

}  // namespace ostrakon::config
