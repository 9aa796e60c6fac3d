// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// A program that links allocations.cpp has its own operator new.

namespace ostrakon::test {

/// Returns the number of calls of operator new in this program, on all threads.
std::int64_t allocations();

/// During its lifetime, operator new throws std::bad_alloc on this thread after `left` more calls.
/// The nothrow form is not limited.
class LimitedAllocations {
 public:
  explicit LimitedAllocations(int left);
  ~LimitedAllocations();
  LimitedAllocations(const LimitedAllocations&) = delete;
  LimitedAllocations& operator=(const LimitedAllocations&) = delete;
};

}  // namespace ostrakon::test
