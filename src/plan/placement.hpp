// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace ostrakon::plan {

/// A buffer in the plane of time and bytes: alive from `first` to `last`, at `offset` once placed.
struct Rectangle {
  int first = 0;
  int last = 0;
  std::int64_t bytes = 0;
  std::int64_t offset = -1;

  std::int64_t end() const { return offset + bytes; }
};
using Rectangles = std::vector<Rectangle>;

/// Gives every rectangle an offset from `base` so that no two that are alive together overlap; the
/// highest end, which it returns, is close to the least that is possible. Times are below `times`.
/// `cuts`, ascending, divide time into segments much alike: the micro-batches of a step.
///
/// What lives through about a segment and more (sums over micro-batches) comes first, in a zone of
/// its own. Above it each segment is placed around what is still alive from the one before, and
/// like an earlier segment that looked the same. So time grows with the number of rectangles, with
/// the square of it only within a segment.
std::int64_t place(Rectangles& rectangles, int times, const std::vector<int>& cuts,
                   std::int64_t base);

}  // namespace ostrakon::plan
