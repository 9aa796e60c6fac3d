// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/graph/division.hpp>

#include <algorithm>
#include <ostrakon/math/piece_tree.hpp>
#include <ostrakon/model/graph/lists.hpp>
#include <stdexcept>
#include <string>
#include <utility>

namespace ostrakon::model::graph {
namespace {

std::string names_of(const Graph& graph, const std::vector<int>& values) {
  std::string names;
  for (int v : values) names += (names.empty() ? "" : ", ") + graph.value(v).name;
  return names;
}

plan::Span span_of(const Graph& graph, plan::Axis axis) {
  const Setting& s = graph.setting;
  return {axis, static_cast<int>(axis == plan::Axis::tensor ? s.tensor_ranks : s.context_ranks)};
}

/// Gathers `own`, as `whole`, and sums their gradients over ranks.
Operation gather(Graph& graph, const std::vector<int>& own, const std::vector<int>& whole,
                 plan::Axis axis) {
  const plan::Span span = span_of(graph, axis);
  const Value& first = graph.value(own.front());
  const bool rounds =
      graph.setting.number_bytes != graph.setting.sum_bytes || first.group >= 0 || first.pieces > 1;
  std::vector<int> of_whole, of_own;
  std::int64_t elements = 0;
  for (std::size_t i = 0; i < own.size(); ++i) {
    const Value& one = graph.value(own[i]);
    of_whole.push_back(gradient_of(whole[i]));
    of_own.push_back(gradient_of(own[i]));
    elements += one.pieces * one.rows * one.columns * span.ranks;
  }
  const std::string names = names_of(graph, own);
  Call forward{"gather " + names, own, whole};
  forward.exchange = {plan::ExchangeKind::gather, span, elements, graph.setting.number_bytes};
  Call backward{"sum d " + names, of_whole, of_own};
  backward.exchange = {plan::ExchangeKind::reduce_scatter, span, elements, graph.setting.sum_bytes};
  if (!rounds) return {{forward}, {backward}};
  backward.writes = graph.add_like(own, "sum of d ");
  for (int sum : backward.writes) {
    Value& value = graph.value(sum);
    value.element = Element::sum;
    value.keep = Keep::never;
    value.has_interleaved_pieces = value.pieces > 1;
  }
  Call round = graph.copy("round d " + names, backward.writes, of_own);
  round.is_by_piece = is_by_piece(graph, round);
  return {{forward}, {backward, round}};
}

/// Sums `sums` over ranks, as `rows`, and gathers the gradients of these.
Operation sum(Graph& graph, int sums, int rows) {
  const plan::Span span = span_of(graph, plan::Axis::tensor);
  const Value& value = graph.value(sums);
  const std::int64_t elements = value.rows * value.columns;
  Call forward{"sum " + value.name, {sums}, {rows}};
  forward.exchange = {plan::ExchangeKind::reduce_scatter, span, elements, graph.setting.sum_bytes};
  Call backward{"gather d " + value.name, {gradient_of(rows)}, {gradient_of(sums)}};
  backward.exchange = {plan::ExchangeKind::gather, span, elements, graph.setting.number_bytes};
  return {{forward}, {backward}};
}

/// Has `own` cached, in columns of one array with so many rows.
std::vector<int> remember(Graph& graph, const std::vector<int>& own, std::int64_t rows) {
  const int group = graph.add_group(0);
  std::int64_t& end = graph.group_columns[static_cast<std::size_t>(group)];
  Call forward{"remember " + names_of(graph, own), own, {}};
  for (int v : own) {
    Value value = graph.value(v);
    value.name = "cached " + value.name;
    value.rows = rows;
    value.is_cached = true;
    value.group = group;
    value.first_column = end;
    end += value.columns;
    forward.writes.push_back(graph.add(std::move(value)));
  }
  forward.kernel = graph.kernels.remember;
  const std::vector<int> cached = forward.writes;
  graph.operations.push_back({{forward}});
  return cached;
}

}  // namespace

int Division::redistribute(Graph& graph, int v, Distribution to) {
  if (graph.setting.pieces == 1) return v;
  const Distribution from = graph.value(v).tensor_distribution;
  if (from == to) return v;
  const bool gathers = from == Distribution::rows && to == Distribution::replicated;
  const auto found = summed_.find(v);
  if (found != summed_.end() && !gathers) return found->second;
  if (!gathers && !(from == Distribution::partial && to == Distribution::rows))
    throw std::logic_error(graph.value(v).name +
                           " can't be brought to the layout that an operation takes it in");
  const int made = graph.add_like(v, gathers ? "all " : "sum of ");
  if (!gathers) summed_[v] = made;
  Value& value = graph.value(made);
  value.tensor_distribution = to;
  value.keep = Keep::never;
  value.rows =
      gathers ? value.rows * graph.setting.tensor_ranks : value.rows / graph.setting.tensor_ranks;
  graph.operations.push_back(gathers ? gather(graph, {v}, {made}, plan::Axis::tensor)
                                     : sum(graph, v, made));
  return made;
}

std::vector<int> Division::whole_over_parts(Graph& graph, const std::vector<int>& own,
                                            std::int64_t cached_rows) {
  if (graph.setting.decodes) return remember(graph, own, cached_rows);
  if (graph.setting.context_ranks == 1) return own;
  std::vector<int> rest;
  for (int v : own)
    if (whole_.count(v) == 0 && !contains(rest, v)) rest.push_back(v);
  if (!rest.empty()) {
    const std::vector<int> whole = graph.add_like(rest, "all ");
    for (std::size_t i = 0; i < rest.size(); ++i) {
      Value& value = graph.value(whole[i]);
      value.rows *= graph.setting.context_ranks;
      value.part_distribution = Distribution::replicated;
      value.has_interleaved_pieces = value.pieces > 1;
      value.keep = Keep::never;
      whole_[rest[i]] = whole[i];
    }
    graph.operations.push_back(gather(graph, rest, whole, plan::Axis::shard));
  }
  std::vector<int> all;
  for (int v : own) all.push_back(whole_.at(v));
  return all;
}

Call Division::gather_pieces(Graph& graph, int own) {
  const int all = graph.add_like(own, "all ");
  Value& value = graph.value(all);
  value.rows *= graph.setting.pieces;
  value.pieces = 1;
  value.tensor_distribution = Distribution::replicated;
  Call call{"gather " + graph.value(own).name, {own}, {all}};
  call.exchange = {plan::ExchangeKind::gather, span_of(graph, plan::Axis::tensor),
                   value.rows * value.columns, graph.setting.element_bytes(value.element)};
  return call;
}

int Division::whole_weight(Graph& graph, int weight, bool is_summed, std::int64_t leaves) {
  if (graph.setting.pieces == 1) return weight;
  const auto [found, is_new] = weights_.try_emplace(weight, WholeWeight{-1, is_summed, leaves});
  if (is_new) {
    const Weight& of = graph.weight(weight);
    found->second.value = graph.add({of.name, 1, of.elements * graph.setting.pieces});
    if (is_summed && of.trained) graph.summed_weights[found->second.value] = leaves;
  } else if (found->second.is_summed != is_summed || found->second.leaves != leaves) {
    throw std::logic_error("the gradient of a weight is summed in two ways: " +
                           graph.weight(weight).name);
  }
  return in_place_of_weight(found->second.value);
}

void Division::gather_weights(Graph& graph) {
  if (weights_.empty()) return;
  const plan::Span span = span_of(graph, plan::Axis::tensor);
  std::vector<int> weights, values, summed, gradients;
  std::vector<std::int64_t> leaves;  // of those gradients
  std::int64_t elements = 0, summed_elements = 0, waiting = 0;
  for (const auto& [w, of] : weights_) {
    const Weight& weight = graph.weight(w);
    const std::int64_t all = weight.elements * graph.setting.pieces;
    weights.push_back(w);
    values.push_back(of.value);
    elements += all;
    if (!of.is_summed || !weight.trained) continue;
    summed.push_back(w);
    gradients.push_back(gradient_of(of.value));
    leaves.push_back(of.leaves);
    summed_elements += of.leaves * all;
    waiting = std::max(waiting, (math::tree_slots(of.leaves) - 1) * all / span.ranks);
  }
  const auto add = [&](const char* name, std::int64_t count, Element element) {
    Value value{name, 1, count, element, Keep::never};
    return graph.add(value);
  };
  const int own = add("own weights", elements / span.ranks, Element::number);
  const int all = add("all weights", elements, Element::number);
  Call hand{"hand weights", {}, {own}, weights};
  hand.kernel = graph.kernels.hand_weights;
  Call gather{"gather weights", {own}, {all}};
  gather.exchange = {plan::ExchangeKind::gather, span, elements, graph.setting.number_bytes};
  Call take{"take weights", {all}, values};
  take.kernel = graph.kernels.take_weights;
  Operation operation{{hand, gather, take}};
  if (!summed.empty()) {
    const int sums = add("d weights", summed_elements, Element::sum);
    const int of_own = add("d own weights", summed_elements / span.ranks, Element::sum);
    Call join{"join d weights", gradients, {sums}};
    join.leaves = leaves;
    join.kernel = graph.kernels.join_gradients;
    Call sum{"sum d weights", {sums}, {of_own}};
    sum.exchange = {plan::ExchangeKind::reduce_scatter, span, summed_elements,
                    graph.setting.sum_bytes};
    Call give{"give d weights", {of_own}, {}};
    give.gradients = summed;
    give.leaves = leaves;
    give.runs_deferred = true;
    give.scratch = {waiting * graph.setting.sum_bytes};
    give.kernel = graph.kernels.give_gradients;
    operation.backward = {join, sum, give};
  }
  graph.operations.insert(graph.operations.begin(), std::move(operation));
}

namespace {

bool is_in_pieces(const Graph& graph, int id) {
  return graph.value(is_gradient(id) ? primal_of(id) : id).tensor_distribution ==
         Distribution::columns;
}

}  // namespace

bool is_by_piece(const Graph& graph, const Call& call) {
  const auto in_pieces = [&](int id) { return is_in_pieces(graph, id); };
  return !call.exchange && (any_of(call.reads, in_pieces) || any_of(call.writes, in_pieces));
}

void set_pieces(const Graph& graph, Operation& operation) {
  const Setting& s = graph.setting;
  if (s.pieces == 1) return;
  const auto set = [&](Call& call) {
    call.is_by_piece = is_by_piece(graph, call) ||
                       (!call.takes_all_pieces && (any_of(call.weights, Call::is_weight) ||
                                                   any_of(call.gradients, Call::is_weight)));
    if (!call.is_by_piece) return;
    const auto own = static_cast<double>(s.own_pieces());
    call.flops *= own;
    call.repeated_flops *= own;
    call.work = plan::times_as_long(call.work, own);
    const auto is_kept = [&](int id) {
      return !is_gradient(id) && is_in_pieces(graph, id) && !s.makes_again(graph.value(id).keep);
    };
    if (s.chunks > 1 && call.is_by_row && call.flops > 0.0 &&
        (any_of(call.reads, is_kept) || any_of(call.writes, is_kept)))
      call.runs = s.tensor_ranks * s.chunks;
  };
  for (Call& call : operation.forward) set(call);
  if (operation.recompute) set(*operation.recompute);
  for (Call& call : operation.backward) {
    set(call);
    call.runs = 1;
  }
}

}  // namespace ostrakon::model::graph
