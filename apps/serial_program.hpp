// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

namespace ostrakon::apps {

/// Runs a program of one process without MPI and Kokkos. Returns its exit status: the result of
/// `body`, or 1 with one message if it throws or its output could not be written.
int run_serial_program(const std::string& name, const std::function<int()>& body);

}  // namespace ostrakon::apps
