// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <ostrakon/model/graph/arrays.hpp>
#include <ostrakon/model/graph/lists.hpp>

namespace ostrakon::model::graph {
namespace {

/// Bytes of workspace that phases would have to keep if one began with this call.
std::int64_t kept_bytes(const ValueArrays& arrays, const Numbered& calls, int at) {
  std::int64_t bytes = 0;
  for (const ValueArray& array : arrays.all)
    if (array.home == Home::workspace && array.first < at && at <= array.last &&
        (at <= calls.begins[1] || arrays.find_dead(array) < 0))
      bytes += array.bytes;
  return bytes;
}

}  // namespace

std::set<int> find_phases(const Listing& listing) {
  const Numbered calls(listing);
  const ValueArrays arrays = find_arrays(listing, calls);
  std::set<int> begins;
  for (int section = 0; section < 3; ++section) {
    std::map<int, int> exchange_of;  // values
    std::set<int> waited;            // exchanges that have been
    int begin = calls.begins[section];
    for (int i = begin; i < calls.begins[section + 1]; ++i) {
      bool waits = false;
      for (int v : calls[i].reads)
        if (const auto found = exchange_of.find(v); found != exchange_of.end())
          waits = waited.insert(found->second).second || waits;
      int product = i;  // the first one of the phase
      std::set<int> reads;
      for (int j = i; j >= begin; --j) {
        if (j < i && calls[j].flops > 0.0) product = j;
        for (int v : calls[j].reads)
          if (const auto found = exchange_of.find(v); found != exchange_of.end())
            reads.insert(found->second);
      }
      const bool is_full = reads.size() > plan::most_reads;
      if ((waits && product < i) || is_full) {
        int best = i;
        for (int at = i; at > (is_full ? begin : product); --at)
          if (kept_bytes(arrays, calls, at) < kept_bytes(arrays, calls, best)) best = at;
        begins.insert(begin = best);
      }
      if (!calls[i].exchange) continue;
      for (int v : calls[i].writes) exchange_of[v] = i;
      if (calls[i].exchange->span.ranks == 1) waited.insert(i);
      begins.insert(begin = i + 1);
    }
  }
  return begins;
}

}  // namespace ostrakon::model::graph
