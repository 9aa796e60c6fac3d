// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/text/tokenizers/vocabulary.hpp>

#include <utility>

namespace ostrakon::texts {

bool Vocabulary::add(std::string token, std::int32_t id) {
  if (id < 0 || id >= most_ids || id_of(token) || this->token(id)) return false;
  storage_.push_back(std::move(token));
  const auto index = static_cast<std::size_t>(id);
  if (index >= tokens_.size()) tokens_.resize(index + 1);
  tokens_[index] = &storage_.back();
  ids_.emplace(storage_.back(), id);
  return true;
}

std::optional<std::int32_t> Vocabulary::id_of(std::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

std::optional<std::string_view> Vocabulary::token(std::int32_t id) const {
  const auto index = static_cast<std::size_t>(id);
  if (id < 0 || index >= tokens_.size() || tokens_[index] == nullptr) return std::nullopt;
  return *tokens_[index];
}

}  // namespace ostrakon::texts
