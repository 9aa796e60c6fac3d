// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/text/tokenizers/bpe_trainer.hpp>

#include <algorithm>
#include <array>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/text/tokenizers/byte_alphabet.hpp>

namespace ostrakon::texts {

std::string_view WordCounts::kept(std::string_view word) {
  constexpr std::size_t block_bytes = 1 << 16;
  if (blocks_.empty() || blocks_.back().capacity() - blocks_.back().size() < word.size()) {
    blocks_.emplace_back();
    blocks_.back().reserve(std::max(block_bytes, word.size()));
  }
  std::string& block = blocks_.back();
  block += word;
  return std::string_view(block).substr(block.size() - word.size());
}

void WordCounts::add(std::string_view word, std::int64_t count) {
  const auto found = counts_.find(word);
  if (found != counts_.end())
    found->second += count;
  else
    counts_.emplace(kept(word), count);
}

void WordCounts::add(const WordCounts& others) {
  for (const auto& [word, count] : others.counts_) add(word, count);
}

std::vector<WordCounts::Word> WordCounts::sorted() const {
  std::vector<Word> words;
  words.reserve(counts_.size());
  for (const auto& [word, count] : counts_) words.push_back({word, count});
  std::sort(words.begin(), words.end(), [](auto& a, auto& b) { return a.text < b.text; });
  return words;
}

namespace {

using Pair = std::pair<std::int32_t, std::int32_t>;

/// Tokens by their texts.
class TokenList {
 public:
  /// Returns the id of a token, which is added if it is new.
  std::int32_t id_of(const std::string& token) {
    const auto [place, is_new] = ids_.emplace(token, static_cast<std::int32_t>(tokens_.size()));
    if (is_new) tokens_.push_back(token);
    return place->second;
  }
  const std::string& operator[](std::int32_t id) const {
    return tokens_[static_cast<std::size_t>(id)];
  }
  bool has(const std::string& token) const { return ids_.count(token) > 0; }
  std::int64_t size() const { return static_cast<std::int64_t>(tokens_.size()); }
  std::vector<std::string> take() { return std::move(tokens_); }

 private:
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, std::int32_t> ids_;
};

/// All words as sequences of tokens, in one array.
class Words {
 public:
  Words(const std::vector<WordCounts::Word>& words, const std::array<std::int32_t, 256>& ids) {
    std::size_t bytes = 0;
    for (const WordCounts::Word& word : words) bytes += word.text.size();
    tokens_.reserve(bytes);
    words_.reserve(words.size());
    for (const WordCounts::Word& word : words) {
      words_.push_back({tokens_.size(), word.text.size(), word.count});
      for (const char byte : word.text) tokens_.push_back(ids[static_cast<unsigned char>(byte)]);
    }
  }

  std::uint32_t size() const { return static_cast<std::uint32_t>(words_.size()); }
  std::int64_t count(std::uint32_t word) const { return words_[word].count; }

  template <class Use>
  void for_pairs(std::uint32_t word, const Use& use) const {
    const std::int32_t* const tokens = tokens_.data() + words_[word].begin;
    for (std::size_t i = 1; i < words_[word].size; ++i) use(Pair{tokens[i - 1], tokens[i]});
  }

  /// Merges a pair from left to right. `use(pair, change)` gets the pairs that this ends (-1) and
  /// begins (1); the merged pair itself is not among them.
  template <class Use>
  void merge(std::uint32_t word, const Pair& pair, std::int32_t merged, const Use& use) {
    Word& at = words_[word];
    std::int32_t* const tokens = tokens_.data() + at.begin;
    std::size_t to = 0;
    for (std::size_t from = 0; from < at.size; ++to) {
      const bool is_pair =
          from + 1 < at.size && tokens[from] == pair.first && tokens[from + 1] == pair.second;
      if (!is_pair) {
        tokens[to] = tokens[from++];
        continue;
      }
      if (to > 0) {
        use(Pair{tokens[to - 1], pair.first}, -1);
        use(Pair{tokens[to - 1], merged}, 1);
      }
      from += 2;
      if (from < at.size) {
        use(Pair{pair.second, tokens[from]}, -1);
        use(Pair{merged, tokens[from]}, 1);
      }
      tokens[to] = merged;
    }
    at.size = to;
  }

 private:
  struct Word {
    std::size_t begin, size;
    std::int64_t count;
  };
  std::vector<Word> words_;
  std::vector<std::int32_t> tokens_;
};

/// Counts pairs, and hands out those that occur most often. A pair that comes up again at other
/// places waits a second time, for these places alone.
class PairQueue {
 public:
  struct Entry {
    std::int64_t count = 0;
    Pair pair;
    std::uint64_t number = 0;
    std::vector<std::uint32_t> words;  ///< in which the pair is

    /// Whether it comes after another one.
    bool operator<(const Entry& other) const {
      if (count != other.count) return count < other.count;
      if (pair != other.pair) return pair > other.pair;
      return number > other.number;
    }
  };

  void count(const Pair& pair, std::int64_t change, std::uint32_t word) {
    PairState& state = states_[key(pair)];
    state.count += change;
    if (change < 0) return;
    if (state.words.empty()) changed_.push_back(pair);
    if (state.words.empty() || state.words.back() != word) state.words.push_back(word);
  }

  /// What was counted since the last call begins to wait.
  void enqueue_changed() {
    for (const Pair& pair : changed_) {
      PairState& state = states_[key(pair)];
      if (state.count > 0) push({state.count, pair, next_number_++, std::move(state.words)});
      state.words = {};
    }
    changed_.clear();
  }

  /// Takes the first entry whose count is up to date; its count is 0 where none is left.
  Entry take() {
    while (!entries_.empty()) {
      std::pop_heap(entries_.begin(), entries_.end());
      Entry entry = std::move(entries_.back());
      entries_.pop_back();
      const std::int64_t now = states_[key(entry.pair)].count;
      if (entry.count == now) return entry;
      entry.count = now;
      push(std::move(entry));
    }
    return {};
  }

 private:
  struct PairState {
    std::int64_t count = 0;
    std::vector<std::uint32_t> words;  ///< that do not wait yet
  };
  static std::uint64_t key(const Pair& pair) {
    return static_cast<std::uint64_t>(pair.first) << 32 | static_cast<std::uint64_t>(pair.second);
  }
  void push(Entry entry) {
    entries_.push_back(std::move(entry));
    std::push_heap(entries_.begin(), entries_.end());
  }

  std::unordered_map<std::uint64_t, PairState> states_;
  std::vector<Pair> changed_;
  std::vector<Entry> entries_;  ///< a heap
  std::uint64_t next_number_ = 0;
};

/// Adds the bytes, sorted by the code points of their characters. Returns their ids.
std::array<std::int32_t, 256> add_alphabet(TokenList& tokens) {
  std::array<std::uint8_t, 256> bytes;
  for (std::size_t i = 0; i < 256; ++i) bytes[i] = static_cast<std::uint8_t>(i);
  // UTF-8 sorts as code points do.
  std::sort(bytes.begin(), bytes.end(),
            [](auto a, auto b) { return character_of(a) < character_of(b); });
  std::array<std::int32_t, 256> ids;
  for (const std::uint8_t byte : bytes) ids[byte] = tokens.id_of(std::string(character_of(byte)));
  return ids;
}

void add_special(const BpeTraining& training, TokenList& tokens) {
  for (const std::string& token : training.special) {
    require(!token.empty(), "a special token is empty; expected text");
    require(!tokens.has(token), "the special token ", shown(token), " is there twice");
    tokens.id_of(token);
  }
  for (int byte = 0; byte < 256; ++byte) {
    const std::string character(character_of(static_cast<std::uint8_t>(byte)));
    require(!tokens.has(character), "the special token ", shown(character),
            " is the token of a byte; expected more than one character");
  }
  const std::int64_t least = tokens.size() + 256;
  require(training.vocabulary >= least, "a vocabulary of ", training.vocabulary,
          " tokens; expected at least ", least, ": 256 bytes and ", tokens.size(),
          tokens.size() == 1 ? " special token" : " special tokens");
}

}  // namespace

void require_trainable(const BpeTraining& training) {
  TokenList tokens;
  add_special(training, tokens);
}

TrainedBpe train_bpe(const WordCounts& counts, const BpeTraining& training) {
  TokenList tokens;
  add_special(training, tokens);
  const std::array<std::int32_t, 256> alphabet = add_alphabet(tokens);

  Words words(counts.sorted(), alphabet);
  PairQueue queue;
  for (std::uint32_t word = 0; word < words.size(); ++word)
    words.for_pairs(word, [&](const Pair& pair) { queue.count(pair, words.count(word), word); });
  queue.enqueue_changed();

  TrainedBpe trained;
  while (tokens.size() < training.vocabulary) {
    const PairQueue::Entry entry = queue.take();
    if (entry.count < std::max<std::int64_t>(1, training.least_occurrences)) break;
    const Pair& pair = entry.pair;
    const std::int32_t merged = tokens.id_of(tokens[pair.first] + tokens[pair.second]);
    trained.merges.push_back(pair);
    for (const std::uint32_t word : entry.words)
      words.merge(word, pair, merged, [&](const Pair& changed, int change) {
        queue.count(changed, change * words.count(word), word);
      });
    queue.enqueue_changed();
  }
  trained.tokens = tokens.take();
  return trained;
}

}  // namespace ostrakon::texts
