// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace ostrakon::texts {

/// Stands among TokenDocument::counts, with the first id of the second of two documents that belong
/// together: it does not count, as nothing of its document precedes it.
constexpr std::uint8_t begins_second = 2;

/// A document as training reads it, or a pair of documents, one behind the other.
struct TokenDocument {
  std::vector<std::int32_t> ids;
  /// For each id whether predicting it counts in the loss: 0 or 1, or begins_second. Empty: all
  /// count.
  std::vector<std::uint8_t> counts;
  std::int64_t text_bytes = 0;  ///< bytes of the text that the ids stand for
};

}  // namespace ostrakon::texts
