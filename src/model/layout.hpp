// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <ostrakon/model/unit.hpp>

namespace ostrakon::model {

constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// Lays arrays end to end in one buffer, each at a multiple of parameter_alignment elements.
class Layout {
 public:
  /// The offset of the next array, of `count` elements.
  std::int64_t place(std::int64_t count) {
    const std::int64_t offset = round_up(end_, parameter_alignment);
    end_ = offset + count;
    elements_ = std::max(elements_, end_);
    return offset;
  }

  /// The next array begins at 0 again: all that were placed so far are dead by then.
  void start_over() { end_ = 0; }

  /// The size of a buffer that holds everything placed.
  std::int64_t elements() const { return elements_; }

 private:
  std::int64_t end_ = 0;
  std::int64_t elements_ = 0;
};

}  // namespace ostrakon::model
