// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace ostrakon::plan {

/// A buffer in the plane of time and bytes: live from `first` to `last`, at `offset` once placed.
struct Rectangle {
  int first = 0;
  int last = 0;
  std::int64_t bytes = 0;
  std::int64_t offset = -1;

  std::int64_t end() const { return offset + bytes; }
};
using Rectangles = std::vector<Rectangle>;

/// Gives every rectangle an offset from `base` so that no two with overlapping lifetimes share
/// bytes. Returns the highest end, which is close to the minimum. Lifetimes are below `times`.
///
/// Each rectangle goes to the lowest offset that is free during its lifetime. The order is by size,
/// the largest first, and for equal sizes by begin, so that they leave no holes among themselves.
/// If the result is half a percent or more over the lower bound, rectangles above the bound are
/// placed first in a further try, a few times (with many rectangles only while it helps); then the
/// same is done with equal sizes ordered by their ends, backward. The best result is kept. Takes n
/// log n for n rectangles of a few sizes, as plans have them: equal ones are one run of bytes.
std::int64_t place(Rectangles& rectangles, int times, std::int64_t base);

}  // namespace ostrakon::plan
