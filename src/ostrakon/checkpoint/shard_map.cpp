// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/shard_map.hpp>

#include <functional>
#include <numeric>

namespace ostrakon::checkpoint {

std::int64_t ParameterEntry::elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1},
                         std::multiplies<std::int64_t>());
}

std::int64_t ShardMap::bytes(int rank) const {
  const std::vector<Slice>& own = slices.at(static_cast<std::size_t>(rank));
  return std::accumulate(
      own.begin(), own.end(), std::int64_t{0},
      [this](std::int64_t sum, const Slice& slice) { return sum + bytes(slice); });
}

}  // namespace ostrakon::checkpoint
