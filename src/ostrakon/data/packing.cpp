// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/data/packing.hpp>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <ostrakon/base/error.hpp>

namespace ostrakon::data {
namespace {

using Pieces = std::vector<Packing::Piece>;

/// Returns indices of `keys`, all from 0 to `most`, by ascending key, and equal ones in their
/// order, and where each key begins.
template <class Key>
std::vector<std::uint32_t> sorted(const std::vector<Key>& keys, std::size_t most,
                                  std::vector<std::uint64_t>& first) {
  first.assign(most + 2, 0);
  for (const Key key : keys) ++first[static_cast<std::size_t>(key) + 1];
  std::partial_sum(first.begin(), first.end(), first.begin());
  std::vector<std::uint64_t> next(first.begin(), first.end() - 1);
  std::vector<std::uint32_t> order(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i)
    order[next[static_cast<std::size_t>(keys[i])]++] = static_cast<std::uint32_t>(i);
  return order;
}

/// The samples so far by the room that is left in them.
class Rooms {
 public:
  explicit Rooms(std::int64_t places) : places_(static_cast<std::int32_t>(places)) {}

  /// Puts a piece into a sample, which it returns.
  std::uint32_t put(std::int32_t piece) {
    const auto found = by_room_.lower_bound(piece);
    std::uint32_t sample = samples_;
    std::int32_t room = places_;
    if (found == by_room_.end()) {
      ++samples_;
    } else {
      room = found->first;
      sample = found->second.back();
      found->second.pop_back();
      if (found->second.empty()) by_room_.erase(found);
    }
    if (room > piece) by_room_[room - piece].push_back(sample);
    return sample;
  }
  std::uint32_t samples() const { return samples_; }

 private:
  std::int32_t places_;
  std::map<std::int32_t, std::vector<std::uint32_t>> by_room_;
  std::uint32_t samples_ = 0;
};

}  // namespace

Packing::Packing(const std::vector<std::int64_t>& offsets, std::int64_t places) {
  require(places >= 1 && places < std::numeric_limits<std::int32_t>::max(), "samples of ", places,
          " places; expected 1 to ", std::numeric_limits<std::int32_t>::max() - 1);
  std::vector<std::int64_t> begins;
  std::vector<std::int32_t> lengths;
  for (std::size_t d = 0; d + 1 < offsets.size(); ++d)
    for (std::int64_t at = offsets[d]; at + 1 < offsets[d + 1]; at += places) {
      begins.push_back(at);
      lengths.push_back(static_cast<std::int32_t>(std::min(places, offsets[d + 1] - 1 - at)));
      used_places_ += lengths.back();
    }
  require(begins.size() < std::numeric_limits<std::uint32_t>::max(), begins.size(),
          " documents, or pieces of documents, are too many to be packed; expected less than ",
          std::numeric_limits<std::uint32_t>::max());

  // Keys ascend from the longest piece to the shortest.
  const std::int32_t longest =
      lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
  std::vector<std::int32_t> keys(lengths.size());
  std::transform(lengths.begin(), lengths.end(), keys.begin(),
                 [&](std::int32_t length) { return longest - length; });
  const std::vector<std::uint32_t> order = sorted(keys, static_cast<std::size_t>(longest), first_);
  Rooms rooms(places);
  std::vector<std::uint32_t> samples(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) samples[i] = rooms.put(lengths[order[i]]);

  const std::vector<std::uint32_t> by_sample =
      sorted(samples, rooms.samples() == 0 ? 0 : rooms.samples() - 1, first_);
  if (rooms.samples() == 0) first_ = {0};
  begins_.reserve(order.size());
  places_.reserve(order.size());
  for (const std::uint32_t i : by_sample) {
    begins_.push_back(begins[order[i]]);
    places_.push_back(lengths[order[i]]);
  }
}

std::vector<Packing::Piece> Packing::pieces(std::uint64_t sample) const {
  std::vector<Piece> pieces;
  for (std::uint64_t i = first_[sample]; i < first_[sample + 1]; ++i)
    pieces.push_back({begins_[i], std::int64_t{places_[i]}});
  return pieces;
}

}  // namespace ostrakon::data
