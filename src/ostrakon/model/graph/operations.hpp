// SPDX-License-Identifier: Apache-2.0
#pragma once

// The operations of which units are made. Each appends itself to a graph and returns the value, or
// the values, that it makes; it says once what its kernels read and write, forward and backward.

#include <map>
#include <ostrakon/math/attention/attention.hpp>
#include <ostrakon/math/attention/head_norm.hpp>
#include <ostrakon/math/attention/latent_keys.hpp>
#include <ostrakon/math/attention/rotary_frequencies.hpp>
#include <ostrakon/math/cross_entropy/logits.hpp>
#include <ostrakon/math/experts/routing.hpp>
#include <ostrakon/math/rows/norm.hpp>
#include <ostrakon/model/decoder.hpp>
#include <ostrakon/model/graph/division.hpp>
#include <ostrakon/model/moe_dispatch_layout.hpp>
#include <string>
#include <vector>

namespace ostrakon::model::graph {

/// A mixture of experts in a graph: what routes its rows, and what came of that.
struct Experts {
  math::Router router;
  double loss_factor = 0.0;  ///< of the auxiliary loss; 0: none

  std::int64_t rows = 0, leaves = 1;
  int lists = -1;        ///< value of bytes: routes of rows, without weights
  int weights = -1;      ///< (rows, experts of each)
  int dx = -1;           ///< the gradient of the router's input by its product, in backward
  int handed_over = -1;  ///< value of bytes: what is handed to experts that are a unit of their own
  std::string name = "mlp";  ///< of the mixture, with which those of its parameters begin
};

/// What makes logits: x W^T + b, by weights of the graph, and what becomes of that.
struct Head {
  int weight = -1;  ///< (words, columns of x)
  int bias = -1;    ///< (words); -1: none
  std::int64_t words = 0;
  math::LogitForm form = {};
  /// How many tokens rows predict, each by rows of its own that Operations::stack_leaves has
  /// stacked; and the factor of the mean of further ones' losses: math::MultiTokenTargets.
  std::int64_t depths = 1;
  double multi_token_factor = 0.0;

  std::vector<int> weights() const {
    return bias < 0 ? std::vector<int>{weight} : std::vector<int>{weight, bias};
  }
};

/// Tables in which rows are looked up, by weights of the graph.
struct Lookup {
  int table = -1;      ///< (words, width)
  int positions = -1;  ///< (positions, width), of which rows are added by position; -1: none
  std::int64_t words = 0;
  bool by_targets = false;  ///< not the token of a row, but the next one is looked up
};

/// Builds a graph for leaves of one shape. T: float, double, bf16 or fp16.
template <class T>
class Operations {
 public:
  /// Begins a unit with these parameters, laid out in the leaf's tensor pieces, and so many inputs
  /// (rows of the leaf, width).
  Operations(const LeafShape& leaf, const Recompute& recompute,
             const std::vector<Parameter>& parameters, std::int64_t width, int inputs = 1);

  /// Has names of weights, values and calls from now on begin so: for one of several blocks.
  void set_prefix(const std::string& prefix) { prefix_ = prefix; }
  /// Has linear() multiply in this dtype from now on: for one of several blocks.
  void set_products(math::ProductDType dtype) { leaf_.products.dtype = dtype; }

  int input() const { return graph_.inputs.front(); }
  /// The graph of a unit with these outputs.
  Graph take(std::vector<int> outputs) &&;

  /// Values that are columns of one array, from the first one on: (rows, columns[i]) each. They are
  /// what a layer makes of whole rows: tensor ranks have some columns of each.
  std::vector<int> columns(const std::vector<std::string>& names,
                           const std::vector<std::int64_t>& columns);

  /// (x - mean) rstd gain + bias, x (rows, width); parameters `name`.weight, unless the settings
  /// say that there is none, and, if there is one, .bias.
  int norm(int x, const std::string& name, const NormSettings& settings);
  /// x W^T + b; parameters `name`.weight (columns, inputs) and, if there is one, .bias. Tensor
  /// ranks have columns of it, or, where they have columns of x, rows. `halves_gradient`: where it
  /// is in pieces, that of the weight is computed in two products, so that each can run beside an
  /// exchange.
  int linear(int x, const std::string& name, std::int64_t columns, Keep keep = Keep::always,
             bool halves_gradient = false);
  /// Computes x W^T + b, and onto + that, rounded once, into values `made`, whose columns those of
  /// the result are, in their order: in a product for each of `products`, neighbours among these,
  /// in this order.
  void linear(int x, const std::string& name, const std::vector<int>& made,
              const std::vector<std::vector<int>>& products, bool halves_gradient = false,
              int onto = -1);
  /// onto + x W^T + b, rounded once.
  int linear_onto(int onto, int x, const std::string& name, const std::string& made);
  /// y with scale x A^T B^T added to its columns from `first` on, in place of y: parameters
  /// `layer`.lora_a.weight (rank, inputs) and .lora_b.weight (outputs, rank). Nothing is in pieces.
  int adapt(int y, int x, const std::string& layer, std::int64_t first, double scale);
  /// The norm of each head by itself, in place of x; parameter `name`.weight (head width), if the
  /// norm has one, or with own weights (columns), of which tensor ranks have those of their heads.
  int head_norm(int x, const std::string& name, const math::HeadNorm& norm, bool has_own_weights);
  /// RMS norm of all columns of a row, whichever ranks have them, of each of the values x and in
  /// its place. Parameters of each: its name + .weight (columns), if `gain` has one.
  std::vector<int> row_norms(const std::vector<int>& x, const std::vector<std::string>& names,
                             math::NormWeight gain, double epsilon);
  /// Heads rotated by their positions, in place of the values x, which are neighbours.
  std::vector<int> rotary(const std::vector<int>& x, const std::string& name,
                          std::int64_t head_width, const math::RotaryFrequencies& frequencies);
  /// x W^T of the rows that a rank has; parameter `name`.weight (columns, inputs), which every rank
  /// takes whole.
  int row_linear(int x, const std::string& name, std::int64_t columns);
  /// Columns of x, all of them, as several values.
  std::vector<int> split(int x, const std::string& name, const std::vector<std::string>& names,
                         const std::vector<std::int64_t>& columns);
  /// Into `keys` and `values`, neighbours in one array: `own` has the keys of all heads without
  /// their first elements, then the values; `shared` (rows, elements) has those first elements, the
  /// same for all heads.
  void join_keys(int own, int shared, const std::string& name, int keys, int values,
                 std::int64_t head_width);
  /// The values x, neighbours, clamped to [-limit, limit], as neighbours of an array of their own.
  std::vector<int> clip(const std::vector<int>& x, const std::string& name, double limit);
  /// Causal attention of queries (rows, heads * head_width) to keys and values, of as many heads or
  /// fewer, neighbours in one array; heads of values may have another width. The settings say what
  /// scores are; with sinks there is a parameter `name`.sinks (heads).
  int attention(int queries, int keys, int values, const std::string& name, std::int64_t head_width,
                const AttentionSettings& settings);
  /// Attention of queries to one head, whose keys are `keys` and behind them `latents`, which are
  /// its values, too: (rows, heads * columns of latents). For decoding: it has no backward.
  int latent_attention(int queries, int keys, int latents, const std::string& name,
                       const AttentionSettings& settings);
  /// Queries (rows, heads * head_width) as latent_attention takes them: of each head the first
  /// `shared_width` elements, and behind them the others times the rows of `name`.weight that make
  /// the head's keys of a latent.
  int absorb_keys(int queries, const std::string& name, const math::LatentHeads& heads);
  /// What latent_attention made times the rows of `name`.weight that make the heads' values of a
  /// latent: (rows, heads * value_width).
  int absorb_values(int latents, const std::string& name, const math::LatentHeads& heads);
  /// A causal convolution of each column, with SiLU behind it; parameter `name`.weight (columns,
  /// taps).
  int convolution(int x, const std::string& name, std::int64_t taps);
  /// The gated delta rule of x, queries, keys and values of all heads, and of gates (rows, 2 heads
  /// of values): (rows, value_heads * value_width); parameters `name`.decay and `name`.step (heads
  /// of values). See math/delta_net/delta_rule.hpp.
  int delta_rule(int x, int gates, const std::string& name, const DeltaNetSettings& settings);
  /// RMS norm of each head by itself times silu(gate); parameter `name`.weight (head width).
  int gated_norm(int x, int gate, const std::string& name, std::int64_t head_width, double epsilon);
  /// The activation of x, or of gate and up side by side.
  int activation(int x, const std::string& name, Activation activation);
  /// x * sigmoid(gate), gate (rows, 1), or as many columns as x.
  int gate(int x, int gate, const std::string& name);
  /// cap * tanh(x / cap).
  int soft_cap(int x, const std::string& name, double cap);

  // A mixture of experts: y = onto + (shared(n) + the sum over a row's experts e of weight_e
  // mlp_e(n)). Rows are copied, sorted by expert, and each expert multiplies its run of copies: no
  // row is dropped, and the size of every array follows from the shape of the leaf. A row's result
  // depends on no other row, and an expert's gradient of a leaf on none outside of the leaf; see
  // math/products/gemm.hpp (gemm_by_row) for the exceptions. Experts' MLPs are Experts::name +
  // ".experts.3"
  // + `layer`.

  /// Routes rows of x by x W^T, in compute_t<T> like all that follows from it up to the weights;
  /// parameters `name`.weight (experts, columns) and, if there is one, .balance. Returns copies of
  /// the rows, (rows * experts.router.per_token, columns).
  int dispatch(int x, const std::string& name, Experts& experts);
  /// x W^T + b of such copies by their experts.
  int expert_linear(const Experts& experts, int x, const std::string& layer);
  /// onto + (shared + the sum of weights times x W^T + b), rounded once; onto, shared: -1: none.
  int combine(const Experts& experts, int onto, int shared, int x, const std::string& layer);
  /// dispatch() for experts that are a unit of their own, which copy rows themselves: returns x as
  /// the router takes it.
  int route_apart(int x, const std::string& name, const MoeDispatchLayout& dispatch,
                  Experts& experts);
  /// What is handed to such a unit: onto, and what it takes besides, see MoeDispatchLayout. Where
  /// that keeps it apart, `onto` is not added to.
  std::vector<int> hand_to_experts(const Experts& experts, int onto, int shared, int x,
                                   const MoeDispatchLayout& dispatch);

  /// table[token], and with learned positions + positions[position]: (rows, width).
  int embedding(const Lookup& lookup, std::int64_t width);
  /// Columns of x, then those of y.
  int join(int x, int y, const std::string& name);
  /// Values (rows of the leaf, columns), whole on each rank, as the rows of one: of each leaf the
  /// rows of all of them, one value after the other.
  int stack_leaves(const std::vector<int>& x);
  /// The last row of each run that is decoded, (sequences, columns).
  int last_rows(int x);
  /// Logits of x, in compute_t<T>.
  int logits(int x, const Head& head);
  /// Cross-entropy of the logits of x with the targets, in nats: (rows), in compute_t<T>, or where
  /// several tokens are predicted (depths * rows), one depth after the other; where the leaf has
  /// pairs, the arrays of math::PairOutput. The unit computes losses, then.
  int cross_entropy(int x, const Head& head);
  /// A parameter, laid out, of the unit that this one is tied to.
  int tied_weight(const Parameter& parameter);

  /// What other operations are appended to, by append().
  Graph& graph() { return graph_; }
  void append(Operation operation);
  /// The value as ranks have it for an operation that takes it so.
  int redistribute(int x, Distribution over) { return division_.redistribute(graph_, x, over); }
  /// The weight as an operation on rows takes it: entries of Call::weights and Call::gradients.
  int whole_weight(const std::string& name, bool is_summed = true) {
    return division_.whole_weight(graph_, weight(name), is_summed);
  }
  /// A value in numbers, with rows of the tensor rank alone.
  int rows_of_rank(int x);
  /// Adds a parameter of the unit; its offset may follow. Returns its number.
  int add_weight(const Parameter& parameter);
  /// The number of the parameter with this name, or -1.
  int weight(const std::string& name) const;
  /// `name`.weight and, if there is one, .bias.
  std::vector<int> weights_of(const std::string& name) const;
  std::int64_t elements_of(int weight) const {
    return graph_.weights[static_cast<std::size_t>(weight)].elements;
  }

 private:
  using Compute = compute_t<T>;

  const Value& value(int v) const { return graph_.values[static_cast<std::size_t>(v)]; }
  /// Adds (rows of the leaf, columns), as ranks have it where they have it so.
  int add(const std::string& name, std::int64_t columns, Distribution over,
          Keep keep = Keep::always, Element element = Element::number);
  /// Adds (rows of `x`, columns), as ranks have `x`.
  int add_for(int x, const std::string& name, std::int64_t columns, Keep keep = Keep::always,
              Element element = Element::number);
  /// See Division::whole_weight.
  std::vector<int> whole_weights_of(const std::string& name, std::int64_t leaves = 1);
  /// Leaves in which gradients are summed over the rows of x.
  std::int64_t leaves_of(int x) const {
    return value(x).tensor_distribution == Distribution::rows ? leaf_.own_row_leaves()
                                                              : leaf_.leaves();
  }
  /// Adds what runs of a decoded sequence pass on: (rows, columns) of each sequence, whatever rows
  /// runs have.
  int add_state(const std::string& name, std::int64_t rows, std::int64_t columns, Element element);
  /// A value in place of x, whose columns are among those of one array.
  int add_among_columns(int x, const std::string& name);
  /// Returns the work of reading and writing so many columns of the rows of x.
  plan::KernelWork row_work(int x, std::int64_t columns, double kernels = 1.0) const;
  /// The call with the cost of one pass over so many columns of the rows of x.
  Call pass(Call call, int x, std::int64_t columns) const;
  /// The call with the cost of one product of the rows of x.
  Call product(Call call, int x, std::int64_t inputs, std::int64_t outputs) const;
  /// Calls of backward. `halves`: of the weight's gradient.
  Calls linear_backward(int x, const std::string& name, const std::vector<int>& made,
                        std::int64_t outputs, int halves) const;
  /// Has rotations of norms of heads, if x are that, lead joints with these.
  void join_norms(const std::vector<int>& x, const math::RotaryFrequencies& frequencies,
                  Call& forward, Call& backward) const;
  int add_bytes(const std::string& name, std::int64_t bytes);
  /// `dispatch`: where experts are a unit of their own.
  Operation route(int x, const std::string& name, const MoeDispatchLayout* dispatch,
                  Experts& experts);
  /// x W^T of columns of x, a sum over pieces and ranks.
  int sum_of_product(int x, const std::string& name, std::int64_t outputs);
  /// A sum as numbers: sum, rounded, + bias; or onto + (sum + bias), rounded once. Which weight the
  /// bias is, if it exists.
  int round_sum(int sum, const std::string& made, const std::string& bias = "", int onto = -1);
  math::AttentionShape attention_shape(int queries, std::int64_t head_width,
                                       const AttentionSettings& settings) const;
  /// Attention of this shape, of sequences that are whole.
  int attend(int queries, int own_keys, int own_values, const std::string& name,
             const math::AttentionShape& whole_shape, bool has_sinks);
  int losses_of_whole_words(int x, const Head& head);
  int losses_of_some_words(int x, const Head& head);
  int losses_of_pairs(int x, const Head& head);
  std::int64_t columns_of(int v) const { return value(v).columns; }
  const std::string& name_of(int v) const { return value(v).name; }

  LeafShape leaf_;
  std::string prefix_;
  Graph graph_;
  Division division_;
  std::map<std::string, int> weights_;  // by name
  struct NormOfHeads {
    math::HeadNorm norm;
    bool has_own_weights;  // of each head
  };
  std::map<int, NormOfHeads> head_norms_;  // by what they make
  std::int64_t counted_ = 0;               // experts of the mixtures so far, which count their rows
};

}  // namespace ostrakon::model::graph
