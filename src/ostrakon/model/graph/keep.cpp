// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/graph/lists.hpp>
#include <ostrakon/model/graph/passes.hpp>
#include <stdexcept>
#include <utility>

namespace ostrakon::model::graph {

Call recomputation_of(const Listing& listing, const std::map<int, Listing::Maker>& makers, int v) {
  const auto [operation, forward] = makers.at(v);
  bool from_statistics = operation->recompute && contains(operation->recompute->writes, v);
  for (std::size_t i = 1; from_statistics && i < operation->recompute->reads.size(); ++i)
    from_statistics =
        !listing.graph.setting.drops(listing.value(operation->recompute->reads[i]).keep);
  Call call = from_statistics ? *operation->recompute : *forward;
  if (call.in_place)
    throw std::logic_error(call.name + ", which works in place, can't be done again");
  call.is_recomputed = true;
  call.replaces.clear();
  return call;
}

namespace {

class Keeping {
 public:
  explicit Keeping(Listing& listing) : l_(listing), makers_(listing.makers()) {}

  void run() {
    for (Call call : std::exchange(l_.backward, {})) {
      read_found(call);
      for (auto& [to, from] : call.replaces)
        if (const auto again = recomputed_.find(from); again != recomputed_.end())
          from = again->second;
      l_.backward.push_back(std::move(call));
    }
  }

 private:
  void read_found(Call& call) {
    for (int& v : call.reads) v = find(v);
    for (int& w : call.weights)
      if (w < 0) w = ~find(~w);
  }
  /// The value that backward finds in place of `v`.
  int find(int v) {
    if (makers_.count(v) == 0) return v;
    if (!l_.graph.setting.drops(l_.value(v).keep)) {
      l_.kept.insert(v);
      return v;
    }
    if (recomputed_.count(v) > 0) return recomputed_[v];
    Call call = recomputation_of(l_, makers_, v);
    read_found(call);
    const std::vector<int> made = l_.graph.add_like(call.writes, "");
    for (std::size_t i = 0; i < made.size(); ++i) {
      l_.recomputed_of[made[i]] = call.writes[i];
      recomputed_[call.writes[i]] = made[i];
    }
    call.writes = made;
    l_.backward.push_back(std::move(call));
    return recomputed_[v];
  }

  Listing& l_;
  const std::map<int, Listing::Maker> makers_;
  std::map<int, int> recomputed_;
};

}  // namespace

void keep(Listing& listing) { Keeping(listing).run(); }

}  // namespace ostrakon::model::graph
