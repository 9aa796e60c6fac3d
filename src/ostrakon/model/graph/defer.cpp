// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <ostrakon/model/graph/lists.hpp>
#include <ostrakon/model/graph/passes.hpp>
#include <stdexcept>
#include <utility>

namespace ostrakon::model::graph {
namespace {

class Deferral {
 public:
  explicit Deferral(Listing& listing) : l_(listing), makers_(listing.makers()) {}

  void run() {
    const std::vector<bool> waits = choose();
    if (!any_of(waits, [](bool one) { return one; })) return;
    for (std::size_t i = 0; i < waits.size(); ++i) {
      Call call = std::move(l_.backward[i]);
      if (waits[i]) {
        later_.push_back(std::move(call));
        continue;
      }
      for (auto [to, from] : call.replaces) replaced_.insert(from);
      for (int v : call.writes)
        if (const auto original = l_.recomputed_of.find(v); original != l_.recomputed_of.end())
          recomputed_[original->second] = v;
      let_gradients_wait(call);
      stay_.push_back(std::move(call));
    }
    for (Call& call : later_) {
      call.read_from([&](int v) {
        const int found = find(v);
        return found < 0 ? v : found;
      });
      l_.deferred.push_back(std::move(call));
    }
    copy_weights();
    l_.backward = std::move(stay_);
  }

 private:
  /// Chooses gradients by products, and those others that read nothing but what these read.
  std::vector<bool> choose() const {
    std::vector<bool> waits(l_.backward.size(), false);
    std::set<int> read;
    const auto add = [&](const auto& condition) {
      for (std::size_t i = 0; i < waits.size(); ++i)
        if (l_.backward[i].writes_gradients() && l_.backward[i].writes.empty() &&
            condition(l_.backward[i]))
          waits[i] = true;
      for (std::size_t i = 0; i < waits.size(); ++i)
        if (waits[i]) read.insert(l_.backward[i].reads.begin(), l_.backward[i].reads.end());
    };
    add([](const Call& call) { return call.flops > 0.0; });
    if (read.empty()) return waits;
    add([](const Call& call) { return call.runs_deferred; });
    add([&](const Call& call) {
      return std::all_of(call.reads.begin(), call.reads.end(),
                         [&](int v) { return read.count(v) > 0 || l_.kept.count(v) > 0; });
    });
    // Exchanges of what they alone read run beside them.
    std::set<int> stay = l_.gradient_aliases;
    for (std::size_t i = waits.size(); i-- > 0;) {
      const Call& call = l_.backward[i];
      waits[i] = waits[i] || (call.exchange && !call.is_recomputed &&
                              !any_of(call.writes, [&](int v) { return stay.count(v) > 0; }));
      const std::vector<int> all = call.all_reads();
      if (!waits[i]) stay.insert(all.begin(), all.end());
    }
    return waits;
  }

  void let_gradients_wait(Call& call) {
    for (int& gradient : call.gradients) {
      if (!Call::is_weight(gradient)) continue;
      const Weight& weight = l_.graph.weight(gradient);
      Value value{"d " + weight.name, 1, weight.elements};
      value.element = Element::sum;
      value.keep = Keep::never;
      if (call.is_by_piece) {  // each has its own
        value.tensor_distribution = Distribution::columns;
        value.pieces = l_.graph.setting.own_pieces();
      }
      const int waiting = l_.graph.add(value);
      Call give = l_.graph.copy("give d " + weight.name, {waiting}, {});
      give.gradients = {gradient};
      give.can_add_gradients = call.can_add_gradients;
      give.is_by_piece = call.is_by_piece;
      later_.push_back(std::move(give));
      call.writes.push_back(waiting);
      gradient = in_place_of_weight(waiting);
    }
  }

  /// Where deferred calls find a value; -1: it is lost.
  int find(int v) {
    if (const auto found = deferred_values_.find(v); found != deferred_values_.end())
      return found->second;
    const auto made = std::find_if(stay_.begin(), stay_.end(),
                                   [&](const Call& call) { return contains(call.writes, v); });
    const int original = found_or(l_.recomputed_of, v, v);
    if (l_.gradient_aliases.count(v) > 0)
      return leave(v, made == stay_.end() ? stay_.begin() : made + 1);
    if (made != stay_.end() && made->exchange && !made->is_recomputed) {
      // Behind the first call that waits for it, so that nothing waits earlier.
      const auto reader = std::find_if(made, stay_.end(),
                                       [&](const Call& call) { return contains(call.reads, v); });
      return leave(v, reader == stay_.end() ? reader : reader + 1);
    }
    if (made != stay_.end() && made->rematerialize && call_later(Call(*made)))
      return deferred_values_[v];
    if (makers_.count(original) == 0) return v;
    if (!l_.graph.setting.drops(l_.value(original).keep) && replaced_.count(original) == 0) {
      l_.kept.insert(original);
      return original;
    }
    const Call call = recomputation_of(l_, makers_, original);
    if (deferred_values_.count(original) > 0 || (call.flops == 0.0 && call_later(call)))
      return deferred_values_[v] = deferred_values_[original];
    const int again = found_or(recomputed_, original, -1);
    return replaced_.count(again) > 0 ? -1 : again;
  }

  /// Has backward copy the value, before call `at`, for deferred calls.
  int leave(int v, Calls::iterator at) {
    const int copy = deferred_values_[v] = l_.graph.add_like(v, "copy of ");
    stay_.insert(at, l_.graph.copy("copy " + l_.value(v).name, {v}, {copy}));
    return copy;
  }

  /// Has the call run among the deferred ones, if they find all that it reads.
  bool call_later(Call call) {
    bool is_lost = false;
    call.read_from([&](int v) {
      v = find(v);
      is_lost = is_lost || v < 0;
      return v;
    });
    if (is_lost) return false;
    call.replaces.clear();
    l_.write_anew(call, deferred_values_);
    l_.deferred.push_back(std::move(call));
    return true;
  }

  /// Deferred calls find no weights: they read copies of small ones, such as those of norms.
  void copy_weights() {
    for (Call& call : l_.deferred)
      for (int& weight : call.weights) {
        if (is_value(weight)) continue;
        if (call.is_by_piece)
          throw std::logic_error(call.name +
                                 " is deferred and reads a weight of which it has pieces");
        const Weight& of = l_.graph.weight(weight);
        Value value{"copy of " + of.name, 1, of.elements};
        value.keep = Keep::never;
        Call copy = l_.graph.copy("copy " + of.name, {}, {l_.graph.add(value)});
        copy.weights = {weight};
        weight = in_place_of_weight(copy.writes.front());
        stay_.push_back(std::move(copy));
      }
  }

  Listing& l_;
  const std::map<int, Listing::Maker> makers_;
  Calls stay_, later_;
  std::set<int> replaced_;
  std::map<int, int> recomputed_;       // values of forward that backward makes again
  std::map<int, int> deferred_values_;  // where deferred calls find values
};

}  // namespace

void defer(Listing& listing) { Deferral(listing).run(); }

}  // namespace ostrakon::model::graph
