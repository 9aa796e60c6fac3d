// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace ostrakon::train {

/// If environment variables show that several processes were started, but MPI knows only this one:
/// returns what that means and how to start ranks. Each process is a run of 1 rank then, which is
/// seldom intended. Returns "" otherwise.
std::string why_alone();

}  // namespace ostrakon::train
