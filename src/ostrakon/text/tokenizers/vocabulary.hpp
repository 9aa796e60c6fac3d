// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ostrakon::texts {

/// Tokens by their id, and the reverse. Ids may have gaps.
class Vocabulary {
 public:
  /// The largest number of ids, so that a wrong id in a file does not take all memory.
  static constexpr std::int32_t most_ids = 1 << 24;

  Vocabulary() = default;
  Vocabulary(const Vocabulary&) = delete;  // views into it stay where they are
  Vocabulary& operator=(const Vocabulary&) = delete;

  /// Returns false, and adds nothing, if the id is not less than most_ids, or token or id are
  /// already there.
  bool add(std::string token, std::int32_t id);

  /// Every id is less than this.
  std::int64_t end() const { return static_cast<std::int64_t>(tokens_.size()); }
  std::int64_t count() const { return static_cast<std::int64_t>(ids_.size()); }
  std::optional<std::int32_t> id_of(std::string_view token) const;
  std::optional<std::string_view> token(std::int32_t id) const;

 private:
  std::deque<std::string> storage_;
  std::vector<const std::string*> tokens_;  ///< by id
  std::unordered_map<std::string_view, std::int32_t> ids_;
};

}  // namespace ostrakon::texts
