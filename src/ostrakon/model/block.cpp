// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/block.hpp>

#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/model/expert_feed_forward.hpp>
#include <ostrakon/model/graph/lists.hpp>
#include <ostrakon/model/graph/operations.hpp>
#include <ostrakon/model/graph_unit.hpp>
#include <ostrakon/model/layers.hpp>
#include <string>
#include <utility>

namespace ostrakon::model {
namespace {

using graph::Call;

template <class T>
using Mixture = std::shared_ptr<const ExpertFeedForward<T>>;

/// Appends middle = x + attention(norm(x)).
template <class T>
int add_attention(graph::Operations<T>& block, const DecoderSettings& m, const LeafShape& leaf,
                  int x) {
  const std::int64_t head = m.head_width(), kv = m.kv_heads * head;
  const int n = block.norm(x, "attention.norm", m.norm, m.norm_epsilon);
  // Sequences that are cut have two products on any number of ranks: 16 bits may differ otherwise.
  // Decoding keeps keys and values, and no queries.
  const bool is_apart = leaf.is_cut() || leaf.decodes();
  std::vector<int> qkv;
  if (leaf.decodes()) {
    qkv = block.columns({"q"}, {m.query_width()});
    graph::append(qkv, block.columns({"k", "v"}, {kv, kv}));
  } else {
    qkv = block.columns({"q", "k", "v"}, {m.query_width(), kv, kv});
  }
  int q = qkv[0], k = qkv[1];
  const int v = qkv[2];
  using Products = std::vector<std::vector<int>>;
  block.linear(n, "attention.qkv", qkv, is_apart ? Products{{k, v}, {q}} : Products{{q, k, v}});
  if (m.query_key_norm) {
    k = block.head_norm(k, "attention.key_norm", head, m.norm_epsilon);
    q = block.head_norm(q, "attention.query_norm", head, m.norm_epsilon);
  }
  if (m.positions == Positions::rotary && is_apart) {
    k = block.rotary({k}, "rotary k", head, m.rotary_base).front();
    q = block.rotary({q}, "rotary q", head, m.rotary_base).front();
  } else if (m.positions == Positions::rotary) {
    const std::vector<int> rotated = block.rotary({q, k}, "rotary", head, m.rotary_base);
    q = rotated[0];
    k = rotated[1];
  }
  const int a = block.attention(q, k, v, "attention", head);
  return block.linear_onto(x, a, "attention.out", "middle");
}

/// Appends y = onto + MLP(n); parameters `name`.
template <class T>
int add_mlp(graph::Operations<T>& block, const DecoderSettings& m, const std::string& name,
            std::int64_t inner, int n, int onto) {
  const std::int64_t columns = m.activation == Activation::gelu ? inner : 2 * inner;
  const int up = block.linear(n, name_of_up(m, name), columns, graph::Keep::mlp, true);
  return block.linear_onto(onto, block.activation(up, name + ".activated", m.activation),
                           name + ".down", "y");
}

/// Adds a value of bytes, which only the mixture understands.
int add_bytes(graph::Graph& graph, const std::string& name, std::int64_t bytes) {
  graph::Value value{name, 1, bytes};
  value.element = graph::Element::byte;
  value.over_tensor = graph::Over::rows;
  return graph.add(std::move(value));
}

/// The parameters of a mixture, without MLPs: those of the unit, or where these are in pieces
/// arrays that are put together for each call, one after the other.
struct MixtureParameters {
  std::vector<int> weights;  // entries of Call::weights
  std::vector<Parameter> parameters;
  std::int64_t elements = 0;  // 0: they are the unit's
};

template <class T>
MixtureParameters find_mixture_parameters(graph::Operations<T>& block, const LeafShape& leaf,
                                          const std::vector<Parameter>& all) {
  MixtureParameters found;
  const bool is_cut = leaf.tensor_pieces() > 1;
  if (!is_cut) found.parameters = all;
  for (const Parameter& parameter : all) {
    const std::string& name = parameter.name;
    if (name.rfind("mlp.", 0) != 0 || (is_cut && name.rfind("mlp.shared.", 0) == 0)) continue;
    found.weights.push_back(block.whole_weight(name));
    if (!is_cut) continue;
    found.parameters.push_back(parameter);
    found.parameters.back().offset = found.elements;
    found.elements += parameter.elements();
  }
  return found;
}

template <class T>
class MixtureKernels {
  using Compute = compute_t<T>;

 public:
  /// `number`: among the mixtures of a unit, which count one after the other.
  MixtureKernels(Mixture<T> experts, MixtureParameters parameters, std::int64_t number)
      : experts_(std::move(experts)), parameters_(std::move(parameters)), number_(number) {}

  /// Bytes of the last two scratch arrays of each call.
  std::vector<std::int64_t> scratch() const {
    return {bytes_of<T>(parameters_.elements), bytes_of<Compute>(parameters_.elements)};
  }
  /// `first`: of those arrays.
  FeedForwardCall<T> call(const Exec& exec, const graph::Arguments& a, int saved, int first) const {
    const graph::Buffers& buffers = a.buffers();
    FeedForwardCall<T> call;
    call.x = a.read<T>(0);
    call.saved = a.bytes(saved < 0 ? a.place_read(1) : a.place_written(saved));
    call.workspace = a.scratch<std::byte>(0);
    call.loss_scale = static_cast<Compute>(buffers.loss_scale);
    call.parameters = {view_as<T>(buffers.trained), view_as<T>(buffers.frozen)};
    call.parameter_gradients = view_as<Compute>(buffers.gradients);
    if (parameters_.elements == 0) return call;
    const View<T*> flat = a.scratch<T>(first);
    for (std::size_t i = 0; i < parameters_.parameters.size(); ++i)
      math::copy<T>(exec, a.weight<T>(static_cast<int>(i)), at(flat, i));
    call.parameters = {flat, flat};
    call.parameter_gradients = a.scratch<Compute>(first + 1);
    return call;
  }
  View<std::int64_t*> counts_in(View<std::int64_t*> all) const {
    return all.range(number_ * experts_->counted(), (number_ + 1) * experts_->counted());
  }
  /// Gives the gradients of such a call to whom they are for.
  void give(const Exec& exec, const graph::Arguments& a, const FeedForwardCall<T>& call) const {
    for (std::size_t i = 0; parameters_.elements > 0 && i < parameters_.parameters.size(); ++i)
      if (const View<Compute*> to = a.gradient<Compute>(static_cast<int>(i)))
        math::copy<Compute>(exec, at(call.parameter_gradients, i), to);
  }
  const ExpertFeedForward<T>* operator->() const { return experts_.get(); }
  const std::vector<int>& weights() const { return parameters_.weights; }

 private:
  template <class A>
  View<A*> at(View<A*> flat, std::size_t i) const {
    const Parameter& one = parameters_.parameters[i];
    return flat.range(one.offset, one.offset + one.elements());
  }

  Mixture<T> experts_;
  MixtureParameters parameters_;
  std::int64_t number_;
};

/// Appends y = middle + experts(norm(middle)); returns y, and what passes to experts that are a
/// unit of their own. `n`: norm(middle) as shared experts take it that are not the mixture's, or
/// -1.
template <class T>
std::vector<int> add_mixture(graph::Operations<T>& block, const MixtureKernels<T>& experts,
                             int middle, int n, bool defers) {
  using Compute = compute_t<T>;
  graph::Graph& g = block.graph();
  const bool has_border = experts->border_bytes() > 0;
  graph::Value value = g.values[static_cast<std::size_t>(middle)];
  value.name = "mixture";
  std::vector<int> made = {g.add(value)};
  const int saved = add_bytes(g, "mlp saved", experts->saved_bytes());

  Call forward{"mlp", {middle}, {made.front(), saved}};
  if (has_border) {
    made.push_back(add_bytes(g, "to experts", experts->border_bytes()));
    forward.writes.push_back(made.back());
  }
  forward.weights = experts.weights();
  forward.is_by_row = false;
  forward.scratch = {experts->forward_workspace_bytes()};
  graph::append(forward.scratch, experts.scratch());
  forward.flops = experts->forward_flops();
  forward.work = experts->forward_work();
  forward.saving = {experts->recompute_flops(), experts->recompute_work()};
  forward.kernel = graph::make_kernel([=](const Exec& exec, const graph::Arguments& a) {
    FeedForwardCall<T> call = experts.call(exec, a, 1, 1);
    call.counts = experts.counts_in(a.buffers().counts);
    // Where there is nothing to hand on, it saves alone.
    if (has_border) call.border = a.bytes(a.place_written(2));
    if (!has_border || call.border) call.y = a.written<T>(0);
    experts->forward(exec, call);
  });

  // Arguments of backward: middle, saved, dy, [dn], [what came of the experts], dy once more.
  Call backward{"d mlp", {middle, saved, ~made.front()}, {~middle}};
  if (n >= 0) backward.reads.push_back(~n);
  const auto of_border = static_cast<int>(backward.reads.size());
  if (has_border) backward.reads.push_back(~made.back());
  backward.weights = experts.weights();
  backward.can_add = true;
  const std::int64_t sum_bytes = bytes_of<Compute>(experts->sum_elements());
  backward.scratch = {experts->backward_workspace_bytes(), sum_bytes};
  graph::append(backward.scratch, experts.scratch());
  const double parameters = defers ? experts->parameter_flops() : 0.0;
  backward.flops = experts->gradient_flops() + experts->again_flops() - parameters;
  backward.repeated_flops = experts->again_flops();
  backward.work = experts->backward_work();
  // The values of a graph have the same numbers whether it defers or not.
  const int left = add_bytes(g, "mlp deferred", experts->deferred_bytes());
  const int saved_again = add_bytes(g, "mlp saved again", experts->saved_bytes());
  if (defers) {
    backward.work += -1.0 * experts->parameter_work();
    graph::append(backward.writes, {left, saved_again});
    backward.replaces = {{saved_again, saved}};
    backward.in_place = true;
  } else {
    backward.gradients = experts.weights();
  }
  backward.kernel = graph::make_kernel([=](const Exec& exec, const graph::Arguments& a) {
    FeedForwardCall<T> call = experts.call(exec, a, -1, 2);
    call.gradient = a.written<T>(0);
    call.sums = a.scratch<Compute>(1);
    if (n >= 0) call.dnormed = a.read<T>(3);
    if (has_border) {  // what comes back has another size than what went
      const graph::Place& back = a.place_read(of_border);
      call.border = a.buffers().in(back.home).range(back.offset,
                                                    back.offset + experts->border_gradient_bytes());
    }
    if (defers) call.deferred = a.bytes(a.place_written(1));
    experts->backward(exec, call);
    if (!defers) experts.give(exec, a, call);
  });
  graph::Operation operation{{forward}, {}};
  operation.adds_to = {middle};
  if (defers) {
    Call later{"d mlp weights", {middle, backward.writes[2], backward.writes[1]}, {}};
    later.gradients = experts.weights();
    later.is_late = true;
    later.scratch = {experts->parameters_workspace_bytes(), sum_bytes};
    graph::append(later.scratch, experts.scratch());
    later.flops = parameters;
    later.work = experts->parameter_work();
    later.kernel = graph::make_kernel([=](const Exec& exec, const graph::Arguments& a) {
      FeedForwardCall<T> call = experts.call(exec, a, -1, 2);
      call.sums = a.scratch<Compute>(1);
      call.deferred = a.bytes(a.place_read(2));
      experts->backward_parameters(exec, call);
    });
    operation.backward = {backward, later};
  } else {
    operation.backward = {backward};
  }
  block.append(std::move(operation));
  return made;
}

/// Appends y = middle + the mixture of experts. In pieces its shared experts are columns of an MLP
/// as all others are, and what remains of it is computed for a rank's own rows.
template <class T>
std::vector<int> add_experts(graph::Operations<T>& block, const DecoderSettings& m, LeafShape leaf,
                             const Recompute& recompute, const std::vector<Parameter>& parameters,
                             int middle, std::int64_t number) {
  const bool is_cut = leaf.tensor_pieces() > 1;
  DecoderSettings own = m;
  if (is_cut) {
    own.experts.shared = 0;
    leaf.defers_gradients = false;
  }
  const MixtureParameters found = find_mixture_parameters(block, leaf, parameters);
  const MixtureKernels<T> experts(
      std::make_shared<const ExpertFeedForward<T>>(own, leaf, recompute, found.parameters), found,
      number);
  const bool has_shared = is_cut && m.experts.shared > 0;
  const int n = has_shared ? block.norm_alone(middle, "mlp.norm", m.norm, m.norm_epsilon) : -1;
  std::vector<int> made = add_mixture(block, experts, middle, n, leaf.defers_gradients);
  if (has_shared)
    made.front() = add_mlp(block, m, "mlp.shared", m.experts.shared_width(), n, made.front());
  return made;
}

template <class T>
std::vector<int> add_block(graph::Operations<T>& block, const DecoderSettings& m,
                           const LeafShape& leaf, const Recompute& recompute,
                           const std::vector<Parameter>& parameters, int x, std::int64_t number) {
  const int middle = add_attention(block, m, leaf, x);
  if (m.experts.exist()) return add_experts(block, m, leaf, recompute, parameters, middle, number);
  const int n = block.norm(middle, "mlp.norm", m.norm, m.norm_epsilon);
  return {add_mlp(block, m, "mlp", m.ffn_width, n, middle)};
}

/// How names of the n-th block of several in a unit begin.
std::string prefix_of(std::size_t n, std::size_t count) {
  return count == 1 ? "" : std::to_string(n) + ".";
}

using Blocks = std::vector<std::vector<Parameter>>;  // parameters of each

template <class T>
std::shared_ptr<const graph::Program> derive_blocks(const DecoderSettings& settings,
                                                    const LeafShape& leaf,
                                                    const Recompute& recompute,
                                                    const Blocks& blocks,
                                                    const std::set<int>& kept = {}) {
  std::vector<Parameter> all;
  for (std::size_t n = 0; n < blocks.size(); ++n)
    for (Parameter parameter : blocks[n]) {
      parameter.name = prefix_of(n, blocks.size()) + parameter.name;
      all.push_back(std::move(parameter));
    }
  graph::Operations<T> unit(leaf, recompute, all, settings.width);
  std::vector<int> outputs = {unit.input()};
  for (std::size_t n = 0; n < blocks.size(); ++n) {
    unit.set_prefix(prefix_of(n, blocks.size()));
    outputs = add_block(unit, settings, leaf, recompute, blocks[n], outputs.front(),
                        static_cast<std::int64_t>(n));
  }
  return std::make_shared<const graph::Program>(
      graph::derive(std::move(unit).take(std::move(outputs)), kept));
}

/// Lays blocks out one after the other in the segments of a unit, each as it is laid out alone.
SegmentSizes lay_out_blocks(Blocks& blocks, std::int64_t first, const Frozen& frozen,
                            std::int64_t pieces) {
  SegmentSizes all;  // of a piece
  std::int64_t layer = first;
  for (std::vector<Parameter>& block : blocks) {
    const SegmentSizes own =
        lay_out_parameters(block, "block." + std::to_string(layer++), frozen, pieces);
    for (Parameter& parameter : block)
      parameter.offset += parameter.frozen ? all.frozen : all.trained;
    all.frozen += own.frozen / pieces;
    all.trained += own.trained / pieces;
  }
  for (std::vector<Parameter>& block : blocks)
    for (Parameter& parameter : block)
      parameter.piece_stride = parameter.frozen ? all.frozen : all.trained;
  return {pieces * all.frozen, pieces * all.trained};
}

}  // namespace

template <class T>
std::unique_ptr<Unit<T>> BlockMaker<T>::make(std::int64_t first, std::int64_t count) {
  std::string name = "block." + std::to_string(first);
  if (count > 1) name += "-" + std::to_string(first + count - 1);
  Blocks blocks(static_cast<std::size_t>(count),
                block_parameters(settings_, !leaf_.has_expert_units()));
  const SegmentSizes sizes = lay_out_blocks(blocks, first, frozen_, leaf_.tensor_pieces());
  std::vector<Parameter> parameters;
  std::vector<bool> frozen;
  for (const std::vector<Parameter>& block : blocks)
    for (const Parameter& parameter : block) {
      parameters.push_back(parameter);
      frozen.push_back(parameter.frozen);
    }
  Programs& programs = programs_[frozen];
  if (!programs.at_once) {
    // Over several tensor ranks rows would be gathered once more for what is deferred.
    if (leaf_.defers_gradients && sizes.trained > 0 && leaf_.tensor_ranks == 1)
      programs.deferring = derive_blocks<T>(settings_, leaf_, recompute_, blocks);
    LeafShape leaf = leaf_;
    leaf.defers_gradients = false;
    programs.at_once =
        derive_blocks<T>(settings_, leaf, recompute_, blocks,
                         programs.deferring ? programs.deferring->kept : std::set<int>());
  }
  auto unit = std::make_unique<GraphUnit<T>>(name, std::move(parameters), sizes, leaf_,
                                             programs.at_once, programs.deferring);
  if (settings_.experts.exist())
    unit->description().counts.assign(static_cast<std::size_t>(count), settings_.experts.count);
  return unit;
}

template class BlockMaker<float>;
template class BlockMaker<double>;
template class BlockMaker<bf16>;
template class BlockMaker<fp16>;

}  // namespace ostrakon::model
