// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/preflight/check.hpp>
#include <ostrakon/preflight/faults.hpp>
#include <ostrakon/simulate/machine.hpp>

namespace ostrakon::preflight {

/// The fewest products of a dtype that are compared. With so many, a fault in one of 10^4 is missed
/// by one check in twenty.
constexpr std::int64_t least_products = 30000;

/// Checks matrix products of fp32 and bf16: each result must have the same bits, on this rank and
/// on others with the same kernel; the best of many short measurements is compared with other
/// ranks. `seconds`: for each dtype, at least; up to ten times as long until there are
/// least_products. `machine`: may be null; products of all ranks far below its rate are found, too.
Check products(double seconds, const Faults& faults, const simulate::Machine* machine);

/// Checks some training steps of a small model on each rank alone, in fp32 and bf16: its parameters
/// must have the same bits on all ranks that multiply by the same algorithms, and the fastest step
/// of those within `seconds` is compared.
Check steps(double seconds);

/// Compares the rate of copies in the memory of kernels.
Check memory(double seconds, const simulate::Machine* machine);

/// Compares the clocks of the cores that ranks run on, by a chain of operations that wait for each
/// other.
Check clock(double seconds);

}  // namespace ostrakon::preflight
