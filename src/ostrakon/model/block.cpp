// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/block.hpp>

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
int add_attention(graph::Operations<T>& block, const DecoderSettings& m, const LeafShape& leaf) {
  const std::int64_t head = m.head_width(), kv = m.kv_heads * head;
  const int n = block.norm(block.input(), "attention.norm", m.norm, m.norm_epsilon);
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
  const int a = block.attention(q, k, v, "attention", {m.heads, m.kv_heads, head});
  return block.linear_onto(block.input(), a, "attention.out", "middle");
}

/// Appends y = middle + MLP(norm(middle)).
template <class T>
int add_mlp(graph::Operations<T>& block, const DecoderSettings& m, int middle) {
  const int n = block.norm(middle, "mlp.norm", m.norm, m.norm_epsilon);
  const std::int64_t columns = m.activation == Activation::gelu ? m.ffn_width : 2 * m.ffn_width;
  const int up = block.linear(n, name_of_up(m), columns, graph::Keep::mlp);
  return block.linear_onto(middle, block.activation(up, "mlp.activated", m.activation), "mlp.down",
                           "y");
}

/// Adds a value of bytes, which only the mixture understands.
int add_bytes(graph::Graph& graph, const std::string& name, std::int64_t bytes) {
  graph::Value value{name, 1, bytes};
  value.element = graph::Element::byte;
  return graph.add(std::move(value));
}

template <class T>
FeedForwardCall<T> mixture_call(const graph::Arguments& a, int saved) {
  const graph::Buffers& buffers = a.buffers();
  FeedForwardCall<T> call;
  call.parameters = {view_as<T>(buffers.trained), view_as<T>(buffers.frozen)};
  call.x = a.read<T>(0);
  call.saved = a.bytes(saved < 0 ? a.place_read(1) : a.place_written(saved));
  call.workspace = a.scratch<std::byte>(0);
  call.parameter_gradients = view_as<compute_t<T>>(buffers.gradients);
  call.loss_scale = static_cast<compute_t<T>>(buffers.loss_scale);
  return call;
}

/// Appends y = middle + experts(norm(middle)); returns y, and what passes to experts that are a
/// unit of their own.
template <class T>
std::vector<int> add_mixture(graph::Operations<T>& block, const Mixture<T>& experts, int middle) {
  using Compute = compute_t<T>;
  graph::Graph& g = block.graph();
  const bool defers = g.setting.defers, has_border = experts->border_bytes() > 0;
  graph::Value value = g.values[static_cast<std::size_t>(middle)];
  value.name = "y";
  std::vector<int> made = {g.add(value)};
  const int saved = add_bytes(g, "mlp saved", experts->saved_bytes());
  std::vector<int> weights;
  for (std::size_t w = 0; w < g.weights.size(); ++w)
    if (g.weights[w].name.rfind("mlp.", 0) == 0) weights.push_back(static_cast<int>(w));

  Call forward{"mlp", {middle}, {made.front(), saved}};
  if (has_border) {
    made.push_back(add_bytes(g, "to experts", experts->border_bytes()));
    forward.writes.push_back(made.back());
  }
  forward.weights = weights;
  forward.scratch = {experts->forward_workspace_bytes()};
  forward.flops = experts->forward_flops();
  forward.work = experts->forward_work();
  forward.saving = {experts->recompute_flops(), experts->recompute_work()};
  forward.kernel = graph::make_kernel([=](const Exec& exec, const graph::Arguments& a) {
    FeedForwardCall<T> call = mixture_call<T>(a, 1);
    call.counts = a.buffers().counts;
    if (a.buffers().in(graph::Home::output)) {
      call.y = a.written<T>(0);
      if (has_border) call.border = a.bytes(a.place_written(2));
    }
    experts->forward(exec, call);
  });

  // Arguments of backward: middle, saved, dy, [what came of the experts], dy once more.
  Call backward{"d mlp", {middle, saved, ~made.front()}, {~middle}};
  if (has_border) backward.reads.push_back(~made.back());
  backward.weights = weights;
  backward.can_add = true;
  const std::int64_t sum_bytes = bytes_of<Compute>(experts->sum_elements());
  backward.scratch = {experts->backward_workspace_bytes(), sum_bytes};
  const double parameters = defers ? experts->parameter_flops() : 0.0;
  backward.flops = experts->gradient_flops() + experts->again_flops() - parameters;
  backward.repeated_flops = experts->again_flops();
  backward.work = experts->backward_work();
  if (defers) {
    backward.work += -1.0 * experts->parameter_work();
    const int left = add_bytes(g, "mlp deferred", experts->deferred_bytes());
    const int saved_again = add_bytes(g, "mlp saved again", experts->saved_bytes());
    graph::append(backward.writes, {left, saved_again});
    backward.replaces = {{saved_again, saved}};
    backward.in_place = true;
  } else {
    backward.gradients = weights;
  }
  backward.kernel = graph::make_kernel([=](const Exec& exec, const graph::Arguments& a) {
    FeedForwardCall<T> call = mixture_call<T>(a, -1);
    call.gradient = a.written<T>(0);
    call.sums = a.scratch<Compute>(1);
    if (has_border) {  // what comes back has another size than what went
      const graph::Place& back = a.place_read(3);
      call.border = a.buffers().in(back.home).range(back.offset,
                                                    back.offset + experts->border_gradient_bytes());
    }
    if (defers) call.deferred = a.bytes(a.place_written(1));
    experts->backward(exec, call);
  });
  graph::Operation operation{{forward}, {}};
  operation.adds_to = {middle};
  if (defers) {
    Call later{"d mlp weights", {middle, backward.writes[2], backward.writes[1]}, {}};
    later.gradients = weights;
    later.is_late = true;
    later.scratch = {experts->parameters_workspace_bytes(), sum_bytes};
    later.flops = parameters;
    later.work = experts->parameter_work();
    later.kernel = graph::make_kernel([=](const Exec& exec, const graph::Arguments& a) {
      FeedForwardCall<T> call = mixture_call<T>(a, -1);
      call.sums = a.scratch<Compute>(1);
      call.deferred = a.bytes(a.place_read(2));
      experts->backward_parameters(exec, call);
    });
    operation.backward = {backward, later};
  } else {
    operation.backward = {backward};
  }
  g.operations.push_back(std::move(operation));
  return made;
}

template <class T>
std::shared_ptr<const graph::Program> derive_block(const DecoderSettings& settings,
                                                   const LeafShape& leaf,
                                                   const Recompute& recompute,
                                                   const std::vector<Parameter>& parameters) {
  graph::Operations<T> block(leaf, recompute, parameters, settings.width);
  const int middle = add_attention(block, settings, leaf);
  std::vector<int> outputs;
  if (settings.experts.exist())
    outputs = add_mixture<T>(
        block, std::make_shared<const ExpertFeedForward<T>>(settings, leaf, recompute, parameters),
        middle);
  else
    outputs = {add_mlp(block, settings, middle)};
  return std::make_shared<const graph::Program>(
      graph::derive(std::move(block).take(std::move(outputs))));
}

}  // namespace

template <class T>
std::unique_ptr<Unit<T>> BlockMaker<T>::make(std::int64_t index) {
  const std::string name = "block." + std::to_string(index);
  std::vector<Parameter> parameters = block_parameters(settings_, !leaf_.has_expert_units());
  const SegmentSizes sizes = lay_out_parameters(parameters, name, frozen_);
  std::vector<bool> frozen;
  for (const Parameter& parameter : parameters) frozen.push_back(parameter.frozen);
  Programs& programs = programs_[frozen];
  if (!programs.at_once) {
    LeafShape leaf = leaf_;
    leaf.defers_gradients = false;
    programs.at_once = derive_block<T>(settings_, leaf, recompute_, parameters);
    if (leaf_.defers_gradients && sizes.trained > 0)
      programs.deferring = derive_block<T>(settings_, leaf_, recompute_, parameters);
  }
  auto unit = std::make_unique<GraphUnit<T>>(name, std::move(parameters), sizes, leaf_,
                                             programs.at_once, programs.deferring);
  if (settings_.experts.exist()) unit->description().counts = {settings_.experts.count};
  return unit;
}

template class BlockMaker<float>;
template class BlockMaker<double>;
template class BlockMaker<bf16>;
template class BlockMaker<fp16>;

}  // namespace ostrakon::model
