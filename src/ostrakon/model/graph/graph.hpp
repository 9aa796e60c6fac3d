// SPDX-License-Identifier: Apache-2.0
#pragma once

// A unit as a graph of operations: what is computed, from what, and nothing about where it lies or
// when it is computed. Passes derive the rest; passes.hpp has them in reading order.
//
// Plain C++: sizes and numbers of values, no arrays and no Kokkos.

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <ostrakon/plan/ir/kernel_work.hpp>
#include <ostrakon/plan/ir/phase.hpp>
#include <string>
#include <utility>
#include <vector>

namespace ostrakon::model::graph {

struct Kernel;  // kernel.hpp
struct FusedKernel;

/// What an element of a value is: a number of the model's type T, a sum in compute_t<T>, or a byte
/// of something that only one operation understands.
enum class Element : std::uint8_t { number, sum, byte };

/// Whether forward leaves a value for backward. `never`: a pass over memory makes it again.
/// `norm_outputs`, `activations`: only if the setting of that name keeps it, as a pass makes these
/// again, too. `norms`, `attention`, `mlp`: unless the setting of that name drops it. `always`: it
/// is saved if backward reads it.
enum class Keep : std::uint8_t { never, norm_outputs, activations, norms, attention, mlp, always };

/// How the ranks of an axis have a value: each all of it, some of its rows, or some of its columns,
/// in pieces; or an addend of it.
enum class Distribution : std::uint8_t { replicated, rows, columns, partial };

/// What one call writes, and none changes: (rows, columns) elements of this rank, or as many of
/// each of its pieces.
struct Value {
  std::string name;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  Element element = Element::number;
  Keep keep = Keep::always;
  Distribution tensor_distribution =
      Distribution::replicated;  ///< over ranks that compute rows together, Setting::pieces
  Distribution part_distribution =
      Distribution::rows;   ///< over ranks that have a part of each sequence
  std::int64_t pieces = 1;  ///< matrices of this size, where its columns are divided
  /// Its pieces are columns of one matrix, not one matrix after the other: so they travel over
  /// parts.
  bool has_interleaved_pieces = false;
  /// It is chunk `chunk` of the rows of value `whole`; -1: it is none. `is_in_whole`: it lies
  /// there.
  int whole = -1;
  std::int64_t chunk = 0;
  bool is_in_whole = false;
  /// Rows that it has for each of the leaf's, in an order that data choose; 0: its rows are the
  /// leaf's.
  std::int64_t per_row = 0;
  /// It has rows of tokens of earlier calls, too, or a state behind all of these: what decoding
  /// keeps. Calls take all of it.
  bool is_cached = false;
  bool is_per_run = false;  ///< where sequences are decoded, it has a row of each run
  /// Values of one group are columns of one array, this one from `first_column` on. -1: it has an
  /// array of its own.
  int group = -1;
  std::int64_t first_column = 0;
};

/// An array of the unit's flat parameter.
struct Weight {
  std::string name;
  std::int64_t offset = 0;    ///< in its segment; of the first piece
  std::int64_t elements = 0;  ///< of one piece
  bool trained = true;        ///< it is in the trained segment, and backward computes its gradient
  bool tied = false;          ///< it is of the unit that this one is tied to
  std::int64_t stride = 0;    ///< elements from one piece to the next
};

/// In lists of an operation's backward v >= 0 is a value, and ~v the gradient of value v.
constexpr int gradient_of(int v) { return ~v; }
constexpr bool is_gradient(int id) { return id < 0; }
constexpr int primal_of(int gradient) { return ~gradient; }

/// In lists of weights w >= 0 is a weight, and ~v a value v that stands for one: a gathered copy of
/// it, or what is written in place of its gradient.
constexpr int in_place_of_weight(int v) { return ~v; }
constexpr bool is_value(int entry) { return entry < 0; }
constexpr int value_of(int entry) { return ~entry; }

/// One kernel, or a few that nothing comes between.
struct Call {
  std::string name;
  std::vector<int> reads;         ///< values
  std::vector<int> writes;        ///< values
  std::vector<int> weights = {};  ///< that it reads, or values
  /// Weights whose gradients it writes, or values, in an operation values whose gradients it
  /// writes; `none`: of what is not trained.
  std::vector<int> gradients = {};
  std::int64_t gradient_elements = 0;  ///< of the one gradient of which it writes a part; 0: all
  /// Whether it can add gradients of weights to what is there: finished ones, as a whole.
  bool can_add_gradients = false;
  /// {written, read}: the first may lie where the second does; `in_place`: it has to.
  std::vector<std::pair<int, int>> replaces = {};
  bool in_place = false;
  /// Whether it can add the one value that it writes to the gradient that is there already.
  bool can_add = false;
  bool adds_from_anywhere = false;  ///< then what it adds to need not lie where it writes
  /// Whether it runs with what is deferred, if anything is, though it may have no product.
  bool runs_deferred = false;
  /// Whether deferred calls have it run again rather than find what it has written, which takes
  /// more memory than what it reads.
  bool rematerialize = false;
  bool adds = false;  ///< it adds to the last value that it reads
  /// A row of what it writes takes that row alone of what it reads.
  bool is_by_row = true;
  bool is_by_piece = false;       ///< it computes one piece at a time; see set_pieces
  bool takes_all_pieces = false;  ///< it takes all pieces of its weights at once
  /// Number of terms of the product of a piece: in a call by piece that can add it to a sum.
  /// Without it each piece is written by itself.
  std::int64_t inner_dimension = std::numeric_limits<std::int64_t>::max();
  /// Equal runs of its rows that are computed one by one.
  std::int64_t runs = 1;
  bool is_recomputed = false;  ///< backward computes once more what forward has computed
  std::vector<std::int64_t> scratch = {};  ///< bytes of arrays that it works with
  /// How many leaves each gradient has that it joins or gives; see Graph::summed_weights.
  std::vector<std::int64_t> leaves = {};
  double flops = 0.0;
  double repeated_flops = 0.0;  ///< of these, what backward computes once more inside of the call
  plan::KernelWork work = {};
  std::optional<plan::Exchange> exchange = {};  ///< it is no kernel, but this
  std::shared_ptr<const Kernel> kernel = {};
  std::string tag = {};                           ///< by which a FusedKernel names it
  std::shared_ptr<const FusedKernel> fused = {};  ///< that it leads
  /// Calls that its kernel computes, each with its own lists, in the order in which they would run;
  /// and of one of them its number in the FusedKernel. Values that one makes and another takes are
  /// among those that the call writes alone.
  std::vector<Call> parts = {};
  int part = 0;

  static constexpr int none = 1 << 30;
  static constexpr bool is_weight(int entry) { return entry >= 0 && entry != none; }
  /// All values that it reads, also as weights.
  std::vector<int> all_reads() const {
    std::vector<int> all = reads;
    for (int w : weights)
      if (is_value(w)) all.push_back(value_of(w));
    return all;
  }
  /// Has it read value found(v) in place of each v.
  template <class Found>
  void read_from(const Found& found) {
    for (int& v : reads) v = found(v);
    for (int& w : weights)
      if (is_value(w)) w = in_place_of_weight(found(value_of(w)));
    for (Call& one : parts) one.read_from(found);
  }
  bool writes_gradients() const {
    for (int gradient : gradients)
      if (gradient != none) return true;
    return false;
  }
};
using Calls = std::vector<Call>;

/// One kernel for a call, which leads, and for others that work with some of the same values; the
/// pass `fuse` finds these. It computes whichever of the others are there.
struct FusedKernel {
  /// `beside`: the other takes what the leading call takes. `before`: it makes that. `behind`: it
  /// takes what the leading call makes.
  enum class Order : std::uint8_t { beside, before, behind };
  struct Other {
    std::string tag;  ///< Call::tag
    Order order = Order::beside;
    /// The value by which they are joined has this index among those that the leading call reads,
    /// or, behind it, writes. The other reads it or, before the leading call, writes it.
    int index = 0;
    /// What the other writes first may lie where the leading call reads this value; -1: elsewhere.
    int over = -1;
    /// The index in `others` of an earlier one that stands here for the leading call, and without
    /// which this one is not joined; -1: the leading call itself.
    int to = -1;
  };
  std::vector<Other> others;
  /// Takes Arguments::part: 0 is the leading call, 1 + i others[i].
  std::shared_ptr<const Kernel> kernel;
};

/// What forward does, and how the gradients of its inputs and weights follow.
struct Operation {
  Calls forward;
  Calls backward = {};
  /// Inputs that are added to its result as they are (residual connections): the gradient of the
  /// first output is theirs, too.
  std::vector<int> residuals = {};
  /// Makes the first output of forward again from its first input, which it reads first, and from
  /// forward's other outputs.
  std::optional<Call> recompute = {};
};

/// What a graph is built for.
struct Setting {
  std::int64_t number_bytes = 4;
  std::int64_t sum_bytes = 4;
  bool drops_norms = false, drops_attention = false, drops_mlp = false;  ///< model::Recompute
  bool keeps_norm_outputs = false, keeps_activations = false;
  std::int64_t context_ranks = 1;  ///< ranks that have a part of each sequence
  /// Pieces of heads, columns and words, of which tensor ranks have equally many; between products
  /// they have some rows each. 1: nothing is divided.
  std::int64_t pieces = 1;
  std::int64_t tensor_ranks = 1;
  std::int64_t chunks = 1;  ///< of rows, which tensor ranks exchange one after the other in forward
  bool defers = false;      ///< gradients of weights are computed in phases that may run later
  bool decodes = false;     ///< sequences are decoded, some rows at a time: there is no backward
  bool fuses = false;       ///< calls that a FusedKernel names are computed by its kernel

  /// Its outputs are losses: backward, which computes them too, finds nothing of forward.
  bool is_loss = false;

  std::int64_t element_bytes(Element element) const {
    return element == Element::number ? number_bytes : element == Element::sum ? sum_bytes : 1;
  }
  std::int64_t own_pieces() const { return pieces / tensor_ranks; }
  /// Whether a pass over memory makes a value again that backward reads.
  bool makes_again(Keep keep) const {
    return keep == Keep::never || (keep == Keep::norm_outputs && !keeps_norm_outputs) ||
           (keep == Keep::activations && !keeps_activations);
  }
  bool drops(Keep keep) const {
    return is_loss || makes_again(keep) || (keep == Keep::norms && drops_norms) ||
           (keep == Keep::attention && drops_attention) || (keep == Keep::mlp && drops_mlp);
  }
};

/// Kernels of calls that are no part of an operation.
struct GraphKernels {
  /// What is read, or a weight, is copied to what is written, or to a gradient of a weight, in its
  /// type.
  std::shared_ptr<const Kernel> copy = {};
  /// The first two values read are added up.
  std::shared_ptr<const Kernel> add_up = {};
  /// The rows of each value read become the newest ones of a cached value that is written, whose
  /// rows are, for one sequence after the other, those of the latest tokens: the one at position p
  /// in row p modulo their number.
  std::shared_ptr<const Kernel> remember = {};
  /// A rank's pieces of weights, one weight after the other, are copied to the one value written;
  /// from the value read to gradients, which are the sums of their leaves there.
  std::shared_ptr<const Kernel> hand_weights = {}, give_gradients = {};
  /// The one value read, which has such pieces of each rank, one rank after the other, becomes a
  /// value for each weight; the other way round, with the leaves of a piece one after the other.
  std::shared_ptr<const Kernel> take_weights = {}, join_gradients = {};
};

/// The operations of a unit in order, and their values and weights by number.
struct Graph {
  Setting setting;
  GraphKernels kernels = {};
  std::vector<Value> values = {};
  std::vector<Weight> weights = {};
  std::vector<Operation> operations = {};
  std::vector<std::int64_t> group_columns = {};  ///< of the array of each group
  /// What the unit before hands over, in its order; the first unit has none.
  std::vector<int> inputs = {};
  /// What the unit hands to the one after it: what it passes on of its inputs, its output, and what
  /// experts take besides. Their gradients come the same way.
  std::vector<int> outputs = {};
  /// Values that weights are, whole, of which ranks have addends of a gradient; and how many leaves
  /// that gradient has, one after the other, each as large as the weight. Pieces and ranks are
  /// summed leaf by leaf, and the leaves last.
  std::map<int, std::int64_t> summed_weights = {};

  Value& value(int v) { return values[static_cast<std::size_t>(v)]; }
  const Value& value(int v) const { return values[static_cast<std::size_t>(v)]; }
  Weight& weight(int w) { return weights[static_cast<std::size_t>(w)]; }
  const Weight& weight(int w) const { return weights[static_cast<std::size_t>(w)]; }
  std::int64_t columns_of_group(int group) const {
    return group_columns[static_cast<std::size_t>(group)];
  }

  int add(Value value) {
    values.push_back(std::move(value));
    return static_cast<int>(values.size()) - 1;
  }
  int add_group(std::int64_t columns) {
    group_columns.push_back(columns);
    return static_cast<int>(group_columns.size()) - 1;
  }
  /// A value like `v` with an array of its own.
  int add_like(int v, const std::string& before = "");
  /// Values like these. Those that are columns of one array are so again, of one with no others.
  std::vector<int> add_like(const std::vector<int>& all, const std::string& before);
  /// A value like `v`, and where that is columns of an array, the same columns of an array like it,
  /// which `groups` has for each.
  int add_like(int v, std::map<int, int>& groups, const std::string& before = "");
  /// A call that copies values.
  Call copy(std::string name, std::vector<int> reads, std::vector<int> writes) const {
    Call call{std::move(name), std::move(reads), std::move(writes)};
    call.kernel = kernels.copy;
    return call;
  }

  /// Bytes of a value with all its pieces.
  std::int64_t bytes_of(int v) const {
    const Value& one = value(v);
    return one.pieces * one.rows * one.columns * setting.element_bytes(one.element);
  }
};

}  // namespace ostrakon::model::graph
