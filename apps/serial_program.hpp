// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

namespace ostrakon::apps {

/// Runs a program that is one process and needs neither MPI nor Kokkos. Returns its exit status:
/// what `body` returns, or 1 with one message where that throws or its output could not be written.
int run_serial_program(const std::string& name, const std::function<int()>& body);

}  // namespace ostrakon::apps
