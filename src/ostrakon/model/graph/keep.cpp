// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/graph/lists.hpp>
#include <ostrakon/model/graph/passes.hpp>
#include <utility>

namespace ostrakon::model::graph {

Call call_again(const Listing& listing, const std::map<int, Listing::Maker>& makers, int v) {
  const auto [operation, forward] = makers.at(v);
  bool from_statistics = operation->again && contains(operation->again->writes, v);
  for (std::size_t i = 1; from_statistics && i < operation->again->reads.size(); ++i)
    from_statistics = !listing.graph.setting.drops(listing.value(operation->again->reads[i]).keep);
  Call call = from_statistics ? *operation->again : *forward;
  call.is_again = true;
  call.replaces.clear();
  return call;
}

namespace {

class Keeping {
 public:
  explicit Keeping(Listing& listing) : l_(listing), makers_(listing.makers()) {}

  void run() {
    for (Call call : std::exchange(l_.backward, {})) {
      for (int& v : call.reads) v = find(v);
      for (auto& [to, from] : call.replaces)
        if (const auto again = again_.find(from); again != again_.end()) from = again->second;
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
    if (again_.count(v) > 0) return again_[v];
    Call call = call_again(l_, makers_, v);
    for (int& read : call.reads) read = find(read);
    const std::vector<int> made = l_.graph.add_like(call.writes, "");
    for (std::size_t i = 0; i < made.size(); ++i) {
      l_.again_of[made[i]] = call.writes[i];
      again_[call.writes[i]] = made[i];
    }
    call.writes = made;
    l_.backward.push_back(std::move(call));
    return again_[v];
  }

  Listing& l_;
  const std::map<int, Listing::Maker> makers_;
  std::map<int, int> again_;
};

}  // namespace

void keep(Listing& listing) { Keeping(listing).run(); }

}  // namespace ostrakon::model::graph
