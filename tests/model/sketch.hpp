// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <ostrakon/model/graph/division.hpp>
#include <ostrakon/model/graph/lists.hpp>
#include <ostrakon/model/graph/passes.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

// Graphs of operations without kernels.

namespace ostrakon::test::sketches {

using namespace model::graph;
using Values = std::vector<int>;

constexpr std::int64_t rows = 4, width = 8, cached_rows = 32;

/// A graph that is built call by call. Names of calls are those of what they make.
struct Sketch {
  Graph g;
  Division division;
  std::set<std::string> frozen;

  explicit Sketch(const Setting& setting = {}) {
    g.setting = setting;
    g.inputs = {value("x")};
  }
  int input() const { return g.inputs.front(); }
  int value(const std::string& name, Keep keep = Keep::always, std::int64_t columns = width) {
    Value v{name, rows, columns};
    v.keep = keep;
    return g.add(v);
  }
  int weight(const std::string& name, std::int64_t elements) {
    const std::int64_t offset =
        g.weights.empty() ? 0 : g.weights.back().offset + g.weights.back().elements;
    g.weights.push_back({name, offset, elements, frozen.count(name) == 0});
    return static_cast<int>(g.weights.size()) - 1;
  }
  /// x W, or onto + x W.
  int linear(int x, const std::string& name, Keep keep = Keep::always, int onto = -1) {
    const int y = value(name, keep);
    product(x, name, {y}, onto);
    return y;
  }
  /// Queries, keys and values, which are columns of one array.
  Values qkv(int x, const std::string& name, Keep keep = Keep::always) {
    const int group = g.add_group(3 * width);
    Values made;
    for (const char* which : {".q", ".k", ".v"}) {
      made.push_back(value(name + which, keep));
      g.values.back().group = group;
      g.values.back().first_column = width * static_cast<std::int64_t>(made.size() - 1);
    }
    product(x, name, made, -1);
    return made;
  }
  void product(int x, const std::string& name, const Values& made, int onto) {
    const int w = weight(name, 16);
    Call forward{name, {x}, made, {w}};
    forward.flops = 100;
    Values dy;
    for (int y : made) dy.push_back(~y);
    Call gradient{"d " + name + ".weight", dy, {}};
    gradient.reads.push_back(x);
    gradient.gradients = {w};
    Call input{"d " + name, dy, {~x}, {w}};
    input.can_add = true;
    gradient.flops = input.flops = 100;
    gradient.scratch = {40};
    Operation operation{{forward}, {gradient, input}};
    if (onto >= 0) {
      operation.forward.front().reads.push_back(onto);
      operation.residuals = {onto};
    }
    g.operations.push_back(operation);
  }
  static std::shared_ptr<const FusedKernel> fused(std::vector<FusedKernel::Other> others) {
    return std::make_shared<FusedKernel>(FusedKernel{std::move(others), {}});
  }
  int norm(int x, const std::string& name, Keep statistics = Keep::norms) {
    const int y = value(name, Keep::never), s = value(name + ".statistics", statistics, 1);
    const int w = weight(name, width);
    Call gradient{"d " + name + ".weight", {x, ~y, s}, {}};
    gradient.gradients = {w};
    gradient.scratch = {24};
    Call input{"d " + name, {x, ~y, s}, {~x}, {w}};
    input.can_add = true;
    gradient.tag = "d weight of " + name;
    const std::string again = "again " + name;
    input.fused = fused({{gradient.tag}, {again, FusedKernel::Order::beside, 0, 1}});
    g.operations.push_back({{{name, {x}, {y, s}, {w}}}, {gradient, input}});
    g.operations.back().recompute = Call{name + " of statistics", {x, s}, {y}, {w}};
    g.operations.back().recompute->tag = again;
    return y;
  }
  int activation(int x, const std::string& name) {
    const int y = value(name, Keep::never);
    Call forward{name, {x}, {y}}, backward{"d " + name, {x, ~y}, {~x}};
    forward.tag = "again " + name;
    backward.replaces = {{~x, x}};
    backward.fused = fused({{forward.tag, FusedKernel::Order::beside, 0, 1}});
    g.operations.push_back({{forward}, {backward}});
    return y;
  }
  /// Takes all inputs but the first whole over parts.
  int attention(Values inputs, const std::string& name, Keep keep = Keep::attention) {
    const Values whole =
        division.whole_over_parts(g, {inputs.begin() + 1, inputs.end()}, cached_rows);
    std::copy(whole.begin(), whole.end(), inputs.begin() + 1);
    const int y = value(name, keep);
    Call forward{name, inputs, {y}};
    forward.flops = 100;
    forward.scratch = {100};
    Call backward{"d " + name, inputs, {}};
    append(backward.reads, {y, ~y});
    for (int v : inputs) backward.writes.push_back(~v);
    backward.flops = 250;
    backward.repeated_flops = 50;
    g.operations.push_back({{forward}, {backward}});
    return y;
  }
  int add_attention(int x, const std::string& name) {
    const Values all = qkv(norm(x, name + ".norm"), name + ".qkv");
    return linear(attention(all, name), name + ".out", Keep::always, x);
  }
  int add_mlp(int x, const std::string& name) {
    const int up = linear(norm(x, name + ".norm"), name + ".up", Keep::mlp);
    return linear(activation(up, name + ".act"), name + ".down", Keep::always, x);
  }
  Graph block() {
    const int y = add_mlp(add_attention(input(), "a"), "m");
    return with_output(y);
  }
  Graph with_output(int y) {
    g.outputs = {y};
    return g;
  }
};

inline Setting setting(bool drops, bool defers = false, std::int64_t parts = 1) {
  Setting s;
  s.drops_norms = s.drops_attention = s.drops_mlp = drops;
  s.defers = defers;
  s.context_ranks = parts;
  return s;
}

inline Listing in_order(Graph graph) {
  Listing listing = differentiate(std::move(graph));
  keep(listing);
  if (listing.graph.setting.defers) defer(listing);
  order(listing);
  return listing;
}
inline const Call& named(const Calls& calls, const std::string& name) {
  const auto is_it = [&](const Call& one) { return one.name == name; };
  if (std::count_if(calls.begin(), calls.end(), is_it) != 1)
    throw std::runtime_error("not one: " + name);
  return *std::find_if(calls.begin(), calls.end(), is_it);
}
inline int id(const Graph& graph, const std::string& name) {
  for (std::size_t v = 0; v < graph.values.size(); ++v)
    if (graph.values[v].name == name) return static_cast<int>(v);
  throw std::runtime_error("no value " + name);
}
inline bool starts(const std::string& name, const char* with) { return name.rfind(with, 0) == 0; }

inline void expect_deferred_calls_alone(const Listing& listing) {
  std::set<int> exchanged, own;
  for (const Calls* calls : {&listing.forward, &listing.backward})
    for (const Call& call : *calls)
      if (call.exchange) exchanged.insert(call.writes.begin(), call.writes.end());
  for (const Call& call : listing.deferred) {
    for (int w : call.weights) EXPECT_LT(w, 0) << call.name;
    for (int v : call.reads) {
      EXPECT_EQ(exchanged.count(v), 0u) << call.name << " reads " << listing.value(v).name;
      EXPECT_EQ(listing.gradient_aliases.count(v), 0u)
          << call.name << " reads " << listing.value(v).name;
    }
  }
}

}  // namespace ostrakon::test::sketches
