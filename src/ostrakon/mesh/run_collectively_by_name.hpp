// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <ostrakon/comm/communicator.hpp>

namespace ostrakon::mesh {

/// As Communicator::run_collectively, for work on files that hosts may see differently: the message
/// begins with the rank that failed and its host, "rank 1 on node07: ". A DamagedError gets no such
/// prefix, as it is about the file, whichever rank reads it.
void run_collectively_by_name(comm::Communicator& world, const std::function<void()>& work);

}  // namespace ostrakon::mesh
