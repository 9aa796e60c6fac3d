// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/text/tokenizers/bpe_merges.hpp>

#include <algorithm>
#include <functional>

namespace ostrakon::texts {

BpeMerges::BpeMerges(std::size_t count) : shift_(60), mask_(15) {
  while (mask_ < 2 * count) {
    mask_ = 2 * mask_ + 1;
    --shift_;
  }
  entries_.resize(mask_ + 1);
}

void BpeMerges::add(std::int32_t left, std::int32_t right, Merge merge) {
  const std::uint64_t pair = pair_of(left, right);
  std::size_t at = place(pair);
  while (entries_[at].pair != pair && entries_[at].pair != no_pair) at = (at + 1) & mask_;
  entries_[at] = {pair, merge};
}

void BpeMerger::merge(std::vector<std::int32_t>& ids) {
  constexpr std::size_t longest_short = 48;
  if (ids.size() < 2) return;
  if (ids.size() <= longest_short) {
    merge_short(ids);
  } else {
    merge_long(ids);
  }
}

void BpeMerger::merge_short(std::vector<std::int32_t>& ids) {
  pairs_.clear();
  for (std::size_t i = 0; i + 1 < ids.size(); ++i)
    pairs_.push_back(merges_->find(ids[i], ids[i + 1]));
  while (!pairs_.empty()) {
    const auto best = std::min_element(
        pairs_.begin(), pairs_.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
    if (best->rank == BpeMerges::no_rank) break;
    const std::ptrdiff_t at = best - pairs_.begin();
    ids[at] = best->id;
    ids.erase(ids.begin() + at + 1);
    pairs_.erase(best);
    if (at > 0) pairs_[at - 1] = merges_->find(ids[at - 1], ids[at]);
    if (at < static_cast<std::ptrdiff_t>(pairs_.size()))
      pairs_[at] = merges_->find(ids[at], ids[at + 1]);
  }
}

void BpeMerger::push(std::vector<std::int32_t>& ids, std::uint32_t left) {
  const std::uint32_t right = next_[left];
  if (right == ids.size()) return;
  const std::uint32_t rank = merges_->find(ids[left], ids[right]).rank;
  if (rank == BpeMerges::no_rank) return;
  heap_.push_back(std::uint64_t{rank} << 32 | left);
  std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
}

void BpeMerger::merge_long(std::vector<std::int32_t>& ids) {
  constexpr std::int32_t merged = -1;
  const auto end = static_cast<std::uint32_t>(ids.size());
  next_.resize(end);
  previous_.resize(end);
  heap_.clear();
  for (std::uint32_t i = 0; i < end; ++i) {
    next_[i] = i + 1;
    previous_[i] = i - 1;  // that of the first is not used
  }
  for (std::uint32_t i = 0; i < end; ++i) push(ids, i);
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const auto left = static_cast<std::uint32_t>(heap_.back());
    const auto rank = static_cast<std::uint32_t>(heap_.back() >> 32);
    heap_.pop_back();
    const std::uint32_t right = ids[left] == merged ? end : next_[left];
    if (right == end) continue;
    const BpeMerges::Merge merge = merges_->find(ids[left], ids[right]);
    if (merge.rank != rank) continue;  // one of both has been merged since
    ids[left] = merge.id;
    ids[right] = merged;
    next_[left] = next_[right];
    if (next_[left] != end) previous_[next_[left]] = left;
    if (left != 0) push(ids, previous_[left]);
    push(ids, left);
  }
  ids.erase(std::remove(ids.begin(), ids.end(), merged), ids.end());
}

}  // namespace ostrakon::texts
