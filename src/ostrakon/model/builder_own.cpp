// SPDX-License-Identifier: Apache-2.0
// Operations of one's own in a Builder.
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/model/array_packer.hpp>
#include <ostrakon/model/builder_state.hpp>
#include <ostrakon/model/graph/kernel.hpp>
#include <ostrakon/model/graph/lists.hpp>
#include <ostrakon/model/own_kernels.hpp>

namespace ostrakon::model {
namespace {

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

/// Inputs and output of an operation by element have equal columns, and its parameters as many.
/// `columns`: those of all ranks.
template <class T, class State>
void require_elements(State& state, const Operation<T>& operation, const std::vector<int>& inputs,
                      std::int64_t columns) {
  const bool by_columns = !inputs.empty() && state.has_columns(inputs.front());
  for (int v : inputs)
    require(state.columns(v) == columns && state.has_columns(v) == by_columns, "operation ",
            operation.name, " is by element and takes ", state.value(v).name, ", of ",
            state.columns(v), state.has_columns(v) ? " columns in pieces" : " columns",
            "; expected inputs and output of ", columns,
            by_columns ? " columns in pieces" : " columns");
  for (const Parameter& parameter : operation.parameters)
    require(parameter.rows() == columns, "operation ", operation.name, " is by element, of ",
            columns, " columns, and parameter ", parameter.name, " has ", parameter.rows(),
            " in its first extent; expected as many");
}

/// Declares the parameters of an operation. Returns them as its calls name them.
template <class T, class State>
std::vector<int> declare_own(State& state, const Operation<T>& operation, OwnShape& shape) {
  std::vector<int> weights;
  const std::int64_t pieces = shape.by_columns ? state.pieces() : 1;
  for (Parameter parameter : operation.parameters) {
    const std::string name = parameter.name;
    require(parameter.rows() % state.pieces() == 0, "parameter ", name, " has a first extent of ",
            parameter.rows(), ", which can't be cut into ", state.pieces(),
            " tensor pieces; expected a multiple, so no scalar");
    shape.elements.push_back(parameter.elements() / pieces);
    parameter.cut = {};
    const int weight = state.declare(std::move(parameter));
    weights.push_back(shape.by_columns ? weight : state.operations.whole_weight(name));
  }
  return weights;
}

/// The calls that compute value `made`.
template <class T, class State>
graph::Operation own_calls(State& state, const Operation<T>& operation, const OwnShape& shape,
                           const std::vector<int>& inputs, const std::vector<int>& weights,
                           int made) {
  const graph::Value& output = state.value(made);
  std::int64_t bytes = bytes_of<T>(output.rows * output.columns);
  for (int v : inputs) bytes += bytes_of<T>(state.value(v).rows * state.value(v).columns);
  const std::int64_t pieces = shape.by_columns ? state.pieces() : 1;
  const auto kernels = std::make_shared<const OwnKernels<T>>(operation, shape);
  Call forward{operation.name, inputs, {made}, weights};
  forward.flops = operation.flops * static_cast<double>(output.rows) / static_cast<double>(pieces);
  forward.work = plan::row_work(static_cast<double>(bytes));
  forward.kernel = graph::make_kernel(
      [kernels](const Exec& exec, const graph::Arguments& a) { kernels->forward(exec, a); });
  graph::Operation own{{forward}};
  if (inputs.empty() && weights.empty()) return own;
  Call backward{"d " + operation.name, {}, {}, weights};
  for (int v : inputs) backward.writes.push_back(~v);
  if (shape.is_loss)
    backward.writes.push_back(made);
  else
    backward.reads = {~made};
  if (operation.backward_reads_inputs || shape.is_loss) graph::append(backward.reads, inputs);
  if (operation.backward_reads_output && !shape.is_loss) backward.reads.push_back(made);
  backward.gradients = weights;
  backward.scratch = {
      bytes_of<compute_t<T>>((math::tree_slots(shape.leaves) - 1) * shape.all_elements())};
  backward.flops = 2.0 * forward.flops;
  backward.work = plan::row_work(2.0 * static_cast<double>(bytes));
  backward.kernel = graph::make_kernel(
      [kernels](const Exec& exec, const graph::Arguments& a) { kernels->backward(exec, a); });
  own.backward = {backward};
  return own;
}

}  // namespace

template <class T>
Value Builder<T>::State::apply(const Operation<T>& operation, bool makes_losses) {
  const std::string& name = operation.name;
  const bool by_element = operation.takes == Takes::elements;
  const bool has_backward = !operation.inputs.empty() || !operation.parameters.empty();
  require(static_cast<bool>(operation.forward), "operation ", name, " has no forward");
  require(!has_backward || static_cast<bool>(operation.backward), "operation ", name,
          " has no backward; expected one, as it has inputs or parameters");
  std::vector<int> inputs;
  for (const Value& x : operation.inputs)
    inputs.push_back(by_element ? take(x, name) : take_rows(x, name));
  std::int64_t all = operation.columns;
  if (all == 0 && makes_losses) all = 1;
  if (all == 0 && !inputs.empty()) all = columns(inputs.front());
  require_size("operation " + name, "columns", all);
  if (by_element) require_elements<T>(*this, operation, inputs, all);

  OwnShape shape;
  shape.leaf = leaf;
  shape.is_loss = makes_losses;
  shape.by_columns = !inputs.empty() && has_columns(inputs.front());
  const bool has_rows = pieces() > 1 && !shape.by_columns;
  shape.leaves = has_rows ? leaf.own_row_leaves() : leaf.leaves();
  const std::vector<int> weights = declare_own<T>(*this, operation, shape);
  reads_batch = reads_batch || operation.reads_batch;

  graph::Value output{name, leaf.own_rows(), makes_losses ? 1 : all};
  if (pieces() > 1) output.tensor_distribution = Distribution::rows;
  if (shape.by_columns) {
    output = value(inputs.front());
    output.name = name;
    output.group = -1;
    output.first_column = 0;
  }
  output.keep = operation.flops > 0.0 || makes_losses ? graph::Keep::always : graph::Keep::never;
  if (makes_losses) output.element = graph::Element::sum;
  const int made = graph().add(std::move(output));
  operations.append(own_calls<T>(*this, operation, shape, inputs, weights, made));
  return make(made, name);
}

template <class T>
Value Builder<T>::apply(Operation<T> operation) {
  return state_->apply(operation, false);
}

template <class T>
Value Builder<T>::losses(Operation<T> operation) {
  State& s = *state_;
  require(!operation.inputs.empty() && !operation.backward_reads_output, "operation ",
          operation.name, " makes losses; expected inputs, and a backward that reads no output");
  const Value made = s.apply(operation, true);
  s.graph().setting.is_loss = true;
  return s.make_losses(made.number, operation.name);
}

template <class T>
Value Builder<T>::floats(std::int64_t columns, std::int64_t first) {
  State& s = *state_;
  s.require_size("floats", "columns", columns);
  require(first >= 0 && first <= largest_chain && first % bytes_of<float>(1) == 0,
          "floats from byte ", first, " on; expected a multiple of 4, at most ", largest_chain);
  Operation<T> operation{
      "floats", {}, [=](const OperationForward<T>& call) { copy_floats<T>(call, columns, first); }};
  operation.columns = columns;
  operation.reads_batch = true;
  s.reads(first + bytes_of<float>(rows() * columns));
  return apply(std::move(operation));
}

#define OSTRAKON_INSTANTIATE(T)                    \
  template Value Builder<T>::apply(Operation<T>);  \
  template Value Builder<T>::losses(Operation<T>); \
  template Value Builder<T>::floats(std::int64_t, std::int64_t);
OSTRAKON_FOR_ALL_NUMBERS(OSTRAKON_INSTANTIATE)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::model
