// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/builder.hpp>

#include <atomic>
#include <cmath>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/portability.hpp>
#include <ostrakon/model/array_packer.hpp>
#include <ostrakon/model/builder_state.hpp>
#include <ostrakon/model/graph/kernel.hpp>
#include <ostrakon/model/graph/lists.hpp>
#include <ostrakon/model/graph_unit.hpp>
#include <ostrakon/model/layer_parameters.hpp>
#include <ostrakon/model/moe_dispatch_layout.hpp>

namespace ostrakon::model {
namespace {

using graph::Arguments;
using graph::Call;

/// Numbers Builders, also those that other threads make.
std::uint64_t next_builder() {
  static std::atomic<std::uint64_t> count{0};
  return ++count;
}

template <class T>
void add_matrices(const Exec& exec, compute_t<T> factor, View<const T**> a, View<const T**> b,
                  View<T**> y) {
  using C = compute_t<T>;
  for_each(
      exec, y.rows(), y.columns(), KOKKOS_LAMBDA(std::int64_t i, std::int64_t j) {
        y(i, j) = T(math::multiply_add(factor, C(b(i, j)), C(a(i, j))));
      });
}

/// y = factor x, which may be y itself.
template <class T>
void scale_matrix(const Exec& exec, compute_t<T> factor, View<const T**> x, View<T**> y) {
  using C = compute_t<T>;
  for_each(
      exec, y.rows(), y.columns(),
      KOKKOS_LAMBDA(std::int64_t i, std::int64_t j) { y(i, j) = T(factor * C(x(i, j))); });
}

}  // namespace

// ---- state --------------------------------------------------------------------------------------

template <class T>
Builder<T>::State::State(std::string unit_, const LeafShape& leaf_, std::int64_t input,
                         Frozen frozen_, FindTable find_table_, const Recompute& recompute,
                         int inputs)
    : id(next_builder()),
      unit(std::move(unit_)),
      owner(unit),
      leaf(leaf_),
      operations(leaf, recompute, {}, input, inputs),
      frozen(std::move(frozen_)),
      find_table(std::move(find_table_)) {}

template <class T>
int Builder<T>::State::declare(Parameter parameter) {
  require(operations.weight(parameter.name) < 0, "two parameters have the name ", parameter.name);
  std::int64_t elements = 1;
  for (std::int64_t extent : parameter.shape) {
    require(extent >= 1, "parameter ", parameter.name, " has an extent of ", extent,
            "; expected at least 1");
    require(extent <= largest_chain / elements, "parameter ", parameter.name,
            " is too large; expected at most ", largest_chain, " elements in all units");
    elements *= extent;
  }
  parameter.owner = owner;
  parameter.frozen = parameter.frozen || (frozen && frozen(parameter.full_name())) ||
                     (lora.exist() && !is_of_adapter(parameter.name));
  parameter.pieces = pieces();
  parameters.push_back(std::move(parameter));
  numbers.push_back(operations.add_weight(parameters.back()));
  return numbers.back();
}

template <class T>
int Builder<T>::State::copy_of(int v) {
  const int copy = graph().add_like(v, "copy of ");
  Call forward{"copy " + value(v).name, {v}, {copy}};
  forward.work = plan::row_work(static_cast<double>(2 * graph().bytes_of(v)));
  forward.kernel = graph().kernels.copy;
  graph::Operation operation{{forward}};
  operation.residuals = {v};
  operations.append(std::move(operation));
  return copy;
}

/// Returns the values that the unit hands on for `v`. Backward makes an output again (Keep::never)
/// where its call makes outputs alone; else the output is a copy.
template <class T>
std::vector<int> Builder<T>::State::hand_on(int v) {
  std::vector<int> outputs = {v};
  graph::append(outputs, handed_besides);
  const auto is_output = [&](int made) { return graph::contains(outputs, made); };
  const std::vector<int>& made = graph().operations.back().forward.back().writes;
  if (std::all_of(made.begin(), made.end(), is_output))
    value(v).keep = graph::Keep::never;
  else
    outputs.front() = copy_of(v);
  std::vector<int> all;
  for (int passed : passed_on) all.push_back(copy_of(passed));
  graph::append(all, outputs);
  return all;
}

template <class T>
Builder<T>::Builder(std::string unit, const LeafShape& leaf, std::int64_t input, Frozen frozen,
                    FindTable find_table, const Recompute& recompute, int inputs)
    : state_(std::make_unique<State>(std::move(unit), leaf, input, std::move(frozen),
                                     std::move(find_table), recompute, inputs)) {}

template <class T>
Builder<T>::~Builder() = default;

template <class T>
std::int64_t Builder<T>::rows() const {
  return state_->leaf.rows();
}

template <class T>
std::int64_t Builder<T>::columns(const Value& x) const {
  state_->require_value(x, "columns");
  return state_->columns(x.number);
}

template <class T>
Value Builder<T>::input(int index) const {
  const std::vector<int>& inputs = state_->graph().inputs;
  return {inputs.empty() ? -1 : graph::at(inputs, index), state_->id};
}

template <class T>
void Builder<T>::pass_on(const Value& x) {
  state_->passed_on.push_back(state_->take_rows(x, "pass_on"));
}

template <class T>
void Builder<T>::begin_part(const std::string& owner) {
  State& s = *state_;
  s.owner = owner;
  s.operations.set_prefix(s.parts == 0 ? "" : std::to_string(s.parts) + ".");
  ++s.parts;
}

template <class T>
void Builder<T>::set_products(math::ProductDType dtype, bool quantizes_weights) {
  state_->operations.set_products(dtype);
  state_->quantizes = quantizes_weights;
}

template <class T>
void Builder<T>::set_lora(const LoraSettings& settings) {
  state_->lora = settings;
}

template <class T>
const std::vector<Parameter>& Builder<T>::parameters() const {
  return state_->parameters;
}

// ---- the batch ----------------------------------------------------------------------------------

template <class T>
Value Builder<T>::embedding(std::int64_t words, std::int64_t columns, std::int64_t positions,
                            double deviation) {
  State& s = *state_;
  require(positions == 0 || positions >= s.leaf.tokens, "embedding has ", positions,
          " positions; expected 0 for none, or at least the ", s.leaf.tokens, " of a sample");
  s.require_size("embedding", "words", words);
  s.require_cut("embedding", "columns", columns);
  s.table = "token.weight";
  s.declare_table(s.table, words, columns, deviation);
  if (positions > 0) s.declare_table("position.weight", positions, columns, deviation, {true, {}});
  s.reads(bytes_of<std::int32_t>(rows()));
  // In pieces ranks have addends, of which what comes behind takes sums.
  const int made = s.operations.embedding(
      {s.operations.weight(s.table), s.operations.weight("position.weight"), words}, columns);
  return s.make(s.operations.rows_of_rank(made), "embedding");
}

template <class T>
int Builder<T>::State::tie(const std::string& to, const std::string& what, std::int64_t columns) {
  tied = find_table(to);
  require(tied != nullptr, what, " tied to ", to, ", which is no unit before it with an embedding");
  require(tied->offset == 0, what, " tied to ", tied->full_name(),
          ", which is not the first parameter of its unit; expected it to be");
  require(columns == 0 || tied->columns() == columns, what, " tied to ", tied->full_name(), " of ",
          tied->columns(), " columns, but take ", columns, "; expected as many");
  tied_to = to;
  return operations.tied_weight(*tied);
}

template <class T>
Value Builder<T>::next_embedding(const std::string& unit) {
  State& s = *state_;
  const int table = s.tie(unit, "rows of the next tokens are", 0);
  s.reads(bytes_of<std::int32_t>(2 * rows()));
  const int made = s.operations.embedding({table, -1, s.tied->rows(), true}, s.tied->columns());
  return s.make(s.operations.rows_of_rank(made), "next_embedding");
}

template <class T>
Value Builder<T>::join(const Value& x, const Value& y) {
  State& s = *state_;
  const int a = s.take_rows(x, "join"), b = s.take_rows(y, "join");
  return s.make(s.operations.join(a, b, "joined"), "join");
}

template <class T>
Value Builder<T>::row_linear(const Value& x, const std::string& name, std::int64_t columns,
                             double deviation) {
  State& s = *state_;
  const int v = s.take_rows(x, name);
  s.require_cut(name, "columns", columns);
  s.declare(linear_parameters(name, columns, s.columns(v), {deviation, false}));
  return s.make(s.operations.row_linear(v, name, columns), name);
}

template <class T>
Value Builder<T>::predicting_rows(const Value& x) {
  State& s = *state_;
  return s.leaf.decodes() ? s.make(s.operations.last_rows(s.take_rows(x, "last rows")), "last rows")
                          : x;
}

// ---- without parameters -------------------------------------------------------------------------

template <class T>
Value Builder<T>::gelu(const Value& x) {
  return activation(x, Activation::gelu);
}

template <class T>
Value Builder<T>::activation(const Value& x, Activation activation) {
  State& s = *state_;
  const std::string kind = math::name(activation);
  const int v = s.take(x, kind);
  require(!math::is_gated(activation), "activation is ", kind,
          ", which takes a gate; expected gated_linear");
  return s.make(s.operations.activation(v, s.value(v).name + "." + kind, activation), kind);
}

template <class T>
Value Builder<T>::soft_cap(const Value& x, double cap) {
  require(cap > 0.0, "soft_cap has a cap of ", cap, "; expected a number above 0");
  const int v = state_->take(x, "soft_cap");
  return state_->make(state_->operations.soft_cap(v, state_->value(v).name + ".cap", cap),
                      "soft_cap");
}

template <class T>
Value Builder<T>::add(const Value& x, const Value& y, double factor) {
  State& s = *state_;
  const int a = s.take(x, "add"), b = s.take(y, "add");
  require(s.columns(a) == s.columns(b), "add takes ", s.columns(a), " and ", s.columns(b),
          " columns; expected as many");
  require(s.has_columns(a) == s.has_columns(b), "add takes ", s.value(a).name, " and ",
          s.value(b).name, ", of which tensor ranks have rows of one and columns of the other; ",
          "expected linear_onto");
  require(std::isfinite(factor), "add has a factor of ", factor, "; expected a finite number");
  const int made = s.graph().add_like(a);
  s.value(made).name = "add";
  s.value(made).keep = graph::Keep::never;
  const auto by = static_cast<compute_t<T>>(factor);
  Call forward{"add", {a, b}, {made}};
  const graph::Value& of = s.value(made);
  forward.work = plan::row_work(static_cast<double>(bytes_of<T>(of.rows * 3 * of.columns)));
  forward.kernel = graph::make_kernel([by](const Exec& exec, const Arguments& arguments) {
    add_matrices<T>(exec, by, arguments.read<T>(0), arguments.read<T>(1), arguments.written<T>(0));
  });
  // The gradient of the first becomes that of the sum in place, while others may read the second's.
  Call backward{"d add", {~made}, {~b}};
  if (factor == 1.0)
    backward.kernel = s.graph().kernels.copy;
  else
    backward.kernel = graph::make_kernel([by](const Exec& exec, const Arguments& arguments) {
      scale_matrix<T>(exec, by, arguments.read<T>(0), arguments.written<T>(0));
    });
  graph::Operation operation{{forward}, {backward}};
  operation.residuals = {a};
  s.operations.append(std::move(operation));
  return s.make(made, "add");
}

template <class T>
Value Builder<T>::scale(const Value& x, double factor) {
  State& s = *state_;
  const int v = s.take(x, "scale");
  require(std::isfinite(factor), "scale has a factor of ", factor, "; expected a finite number");
  const int made = s.graph().add_like(v);
  s.value(made).name = s.value(v).name + " scaled";
  s.value(made).keep = graph::Keep::never;
  const graph::Value& of = s.value(made);
  const auto kernel = graph::make_kernel(
      [by = static_cast<compute_t<T>>(factor)](const Exec& exec, const Arguments& arguments) {
        scale_matrix<T>(exec, by, arguments.read<T>(0), arguments.written<T>(0));
      });
  Call forward{"scale", {v}, {made}}, backward{"d scale", {~made}, {~v}};
  forward.work = backward.work =
      plan::row_work(static_cast<double>(bytes_of<T>(of.rows * 2 * of.columns)));
  forward.kernel = backward.kernel = kernel;
  backward.replaces = {{~v, ~made}};
  s.operations.append({{forward}, {backward}});
  return s.make(made, "scale");
}

// ---- losses -------------------------------------------------------------------------------------

template <class T>
Value Builder<T>::cross_entropy(const Value& x, const std::string& name, std::int64_t words,
                                const HeadSettings& settings) {
  State& s = *state_;
  const int v = s.take_rows(x, name);
  s.require_size(name, "words", words);
  const int weight = s.declare_table(name + ".weight", words, s.columns(v), settings.deviation);
  const int bias = s.declare_head_bias(name, words, settings);
  return s.predict(v, name, {weight, bias, words, settings.logits});
}

template <class T>
Value Builder<T>::cross_entropy(const Value& x, const Value& further, double factor,
                                const std::string& name, std::int64_t words,
                                const HeadSettings& settings) {
  State& s = *state_;
  const int v = s.take_rows(x, name), behind = s.take_rows(further, name);
  require(s.columns(v) == s.columns(behind), name, " takes ", s.columns(v), " and ",
          s.columns(behind), " columns; expected as many");
  require(!s.leaf.is_cut(), name,
          " predicts two tokens in samples that are cut; expected whole ones");
  const int weight = s.declare_table(name + ".weight", words, s.columns(v), settings.deviation);
  const int bias = s.declare_head_bias(name, words, settings);
  return s.predict(s.operations.stack_leaves({v, behind}), name,
                   {weight, bias, words, settings.logits, 2, factor});
}

template <class T>
Value Builder<T>::tied_cross_entropy(const Value& x, const std::string& unit,
                                     const HeadSettings& settings) {
  State& s = *state_;
  const int v = s.take_rows(x, "tied_cross_entropy");
  const int weight = s.tie(unit, "the losses are", s.columns(v));
  const std::int64_t words = s.tied->rows();
  const int bias = s.declare_head_bias("output", words, settings);
  return s.predict(v, "losses", {weight, bias, words, settings.logits});
}

// ---- the unit -----------------------------------------------------------------------------------

template <class T>
typename Builder<T>::Built Builder<T>::build(const Value& output, SharedPrograms* shared) && {
  State& s = *state_;
  const std::vector<int> inputs = s.graph().inputs;
  require(output.number >= 0 && output.builder == s.id && !graph::contains(inputs, output.number),
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
  for (int input : inputs) require(s.inputs_read.count(input) > 0, "nothing takes its input");
  require(!s.has_columns(output.number), "it returns ", s.value(output.number).name,
          ", of which tensor ranks have columns; expected linear or linear_onto last");
  std::vector<int> outputs = s.is_loss ? std::vector<int>{output.number} : s.hand_on(output.number);

  const SegmentSizes sizes = lay_out_parameters(s.parameters, s.pieces());
  std::vector<bool> frozen;
  for (std::size_t p = 0; p < s.parameters.size(); ++p) {
    graph::Weight& weight = s.graph().weight(s.numbers[p]);
    weight.offset = s.parameters[p].offset;
    weight.stride = s.parameters[p].piece_stride;
    frozen.push_back(s.parameters[p].frozen);
  }
  graph::Graph graph = std::move(s.operations).take(std::move(outputs));
  graph.setting.defers = graph.setting.defers && sizes.trained > 0;
  Programs own;
  Programs& programs = shared != nullptr ? (*shared)[frozen] : own;
  if (!programs.at_once) programs = derive_programs(std::move(graph));

  Built built;
  built.unit = std::make_unique<GraphUnit<T>>(s.unit, s.parameters, sizes, s.leaf, programs);
  plan::UnitDescription& description = built.unit->description();
  if (s.tied != nullptr) description.tied_gradients = !s.tied->frozen;
  // What the losses add to a table is summed apart where it can't be added leaf by leaf; what a
  // unit before them adds always, so that it is summed alike where stages divide the units.
  description.sums_tied_apart =
      s.tied != nullptr && description.tied_gradients && (!s.is_loss || s.leaf.sums_by_leaf());
  description.counts = s.counts;
  description.reads_batch = built.reads_batch = s.reads_batch;
  built.is_loss = s.is_loss;
  built.has_experts_behind = !s.handed_besides.empty();
  built.tied_to = s.tied_to;
  built.table = s.table;
  built.batch_bytes = s.batch_bytes;
  return built;
}

template class Builder<float>;
template class Builder<double>;
template class Builder<bf16>;
template class Builder<fp16>;

}  // namespace ostrakon::model
