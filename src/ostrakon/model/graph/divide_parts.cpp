// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/graph/lists.hpp>
#include <ostrakon/model/graph/passes.hpp>
#include <stdexcept>
#include <string>
#include <utility>

namespace ostrakon::model::graph {
namespace {

std::string names_of(const Graph& graph, const std::vector<int>& values) {
  std::string names;
  for (int v : values)
    names += (names.empty() ? "" : ", ") + graph.values[static_cast<std::size_t>(v)].name;
  return names;
}

/// Gathers `own`, as `whole`, and sums their gradients over ranks.
Operation gather(Graph& graph, const std::vector<int>& own, const std::vector<int>& whole) {
  const plan::Span span{plan::Axis::shard, static_cast<int>(graph.setting.parts)};
  const std::vector<int> sums = graph.add_like(own, "sum of d ");
  std::vector<int> of_whole, of_own;
  std::int64_t elements = 0;
  for (std::size_t i = 0; i < own.size(); ++i) {
    Value& sum = graph.values[static_cast<std::size_t>(sums[i])];
    sum.element = Element::sum;
    sum.keep = Keep::cheap;
    of_whole.push_back(~whole[i]);
    of_own.push_back(~own[i]);
    elements += sum.rows * sum.columns * span.ranks;
  }
  const std::string names = names_of(graph, own);
  Call forward{"gather " + names, own, whole};
  forward.exchange = {plan::ExchangeKind::gather, span, elements, graph.setting.number_bytes};
  Call backward{"sum d " + names, of_whole, sums};
  backward.exchange = {plan::ExchangeKind::reduce_scatter, span, elements, graph.setting.sum_bytes};
  Call round{"round d " + names, sums, of_own};
  round.kernel = graph.copy;
  return {{forward}, {backward, round}};
}

void rename(Operation& operation, const std::map<int, int>& names) {
  const auto change = [&](int& id) {
    const auto found = names.find(id < 0 ? ~id : id);
    if (found != names.end()) id = id < 0 ? ~found->second : found->second;
  };
  for (Calls* calls : {&operation.forward, &operation.backward})
    for (Call& call : *calls) {
      for (int& v : call.reads) change(v);
      for (int& v : call.writes) change(v);
      for (auto& [to, from] : call.replaces) {
        change(to);
        change(from);
      }
    }
}

}  // namespace

void divide_parts(Graph& graph) {
  if (graph.setting.parts == 1) return;
  std::map<int, int> whole_of;
  for (Operation operation : std::vector<Operation>(std::exchange(graph.operations, {}))) {
    std::vector<int> own, by_rows;
    for (std::size_t i = 0; i < operation.over_parts.size(); ++i) {
      const int v = operation.forward.front().reads[i];
      if (operation.over_parts[i] != OverParts::whole)
        by_rows.push_back(v);
      else if (whole_of.count(v) == 0 && !contains(own, v))
        own.push_back(v);
    }
    if (!own.empty()) {
      const std::vector<int> whole = graph.add_like(own, "all ");
      for (std::size_t i = 0; i < own.size(); ++i) {
        Value& value = graph.values[static_cast<std::size_t>(whole[i])];
        value.rows *= graph.setting.parts;
        value.over_parts = OverParts::whole;
        value.keep = Keep::cheap;
        whole_of[own[i]] = whole[i];
      }
      graph.operations.push_back(gather(graph, own, whole));
    }
    std::map<int, int> names;
    for (std::size_t i = 0; i < operation.over_parts.size(); ++i)
      if (operation.over_parts[i] == OverParts::whole)
        names.insert(*whole_of.find(operation.forward.front().reads[i]));
    for (int v : by_rows)
      if (names.count(v) > 0)
        throw std::logic_error(operation.forward.front().name + " takes by rows and whole: " +
                               graph.values[static_cast<std::size_t>(v)].name);
    rename(operation, names);
    graph.operations.push_back(std::move(operation));
  }
}

}  // namespace ostrakon::model::graph
