// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <optional>
#include <ostrakon/model/graph/arrays.hpp>
#include <ostrakon/model/graph/lists.hpp>
#include <ostrakon/model/graph/passes.hpp>
#include <set>
#include <utility>

namespace ostrakon::model::graph {
namespace {

/// The most bytes that arrays of workspaces and scratch take at a time, without phases.
std::int64_t most_bytes(const Listing& listing) {
  const Numbered calls(listing);
  std::vector<std::int64_t> change(static_cast<std::size_t>(calls.count()) + 1, 0);
  const auto add = [&](int first, int last, std::int64_t bytes) {
    at(change, first) += bytes;
    at(change, last + 1) -= bytes;
  };
  for (const ValueArray& array : find_arrays(listing, calls).all)
    if (array.home == Home::workspace && array.last >= 0) add(array.first, array.last, array.bytes);
  for (int i = 0; i < calls.count(); ++i)
    for (std::int64_t bytes : calls[i].scratch) add(i, i, bytes);
  std::int64_t most = 0, now = 0;
  for (std::int64_t bytes : change) most = std::max(most, now += bytes);
  return most;
}

/// Workspaces, which all units of a rank share, may grow by one part of so many: sums for weights
/// take some memory beside what the kernel writes.
constexpr std::int64_t growth_share = 8;

class Fusion {
 public:
  explicit Fusion(Listing& listing)
      : l_(listing), most_(most_bytes(listing) / growth_share * (growth_share + 1)) {}

  void run() {
    for (std::size_t i = l_.backward.size(); i-- > 0;)
      if (is_copy(l_.backward[i])) drop_copy(i);
    for (Calls* calls : {&l_.forward, &l_.backward, &l_.deferred}) {
      is_forward_ = calls == &l_.forward;
      // Each that leads is asked once, wherever others have moved it.
      for (std::size_t i = 0; i < calls->size();)
        if ((*calls)[i].fused) {
          join_all(*calls, i);
          i = 0;
        } else {
          ++i;
        }
    }
  }

 private:
  bool is_copy(const Call& call) const {
    return call.kernel && call.kernel == l_.graph.kernels.copy && call.reads.size() == 1 &&
           call.writes.size() == 1 && call.weights.empty() && call.gradients.empty() &&
           !call.exchange;
  }
  /// Has all that reads what the call of backward copies read the original, if nothing is written
  /// over that before, and they write nothing over the copy.
  void drop_copy(std::size_t copied) {
    const int from = l_.backward[copied].reads.front(), to = l_.backward[copied].writes.front();
    const Value &original = l_.value(from), &copy = l_.value(to);
    const auto lies_alone = [](const Value& one) {
      return one.group < 0 && one.whole < 0 && one.pieces == 1;
    };
    if (!lies_alone(original) || !lies_alone(copy) || original.element != copy.element ||
        l_.gradient_aliases.count(to) > 0 ||
        any_of(l_.deferred, [&](const Call& call) { return contains(call.all_reads(), to); }))
      return;
    bool is_lost = false;
    for (std::size_t i = copied + 1; i < l_.backward.size(); ++i) {
      const Call& call = l_.backward[i];
      const bool reads = contains(call.all_reads(), to);
      is_lost = is_lost || overwrites(call, from);
      if (reads && (is_lost || call.exchange || overwrites(call, to))) return;
    }
    const Calls before = l_.backward;
    for (Call& call : l_.backward) call.read_from([&](int v) { return v == to ? from : v; });
    l_.backward.erase(l_.backward.begin() + static_cast<std::ptrdiff_t>(copied));
    if (most_bytes(l_) > most_) l_.backward = before;
  }
  /// Whether what the call writes may lie where `v` does.
  bool overwrites(const Call& call, int v) const {
    return any_of(call.replaces, [&](const auto& pair) { return pair.second == v; }) ||
           (l_.gradient_aliases.count(v) > 0 &&
            any_of(call.writes, [&](int made) { return l_.gradient_aliases.count(made) > 0; }));
  }

  /// Joins the leading call with what can be joined.
  void join_all(Calls& calls, std::size_t leading) {
    const std::shared_ptr<const FusedKernel> fused = std::exchange(calls[leading].fused, nullptr);
    for (std::size_t n = 0; n < fused->others.size(); ++n) {
      const std::optional<Call> to = part_of(calls[leading], fused->others[n].to + 1);
      for (std::size_t i = 0; to && i < calls.size(); ++i) {
        if (!is_named(fused->others[n], *to, calls[i])) continue;
        const std::size_t joined = join(calls, leading, i, *fused, static_cast<int>(n));
        if (joined == calls.size()) continue;
        leading = joined;
        break;
      }
    }
  }
  /// What a call that leads has joined as part `number`; 0 is itself.
  static std::optional<Call> part_of(const Call& leading, int number) {
    if (leading.parts.empty() && number == 0) return leading;
    for (const Call& part : leading.parts)
      if (part.part == number) return part;
    return {};
  }

  static bool is_named(const FusedKernel::Other& other, const Call& leading, const Call& call) {
    if (call.tag != other.tag || !call.parts.empty()) return false;
    if (other.order == FusedKernel::Order::behind)
      return contains(call.reads, at(leading.writes, other.index));
    const int taken = at(leading.reads, other.index);
    return contains(other.order == FusedKernel::Order::before ? call.writes : call.reads, taken);
  }

  /// Returns the index of the joined call, or the number of calls: they stay apart.
  std::size_t join(Calls& calls, std::size_t leading, std::size_t other, const FusedKernel& fused,
                   int number) {
    const std::size_t first = std::min(leading, other), last = std::max(leading, other);
    if (!are_alike(calls[leading], calls[other]) || !save_alike(first, last)) return calls.size();
    // What the last one needs runs before both, and what needs the first one behind; the others
    // wherever that takes less memory.
    const auto count = last - first + 1;
    std::vector<bool> is_behind(count, false), is_before(count, false);
    is_behind.front() = is_before.back() = true;
    const auto depends_on = [&](std::size_t later, std::size_t earlier) {
      return depends(calls[first + later], calls[first + earlier]);
    };
    for (std::size_t i = 1; i + 1 < count; ++i) {
      if (calls[first + i].exchange || has_loops()) return calls.size();
      for (std::size_t j = 0; j < i && !is_behind[i]; ++j)
        is_behind[i] = is_behind[j] && depends_on(i, j);
    }
    for (std::size_t i = count - 1; i-- > 1;) {
      for (std::size_t j = i + 1; j < count && !is_before[i]; ++j)
        is_before[i] = is_before[j] && depends_on(j, i);
      if (is_before[i] && is_behind[i]) return calls.size();
    }
    const Call joined = joined_call(calls[leading], calls[other], leading < other, fused, number);
    Calls best;
    std::size_t index = calls.size();
    std::int64_t least = most_ + 1;
    for (const bool is_early : {true, false}) {  // the others
      Calls moved(calls.begin(), calls.begin() + static_cast<std::ptrdiff_t>(first)), late;
      for (std::size_t i = 1; i + 1 < count; ++i)
        (is_before[i] || (is_early && !is_behind[i]) ? moved : late).push_back(calls[first + i]);
      const std::size_t at = moved.size();
      moved.push_back(joined);
      append(moved, late);
      moved.insert(moved.end(), calls.begin() + static_cast<std::ptrdiff_t>(last) + 1, calls.end());
      std::swap(calls, moved);
      const std::int64_t most = most_bytes(l_);
      std::swap(calls, moved);
      if (most >= least) continue;
      least = most;
      index = at;
      best = std::move(moved);
    }
    if (best.empty()) return calls.size();
    calls = std::move(best);
    return index;
  }

  /// Whether one kernel can compute both as far as graphs know.
  bool are_alike(const Call& leading, const Call& other) const {
    const auto is_sum_of_pieces = [&](const Call& call) {
      return call.is_by_piece && any_of(call.writes, [&](int v) {
               return l_.value(v).tensor_distribution == Distribution::partial;
             });
    };
    const bool in_place = leading.in_place || other.in_place;
    const auto may_be_elsewhere = [&](const Call& call) {
      return in_place && !call.in_place && !call.replaces.empty();
    };
    return leading.is_by_piece == other.is_by_piece && leading.runs == other.runs &&
           leading.takes_all_pieces == other.takes_all_pieces && !other.adds && !other.exchange &&
           leading.gradient_elements == 0 && other.gradient_elements == 0 &&
           leading.leaves.empty() && other.leaves.empty() && !is_sum_of_pieces(leading) &&
           !is_sum_of_pieces(other) && !may_be_elsewhere(leading) && !may_be_elsewhere(other);
  }
  /// Where forward runs for what it saves alone, it runs both or none.
  bool save_alike(std::size_t one, std::size_t other) const {
    if (!is_forward_) return true;
    const std::vector<bool> saves = find_what_saves(l_);
    return saves[one] == saves[other];
  }
  /// Whether neighbouring calls run for one piece after the other.
  bool has_loops() const { return l_.graph.setting.own_pieces() > 1; }

  /// Whether `later` has to run behind `earlier`.
  bool depends(const Call& later, const Call& earlier) const {
    const auto lies_in = [&](int v) { return l_.value(v).is_in_whole ? l_.value(v).whole : v; };
    const auto has = [&](const std::vector<int>& values, int v) {
      return any_of(values, [&](int other) { return lies_in(other) == lies_in(v); });
    };
    const std::vector<int> reads = earlier.all_reads();
    for (int v : later.all_reads())
      if (has(earlier.writes, v)) return true;
    for (auto [to, from] : later.replaces)
      if (has(reads, from) || has(earlier.writes, from)) return true;
    for (int w : later.gradients)
      if (w != Call::none && contains(earlier.gradients, w)) return true;
    const auto is_of_border = [&](int v) { return l_.gradient_aliases.count(v) > 0; };
    return any_of(later.writes, is_of_border) &&
           (any_of(reads, is_of_border) || any_of(earlier.writes, is_of_border));
  }

  Call joined_call(const Call& leading, Call other, bool leads, const FusedKernel& fused,
                   int number) const {
    Call joined = leading;
    const FusedKernel::Other& how = at(fused.others, number);
    other.part = number + 1;
    Calls parts = leading.parts.empty() ? Calls{leading} : leading.parts;
    if (how.over >= 0 && !leading.in_place && !other.in_place)
      joined.replaces.emplace_back(other.writes.front(),
                                   at(part_of(leading, how.to + 1)->reads, how.over));
    const Calls others = {other};
    parts.insert(leads ? parts.end() : parts.begin(), others.begin(), others.end());
    append(joined.replaces, other.replaces);
    joined.in_place = leading.in_place || other.in_place;
    joined.is_recomputed = leading.is_recomputed && other.is_recomputed;
    joined.flops += other.flops;
    joined.repeated_flops += other.repeated_flops;
    joined.work += other.work;
    joined.work.row_kernels = std::max(leading.work.row_kernels, other.work.row_kernels);
    joined.kernel = fused.kernel;
    list_parts(joined, std::move(parts));
    joined.work.row_bytes = bytes_moved_once(joined);
    return joined;
  }

  /// A fused kernel reads each value once, and writes each once, but those over which it writes
  /// another.
  double bytes_moved_once(const Call& call) const {
    std::set<int> values(call.writes.begin(), call.writes.end());
    for (auto [to, from] : call.replaces)
      if (call.in_place) values.erase(from);
    values.insert(call.reads.begin(), call.reads.end());
    double bytes = 0.0;
    for (const int v : values) bytes += static_cast<double>(l_.graph.bytes_of(v));
    return bytes;
  }

  /// Has the call work with what its parts work with. What it adds to is read last.
  static void list_parts(Call& call, Calls parts) {
    call.name.clear();
    for (std::vector<int>* list : {&call.reads, &call.writes, &call.weights, &call.gradients})
      list->clear();
    call.scratch.clear();
    std::vector<int> reads, leading;
    for (const Call& part : parts) {
      call.name += (call.name.empty() ? "" : " + ") + part.name;
      for (int v : part.reads)
        if (!contains(call.writes, v)) (part.part == 0 ? leading : reads).push_back(v);
      append(call.writes, part.writes);
      append(call.weights, part.weights);
      append(call.gradients, part.gradients);
      call.scratch.insert(call.scratch.end(), part.scratch.begin(), part.scratch.end());
    }
    for (int v : reads)
      if (!contains(leading, v) && !contains(call.reads, v)) call.reads.push_back(v);
    append(call.reads, leading);
    call.parts = std::move(parts);
  }

  Listing& l_;
  const std::int64_t most_;
  bool is_forward_ = false;
};

}  // namespace

void fuse(Listing& listing) { Fusion(listing).run(); }

}  // namespace ostrakon::model::graph
