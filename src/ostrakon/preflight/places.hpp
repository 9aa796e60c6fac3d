// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/preflight/check.hpp>
#include <string>
#include <vector>

// What is installed on the hosts, and what they see.

namespace ostrakon::preflight {

/// The build id of the program and of each library that this process has loaded, by name.
Facts loaded_code();

/// Checks that all ranks have the same program, libraries, processors, system, driver, variables of
/// MPI and NCCL, the same time of day, and see the same `files`: a deck and data.
Check versions(comm::Communicator& world, const std::vector<std::string>& files);

/// Checks that all ranks see what rank 0 writes in the folder of `path`, and that one rank of each
/// host can write there, reads the same bytes back and writes as fast as other hosts. `path` need
/// not exist: the nearest folder above it counts. `world` must outlive it.
Check folder(comm::Communicator& world, const std::string& path);

}  // namespace ostrakon::preflight
