// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/builder.hpp>

#include <atomic>
#include <cmath>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/model/builder_state.hpp>
#include <ostrakon/model/graph/kernel.hpp>
#include <ostrakon/model/graph/lists.hpp>
#include <ostrakon/model/graph_unit.hpp>
#include <ostrakon/model/layer_parameters.hpp>
#include <ostrakon/model/moe_dispatch_layout.hpp>
#include <ostrakon/model/packing.hpp>

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
void add_matrices(const Exec& exec, View<const T**> a, View<const T**> b, View<T**> y) {
  using C = compute_t<T>;
  for_each(
      exec, y.rows(), y.columns(),
      KOKKOS_LAMBDA(std::int64_t i, std::int64_t j) { y(i, j) = T(C(a(i, j)) + C(b(i, j))); });
}

}  // namespace

// ---- state --------------------------------------------------------------------------------------

template <class T>
Builder<T>::State::State(std::string unit_, const LeafShape& leaf_, std::int64_t input,
                         Frozen frozen_, FindTable find_table_, const Recompute& recompute)
    : id(next_builder()),
      unit(std::move(unit_)),
      owner(unit),
      leaf(leaf_),
      operations(leaf, recompute, {}, input),
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
  parameter.frozen = parameter.frozen || (frozen && frozen(parameter.full_name()));
  parameter.pieces = pieces();
  parameters.push_back(std::move(parameter));
  return operations.add_weight(parameters.back());
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

/// An output does not stay: who reads it in backward makes it again. What is made with others, of
/// which some are saved, is copied: where these are made again, there is no output.
template <class T>
std::vector<int> Builder<T>::State::hand_on(int v) {
  std::vector<int> outputs = {v};
  graph::append(outputs, handed_besides);
  for (int made : graph().operations.back().forward.back().writes)
    if (std::find(outputs.begin(), outputs.end(), made) == outputs.end()) {
      outputs.front() = copy_of(v);
      return outputs;
    }
  value(v).keep = graph::Keep::never;
  return outputs;
}

template <class T>
Builder<T>::Builder(std::string unit, const LeafShape& leaf, std::int64_t input, Frozen frozen,
                    FindTable find_table, const Recompute& recompute)
    : state_(std::make_unique<State>(std::move(unit), leaf, input, std::move(frozen),
                                     std::move(find_table), recompute)) {}

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
Value Builder<T>::input() const {
  return {state_->graph().input, state_->id};
}

template <class T>
void Builder<T>::begin_part(const std::string& owner) {
  State& s = *state_;
  s.owner = owner;
  s.operations.set_prefix(s.parts == 0 ? "" : std::to_string(s.parts) + ".");
  ++s.parts;
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
  const int made = s.operations.embedding(words, columns, positions > 0);
  return s.make(s.operations.rows_of_rank(made), "embedding");
}

template <class T>
Value Builder<T>::predicting_rows(const Value& x) {
  State& s = *state_;
  return s.leaf.decodes() ? s.make(s.operations.last_row(s.take_rows(x, "last row")), "last row")
                          : x;
}

// ---- layers -------------------------------------------------------------------------------------

template <class T>
Value Builder<T>::linear(const Value& x, const std::string& name, std::int64_t columns,
                         const LinearSettings& settings) {
  State& s = *state_;
  const int v = s.take(x, name);
  const bool makes_rows = s.has_columns(v);
  s.require_size(name, "columns", columns);
  // Rows are of all columns, which only a bias has in pieces.
  if (!makes_rows || settings.bias) s.require_cut(name, "columns", columns);
  const Cut cut = makes_rows ? Cut{true, {}} : Cut{false, {columns}};
  s.declare(linear_parameters(name, columns, s.columns(v), settings, cut));
  return s.make(s.operations.linear(v, name, columns, graph::Keep::mlp, true), name);
}

template <class T>
Value Builder<T>::linear_onto(const Value& onto, const Value& x, const std::string& name,
                              const LinearSettings& settings) {
  State& s = *state_;
  const int to = s.take_rows(onto, name);
  int v = s.take(x, name);
  require(s.pieces() == 1 || s.has_columns(v), name, " takes columns, but of ", s.value(v).name,
          " tensor ranks have rows; expected a linear layer or attention between");
  s.require_cut(name, "columns", s.columns(to));
  s.declare(linear_parameters(name, s.columns(to), s.columns(v), settings, {true, {}}));
  if (v == to) v = s.copy_of(v);  // a gradient can't be added to what the product takes
  return s.make(s.operations.linear_onto(to, v, name, name), name);
}

template <class T>
Value Builder<T>::gated_linear(const Value& x, const std::string& name, std::int64_t columns,
                               const LinearSettings& settings) {
  State& s = *state_;
  const int v = s.take_rows(x, name);
  s.require_cut(name, "columns", columns);
  s.declare(
      linear_parameters(name, 2 * columns, s.columns(v), settings, {false, {columns, columns}}));
  const int both = s.operations.linear(v, name, 2 * columns, graph::Keep::mlp, true);
  return s.make(s.operations.activation(both, name + ".activated", Activation::swiglu), name);
}

template <class T>
Value Builder<T>::norm(const Value& x, const std::string& name, const NormSettings& settings) {
  State& s = *state_;
  const int v = s.take_rows(x, name);
  require(settings.epsilon > 0.0 && std::isfinite(settings.epsilon), name, " has an epsilon of ",
          settings.epsilon, "; expected a number above 0");
  s.require_cut(name, "columns", s.columns(v));
  s.declare_gain(name, s.columns(v));
  if (settings.bias && settings.kind == math::NormKind::layernorm)
    s.declare(Parameter::zeros(name + ".bias", {s.columns(v)}));
  return s.make(s.operations.norm(v, name, settings.kind, settings.epsilon), name);
}

template <class T>
Value Builder<T>::attention(const Value& x, const std::string& name,
                            const AttentionSettings& settings, const LinearSettings& linear) {
  State& s = *state_;
  graph::Operations<T>& operations = s.operations;
  const int in = s.take_rows(x, name);
  const std::int64_t width = s.columns(in), heads = settings.heads;
  const std::int64_t kv_heads = settings.kv_heads == 0 ? heads : settings.kv_heads;
  require(settings.head_width >= 0, name, " has heads of ", settings.head_width,
          " columns; expected 0 for columns / heads, or more");
  require(settings.rotary_base >= 0.0 && std::isfinite(settings.rotary_base), name,
          " has a rotary base of ", settings.rotary_base, "; expected 0 for none, or more");
  s.require_cut(name, "heads", heads);
  s.require_cut(name, "heads of keys and values", kv_heads);
  require(heads % kv_heads == 0, name, " has ", heads, " heads and ", kv_heads,
          " of keys and values; expected a multiple");
  require(settings.head_width > 0 || width % heads == 0, name, " has ", heads, " heads of ", width,
          " columns; expected a divisor, or a head width");
  const bool is_rotary = settings.rotary_base > 0.0;
  const std::int64_t head = settings.head_width > 0 ? settings.head_width : width / heads;
  require(!is_rotary || head % 2 == 0, name, " has heads of ", head,
          " columns; expected an even number, as positions turn pairs");
  require(head <= largest_chain / (16 * heads * s.leaf.rows()), name, " has ", heads, " heads of ",
          head, " columns; expected at most ", largest_chain, " bytes in all units");
  const std::int64_t queries = heads * head, keys = kv_heads * head;
  s.declare(linear_parameters(name + ".qkv", queries + 2 * keys, width, linear,
                              {false, {queries, keys, keys}}));
  if (settings.query_key_norm) {
    s.require_cut(name, "columns in a head, which is normed,", head);
    for (const char* norm : {".query_norm", ".key_norm"}) s.declare_gain(name + norm, head);
  }

  // Sequences that are cut have two products on any number of ranks: 16 bits may differ otherwise.
  // Decoding keeps keys and values, and no queries.
  const bool is_apart = s.leaf.is_cut() || s.leaf.decodes();
  std::vector<int> qkv;
  if (s.leaf.decodes()) {
    qkv = operations.columns({"q"}, {queries});
    graph::append(qkv, operations.columns({"k", "v"}, {keys, keys}));
  } else {
    qkv = operations.columns({"q", "k", "v"}, {queries, keys, keys});
  }
  int q = qkv[0], k = qkv[1];
  const int v = qkv[2];
  using Products = std::vector<std::vector<int>>;
  operations.linear(in, name + ".qkv", qkv, is_apart ? Products{{k, v}, {q}} : Products{{q, k, v}});
  if (settings.query_key_norm) {
    k = operations.head_norm(k, name + ".key_norm", head, settings.norm_epsilon);
    q = operations.head_norm(q, name + ".query_norm", head, settings.norm_epsilon);
  }
  if (is_rotary && is_apart) {
    k = operations.rotary({k}, "rotary k", head, settings.rotary_base).front();
    q = operations.rotary({q}, "rotary q", head, settings.rotary_base).front();
  } else if (is_rotary) {
    const std::vector<int> rotated =
        operations.rotary({q, k}, "rotary", head, settings.rotary_base);
    q = rotated[0];
    k = rotated[1];
  }
  return s.make(operations.attention(q, k, v, name, head), name);
}

namespace {

/// What an MLP has activated.
template <class T>
Value activated(Builder<T>& b, const Value& x, const std::string& name, std::int64_t columns,
                const MlpSettings& mlp) {
  const std::string up = name_of_up(mlp.activation, name);
  return mlp.activation == Activation::swiglu ? b.gated_linear(x, up, columns, mlp.up)
                                              : b.gelu(b.linear(x, up, columns, mlp.up));
}

}  // namespace

template <class T>
Value Builder<T>::mlp_onto(const Value& onto, const Value& x, const std::string& name,
                           std::int64_t columns, const MlpSettings& settings) {
  return linear_onto(onto, activated(*this, x, name, columns, settings), name + ".down",
                     settings.down);
}

template <class T>
Value Builder<T>::mixture_onto(const Value& onto, const Value& x, const std::string& name,
                               const ExpertSettings& settings, const MlpSettings& expert) {
  State& s = *state_;
  graph::Operations<T>& operations = s.operations;
  const int to = s.take_rows(onto, name);
  int v = s.take_rows(x, name);
  const std::int64_t width = s.columns(to);
  require(settings.exist(), name, " has ", settings.count, " experts; expected at least 1");
  require_possible(name, settings, s.leaf.rows());
  require(s.columns(v) == width, name, " takes ", s.columns(v), " columns and goes onto ", width,
          "; expected as many");
  s.require_cut(name, "columns", width);
  s.require_size(name, "columns in an expert", settings.width);
  const std::string router = name + ".router";
  s.declare_table(router + ".weight", settings.count, width, expert.up.deviation);
  if (settings.balance == RouterBalance::bias) {
    Parameter balance = Parameter::zeros(router + ".balance", {settings.count});
    balance.sign_rate = settings.balance_rate;
    s.declare(std::move(balance));
  }
  s.counts.push_back(settings.count);
  graph::Experts experts{settings.router()};
  experts.name = name;
  if (settings.balance == RouterBalance::loss) experts.loss_factor = settings.balance_rate;
  if (v == to) v = s.copy_of(v);
  const auto make_shared = [&] {
    const Value inner =
        activated(*this, Value{v, s.id}, name + ".shared", settings.shared_width(), expert);
    return s.take(linear(inner, name + ".shared.down", width, expert.down), name);
  };
  if (!s.leaf.has_expert_units()) {
    s.declare(expert_parameters(name, settings, expert, width));
    const int copies = operations.dispatch(v, router, experts);
    const int shared = settings.shared > 0 ? make_shared() : -1;
    const int up = operations.expert_linear(experts, copies, name_of_up(expert.activation, ""));
    const int activated = operations.activation(up, name + ".experts.activated", expert.activation);
    return s.make(operations.combine(experts, to, shared, activated, ".down"), name);
  }
  // In pieces experts find shared ones in what they go onto.
  const MoeDispatchLayout border(settings, width, s.leaf);
  const int rows = operations.route_apart(v, router, border, experts);
  const int shared = border.has_shared ? make_shared() : -1;
  const std::vector<int> made = operations.hand_to_experts(experts, to, shared, rows, border);
  s.handed_besides.push_back(made.back());
  const Value y = s.make(made.front(), name);
  if (settings.shared == 0 || border.has_shared) return y;
  return mlp_onto(y, Value{v, s.id}, name + ".shared", settings.shared_width(), expert);
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
  require(s.columns(a) == s.columns(b), "add takes ", s.columns(a), " and ", s.columns(b),
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

// ---- losses -------------------------------------------------------------------------------------

namespace {

template <class T>
int predict(graph::Operations<T>& operations, const LeafShape& leaf, int x, int weight,
            std::int64_t words) {
  return leaf.decodes() ? operations.logits(x, weight) : operations.cross_entropy(x, weight, words);
}

}  // namespace

template <class T>
Value Builder<T>::cross_entropy(const Value& x, const std::string& name, std::int64_t words,
                                double deviation) {
  State& s = *state_;
  const int v = s.take_rows(x, name);
  s.require_size(name, "words", words);
  const int weight = s.declare_table(name + ".weight", words, s.columns(v), deviation);
  s.reads(bytes_of<std::int32_t>(2 * rows()));
  return s.make_losses(predict(s.operations, s.leaf, v, weight, words), name);
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
  require(s.tied->columns() == s.columns(v), "the losses are tied to ", s.tied->full_name(), " of ",
          s.tied->columns(), " columns, but take ", s.columns(v), "; expected as many");
  s.tied_to = unit;
  s.reads(bytes_of<std::int32_t>(2 * rows()));
  const int weight = s.operations.tied_weight(*s.tied);
  return s.make_losses(predict(s.operations, s.leaf, v, weight, s.tied->rows()), "losses");
}

// ---- the unit -----------------------------------------------------------------------------------

template <class T>
typename Builder<T>::Built Builder<T>::build(const Value& output, SharedPrograms* shared) && {
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
  std::vector<int> outputs = s.is_loss ? std::vector<int>{output.number} : s.hand_on(output.number);

  const SegmentSizes sizes = lay_out_parameters(s.parameters, s.pieces());
  std::vector<bool> frozen;
  for (std::size_t p = 0; p < s.parameters.size(); ++p) {
    s.graph().weights[p].offset = s.parameters[p].offset;
    s.graph().weights[p].stride = s.parameters[p].piece_stride;
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
  description.sums_tied_apart = s.is_loss && s.leaf.sums_by_leaf() && description.tied_gradients;
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
