// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ostrakon::train {

/// What each rank of a host takes of one memory, and what all of them can get there, in bytes.
struct MemoryNeed {
  std::string where;  ///< " in device memory", or nothing where there is but one
  std::int64_t planned = 0;
  std::int64_t process = 0;  ///< beside what is planned
  std::int64_t available = 0;
};

/// The arithmetic of the first of `needs` that is too large for so many ranks; empty where none is.
std::string what_does_not_fit(const std::vector<MemoryNeed>& needs, int ranks);

}  // namespace ostrakon::train
