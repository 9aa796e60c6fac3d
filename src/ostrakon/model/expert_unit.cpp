// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/expert_unit.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/activation.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/expert_rows.hpp>
#include <ostrakon/math/gemm.hpp>
#include <ostrakon/math/ordered_gemm.hpp>
#include <ostrakon/model/block_parameters.hpp>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace ostrakon::model {
namespace {

/// Arrays that only one rank writes begin at multiples of this, and so do the parts of exchanges.
template <class T>
std::int64_t padded(std::int64_t bytes) {
  return round_up(bytes, buffer_alignment<T>);
}

/// From a rank to another one: a token goes to each of its experts once at most.
std::int64_t most_rows(const DecoderSettings& settings, const LeafShape& leaf) {
  const ExpertSettings& experts = settings.experts;
  return leaf.own_rows() * std::min(experts.per_token, experts.count / leaf.expert_ranks);
}

math::ExpertRounds make_rounds(const DecoderSettings& settings, const LeafShape& leaf) {
  const std::int64_t of_leaf = leaf.own_rows() / leaf.own_row_leaves();
  const std::int64_t granule =
      settings.mlp_bias() ? of_leaf : std::min(of_leaf, math::product_chunk);
  return math::make_expert_rounds(leaf.own_rows() * settings.experts.per_token,
                                  leaf.expert_capacity / static_cast<double>(leaf.expert_ranks),
                                  granule, most_rows(settings, leaf));
}

}  // namespace

plan::ExpertRoom expert_room(const DecoderSettings& settings, const LeafShape& leaf) {
  const math::ExpertRounds rounds = make_rounds(settings, leaf);
  const std::int64_t own = settings.experts.count / leaf.expert_ranks,
                     runs = leaf.own_row_leaves() * own;
  // Each expert has as many assignments of each leaf as any other, but for rounding.
  const std::int64_t rows = leaf.own_rows() * settings.experts.per_token / leaf.expert_ranks;
  std::vector<std::int64_t> offsets;
  for (std::int64_t run = 0; run <= runs; ++run)
    offsets.push_back(static_cast<std::int64_t>(
        static_cast<double>(rows) * static_cast<double>(run) / static_cast<double>(runs)));
  return {leaf.expert_ranks, rounds.capacity, rounds.needed(host_view(std::as_const(offsets))),
          rounds.most(most_rows(settings, leaf))};
}

// ---- phases -------------------------------------------------------------------------------------

template <class T>
void ExpertUnit<T>::forward(const Exec& exec, const UnitBuffers<T>& buffers,
                            RowRange /*rows*/) const {
  phase(exec, buffers, Pass::forward);
}

template <class T>
void ExpertUnit<T>::backward(const Exec& exec, const UnitBuffers<T>& buffers,
                             compute_t<T> /*loss_scale*/, bool /*gradients_opened*/) const {
  phase(exec, buffers, Pass::backward);
}

template <class T>
void ExpertUnit<T>::phase(const Exec& exec, const UnitBuffers<T>& buffers, Pass pass) const {
  const Workspace work = workspace_in(buffers.workspace, pass);
  if (buffers.phase == 0) {
    const auto handed = border_.template rows_in<T>(to_read(behind_y(buffers.input)));
    return math::copy<std::int64_t>(exec, View<const std::int64_t*>(handed.routes.offsets),
                                    view_as<std::int64_t>(buffers.handed));
  }
  if (buffers.phase == 1)
    math::copy<std::int64_t>(exec, view_as<std::int64_t>(buffers.exchanged), work.offsets);
  const std::int64_t round = buffers.phase / 2 - 1;  // that it computes, or has computed before
  if (buffers.phase % 2 == 0) return compute(exec, buffers, work, pass, round);
  if (round >= 0) put(exec, buffers, work, pass, round);
  if (round + 1 < description_.room.most_rounds) return send(exec, buffers, work, pass, round + 1);
  finish(exec, buffers, work, pass);
}

/// Whether any rank sends rows to any other in a round. In the first some always do.
template <class T>
bool ExpertUnit<T>::any_rows(const Exec& exec, const Workspace& work, std::int64_t round) const {
  for (std::int64_t from = 0; from < ranks_; ++from) {
    const math::OffsetsOnHost offsets(exec, offsets_of(work, from));
    for (std::int64_t to = 0; to < ranks_; ++to)
      if (rounds_.has_rows(runs(offsets.view(), to), round)) return true;
  }
  return false;
}

/// The rows of a round to the ranks that have their experts.
template <class T>
void ExpertUnit<T>::send(const Exec& exec, const UnitBuffers<T>& buffers, const Workspace& work,
                         Pass pass, std::int64_t round) const {
  const bool any = any_rows(exec, work, round);
  if (buffers.hands_nothing != nullptr) *buffers.hands_nothing = !any;
  if (!any) return;
  if (pass == Pass::forward && buffers.counts)
    math::count_one(exec, buffers.counts.range(round, round + 1));
  const auto handed = border_.template rows_in<T>(to_read(behind_y(buffers.input)));
  const View<T**> dy =
      pass == Pass::backward ? buffers.gradient.matrix(border_.rows, border_.width) : View<T**>();
  const math::OffsetsOnHost offsets(exec, offsets_of(work, buffers.expert_rank));
  const std::int64_t bytes = padded<T>(sent_in({}, pass).bytes);
  for (std::int64_t to = 0; to < ranks_; ++to) {
    const RoundRows rows = rounds_.rows_of(runs(offsets.view(), to), round);
    if (rows.count() == 0) continue;
    const Sent sent = sent_in(block_of(buffers.handed, to, bytes), pass);
    const auto assignments = handed.routes.assignments.range(rows.begin, rows.end);
    const auto gather = [&](View<const T**> from, View<T**> into) {
      math::gather_rows_of<T>(exec, border_.router.per_token, from, assignments,
                              into.row_range(0, rows.count()));
    };
    gather(handed.normed, sent.x);
    if (pass == Pass::forward) continue;
    gather(dy, sent.dy);
    math::gather_weights<Compute>(exec, handed.routes.weights, assignments,
                                  sent.weights.range(0, rows.count()));
  }
}

/// What came back, to the slots that it was sent from.
template <class T>
void ExpertUnit<T>::put(const Exec& exec, const UnitBuffers<T>& buffers, const Workspace& work,
                        Pass pass, std::int64_t round) const {
  const auto handed = border_.template rows_in<T>(to_read(behind_y(buffers.input)));
  const math::OffsetsOnHost offsets(exec, offsets_of(work, buffers.expert_rank));
  const std::int64_t bytes = padded<T>(returned_in({}, pass).bytes);
  for (std::int64_t from = 0; from < ranks_; ++from) {
    const RoundRows rows = rounds_.rows_of(runs(offsets.view(), from), round);
    if (rows.count() == 0) continue;
    const Returned back = returned_in(block_of(to_read(buffers.exchanged), from, bytes), pass);
    math::copy<T>(exec, View<const T*>(back.rows.row_range(0, rows.count()).flat()),
                  work.returned.row_range(rows.begin, rows.end).flat());
    if (pass == Pass::backward)
      math::scatter_weights<Compute>(exec, back.dweights.range(0, rows.count()),
                                     handed.routes.assignments.range(rows.begin, rows.end),
                                     work.dweights);
  }
}

template <class T>
void ExpertUnit<T>::finish(const Exec& exec, const UnitBuffers<T>& buffers, const Workspace& work,
                           Pass pass) const {
  const auto handed = border_.template rows_in<T>(to_read(behind_y(buffers.input)));
  if (pass == Pass::forward) {
    math::combine_outputs<T>(exec, buffers.input.matrix(border_.rows, border_.width), handed.shared,
                             handed.routes, work.returned,
                             buffers.output.matrix(border_.rows, border_.width));
    return;
  }
  // The gradient of y is that of x, and of shared, as it is.
  const auto back = border_.template gradients_in<T>(behind_y(buffers.gradient));
  math::sum_copies<T>(exec, handed.routes.slots, work.returned, back.normed);
  math::copy<Compute>(exec, View<const Compute*>(work.dweights), back.dweights);
  if (buffers.parameter_gradients) sum_ranks(exec, buffers, work);
}

// ---- rows of other ranks ------------------------------------------------------------------------

/// function(rows of an expert) for each of this rank's that has any.
template <class T>
template <class Function>
void ExpertUnit<T>::for_each_expert(Offsets runs, RoundRows rows, const Function& function) const {
  for (std::int64_t e = 0; e < own_; ++e) {
    const std::int64_t begin = std::max(rows.begin, runs[e * border_.leaves]);
    const std::int64_t end = std::min(rows.end, runs[(e + 1) * border_.leaves]);
    if (begin < end) function(ExpertRows{e, begin - rows.begin, end - rows.begin});
  }
}

template <class T>
void ExpertUnit<T>::compute(const Exec& exec, const UnitBuffers<T>& buffers, const Workspace& work,
                            Pass pass, std::int64_t round) const {
  const bool any = any_rows(exec, work, round);
  if (buffers.hands_nothing != nullptr) *buffers.hands_nothing = !any;
  const std::int64_t in = padded<T>(sent_in({}, pass).bytes);
  const std::int64_t out = padded<T>(returned_in({}, pass).bytes);
  for (std::int64_t from = 0; from < ranks_; ++from) {
    const math::OffsetsOnHost offsets(exec, offsets_of(work, from), first_run(buffers.expert_rank));
    const Offsets runs = this->runs(offsets.view(), buffers.expert_rank);
    const Sent sent = sent_in(block_of(to_read(buffers.exchanged), from, in), pass);
    const Returned back = returned_in(block_of(buffers.handed, from, out), pass);
    if (pass == Pass::forward)
      multiply(exec, buffers, work, runs, rounds_.rows_of(runs, round), sent.x, back.rows);
    else
      multiply_back(exec, buffers, work, from, round, runs, sent, back);
  }
}

/// work.up and work.activated, and y if it exists: the experts of rows of x, (capacity, width).
template <class T>
void ExpertUnit<T>::multiply(const Exec& exec, const UnitBuffers<T>& buffers, const Workspace& work,
                             Offsets runs, RoundRows rows, View<const T**> x, View<T**> y) const {
  if (rows.count() == 0) return;
  for_each_expert(runs, rows, [&](const ExpertRows& some) {
    multiply_rows(exec, buffers, experts_[some.expert].up, x.row_range(some.begin, some.end),
                  work.up.row_range(some.begin, some.end), work.padding);
  });
  const View<const T**> up = work.up.row_range(0, rows.count());
  const View<T**> activated = work.activated.row_range(0, rows.count());
  if (activation_ == Activation::gelu)
    math::gelu_forward<T>(exec, up, activated);
  else
    math::swiglu_forward<T>(exec, up, activated);
  if (!y) return;
  for_each_expert(runs, rows, [&](const ExpertRows& some) {
    multiply_rows(exec, buffers, experts_[some.expert].down,
                  work.activated.row_range(some.begin, some.end), y.row_range(some.begin, some.end),
                  work.padding);
  });
}

/// Gradients of the rows of a round from rank `rank`, and what they add to those of parameters. No
/// output of an expert is needed, see graph::Operations::combine.
template <class T>
void ExpertUnit<T>::multiply_back(const Exec& exec, const UnitBuffers<T>& buffers,
                                  const Workspace& work, std::int64_t rank, std::int64_t round,
                                  Offsets runs, const Sent& sent, const Returned& back) const {
  const RoundRows rows = rounds_.rows_of(runs, round);
  const std::int64_t count = rows.count();
  multiply(exec, buffers, work, runs, rows, sent.x, {});
  for_each_expert(runs, rows, [&](const ExpertRows& some) {
    const auto [expert, begin, end] = some;
    const Layer& down = experts_[expert].down;
    const View<const T**> dy = sent.dy.row_range(begin, end);
    const View<T**> dactivated = work.dactivated.row_range(begin, end);
    math::gemm_by_row<T>(exec, math::Transpose::no, dy, weight(buffers, down), dactivated,
                         work.padding);
    math::weigh_rows<T>(exec, sent.weights.range(begin, end), work.activated.row_range(begin, end),
                        array(buffers, down.bias), dactivated, dy,
                        work.weighted.row_range(begin, end), back.dweights.range(begin, end));
  });
  const View<T**> dup = activation_ == Activation::gelu ? work.dactivated : work.up;
  const View<const T**> up = work.up.row_range(0, count),
                        dactivated = work.dactivated.row_range(0, count);
  if (count > 0 && activation_ == Activation::gelu)
    math::gelu_backward<T>(exec, up, dactivated, dup.row_range(0, count));
  else if (count > 0)
    math::swiglu_backward<T>(exec, up, dactivated, dup.row_range(0, count));
  if (buffers.parameter_gradients)
    add_gradients(exec, buffers, work, rank, round, runs, sent.x, dup);
  for_each_expert(runs, rows, [&](const ExpertRows& some) {
    math::gemm_by_row<T>(exec, math::Transpose::no, dup.row_range(some.begin, some.end),
                         weight(buffers, experts_[some.expert].up),
                         back.rows.row_range(some.begin, some.end), work.padding);
  });
}

// ---- gradients of parameters --------------------------------------------------------------------

/// Those of the runs that rows of a round from rank `rank` belong to; a run that ends there is
/// added to those of the leaves before. Runs without rows count, too: their sums are zeros.
template <class T>
void ExpertUnit<T>::add_gradients(const Exec& exec, const UnitBuffers<T>& buffers,
                                  const Workspace& work, std::int64_t rank, std::int64_t round,
                                  Offsets runs, View<const T**> x, View<const T**> dup) const {
  const RoundRows rows = rounds_.rows_of(runs, round);
  const std::int64_t leaves = border_.leaves, last_row = runs[own_ * leaves];
  const bool is_last = round + 1 == description_.room.most_rounds;
  const std::int64_t all = own_ * expert_elements_;
  const View<Compute*> of_rank =
      rank == 0 ? buffers.parameter_gradients : work.gradients.range((rank - 1) * all, rank * all);
  const std::int64_t waiting = math::tree_slots(leaves) - 1;
  const auto slot_of = [&](std::int64_t expert, std::int64_t slot) {
    if (slot == 0) return of_rank.range(expert * expert_elements_, (expert + 1) * expert_elements_);
    const std::int64_t first = (rank * waiting + slot - 1) * expert_elements_;
    return work.leaves.range(first, first + expert_elements_);
  };
  for (std::int64_t e = 0; e < own_; ++e) {
    std::int64_t used = 0;  // slots, of the leaves before
    for (std::int64_t leaf = 0; leaf < leaves; ++leaf) {
      const std::int64_t first = runs[e * leaves + leaf], last = runs[e * leaves + leaf + 1];
      const std::int64_t begin = std::max(first, rows.begin), end = std::min(last, rows.end);
      const bool is_empty = first == last;
      const bool is_here =
          is_empty ? (rows.begin <= first && first < rows.end) || (is_last && first == last_row)
                   : begin < end;
      const auto write = [&](std::int64_t slot) {
        if (!is_here) return;
        const View<Compute*> to = slot_of(e, slot);
        const std::int64_t from = is_empty ? 0 : begin - rows.begin;
        const std::int64_t until = is_empty ? 0 : end - rows.begin;
        const Layer &up = experts_.front().up, &down = experts_.front().down;
        const Compute beta = is_empty || begin == first ? Compute(0) : Compute(1);
        const auto add = [&](const Layer& layer, View<const T**> inputs, View<const T**> doutputs) {
          const auto dy = doutputs.row_range(from, until);
          if (layer.weight.trained)
            math::gemm_of_run<T>(exec, dy, inputs.row_range(from, until), beta,
                                 gradient_at(to, layer.weight).matrix(layer.outputs, layer.inputs));
          // A run is never cut where there are biases.
          if (layer.bias.trained) math::column_sums<T>(exec, dy, gradient_at(to, layer.bias));
        };
        add(up, x, dup);
        add(down, work.activated, work.weighted);
      };
      const bool is_done = is_here && (is_empty || end == last);
      const auto add = [&](std::int64_t from, std::int64_t to) {
        if (!is_done) return;
        for (const Location& one : trained_)
          math::add_to<Compute>(exec, View<const Compute*>(gradient_at(slot_of(e, from), one)),
                                gradient_at(slot_of(e, to), one));
      };
      write(used++);
      for (std::int64_t rest = leaf; rest % 2 == 1; rest /= 2) {
        add(used - 1, used - 2);
        --used;
      }
      if (leaf + 1 == leaves)
        for (; used > 1; --used) add(used - 1, used - 2);
    }
  }
}

/// The gradients of the rows of all ranks, by a tree over them, which are a power of two.
template <class T>
void ExpertUnit<T>::sum_ranks(const Exec& exec, const UnitBuffers<T>& buffers,
                              const Workspace& work) const {
  const std::int64_t all = own_ * expert_elements_;
  const auto of_rank = [&](std::int64_t rank, std::int64_t expert) {
    const View<Compute*> gradients = rank == 0 ? buffers.parameter_gradients
                                               : work.gradients.range((rank - 1) * all, rank * all);
    return gradients.range(expert * expert_elements_, (expert + 1) * expert_elements_);
  };
  for (std::int64_t stride = 1; stride < ranks_; stride *= 2)
    for (std::int64_t rank = 0; rank < ranks_; rank += 2 * stride)
      for (std::int64_t e = 0; e < own_; ++e)
        for (const Location& one : trained_)
          math::add_to<Compute>(exec,
                                View<const Compute*>(gradient_at(of_rank(rank + stride, e), one)),
                                gradient_at(of_rank(rank, e), one));
}

// ---- parameters, buffers, sizes -----------------------------------------------------------------

template <class T>
ExpertUnit<T>::ExpertUnit(const DecoderSettings& settings, const LeafShape& leaf,
                          std::int64_t index, const Frozen& frozen)
    : border_(settings, leaf),
      ranks_(leaf.expert_ranks),
      tensor_ranks_(leaf.tensor_ranks),
      own_(settings.experts.count / leaf.expert_ranks),
      inner_(settings.experts.width),
      up_columns_(settings.activation == Activation::gelu ? inner_ : 2 * inner_),
      activation_(settings.activation),
      kernels_(leaf.kernels),
      rounds_(make_rounds(settings, leaf)) {
  description_.room = expert_room(settings, leaf);
  description_.name = "block." + std::to_string(index) + ".experts";
  parameters_ = expert_parameters(settings);
  add_parameters(settings, frozen);
  describe();
}

template <class T>
void ExpertUnit<T>::add_parameters(const DecoderSettings& settings, const Frozen& frozen) {
  const std::string owner = description_.name.substr(0, description_.name.rfind('.'));
  const SegmentSizes sizes = lay_out_parameters(parameters_, owner, frozen);
  const std::size_t of_expert = parameters_.size() / static_cast<std::size_t>(own_ * ranks_);
  for (std::size_t p = of_expert; p < parameters_.size(); ++p) {
    const Parameter &one = parameters_[p], &first = parameters_[p % of_expert];
    require(one.frozen == first.frozen, "parameter ", one.full_name(), " is ",
            one.frozen ? "frozen" : "trained", " and ", first.full_name(),
            " is not: expected the same for all experts, which are a unit of their own (",
            ranks_ > 1 ? text("parallel.expert = ", ranks_) : std::string("model.tensor_grain"),
            ")");
  }
  description_.parameter_elements = sizes.frozen + sizes.trained;
  description_.frozen_elements = sizes.frozen;
  expert_elements_ = sizes.trained / (own_ * ranks_);
  for (std::int64_t e = 0; e < own_; ++e) {
    const std::string name = name_of_expert(e);
    experts_.push_back({find_layer(name_of_up(settings, name)), find_layer(name + ".down")});
  }
  const Mlp& first = experts_.front();
  // nvcc can't loop over a list of these itself.
  const Location arrays[] = {first.up.weight, first.up.bias, first.down.weight, first.down.bias};
  for (const Location& one : arrays)
    if (one.trained) trained_.push_back(one);
}

template <class T>
typename ExpertUnit<T>::Layer ExpertUnit<T>::find_layer(const std::string& name) const {
  Layer layer;
  for (const Parameter& parameter : parameters_) {
    const Location at{parameter.offset, parameter.elements(), !parameter.frozen};
    if (parameter.name == name + ".bias") layer.bias = at;
    if (parameter.name == name + ".weight")
      layer = {parameter.shape[1], parameter.shape[0], at, layer.bias};
  }
  return layer;
}

template <class T>
void ExpertUnit<T>::multiply_rows(const Exec& exec, const UnitBuffers<T>& buffers,
                                  const Layer& layer, View<const T**> x, View<T**> y,
                                  View<T*> padding) {
  math::gemm_by_row<T>(exec, math::Transpose::yes, x, weight(buffers, layer), y, padding);
  if (const View<const T*> bias = array(buffers, layer.bias)) math::add_bias<T>(exec, y, bias);
}

template <class T>
std::int64_t ExpertUnit<T>::padding_of(const Layer& layer) const {
  return math::gemm_by_row_workspace<T>(layer.inputs, layer.outputs,
                                        math::rows_of_a_product_in<T>(kernels_));
}

template <class T>
typename ExpertUnit<T>::Sent ExpertUnit<T>::sent_in(View<std::byte*> buffer, Pass pass) const {
  Arrays<T> arrays(buffer);
  Sent sent{};
  sent.x = arrays.matrix(rounds_.capacity, border_.width);
  if (pass == Pass::backward) {
    sent.dy = arrays.matrix(rounds_.capacity, border_.width);
    sent.weights = arrays.template take<Compute>(rounds_.capacity);
  }
  sent.bytes = arrays.size();
  return sent;
}

template <class T>
typename ExpertUnit<T>::Returned ExpertUnit<T>::returned_in(View<std::byte*> buffer,
                                                            Pass pass) const {
  Arrays<T> arrays(buffer);
  Returned back{};
  back.rows = arrays.matrix(rounds_.capacity, border_.width);
  if (pass == Pass::backward) back.dweights = arrays.template take<Compute>(rounds_.capacity);
  back.bytes = arrays.size();
  return back;
}

template <class T>
typename ExpertUnit<T>::Workspace ExpertUnit<T>::workspace_in(View<std::byte*> buffer,
                                                              Pass pass) const {
  const std::int64_t capacity = rounds_.capacity;
  Arrays<T> arrays(buffer);
  Workspace work{};
  work.offsets = arrays.template take<std::int64_t>(ranks_ * border_.offsets());
  work.returned = arrays.matrix(border_.assignments(), border_.width);
  work.up = arrays.matrix(capacity, up_columns_);
  work.activated = arrays.matrix(capacity, inner_);
  work.padding = arrays.template take<T>(
      std::max(padding_of(experts_.front().up), padding_of(experts_.front().down)));
  if (pass == Pass::backward) {
    work.dweights = arrays.template take<Compute>(border_.assignments());
    work.dactivated = arrays.matrix(capacity, inner_);
    work.weighted = arrays.matrix(capacity, border_.width);
    work.gradients = arrays.template take<Compute>((ranks_ - 1) * own_ * expert_elements_);
    work.leaves = arrays.template take<Compute>(ranks_ * (math::tree_slots(border_.leaves) - 1) *
                                                expert_elements_);
  }
  work.bytes = arrays.size();
  return work;
}

template <class T>
void ExpertUnit<T>::describe() {
  using plan::ExchangeKind;
  const bool has_neighbours = ranks_ > tensor_ranks_;
  const plan::Axis axis = tensor_ranks_ == 1 ? plan::Axis::shard
                          : has_neighbours   ? plan::Axis::tensor_shard
                                             : plan::Axis::tensor;
  const plan::Span span{axis, static_cast<int>(ranks_)};
  constexpr std::int64_t word = sizeof(float);
  const auto all_to_all = [&](std::int64_t bytes, std::int64_t round) {
    plan::Exchange exchange{ExchangeKind::all_to_all, span, ranks_ * padded<T>(bytes) / word, word};
    exchange.may_be_empty = round > 0;
    exchange.empty_if_even = round >= description_.room.rounds_if_even;
    return exchange;
  };
  const auto make_phases = [&](Pass pass) {
    plan::Phases phases(static_cast<std::size_t>(2 + 2 * description_.room.most_rounds));
    const std::int64_t workspace = workspace_in({}, pass).bytes;
    for (plan::Phase& phase : phases) {
      phase.workspace_bytes = workspace;
      phase.keeps_workspace = true;
      phase.recomputes = false;
    }
    phases.back().keeps_workspace = false;
    phases[0].then = plan::Exchange{
        ExchangeKind::gather, span,
        ranks_ * border_.offsets() * static_cast<std::int64_t>(sizeof(std::int64_t)) / word, word};
    for (std::size_t p = 1; p < phases.size(); ++p) {
      phases[p].reads = {static_cast<int>(p) - 1};
      if (p + 1 < phases.size())
        phases[p].then =
            all_to_all(p % 2 == 1 ? sent_in({}, pass).bytes : returned_in({}, pass).bytes,
                       (static_cast<std::int64_t>(p) - 1) / 2);
    }
    return phases;
  };
  description_.forward = make_phases(Pass::forward);
  description_.backward = make_phases(Pass::backward);
  description_.output_bytes = bytes_of<T>(border_.rows * border_.width);
  description_.parts = static_cast<int>(ranks_ / tensor_ranks_);
  description_.cuts_matrices = false;
  description_.reads_batch = false;

  // Rows are evenly divided over ranks, and over the rounds that these take.
  const Layer &up = experts_.front().up, &down = experts_.front().down;
  const auto product = [&](const Layer& layer) {
    return 2.0 * static_cast<double>(border_.assignments()) *
           static_cast<double>(layer.inputs * layer.outputs);
  };
  for (const Layer* layer : {&up, &down})
    description_.gradient_flops += (layer->weight.trained ? 2.0 : 1.0) * product(*layer);
  const std::int64_t rounds = description_.room.rounds_if_even;
  for (std::int64_t round = 0; round < rounds; ++round) {
    const auto p = static_cast<std::size_t>(2 + 2 * round);
    const auto part = static_cast<double>(rounds);
    description_.forward[p].flops = (product(up) + product(down)) / part;
    description_.backward[p].flops = (description_.gradient_flops + product(up)) / part;
    // Activation; in backward once more, and its gradient. Each expert has products of its own.
    const auto experts = static_cast<double>(experts_.size()) / part;
    const auto work_of = [&](const Layer& layer) {
      return experts * plan::product_work(product(layer) / static_cast<double>(experts_.size()),
                                          layer.inputs, layer.outputs);
    };
    const double activate =
        static_cast<double>(bytes_of<T>(border_.assignments() * (up.outputs + down.inputs))) / part;
    const plan::KernelWork activation = plan::activation_work(
        static_cast<double>(border_.assignments() * down.inputs) / part, activate);
    // Rows are copied to where they are sent from, there and back; backward also sends gradients,
    // and weighs them with activated rows.
    const auto rows_of = [&](std::int64_t columns) {
      return plan::row_work(static_cast<double>(bytes_of<T>(border_.assignments() * columns)) /
                            part);
    };
    const plan::KernelWork copies = rows_of(2 * border_.width);
    description_.forward[p - 1].work = copies;
    description_.backward[p - 1].work = 2.0 * copies;
    description_.forward[p].work = work_of(up) + work_of(down) + activation + copies;
    description_.backward[p].work = 3.0 * work_of(up) + 2.0 * work_of(down) + activation +
                                    plan::activation_work(activation.activations, 1.5 * activate) +
                                    rows_of(3 * inner_ + 2 * border_.width) + copies;
  }
  // Sums of a row's experts.
  const plan::KernelWork combine = plan::row_work(
      static_cast<double>(bytes_of<T>((border_.assignments() + 2 * border_.rows) * border_.width)));
  description_.forward.back().work += combine;
  description_.backward.back().work += combine;
}

template class ExpertUnit<float>;
template class ExpertUnit<double>;
template class ExpertUnit<bf16>;
template class ExpertUnit<fp16>;

}  // namespace ostrakon::model
