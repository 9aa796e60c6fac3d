// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace ostrakon::train {

/// Where something started several processes, as its environment variables say, but MPI knows of
/// this one alone: what that means and how to start ranks, for people. Each process is a run of
/// 1 rank then, which is seldom meant. Empty elsewhere.
std::string why_alone();

}  // namespace ostrakon::train
