// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <ostrakon/model/graph/arrays.hpp>
#include <ostrakon/model/graph/lists.hpp>
#include <ostrakon/model/graph/passes.hpp>
#include <utility>

namespace ostrakon::model::graph {
namespace {

std::size_t first_reader(const Calls& calls, std::size_t of) {
  for (std::size_t i = of + 1; i < calls.size(); ++i)
    if (any_of(calls[of].writes, [&](int v) { return contains(calls[i].reads, v); })) return i;
  return calls.size();
}

bool has_product(const Calls& calls, std::size_t begin, std::size_t end) {
  for (std::size_t i = begin; i < end; ++i)
    if (calls[i].flops > 0.0) return true;
  return false;
}

/// Drops what is made again and read by nobody.
void drop_unread(Listing& listing) {
  std::set<int> read;
  for (const Call& call : listing.deferred) read.insert(call.reads.begin(), call.reads.end());
  for (std::size_t i = listing.backward.size(); i-- > 0;) {
    const Call& call = listing.backward[i];
    if (call.is_recomputed && !any_of(call.writes, [&](int v) { return read.count(v) > 0; }))
      listing.backward.erase(listing.backward.begin() + static_cast<std::ptrdiff_t>(i));
    else
      read.insert(call.reads.begin(), call.reads.end());
  }
}

/// What an exchange does not need goes behind it. In backward this is what only waits for other
/// exchanges, and gradients of weights that need no workspace which nothing else needs so late.
class EarlyExchanges {
 public:
  EarlyExchanges(Listing& listing, Calls& calls, bool is_backward)
      : listing_(listing), calls_(calls), is_backward_(is_backward) {
    for (const Call& call : calls_)
      if (call.exchange) exchanged_.insert(call.writes.begin(), call.writes.end());
  }

  void run() {
    std::size_t begin = 0;
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      if (!calls_[i].exchange || calls_[i].is_recomputed) continue;
      for (std::size_t j = i; j-- > begin;) {
        if (!may_move(j, i)) continue;
        move_behind(calls_, j, i + 1);
        --i;
      }
      begin = i + 1;
    }
  }

 private:
  static bool is_gradient(const Call& call) {
    return call.writes_gradients() && call.writes.empty() && call.flops > 0.0;
  }

  bool may_move(std::size_t j, std::size_t exchange) const {
    const Call& call = calls_[j];
    std::vector<int> wanted, replaced;
    for (std::size_t k = j + 1; k <= exchange; ++k) {
      append(wanted, calls_[k].reads);
      for (auto [to, from] : calls_[k].replaces) replaced.push_back(from);
    }
    if (any_of(call.writes, [&](int v) { return contains(wanted, v); }) ||
        any_of(call.reads, [&](int v) { return contains(replaced, v); }))
      return false;
    if (!is_backward_) return true;
    const bool waits = call.flops == 0.0 && !call.writes.empty() &&
                       std::all_of(call.reads.begin(), call.reads.end(),
                                   [&](int v) { return exchanged_.count(v) > 0; });
    return waits || (is_gradient(call) && !keeps_workspace(j, exchange));
  }

  /// Whether anything in the workspace that call `j` reads is read last before the product that
  /// comes last before the exchange.
  bool keeps_workspace(std::size_t j, std::size_t exchange) const {
    std::size_t product = exchange;
    while (product > j && calls_[product].flops == 0.0) --product;
    const Numbered numbered(listing_);
    const ValueArrays arrays = find_arrays(listing_, numbered);
    return any_of(calls_[j].reads, [&](int v) {
      const ValueArray& array = arrays.array_of(v);
      if (array.home != Home::workspace || arrays.find_dead(array) >= 0) return false;
      for (std::size_t k = product; k <= exchange; ++k)
        if (k > j && contains(calls_[k].reads, v)) return false;
      return true;
    });
  }

  const Listing& listing_;
  Calls& calls_;
  bool is_backward_;
  std::set<int> exchanged_;
};

/// What is exchanged again is handed over before the product that is before its reader.
void exchange_again_ahead(Calls& calls) {
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (!calls[i].exchange || !calls[i].is_recomputed) continue;
    std::size_t to = i;
    while (to > 0 && !calls[to - 1].exchange &&
           !any_of(calls[to - 1].writes, [&](int v) { return contains(calls[i].reads, v); }))
      --to;
    if (!has_product(calls, to, i)) continue;
    std::rotate(calls.begin() + static_cast<std::ptrdiff_t>(to),
                calls.begin() + static_cast<std::ptrdiff_t>(i),
                calls.begin() + static_cast<std::ptrdiff_t>(i + 1));
  }
}

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
  exchange_again_ahead(listing.backward);
  make_late(listing.backward);
}

}  // namespace ostrakon::model::graph
