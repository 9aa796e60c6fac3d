// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/builder.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <ostrakon/base/error.hpp>
#include <ostrakon/model/block.hpp>
#include <ostrakon/model/graph/lists.hpp>
#include <ostrakon/model/graph_unit.hpp>
#include <ostrakon/model/own_kernels.hpp>
#include <ostrakon/model/packing.hpp>
#include <set>
#include <utility>

namespace ostrakon::model {
namespace {

using graph::Arguments;
using graph::Call;
using graph::Distribution;

template <class T>
void copy_floats(const OperationForward<T>& call, std::int64_t columns, std::int64_t first_byte) {
  const View<T**> y = call.output;
  const std::int64_t first = call.first_row * columns;
  const auto floats = call.batch.template array<float>(first_byte, first + y.rows() * columns);
  for_each(
      call.exec, y.rows(), columns, KOKKOS_LAMBDA(std::int64_t i, std::int64_t j) {
        y(i, j) = T(floats(first + i * columns + j));
      });
}

/// Numbers Builders, also those that other threads make.
std::uint64_t next_builder() {
  static std::atomic<std::uint64_t> count{0};
  return ++count;
}

template <class T>
void add_matrices(const Exec& exec, View<const T**> a, View<const T**> b, View<T**> y) {
  using C = compute_t<T>;
  for_each(
      exec, y.rows(), y.columns(),
      KOKKOS_LAMBDA(std::int64_t i, std::int64_t j) { y(i, j) = T(C(a(i, j)) + C(b(i, j))); });
}

}  // namespace

template <class T>
struct Builder<T>::State {
  State(std::string unit_, const LeafShape& leaf_, std::int64_t input, Frozen frozen_,
        FindTable find_table_)
      : unit(std::move(unit_)),
        leaf(leaf_),
        operations(leaf, {}, {}, input),
        frozen(std::move(frozen_)),
        find_table(std::move(find_table_)) {}

  const std::uint64_t id = next_builder();
  std::string unit;
  LeafShape leaf;
  graph::Operations<T> operations;
  Frozen frozen;
  FindTable find_table;
  std::vector<Parameter> parameters;  // in the order of the graph's weights
  std::map<int, std::string> unread;  // values that nothing has taken, by what made them
  bool is_loss = false, reads_batch = false, reads_input = false;
  std::string tied_to, table;
  std::int64_t batch_bytes = 0;
  const Parameter* tied = nullptr;
  int losses = -1;

  graph::Graph& graph() { return operations.graph(); }
  std::int64_t pieces() const { return leaf.tensor_pieces(); }
  graph::Value& value(int v) { return graph().values[static_cast<std::size_t>(v)]; }
  bool has_columns(int v) { return value(v).tensor_distribution == Distribution::columns; }

  Value make(int v, const std::string& name) {
    unread[v] = name;
    return {v, id};
  }

  void require_value(const Value& x, const std::string& name) {
    require(x.number >= 0, name,
            " takes no value; expected one that this Builder has made, or the unit's input");
    require(x.builder == id, name, " takes a value of another unit; expected one that this ",
            "Builder has made, or the unit's input");
  }
  /// The value, which an operation takes.
  int take(const Value& x, const std::string& name) {
    require_value(x, name);
    require(!is_loss, name, " comes behind the losses; expected them last");
    if (x.number == graph().input) reads_input = true;
    unread.erase(x.number);
    return x.number;
  }
  int take_rows(const Value& x, const std::string& name) {
    const int v = take(x, name);
    require(!has_columns(v), name, " takes rows, but of ", value(v).name,
            " tensor ranks have columns; expected a linear layer between");
    return v;
  }

  Value make_losses(int v, const std::string& name) {
    is_loss = true;
    losses = v;
    return make(v, name);
  }

  /// So many bytes of the batch.
  void reads(std::int64_t bytes) {
    reads_batch = true;
    batch_bytes = std::max(batch_bytes, bytes);
  }

  /// An extent that is cut into pieces.
  void require_cut(const std::string& name, const char* what, std::int64_t extent) const {
    require(extent >= 1, name, " has ", extent, " ", what, "; expected at least 1");
    require(extent <= largest_chain / (4 * leaf.rows()), name, " has ", extent, " ", what,
            "; expected at most ", largest_chain, " bytes in all units");
    require(extent % pieces() == 0, name, " has ", extent, " ", what, ", which can't be cut into ",
            pieces(), " tensor pieces; expected a multiple");
  }

  /// Its number among the weights.
  int declare(Parameter parameter) {
    for (const Parameter& other : parameters)
      require(other.name != parameter.name, "two parameters have the name ", parameter.name);
    for (std::int64_t extent : parameter.shape)
      require(extent >= 1, "parameter ", parameter.name, " has an extent of ", extent,
              "; expected at least 1");
    parameter.owner = unit;
    parameter.frozen = parameter.frozen || (frozen && frozen(parameter.full_name()));
    parameter.pieces = pieces();
    graph().weights.push_back(
        {parameter.name, 0, parameter.piece_elements(), !parameter.frozen, false, 0});
    parameters.push_back(std::move(parameter));
    return static_cast<int>(graph().weights.size()) - 1;
  }
  void declare_linear(const std::string& name, std::int64_t outputs, std::int64_t inputs,
                      const LinearSettings& settings, const Cut& cut) {
    Parameter weight = Parameter::normal(name + ".weight", {outputs, inputs}, settings.deviation);
    weight.cut = cut;
    declare(std::move(weight));
    if (!settings.bias) return;
    Parameter bias = Parameter::zeros(name + ".bias", {outputs});
    if (!cut.by_columns) bias.cut = cut;
    declare(std::move(bias));
  }
  Parameter table_of(const std::string& name, std::int64_t rows, std::int64_t columns,
                     double deviation) const {
    Parameter made = Parameter::normal(name, {rows, columns}, deviation);
    made.orthogonalize = false;
    return made;
  }
  void lay_out(SegmentSizes& sizes) {
    sizes = lay_out_parameters(parameters, unit, {}, pieces());
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      graph().weights[p].offset = parameters[p].offset;
      graph().weights[p].stride = parameters[p].piece_stride;
    }
  }

  /// The value as the unit's output, which does not stay: who reads it in backward makes it again.
  /// What is made with others, of which some are saved, is copied: where these are made again,
  /// there is no output.
  int hand_on(int v) {
    const graph::Operation& last = graph().operations.back();
    if (last.forward.back().writes != std::vector<int>{v}) return copy_of(v);
    value(v).keep = graph::Keep::never;
    return v;
  }
  int copy_of(int v) {
    const int copy = graph().add_like(v, "copy of ");
    Call forward{"copy " + value(v).name, {v}, {copy}};
    forward.work = plan::row_work(static_cast<double>(2 * graph().bytes_of(v)));
    forward.kernel = graph().kernels.copy;
    graph::Operation operation{{forward}};
    operation.residuals = {v};
    operations.append(std::move(operation));
    return copy;
  }

  Value apply(Operation<T> operation, bool makes_losses);
  int add_value(const Operation<T>& operation, std::int64_t columns, bool makes_losses);
};

template <class T>
Builder<T>::Builder(std::string unit, const LeafShape& leaf, std::int64_t input, Frozen frozen,
                    FindTable find_table)
    : state_(std::make_unique<State>(std::move(unit), leaf, input, std::move(frozen),
                                     std::move(find_table))) {}

template <class T>
Builder<T>::~Builder() = default;

template <class T>
std::int64_t Builder<T>::rows() const {
  return state_->leaf.rows();
}

template <class T>
std::int64_t Builder<T>::columns(const Value& x) const {
  state_->require_value(x, "columns");
  const graph::Value& value = state_->value(x.number);
  return value.columns * (state_->has_columns(x.number) ? state_->pieces() : 1);
}

template <class T>
Value Builder<T>::input() const {
  return {state_->graph().input, state_->id};
}

// ---- of the batch -------------------------------------------------------------------------------

template <class T>
Value Builder<T>::floats(std::int64_t columns, std::int64_t first) {
  Operation<T> operation{
      "floats", {}, [=](const OperationForward<T>& call) { copy_floats<T>(call, columns, first); }};
  operation.columns = columns;
  operation.reads_batch = true;
  require(columns >= 1 && first >= 0 && first % static_cast<std::int64_t>(sizeof(float)) == 0,
          "floats of ", columns, " columns from byte ", first,
          " on; expected at least 1 column, and a multiple of 4");
  state_->reads(first + bytes_of<float>(rows() * columns));
  return apply(std::move(operation));
}

template <class T>
Value Builder<T>::embedding(std::int64_t words, std::int64_t columns, std::int64_t positions,
                            double deviation) {
  State& s = *state_;
  require(positions == 0 || positions >= s.leaf.tokens, "embedding has ", positions,
          " positions; expected 0 for none, or at least the ", s.leaf.tokens, " of a sample");
  s.require_cut("embedding", "columns", columns);
  s.table = "token.weight";
  s.declare(s.table_of(s.table, words, columns, deviation));
  if (positions > 0) {
    Parameter table = s.table_of("position.weight", positions, columns, deviation);
    table.cut.by_columns = true;
    s.declare(std::move(table));
  }
  s.reads(bytes_of<std::int32_t>(rows()));
  // In pieces ranks have addends, of which what comes behind takes sums.
  const int made = s.operations.embedding(words, columns, positions > 0);
  return s.make(s.operations.rows_of_rank(made), "embedding");
}

// ---- layers -------------------------------------------------------------------------------------

template <class T>
Value Builder<T>::linear(const Value& x, const std::string& name, std::int64_t columns,
                         const LinearSettings& settings) {
  State& s = *state_;
  const int v = s.take(x, name);
  const std::int64_t inputs = this->columns(x);
  const bool makes_rows = s.has_columns(v);
  // Rows are of all columns, which only a bias has in pieces.
  if (!makes_rows || settings.bias) s.require_cut(name, "columns", columns);
  s.declare_linear(name, columns, inputs, settings, {makes_rows, {}});
  return s.make(s.operations.linear(v, name, columns, graph::Keep::always, true), name);
}

template <class T>
Value Builder<T>::linear_onto(const Value& onto, const Value& x, const std::string& name,
                              const LinearSettings& settings) {
  State& s = *state_;
  const int to = s.take_rows(onto, name);
  int v = s.take(x, name);
  require(s.pieces() == 1 || s.has_columns(v), name, " takes columns, but of ", s.value(v).name,
          " tensor ranks have rows; expected a linear layer or attention between");
  const std::int64_t outputs = columns(onto);
  s.require_cut(name, "columns", outputs);
  s.declare_linear(name, outputs, columns(x), settings, {true, {}});
  if (v == to) v = s.copy_of(v);  // a gradient can't be added to what the product takes
  return s.make(s.operations.linear_onto(to, v, name, name), name);
}

template <class T>
Value Builder<T>::gated_linear(const Value& x, const std::string& name, std::int64_t columns,
                               const LinearSettings& settings) {
  State& s = *state_;
  const int v = s.take_rows(x, name);
  s.require_cut(name, "columns", columns);
  s.declare_linear(name, 2 * columns, this->columns(x), settings, {false, {columns, columns}});
  const int both = s.operations.linear(v, name, 2 * columns, graph::Keep::always, true);
  return s.make(s.operations.activation(both, name + ".activated", Activation::swiglu), name);
}

template <class T>
Value Builder<T>::norm(const Value& x, const std::string& name, const NormSettings& settings) {
  State& s = *state_;
  const int v = s.take_rows(x, name);
  const std::int64_t width = columns(x);
  require(settings.epsilon > 0.0 && std::isfinite(settings.epsilon), name, " has an epsilon of ",
          settings.epsilon, "; expected a number above 0");
  s.require_cut(name, "columns", width);
  Parameter weight = Parameter::zeros(name + ".weight", {width});
  weight.initializer = Initializer::ones;
  s.declare(std::move(weight));
  if (settings.bias && settings.kind == math::NormKind::layernorm)
    s.declare(Parameter::zeros(name + ".bias", {width}));
  return s.make(s.operations.norm(v, name, settings.kind, settings.epsilon), name);
}

template <class T>
Value Builder<T>::attention(const Value& x, const std::string& name,
                            const AttentionSettings& settings, const LinearSettings& linear) {
  State& s = *state_;
  const int v = s.take_rows(x, name);
  require(settings.head_width >= 0, name, " has heads of ", settings.head_width,
          " columns; expected 0 for columns / heads, or more");
  require(settings.rotary_base >= 0.0 && std::isfinite(settings.rotary_base), name,
          " has a rotary base of ", settings.rotary_base, "; expected 0 for none, or more");
  DecoderSettings m;
  m.width = columns(x);
  m.heads = settings.heads;
  m.kv_heads = settings.kv_heads == 0 ? settings.heads : settings.kv_heads;
  m.own_head_width = settings.head_width;
  m.positions = settings.rotary_base > 0.0 ? Positions::rotary : Positions::learned;
  m.rotary_base = settings.rotary_base;
  s.require_cut(name, "heads", m.heads);
  s.require_cut(name, "heads of keys and values", m.kv_heads);
  require(m.heads % m.kv_heads == 0, name, " has ", m.heads, " heads and ", m.kv_heads,
          " of keys and values; expected a multiple");
  require(m.own_head_width > 0 || m.width % m.heads == 0, name, " has ", m.heads, " heads of ",
          m.width, " columns; expected a divisor, or a head width");
  require(m.positions != Positions::rotary || m.head_width() % 2 == 0, name, " has heads of ",
          m.head_width(), " columns; expected an even number, as positions turn pairs");
  const std::int64_t queries = m.query_width(), keys = m.kv_heads * m.head_width();
  s.declare_linear(name + ".qkv", queries + 2 * keys, m.width, linear,
                   {false, {queries, keys, keys}});
  return s.make(add_attention<T>(s.operations, m, s.leaf, name, v), name);
}

// ---- without parameters -------------------------------------------------------------------------

template <class T>
Value Builder<T>::gelu(const Value& x) {
  State& s = *state_;
  const int v = s.take(x, "gelu");
  return s.make(s.operations.activation(v, s.value(v).name + ".gelu", Activation::gelu), "gelu");
}

template <class T>
Value Builder<T>::soft_cap(const Value& x, double cap) {
  require(cap > 0.0, "soft_cap has a cap of ", cap, "; expected a number above 0");
  const int v = state_->take(x, "soft_cap");
  return state_->make(state_->operations.soft_cap(v, state_->value(v).name + ".cap", cap),
                      "soft_cap");
}

template <class T>
Value Builder<T>::add(const Value& x, const Value& y) {
  State& s = *state_;
  const int a = s.take(x, "add"), b = s.take(y, "add");
  require(columns(x) == columns(y), "add takes ", columns(x), " and ", columns(y),
          " columns; expected as many");
  require(s.has_columns(a) == s.has_columns(b), "add takes ", s.value(a).name, " and ",
          s.value(b).name, ", of which tensor ranks have rows of one and columns of the other; ",
          "expected linear_onto");
  const int made = s.graph().add_like(a);
  s.value(made).name = "add";
  s.value(made).keep = graph::Keep::never;
  Call forward{"add", {a, b}, {made}};
  const graph::Value& of = s.value(made);
  forward.work = plan::row_work(static_cast<double>(bytes_of<T>(of.rows * 3 * of.columns)));
  forward.kernel = graph::make_kernel([](const Exec& exec, const Arguments& arguments) {
    add_matrices<T>(exec, arguments.read<T>(0), arguments.read<T>(1), arguments.written<T>(0));
  });
  // The gradient of the first becomes that of the sum in place, while others may read the second's.
  Call backward{"d add", {~made}, {~b}};
  backward.kernel = s.graph().kernels.copy;
  graph::Operation operation{{forward}, {backward}};
  operation.residuals = {a};
  s.operations.append(std::move(operation));
  return s.make(made, "add");
}

// ---- operations of one's own --------------------------------------------------------------------

template <class T>
int Builder<T>::State::add_value(const Operation<T>& operation, std::int64_t columns,
                                 bool makes_losses) {
  graph::Value made{operation.name, pieces() > 1 ? leaf.own_rows() : leaf.rows(), columns};
  if (pieces() > 1) made.tensor_distribution = Distribution::rows;
  if (!operation.inputs.empty() && has_columns(operation.inputs.front().number)) {
    made = value(operation.inputs.front().number);
    made.name = operation.name;
    made.group = -1;
    made.first_column = 0;
  }
  made.keep = operation.flops > 0.0 ? graph::Keep::always : graph::Keep::never;
  if (makes_losses) {
    made.element = graph::Element::sum;
    made.keep = graph::Keep::always;
  }
  return graph().add(std::move(made));
}

template <class T>
Value Builder<T>::State::apply(Operation<T> operation, bool makes_losses) {
  const std::string& name = operation.name;
  require(static_cast<bool>(operation.forward), "operation ", name, " has no forward");
  const bool by_element = operation.takes == Takes::elements;
  std::vector<int> inputs, of_inputs;
  for (const Value& x : operation.inputs) {
    inputs.push_back(by_element ? take(x, name) : take_rows(x, name));
    of_inputs.push_back(~inputs.back());
  }
  OwnShape shape;
  shape.leaf = leaf;
  shape.is_loss = makes_losses;
  shape.by_columns = !inputs.empty() && has_columns(inputs.front());
  std::int64_t columns = operation.columns, all = columns;
  if (columns == 0 && !inputs.empty()) columns = value(inputs.front()).columns;
  if (makes_losses) columns = 1;
  require(columns >= 1, "operation ", name, " has ", columns, " columns; expected at least 1");
  all = columns * (shape.by_columns ? pieces() : 1);
  if (by_element && operation.columns > 0) all = operation.columns;
  for (int v : inputs) {
    const std::int64_t here = value(v).columns * (has_columns(v) ? pieces() : 1);
    require(!by_element || (here == all && has_columns(v) == shape.by_columns), "operation ", name,
            " is by element and takes ", value(v).name, ", of ", here,
            has_columns(v) ? " columns in pieces" : " columns", "; expected inputs and output of ",
            all, shape.by_columns ? " columns in pieces" : " columns");
  }
  if (shape.by_columns) columns = value(inputs.front()).columns;
  const bool has_backward = !inputs.empty() || !operation.parameters.empty();
  require(!has_backward || static_cast<bool>(operation.backward), "operation ", name,
          " has no backward; expected one, as it has inputs or parameters");
  std::vector<int> weights;
  for (const Parameter& parameter : operation.parameters) {
    require(!by_element || parameter.rows() == all, "operation ", name, " is by element, of ", all,
            " columns, and parameter ", parameter.name, " has ", parameter.rows(),
            " in its first extent; expected as many");
    if (pieces() > 1) require_cut("parameter " + parameter.name, "rows", parameter.rows());
    Parameter own = parameter;
    own.cut = {};
    const int w = declare(std::move(own));
    weights.push_back(shape.by_columns ? w : operations.whole_weight(parameter.name));
    shape.elements.push_back(parameter.elements() / (shape.by_columns ? pieces() : 1));
  }
  const bool has_rows = pieces() > 1 && !shape.by_columns;
  shape.leaves = has_rows ? leaf.own_row_leaves() : leaf.leaves();
  reads_batch = reads_batch || operation.reads_batch;

  const int made = add_value(operation, columns, makes_losses);
  const auto rows = static_cast<double>(value(made).rows);
  std::int64_t bytes = bytes_of<T>(value(made).rows * columns);
  for (int v : inputs) bytes += bytes_of<T>(value(v).rows * value(v).columns);
  const auto kernels = std::make_shared<const OwnKernels<T>>(operation, shape);
  Call forward{name, inputs, {made}, weights};
  forward.flops = operation.flops * rows / (shape.by_columns ? pieces() : 1);
  forward.work = plan::row_work(static_cast<double>(bytes));
  forward.kernel = graph::make_kernel(
      [kernels](const Exec& exec, const Arguments& a) { kernels->forward(exec, a); });
  graph::Operation own{{forward}};
  if (has_backward) {
    Call backward{"d " + name, {}, of_inputs, weights};
    if (makes_losses)
      backward.writes.push_back(made);
    else
      backward.reads = {~made};
    if (operation.backward_reads_inputs || makes_losses) graph::append(backward.reads, inputs);
    if (operation.backward_reads_output && !makes_losses) backward.reads.push_back(made);
    backward.gradients = weights;
    backward.scratch = {
        bytes_of<compute_t<T>>((math::tree_slots(shape.leaves) - 1) * shape.all_elements())};
    backward.flops = 2.0 * forward.flops;
    backward.work = plan::row_work(2.0 * static_cast<double>(bytes));
    backward.kernel = graph::make_kernel(
        [kernels](const Exec& exec, const Arguments& a) { kernels->backward(exec, a); });
    own.backward = {backward};
  }
  operations.append(std::move(own));
  return make(made, name);
}

template <class T>
Value Builder<T>::apply(Operation<T> operation) {
  return state_->apply(std::move(operation), false);
}

// ---- losses -------------------------------------------------------------------------------------

template <class T>
Value Builder<T>::cross_entropy(const Value& x, const std::string& name, std::int64_t words,
                                double deviation) {
  State& s = *state_;
  const int v = s.take_rows(x, name);
  const int weight = s.declare(s.table_of(name + ".weight", words, columns(x), deviation));
  s.reads(bytes_of<std::int32_t>(2 * rows()));
  return s.make_losses(s.operations.cross_entropy(v, weight, words), name);
}

template <class T>
Value Builder<T>::tied_cross_entropy(const Value& x, const std::string& unit) {
  State& s = *state_;
  const int v = s.take_rows(x, "tied_cross_entropy");
  s.tied = s.find_table(unit);
  require(s.tied != nullptr, "the losses are tied to ", unit,
          ", which is no unit before it with an embedding");
  require(s.tied->offset == 0, "the losses are tied to ", s.tied->full_name(),
          ", which is not the first parameter of its unit; expected it to be");
  require(s.tied->columns() == columns(x), "the losses are tied to ", s.tied->full_name(), " of ",
          s.tied->columns(), " columns, but take ", columns(x), "; expected as many");
  s.tied_to = unit;
  s.reads(bytes_of<std::int32_t>(2 * rows()));
  const int weight = s.operations.tied_weight(*s.tied);
  return s.make_losses(s.operations.cross_entropy(v, weight, s.tied->rows()), "losses");
}

template <class T>
Value Builder<T>::losses(Operation<T> operation) {
  State& s = *state_;
  require(!operation.inputs.empty() && !operation.backward_reads_output, "operation ",
          operation.name, " makes losses; expected inputs, and a backward that reads no output");
  const Value made = s.apply(std::move(operation), true);
  s.graph().setting.is_loss = true;
  return s.make_losses(made.number, s.value(made.number).name);
}

// ---- the unit -----------------------------------------------------------------------------------

template <class T>
typename Builder<T>::Built Builder<T>::build(const Value& output) && {
  State& s = *state_;
  require(output.number >= 0 && output.builder == s.id && output.number != s.graph().input,
          "it returns no value that its Builder has made");
  require(!s.is_loss || output.number == s.losses, "it computes losses and returns ",
          s.value(output.number).name, "; expected the losses");
  for (const graph::Operation& operation : s.graph().operations)
    for (const Call& call : operation.forward)
      require(!s.is_loss || !call.in_place, call.name, " works in place, and the unit of the ",
              "losses computes all of it again; expected it in a unit before");
  s.unread.erase(output.number);
  require(s.unread.empty(), "nothing takes ", s.unread.empty() ? "" : s.unread.begin()->second,
          ", which is not what it returns; expected all to be used");
  require(s.graph().input < 0 || s.reads_input, "nothing takes its input");
  require(!s.has_columns(output.number), "it returns ", s.value(output.number).name,
          ", of which tensor ranks have columns; expected linear or linear_onto last");
  const int handed_on = s.is_loss ? output.number : s.hand_on(output.number);
  SegmentSizes sizes;
  s.lay_out(sizes);
  Built built;
  built.is_loss = s.is_loss;
  built.reads_batch = s.reads_batch;
  built.tied_to = s.tied_to;
  built.table = s.table;
  built.batch_bytes = s.batch_bytes;
  auto unit = make_graph_unit<T>(s.unit, s.parameters, sizes, s.leaf,
                                 std::move(s.operations).take({handed_on}));
  if (s.tied != nullptr) unit->description().tied_gradients = !s.tied->frozen;
  unit->description().reads_batch = s.reads_batch;
  built.unit = std::move(unit);
  return built;
}

template class Builder<float>;
template class Builder<double>;
template class Builder<bf16>;
template class Builder<fp16>;

}  // namespace ostrakon::model
