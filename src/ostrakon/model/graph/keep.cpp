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
    const auto find_each = [&](int v) { return find(v); };
    for (Call call : std::exchange(l_.backward, {})) {
      call.read_from(find_each);
      for (auto& [to, from] : call.replaces) from = found_or(recomputed_, from, from);
      l_.backward.push_back(std::move(call));
    }
  }

 private:
  /// The value that backward finds in place of `v`.
  int find(int v) {
    if (makers_.count(v) == 0) return v;
    if (!l_.graph.setting.drops(l_.value(v).keep)) {
      l_.kept.insert(v);
      return v;
    }
    if (recomputed_.count(v) > 0) return recomputed_[v];
    Call call = recomputation_of(l_, makers_, v);
    call.read_from([&](int read) { return find(read); });
    std::map<int, int> made;
    l_.write_anew(call, made);
    for (auto [original, again] : made) {
      l_.recomputed_of[again] = original;
      recomputed_[original] = again;
    }
    l_.backward.push_back(std::move(call));
    return recomputed_[v];
  }

  Listing& l_;
  const std::map<int, Listing::Maker> makers_;
  std::map<int, int> recomputed_;
};

}  // namespace

void keep(Listing& listing) { Keeping(listing).run(); }

void Listing::write_anew(Call& call, std::map<int, int>& made) {
  const std::vector<int> writes = graph.add_like(call.writes, "");
  for (std::size_t i = 0; i < writes.size(); ++i) made[call.writes[i]] = writes[i];
  call.writes = writes;
}

}  // namespace ostrakon::model::graph
