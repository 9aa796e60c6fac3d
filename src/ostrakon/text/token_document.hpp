// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace ostrakon::texts {

/// A document as training reads it.
struct TokenDocument {
  std::vector<std::int32_t> ids;
  /// For each id whether predicting it counts in the loss: 0 or 1. Empty: all count.
  std::vector<std::uint8_t> counts;
  std::int64_t text_bytes = 0;  ///< bytes of the text that the ids stand for
};

}  // namespace ostrakon::texts
