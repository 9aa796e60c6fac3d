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
/// bytes; the highest end, which it returns, is close to the least that is possible. Times are
/// below `times`.
///
/// Each goes to the lowest offset that is free during its lifetime: the largest first, and those of
/// one size, of which a plan has many, in the order in which they begin, so that they leave no
/// holes among themselves. Where that is half a percent or more over the bound, those that lie
/// above it go first, again and again, a few times, of many rectangles only while that helps; then
/// the same for the order of their ends, backward; and the best is kept. Takes n log n for n
/// rectangles of a few sizes, as plans have them: equal ones are one run of bytes.
std::int64_t place(Rectangles& rectangles, int times, std::int64_t base);

}  // namespace ostrakon::plan
