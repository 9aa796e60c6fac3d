// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ostrakon::texts {

/// Remembers the ids of words. When it is full it forgets all of them: texts change.
class WordCache {
 public:
  WordCache();

  /// Appends the ids of a word that is known; returns whether it is.
  bool find(std::string_view word, std::vector<std::int32_t>& ids);

  /// Remembers the ids [begin, end) of the word that find() was asked for last, and did not know.
  void add(std::string_view word, const std::int32_t* begin, const std::int32_t* end);

 private:
  struct Entry {
    std::uint64_t hash = 0;
    std::uint32_t text = 0, ids = 0;     ///< where they begin
    std::uint16_t bytes = 0, count = 0;  ///< no bytes: no word
  };
  void clear();

  std::vector<Entry> entries_;  ///< open addressing, at most half full
  std::size_t place_ = 0, words_ = 0;
  std::uint64_t hash_ = 0;
  std::string texts_;
  std::vector<std::int32_t> ids_;
};

}  // namespace ostrakon::texts
