// SPDX-License-Identifier: Apache-2.0
#include <numeric>
#include <ostrakon/model/graph/arrays.hpp>
#include <ostrakon/model/graph/lists.hpp>

namespace ostrakon::model::graph {
namespace {

/// Tells of each call the bytes that would cross from the workspace of one phase to the next if one
/// began with it; `kept`: those that have no other place, so that phases would keep their
/// workspace.
std::vector<std::int64_t> find_crossing(const Numbered& calls, const ValueArrays& arrays,
                                        bool kept) {
  std::vector<std::int64_t> bytes(static_cast<std::size_t>(calls.count()) + 1, 0);
  for (const ValueArray& array : arrays.all) {
    if (array.home != Home::workspace || array.is_vector || array.last < 0) continue;
    if (kept && calls.section(array.first) != 0 && arrays.find_dead(array) >= 0) continue;
    bytes[static_cast<std::size_t>(array.first) + 1] += array.bytes;
    bytes[static_cast<std::size_t>(array.last) + 1] -= array.bytes;
  }
  std::partial_sum(bytes.begin(), bytes.end(), bytes.begin());
  return bytes;
}

/// The exchange that brings each value.
std::map<int, int> find_exchanges(const Numbered& calls) {
  std::map<int, int> exchanges;
  for (int i = 0; i < calls.count(); ++i)
    if (calls[i].exchange)
      for (int v : calls[i].writes) exchanges[v] = i;
  return exchanges;
}

}  // namespace

std::set<int> find_phases(const Listing& listing) {
  const Numbered calls(listing);
  const ValueArrays arrays = find_arrays(listing, calls);
  const std::vector<std::int64_t> kept = find_crossing(calls, arrays, true);
  const std::vector<std::int64_t> crossing = find_crossing(calls, arrays, false);
  const std::map<int, int> exchange_of = find_exchanges(calls);
  const auto for_each_read = [&](int call, const auto& act) {
    for (int v : calls[call].reads)
      if (const auto found = exchange_of.find(v); found != exchange_of.end()) act(found->second);
  };
  std::map<int, int> last_reader;  // of exchanges
  for (int i = 0; i < calls.count(); ++i)
    for_each_read(i, [&](int exchange) { last_reader[exchange] = i; });
  std::set<int> begins;
  for (int section = 0; section < 3; ++section) {
    std::set<int> waited;  // exchanges that have been
    int begin = calls.begins[section];
    for (int i = begin; i < calls.begins[section + 1]; ++i) {
      bool waits = false;
      for_each_read(i, [&](int exchange) { waits = waited.insert(exchange).second || waits; });
      int product = i;  // the first one of the phase
      std::set<int> reads;
      for (int j = i; j >= begin && !exchange_of.empty(); --j) {
        if (j < i && calls[j].flops > 0.0) product = j;
        for_each_read(j, [&](int exchange) { reads.insert(exchange); });
      }
      const bool is_full = reads.size() > plan::most_reads;
      // A phase waits for one exchange before it begins.
      const bool has_waited = reads.size() > 1 && at(kept, i) == 0;
      // What came of an exchange is released before a product that does not need it, if nothing has
      // to be copied for that.
      const bool releases = calls[i].flops > 0.0 && i > begin && at(crossing, i) == 0 &&
                            any_of(reads, [&](int from) { return last_reader.at(from) < i; });
      if ((waits && (product < i || has_waited)) || is_full || releases) {
        int best = i;
        for (int call = i; !releases && call > (is_full ? begin : product); --call)
          if (at(kept, call) < at(kept, best)) best = call;
        begins.insert(begin = best);
      }
      if (!calls[i].exchange) continue;
      if (calls[i].exchange->span.ranks == 1) waited.insert(i);
      begins.insert(begin = i + 1);
    }
  }
  return begins;
}

}  // namespace ostrakon::model::graph
