// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <ostrakon/model/graph/lists.hpp>
#include <ostrakon/model/graph/passes.hpp>
#include <tuple>
#include <utility>

namespace ostrakon::model::graph {
namespace {

/// Calls up to an exchange, of one chunk: first by their place in the unit.
using Key = std::pair<int, std::int64_t>;

class Chunking {
 public:
  explicit Chunking(Listing& listing) : l_(listing), chunks_(listing.graph.setting.chunks) {}

  void run() {
    cut();
    lay_in_whole();
    schedule();
  }

 private:
  bool is_divided(const Call& call) const {
    const bool is_of_parts = call.exchange && call.exchange->span.axis == plan::Axis::shard;
    const Value& made = l_.value(call.writes.front());
    return call.is_by_row && !is_of_parts && made.rows > 1 && made.per_row == 0;
  }

  /// The rows of chunk `chunk` of a value.
  int chunk_of(int v, std::int64_t chunk) {
    const auto [found, is_new] = chunk_of_.try_emplace({v, chunk}, -1);
    if (!is_new) return found->second;
    const int group = l_.value(v).group;
    const std::int64_t first_column = l_.value(v).first_column;
    const int made = found->second = l_.graph.add_like(v);
    Value& value = l_.value(made);
    value.name += "." + std::to_string(chunk);
    value.rows /= chunks_;
    value.group = group;
    value.first_column = first_column;
    value.whole = v;
    value.chunk = chunk;
    return made;
  }

  void cut() {
    int segment = 0;
    bool was_divided = false;
    for (std::size_t i = 0; i < l_.forward.size(); ++i) {
      const Call call = l_.forward[i];
      const bool divides = is_divided(call);
      if (i > 0 && (l_.forward[i - 1].exchange || divides != was_divided)) ++segment;
      was_divided = divides;
      for (std::int64_t chunk = 0; chunk < (divides ? chunks_ : 1); ++chunk)
        items_[{segment, chunk}].push_back(divides ? part_of(call, chunk) : call);
    }
  }

  Call part_of(Call call, std::int64_t chunk) {
    const auto cut = [&](int& v) {
      if (l_.value(v).rows > 1) v = chunk_of(v, chunk);
    };
    for (int& v : call.reads) cut(v);
    for (int& v : call.writes) cut(v);
    for (auto& [to, from] : call.replaces) {
      cut(to);
      cut(from);
    }
    const double share = 1.0 / static_cast<double>(chunks_);
    call.flops *= share;
    call.work = plan::times_as_long(call.work, share);
    if (call.exchange) call.exchange->elements /= chunks_;
    call.runs = std::max(std::int64_t{1}, call.runs / chunks_);
    return call;
  }

  /// Rows of what is needed whole lie where it does: in the order of the leaf, in which each rank's
  /// rows are neighbours.
  void lay_in_whole() {
    std::set<int> whole = l_.kept, written;
    whole.insert(l_.graph.inputs.begin(), l_.graph.inputs.end());
    whole.insert(l_.graph.outputs.begin(), l_.graph.outputs.end());
    for (const auto& [key, calls] : items_)
      for (const Call& call : calls) {
        for (int v : call.all_reads()) whole.insert(v);
        written.insert(call.writes.begin(), call.writes.end());
      }
    for (const auto& [of, made] : chunk_of_) {
      Value& value = l_.value(made);
      value.is_in_whole =
          whole.count(value.whole) > 0 || value.group >= 0 || written.count(made) == 0;
    }
    for (auto& [key, calls] : items_)
      for (Call& call : calls) {
        const auto lies_in_whole = [&](int v) {
          return l_.value(v).is_in_whole && l_.value(v).tensor_distribution != Distribution::rows;
        };
        if (!call.exchange &&
            (any_of(call.reads, lies_in_whole) || any_of(call.writes, lies_in_whole)))
          call.runs = l_.graph.setting.tensor_ranks;
      }
  }

  /// What has to be there for a value to be: its chunks, or what it is a chunk of.
  std::vector<int> sources_of(int v, const std::set<int>& made) const {
    if (made.count(v) > 0) return {v};
    std::vector<int> sources;
    for (std::int64_t chunk = 0; chunk < chunks_; ++chunk) {
      const auto found = chunk_of_.find({v, chunk});
      if (found != chunk_of_.end() && made.count(found->second) > 0)
        sources.push_back(found->second);
    }
    if (sources.empty() && l_.value(v).whole >= 0 && made.count(l_.value(v).whole) > 0)
      sources.push_back(l_.value(v).whole);
    return sources;
  }

  /// First comes what waits for no exchange; of that what has no product; then the order of the
  /// unit.
  void schedule() {
    std::set<int> made;
    for (const auto& [key, calls] : items_)
      for (const Call& call : calls) made.insert(call.writes.begin(), call.writes.end());
    std::map<Key, std::set<int>> missing, sources;
    std::map<int, std::vector<Key>> takers;  // of values
    std::set<Key> ready;
    for (const auto& [key, calls] : items_) {
      std::set<int> own;
      for (const Call& call : calls) {
        for (int v : call.all_reads())
          for (int source : sources_of(v, made))
            if (own.count(source) == 0) sources[key].insert(source);
        own.insert(call.writes.begin(), call.writes.end());
      }
      for (int source : sources[key]) takers[source].push_back(key);
      missing[key] = sources[key];
      if (missing[key].empty()) ready.insert(key);
    }
    const auto multiplies = [](const Calls& calls) {
      return any_of(calls, [](const Call& call) { return call.flops > 0.0; });
    };
    std::set<int> travelling;  // exchanged, and no product ran since
    for (l_.forward.clear(); !ready.empty();) {
      std::optional<std::tuple<bool, bool, Key>> best;
      for (const Key& key : ready) {
        const bool waits =
            any_of(sources[key], [&](int source) { return travelling.count(source) > 0; });
        const std::tuple order{waits, multiplies(items_[key]), key};
        if (!best || order < *best) best = order;
      }
      const Key key = std::get<Key>(*best);
      ready.erase(key);
      const Calls calls = items_.extract(key).mapped();
      if (multiplies(calls)) travelling.clear();
      for (int source : sources[key]) travelling.erase(source);
      for (const Call& call : calls)
        for (int v : call.writes) {
          if (call.exchange) travelling.insert(v);
          for (const Key& taker : takers[v])
            if (missing[taker].erase(v) > 0 && missing[taker].empty()) ready.insert(taker);
        }
      append(l_.forward, calls);
    }
  }

  Listing& l_;
  const std::int64_t chunks_;
  std::map<std::pair<int, std::int64_t>, int> chunk_of_;
  std::map<Key, Calls> items_;
};

}  // namespace

void divide_rows(Listing& listing) {
  if (listing.graph.setting.chunks > 1) Chunking(listing).run();
}

}  // namespace ostrakon::model::graph
