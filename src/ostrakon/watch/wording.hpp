// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/watch/record.hpp>
#include <string>

namespace ostrakon::watch {

/// "31.2 s".
std::string shown_seconds(double seconds);

/// What a rank is in: "gather(block.0) of step 5", "MPI_Barrier, saving a checkpoint".
std::string place_of(const Record& record);

/// What a rank is doing: "reading data in load(micro-batch 1) of step 5 for 31.0 s".
std::string doing(const Record& record);

}  // namespace ostrakon::watch
