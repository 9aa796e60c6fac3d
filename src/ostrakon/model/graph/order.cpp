// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <ostrakon/model/graph/arrays.hpp>
#include <ostrakon/model/graph/lists.hpp>
#include <ostrakon/model/graph/passes.hpp>
#include <utility>

namespace ostrakon::model::graph {
namespace {

std::size_t first_reader(const Calls& calls, std::size_t of) {
  for (std::size_t i = of + 1; i < calls.size(); ++i)
    if (any_of(calls[of].writes, [&](int v) { return contains(calls[i].all_reads(), v); }))
      return i;
  return calls.size();
}

bool has_product(const Calls& calls, std::size_t begin, std::size_t end) {
  for (std::size_t i = begin; i < end; ++i)
    if (calls[i].flops > 0.0) return true;
  return false;
}

/// Drops what backward, or what is deferred, makes and nobody reads.
void drop_unread(Listing& listing) {
  std::set<int> read = listing.gradient_aliases;
  read.insert(listing.graph.outputs.begin(), listing.graph.outputs.end());
  for (Calls* calls : {&listing.deferred, &listing.backward}) {
    Calls used;
    for (auto call = calls->rbegin(); call != calls->rend(); ++call) {
      if (!call->writes_gradients() &&
          !any_of(call->writes, [&](int v) { return read.count(v) > 0; }))
        continue;
      const std::vector<int> all = call->all_reads();
      read.insert(all.begin(), all.end());
      used.push_back(std::move(*call));
    }
    calls->assign(std::make_move_iterator(used.rbegin()), std::make_move_iterator(used.rend()));
  }
}

/// Moves what an exchange does not need behind it: in backward what only waits for other exchanges,
/// and gradients of weights. One product may run beside it though a buffer is needed longer then,
/// but none that alone runs beside the exchange before.
class EarlyExchanges {
 public:
  EarlyExchanges(Listing& listing, Calls& calls, bool is_backward)
      : listing_(listing),
        calls_(calls),
        is_backward_(is_backward),
        arrays_(find_arrays(listing, Numbered(listing))) {
    for (const Call& call : calls_)
      if (call.exchange) exchanged_.insert(call.writes.begin(), call.writes.end());
  }

  void run() {
    std::size_t begin = 0;
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      const bool is_ahead = calls_[i].is_recomputed && &calls_ == &listing_.backward;
      if (!calls_[i].exchange || is_ahead) continue;
      bool has_product = false;  // behind it
      for (std::size_t j = i; j-- > begin;) {
        if (!may_move(j, i)) continue;
        if (is_backward_ && is_gradient(calls_[j])) {
          if (runs_alone(begin, j, i) || (has_product && prolongs(j, i))) continue;
          if (calls_[i].exchange->span.ranks == 1) continue;
          has_product = true;
        }
        move_behind(calls_, j, i + 1);
        --i;
      }
      begin = i + 1;
    }
  }

 private:
  /// Whether call `j` is the only product beside the exchange before `begin`, up to what waits for
  /// that.
  bool runs_alone(std::size_t begin, std::size_t j, std::size_t end) const {
    if (begin == 0) return false;
    const std::size_t reader = std::min(end, first_reader(calls_, begin - 1));
    return j < reader && !has_product(calls_, begin, j) && !has_product(calls_, j + 1, reader);
  }
  static bool is_gradient(const Call& call) {
    return call.writes_gradients() && call.writes.empty() && call.flops > 0.0;
  }

  bool may_move(std::size_t j, std::size_t exchange) const {
    const Call& call = calls_[j];
    std::vector<int> wanted, replaced;
    for (std::size_t k = j + 1; k <= exchange; ++k) {
      append(wanted, calls_[k].all_reads());
      for (auto [to, from] : calls_[k].replaces) replaced.push_back(from);
    }
    if (any_of(call.writes, [&](int v) { return contains(wanted, v); }) ||
        any_of(call.reads, [&](int v) { return contains(replaced, v); }))
      return false;
    if (!is_backward_) return true;
    const bool waits = call.flops == 0.0 && !call.writes.empty() &&
                       std::all_of(call.reads.begin(), call.reads.end(), [&](int v) {
                         return exchanged_.count(v) > 0 && !is_read_before(v, j);
                       });
    return waits || is_gradient(call);
  }

  bool is_read_before(int v, std::size_t j) const {
    return std::any_of(calls_.begin(), calls_.begin() + static_cast<std::ptrdiff_t>(j),
                       [&](const Call& call) { return contains(call.all_reads(), v); });
  }

  /// Whether anything in the workspace, or that came of an exchange, that call `j` reads is read by
  /// no other call from the product on that comes last before the exchange.
  bool prolongs(std::size_t j, std::size_t exchange) const {
    std::size_t product = exchange;
    while (product > j && calls_[product].flops == 0.0) --product;
    return any_of(calls_[j].reads, [&](int v) {
      const ValueArray& array = arrays_.array_of(v);
      const bool is_in_buffer = array.home == Home::recv_buffer ||
                                (array.home == Home::workspace && arrays_.find_dead(array) < 0);
      if (!is_in_buffer) return false;
      for (std::size_t k = product; k < calls_.size(); ++k)
        if (k > j && contains(calls_[k].reads, v)) return false;
      return true;
    });
  }

  const Listing& listing_;
  Calls& calls_;
  bool is_backward_;
  const ValueArrays arrays_;  // as they are before anything is moved
  std::set<int> exchanged_;
};

/// Has what is exchanged again handed over one exchange ahead of its reader: just before what waits
/// for that exchange, or right behind it where no product would run beside it. Passes over memory
/// that make what is exchanged go with it.
class AgainAhead {
 public:
  explicit AgainAhead(Listing& listing) : l_(listing) {}

  void run() {
    const Calls calls = std::exchange(l_.backward, {});
    for (std::size_t i = 0; i < calls.size(); ++i)
      if (is_ahead(calls[i]))
        take(calls, i);
      else
        chain_.push_back(calls[i]);
    std::vector<Calls> in_front(chain_.size());
    for (const Group& group : groups_) append(in_front[place_of(group)], group.calls);
    for (std::size_t i = 0; i < chain_.size(); ++i) {
      append(l_.backward, in_front[i]);
      l_.backward.push_back(chain_[i]);
    }
  }

 private:
  struct Group {
    Calls calls;
    std::size_t reader;  // in the chain of all other calls
  };

  static bool is_ahead(const Call& call) {
    return call.exchange && call.exchange->span.ranks > 1 && call.is_recomputed;
  }

  void take(const Calls& calls, std::size_t i) {
    Group group{{calls[i]}, chain_.size()};
    const std::size_t reader = first_reader(calls, i);
    for (std::size_t j = i + 1; j < reader; ++j) group.reader += is_ahead(calls[j]) ? 0 : 1;
    for (std::size_t j = i; j-- > 0;) {
      if (!calls[j].is_recomputed || calls[j].exchange || calls[j].flops > 0.0) continue;
      std::map<int, int> copies;
      for (int v : calls[j].writes)
        for (const Call& call : group.calls)
          if (contains(call.reads, v)) copies[v] = -1;
      if (copies.empty()) continue;
      Call copy = calls[j];
      for (int& v : copy.writes) {
        const int made = copies[v] = l_.graph.add_like(v);
        if (l_.recomputed_of.count(v) > 0) l_.recomputed_of[made] = l_.recomputed_of[v];
        v = made;
      }
      for (Call& call : group.calls)
        for (int& v : call.reads) v = found_or(copies, v, v);
      insert_at(group.calls, 0, std::move(copy));
    }
    groups_.push_back(std::move(group));
  }

  std::size_t place_of(const Group& group) const {
    std::vector<std::size_t> before;
    for (std::size_t i = 0; i < group.reader; ++i)
      if (chain_[i].exchange && chain_[i].exchange->span.ranks > 1) before.push_back(i);
    if (before.empty()) return 0;
    const std::size_t one = before[before.size() > 1 ? before.size() - 2 : 0];
    const std::size_t waits = first_reader(chain_, one);
    if (waits < group.reader && has_product(chain_, waits, group.reader)) return waits;
    return before.size() > 1 ? one + 1 : 0;
  }

  Listing& l_;
  Calls chain_;
  std::vector<Group> groups_;
};

/// What passes over memory make again is made just before it is read, or before what it reads is
/// replaced.
void make_late(Calls& calls) {
  for (std::size_t i = calls.size(); i-- > 0;) {
    if (!calls[i].is_recomputed || calls[i].exchange || calls[i].flops > 0.0) continue;
    std::size_t to = i + 1;
    const std::size_t reader = first_reader(calls, i);
    const auto replaces = [&](const std::pair<int, int>& pair) {
      return contains(calls[i].reads, pair.second);
    };
    while (to < reader && to < calls.size() && !any_of(calls[to].replaces, replaces)) ++to;
    move_behind(calls, i, to);
  }
}

}  // namespace

void order(Listing& listing) {
  drop_unread(listing);
  EarlyExchanges(listing, listing.forward, false).run();
  EarlyExchanges(listing, listing.backward, true).run();
  EarlyExchanges(listing, listing.deferred, true).run();
  if (!listing.graph.setting.is_loss) AgainAhead(listing).run();
  drop_unread(listing);
  make_late(listing.backward);
}

}  // namespace ostrakon::model::graph
