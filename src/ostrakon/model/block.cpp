// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/block.hpp>

#include <ostrakon/model/block_parameters.hpp>
#include <ostrakon/model/graph/lists.hpp>
#include <ostrakon/model/graph/operations.hpp>
#include <ostrakon/model/graph_unit.hpp>
#include <string>
#include <utility>

namespace ostrakon::model {

template <class T>
int add_attention(graph::Operations<T>& block, const DecoderSettings& m, const LeafShape& leaf,
                  const std::string& name, int n) {
  const std::int64_t head = m.head_width(), kv = m.kv_heads * head;
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
  block.linear(n, name + ".qkv", qkv, is_apart ? Products{{k, v}, {q}} : Products{{q, k, v}});
  if (m.query_key_norm) {
    k = block.head_norm(k, name + ".key_norm", head, m.norm_epsilon);
    q = block.head_norm(q, name + ".query_norm", head, m.norm_epsilon);
  }
  if (m.positions == Positions::rotary && is_apart) {
    k = block.rotary({k}, "rotary k", head, m.rotary_base).front();
    q = block.rotary({q}, "rotary q", head, m.rotary_base).front();
  } else if (m.positions == Positions::rotary) {
    const std::vector<int> rotated = block.rotary({q, k}, "rotary", head, m.rotary_base);
    q = rotated[0];
    k = rotated[1];
  }
  return block.attention(q, k, v, name, head);
}

namespace {

/// Appends what is activated of MLP(n), and y = onto + MLP(n); parameters `name`.
template <class T>
int add_activated(graph::Operations<T>& block, const DecoderSettings& m, const std::string& name,
                  std::int64_t inner, int n) {
  const std::int64_t columns = m.activation == Activation::gelu ? inner : 2 * inner;
  const int up = block.linear(n, name_of_up(m, name), columns, graph::Keep::mlp, true);
  return block.activation(up, name + ".activated", m.activation);
}
template <class T>
int add_mlp(graph::Operations<T>& block, const DecoderSettings& m, const std::string& name,
            std::int64_t inner, int n, int onto) {
  return block.linear_onto(onto, add_activated(block, m, name, inner, n), name + ".down", "y");
}

/// Appends y = middle + the mixture of experts of n. Returns y, and what passes to experts that are
/// a unit of their own. In pieces these find shared experts in y.
template <class T>
std::vector<int> add_experts(graph::Operations<T>& block, const DecoderSettings& m,
                             const LeafShape& leaf, int middle, int n) {
  const char* const shared_name = "mlp.shared";
  graph::Experts experts{m.experts.router()};
  if (m.experts.balance == RouterBalance::loss) experts.loss_factor = m.experts.balance_rate;
  const auto add_shared = [&] {
    return block.linear(add_activated(block, m, shared_name, m.experts.shared_width(), n),
                        "mlp.shared.down", m.width);
  };
  if (!leaf.has_expert_units()) {
    const int copies = block.dispatch(n, "mlp.router", experts);
    const int shared = m.experts.shared > 0 ? add_shared() : -1;
    const int up = block.expert_linear(experts, copies, name_of_up(m, ""));
    return {block.combine(experts, middle, shared,
                          block.activation(up, "mlp.experts.activated", m.activation), ".down")};
  }
  const ExpertBorder border(m, leaf);
  const int x = block.route_apart(n, "mlp.router", border, experts);
  const int shared = border.has_shared ? add_shared() : -1;
  std::vector<int> made = block.hand_to_experts(experts, middle, shared, x, border);
  if (m.experts.shared > 0 && !border.has_shared)
    made.front() = add_mlp(block, m, shared_name, m.experts.shared_width(), n, made.front());
  return made;
}

template <class T>
std::vector<int> add_block(graph::Operations<T>& block, const DecoderSettings& m,
                           const LeafShape& leaf, int x) {
  const int n = block.norm(x, "attention.norm", m.norm, m.norm_epsilon);
  const int a = add_attention(block, m, leaf, "attention", n);
  const int middle = block.linear_onto(x, a, "attention.out", "middle");
  const int normed = block.norm(middle, "mlp.norm", m.norm, m.norm_epsilon);
  if (m.experts.exist()) return add_experts(block, m, leaf, middle, normed);
  return {add_mlp(block, m, "mlp", m.ffn_width, normed, middle)};
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
    outputs = add_block(unit, settings, leaf, outputs.front());
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
    if (leaf_.defers_gradients && sizes.trained > 0)
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

#define OSTRAKON_INSTANTIATE(T)                                                               \
  template class BlockMaker<T>;                                                               \
  template int add_attention(graph::Operations<T>&, const DecoderSettings&, const LeafShape&, \
                             const std::string&, int);
OSTRAKON_INSTANTIATE(float)
OSTRAKON_INSTANTIATE(double)
OSTRAKON_INSTANTIATE(bf16)
OSTRAKON_INSTANTIATE(fp16)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::model
