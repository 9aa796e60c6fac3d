// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/text/tokenizers/word_cache.hpp>

#include <xxhash.h>

#include <cstring>

namespace ostrakon::texts {
namespace {

constexpr std::size_t entry_count = 1 << 17;
constexpr std::size_t most_words = entry_count / 2;
constexpr std::size_t longest_word = 256;  // bytes; longer ones rarely come again

}  // namespace

WordCache::WordCache() : entries_(entry_count) {}

void WordCache::clear() {
  entries_.assign(entry_count, Entry());
  texts_.clear();
  ids_.clear();
  words_ = 0;
}

bool WordCache::find(std::string_view word, std::vector<std::int32_t>& ids) {
  if (word.size() > longest_word) return false;
  hash_ = XXH3_64bits(word.data(), word.size());
  for (place_ = hash_ % entry_count;; place_ = (place_ + 1) % entry_count) {
    const Entry& entry = entries_[place_];
    if (entry.bytes == 0) return false;
    const bool is_it = entry.hash == hash_ && entry.bytes == word.size() &&
                       std::memcmp(texts_.data() + entry.text, word.data(), word.size()) == 0;
    if (!is_it) continue;
    const std::int32_t* const begin = ids_.data() + entry.ids;
    ids.insert(ids.end(), begin, begin + entry.count);
    return true;
  }
}

void WordCache::add(std::string_view word, const std::int32_t* begin, const std::int32_t* end) {
  if (word.empty() || word.size() > longest_word) return;
  if (words_ == most_words) {
    clear();
    place_ = hash_ % entry_count;
  }
  entries_[place_] = {
      hash_, static_cast<std::uint32_t>(texts_.size()), static_cast<std::uint32_t>(ids_.size()),
      static_cast<std::uint16_t>(word.size()), static_cast<std::uint16_t>(end - begin)};
  texts_ += word;
  ids_.insert(ids_.end(), begin, end);
  ++words_;
}

}  // namespace ostrakon::texts
