// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace ostrakon::texts {

/// The merges of a byte-pair encoding: which pairs of ids become one, and which of them first.
class BpeMerges {
 public:
  struct Merge {
    std::uint32_t rank;  ///< the lowest comes first
    std::int32_t id;     ///< of the token that both become
  };
  static constexpr std::uint32_t no_rank = 0xffffffff;

  /// `count`: how many will be added, at most.
  explicit BpeMerges(std::size_t count);

  /// Adds a merge, or replaces that of the same pair.
  void add(std::int32_t left, std::int32_t right, Merge merge);

  /// Returns the merge of a pair; one of rank no_rank if there is none.
  Merge find(std::int32_t left, std::int32_t right) const {
    const std::uint64_t pair = pair_of(left, right);
    for (std::size_t at = place(pair);; at = (at + 1) & mask_) {
      const Entry& entry = entries_[at];
      if (entry.pair == pair) return entry.merge;
      if (entry.pair == no_pair) return {no_rank, 0};
    }
  }

 private:
  static constexpr std::uint64_t no_pair = ~std::uint64_t{0};
  struct Entry {
    std::uint64_t pair = no_pair;
    Merge merge{no_rank, 0};
  };
  static std::uint64_t pair_of(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint32_t>(right);
  }
  std::size_t place(std::uint64_t pair) const {
    return static_cast<std::size_t>(pair * 0x9e3779b97f4a7c15 >> shift_);
  }

  int shift_;
  std::size_t mask_;
  std::vector<Entry> entries_;  ///< open addressing, at most half full
};

/// Merges `ids` in place, as long as there is a merge: always that of the lowest rank, and of
/// several such the leftmost. Used by one thread; takes time n log n.
class BpeMerger {
 public:
  explicit BpeMerger(const BpeMerges& merges) : merges_(&merges) {}
  void merge(std::vector<std::int32_t>& ids);

 private:
  void merge_short(std::vector<std::int32_t>& ids);
  void merge_long(std::vector<std::int32_t>& ids);
  void push(std::vector<std::int32_t>& ids, std::uint32_t left);

  const BpeMerges* merges_;
  std::vector<BpeMerges::Merge> pairs_;
  std::vector<std::uint32_t> next_, previous_;
  std::vector<std::uint64_t> heap_;  ///< rank and place of a pair: the lowest on top
};

}  // namespace ostrakon::texts
