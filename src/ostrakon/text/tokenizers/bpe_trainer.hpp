// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ostrakon::texts {

/// How often words occur. Its memory grows with the number and length of different words.
class WordCounts {
 public:
  WordCounts() = default;
  WordCounts(WordCounts&&) = default;
  WordCounts& operator=(WordCounts&&) = default;

  void add(std::string_view word, std::int64_t count = 1);
  void add(const WordCounts& others);

  std::size_t size() const { return counts_.size(); }
  struct Word {
    std::string_view text;
    std::int64_t count;
  };
  /// Returns all words, sorted by their bytes. The texts live as long as this.
  std::vector<Word> sorted() const;

 private:
  std::string_view kept(std::string_view word);

  std::unordered_map<std::string_view, std::int64_t> counts_;
  std::deque<std::string> blocks_;  ///< of the texts
};

struct BpeTraining {
  std::int64_t vocabulary = 0;         ///< tokens at most: special ones, 256 bytes, and merges
  std::vector<std::string> special;    ///< take the first ids
  std::int64_t least_occurrences = 1;  ///< of a pair that is merged
};

/// Throws Error where `vocabulary` has no room for special tokens and bytes, and for special tokens
/// that are empty, occur twice or are a character of the byte-level alphabet.
void require_trainable(const BpeTraining& training);

/// A byte-level BPE. Tokens that are not special are written in the byte-level alphabet.
struct TrainedBpe {
  std::vector<std::string> tokens;                            ///< by id
  std::vector<std::pair<std::int32_t, std::int32_t>> merges;  ///< ids of both parts, in order
};

/// Merges, again and again, the pair of tokens that occurs most often within the words (Sennrich et
/// al. 2016, section 3.2), of several the one whose first, then second id is least, until there are
/// enough tokens or no pair occurs often enough. Tokens and merges are those of the BpeTrainer of
/// the library `tokenizers` for the same words, special tokens and the alphabet of bytes. Throws
/// Error as require_trainable() does.
TrainedBpe train_bpe(const WordCounts& words, const BpeTraining& training);

}  // namespace ostrakon::texts
