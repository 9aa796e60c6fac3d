// SPDX-License-Identifier: Apache-2.0
#pragma once

// The operations of which units are made. Each appends itself to a graph and returns the value, or
// the values, that it makes; it says once what its kernels read and write, forward and backward.

#include <ostrakon/math/norm.hpp>
#include <ostrakon/model/decoder.hpp>
#include <ostrakon/model/graph/graph.hpp>
#include <string>
#include <vector>

namespace ostrakon::model::graph {

/// Heads of attention, each (rows, width).
struct Heads {
  std::int64_t count = 1;
  std::int64_t kv_count = 1;
  std::int64_t width = 1;
};

/// Builds a graph for leaves of one shape. T: float, double, bf16 or fp16.
template <class T>
class Operations {
 public:
  /// Begins a unit with these parameters, laid out, and an input (rows of the leaf, width); 0:
  /// none.
  Operations(const LeafShape& leaf, const Recompute& recompute,
             const std::vector<Parameter>& parameters, std::int64_t width);

  int input() const { return graph_.input; }
  /// The graph of a unit with these outputs.
  Graph take(std::vector<int> outputs) &&;

  /// Values that are columns of one array, from the first one on: (rows, columns[i]) each.
  std::vector<int> columns(const std::vector<std::string>& names,
                           const std::vector<std::int64_t>& columns);

  /// (x - mean) rstd weight + bias, x (rows, width); parameters `name`.weight and, if there is one,
  /// .bias.
  int norm(int x, const std::string& name, math::NormKind kind, double epsilon);
  /// x W^T + b; parameters `name`.weight (columns, inputs) and, if there is one, .bias.
  int linear(int x, const std::string& name, std::int64_t columns, Keep keep = Keep::always);
  /// Computes x W^T + b into values `made`, whose columns those of the result are, in their order:
  /// in a product for each of `products`, neighbours among these, in this order.
  void linear(int x, const std::string& name, const std::vector<int>& made,
              const std::vector<std::vector<int>>& products);
  /// onto + x W^T + b, rounded once.
  int linear_onto(int onto, int x, const std::string& name, const std::string& made);
  /// RMS norm of each head by itself, in place of x; parameter `name`.weight (head width).
  int head_norm(int x, const std::string& name, std::int64_t head_width, double epsilon);
  /// Heads rotated by their positions, in place of the values x, which are neighbours.
  std::vector<int> rotary(const std::vector<int>& x, const std::string& name,
                          std::int64_t head_width, double base);
  /// Causal attention of queries (rows, count * width) to keys and values (rows, kv_count * width),
  /// neighbours in one array.
  int attention(int queries, int keys, int values, const std::string& name, const Heads& heads);
  /// gelu(x), or of gate and up side by side silu(gate) * up.
  int activation(int x, const std::string& name, Activation activation);

  /// token.weight[token], and with learned positions + position.weight[position]: (rows, width).
  int embedding(std::int64_t width, bool has_positions);
  /// The last of the rows that are decoded, (1, columns).
  int last_row(int x);
  /// x W^T in compute_t<T>, W (words, columns of x).
  int logits(int x, int weight);
  /// Cross-entropy of x W^T with the targets, in nats: (rows), in compute_t<T>. The unit computes
  /// losses, then. `tied_elements`: of the trained segment of the unit that it is tied to.
  int cross_entropy(int x, int weight, std::int64_t tied_elements);
  /// A parameter, laid out, of the unit that this one is tied to.
  int tied_weight(const Parameter& parameter);

  /// What other operations are appended to.
  Graph& graph() { return graph_; }
  int weight(const std::string& name) const;
  std::int64_t elements_of(int weight) const {
    return graph_.weights[static_cast<std::size_t>(weight)].elements;
  }

 private:
  using Compute = compute_t<T>;

  int add(const std::string& name, std::int64_t columns, Keep keep = Keep::always,
          Element element = Element::number);
  /// With as many rows as `x`.
  int add_for(int x, const std::string& name, std::int64_t columns, Keep keep = Keep::always,
              Element element = Element::number);
  std::vector<int> weights_of(const std::string& name) const;
  plan::KernelWork row_work(std::int64_t columns, double kernels = 1.0) const;
  double product_flops(std::int64_t inputs, std::int64_t outputs) const;
  Calls linear_backward(int x, const std::string& name, const std::vector<int>& made,
                        std::int64_t outputs) const;
  std::int64_t columns_of(int v) const {
    return graph_.values[static_cast<std::size_t>(v)].columns;
  }
  const std::string& name_of(int v) const {
    return graph_.values[static_cast<std::size_t>(v)].name;
  }

  LeafShape leaf_;
  std::int64_t rows_;
  Graph graph_;
};

}  // namespace ostrakon::model::graph
