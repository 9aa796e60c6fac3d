// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace ostrakon::test {

/// How often operator new has been called in this program, on all threads.
std::int64_t allocations();

}  // namespace ostrakon::test
