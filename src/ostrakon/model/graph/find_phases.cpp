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
    if (array.home == Home::workspace && !array.is_vector && array.first < at && at <= array.last &&
        (at <= calls.begins[1] || arrays.find_dead(array, calls) < 0))
      bytes += array.bytes;
  return bytes;
}

int last_reader(const Numbered& calls, int exchange) {
  for (int i = calls.begins[calls.section(exchange) + 1]; i-- > exchange;)
    if (any_of(calls[i].reads, [&](int v) { return contains(calls[exchange].writes, v); }))
      return i;
  return exchange;
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
      // A phase waits for one exchange before it begins.
      const bool has_waited = reads.size() > 1 && kept_bytes(arrays, calls, i) == 0;
      // What came of an exchange is released before a product that does not need it.
      const bool releases = calls[i].flops > 0.0 && i > begin &&
                            any_of(reads, [&](int from) { return last_reader(calls, from) < i; }) &&
                            !any_of(arrays.all, [&](const ValueArray& array) {
                              return array.home == Home::workspace && !array.is_vector &&
                                     array.first < i && i <= array.last;
                            });
      if ((waits && (product < i || has_waited)) || is_full || releases) {
        int best = i;
        for (int at = i; !releases && at > (is_full ? begin : product); --at)
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
