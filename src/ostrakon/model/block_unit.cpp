// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/block_unit.hpp>

#include <algorithm>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/head_norm.hpp>
#include <ostrakon/model/packing.hpp>
#include <string>

namespace ostrakon::model {

// ---- forward ------------------------------------------------------------------------------------

template <class T>
void BlockUnit<T>::forward(const Exec& exec, const UnitBuffers<T>& buffers, RowRange rows) const {
  leaf_.require_row_range(rows.begin, rows.end);
  // Sequences that are cut have two products on any number of ranks: 16 bits may differ otherwise.
  const bool in_parts = leaf_.parts > 1;
  if (!in_parts || buffers.phase == 0) {
    normalize(exec, buffers, rows);
    project(exec, buffers, rows, leaf_.is_cut() ? sizes_.q_width : 0, sizes_.qkv_width);
  }
  if (in_parts && buffers.phase == 0)
    return hand_keys_and_values(exec, buffers, of_forward(buffers).qkv);
  if (in_parts ? buffers.phase == 1 : leaf_.is_cut())
    project(exec, buffers, rows, 0, sizes_.q_width);
  if (in_parts && buffers.phase == 1) return;
  attend(exec, buffers, rows);
  project_out(exec, buffers, rows);
  mlp_forward(exec, buffers, rows);
}

template <class T>
void BlockUnit<T>::normalize(const Exec& exec, const UnitBuffers<T>& buffers, RowRange rows) const {
  const auto [begin, end] = rows;
  const Activations made = of_forward(buffers);
  norm_forward<T>(exec, attention_norm_, own_parameters(buffers),
                  buffers.input.matrix(sizes_.rows, sizes_.width).row_range(begin, end),
                  made.attention_norm.row_range(begin, end),
                  matrix_in(buffers.workspace, forward_.attention_normed, sizes_.width)
                      .row_range(0, end - begin));
}

/// Columns [first, last) of qkv = norm(x) Wqkv^T, normed and rotated.
template <class T>
void BlockUnit<T>::project(const Exec& exec, const UnitBuffers<T>& buffers, RowRange rows,
                           std::int64_t first, std::int64_t last) const {
  const auto [begin, end] = rows;
  const auto normed = matrix_in(buffers.workspace, forward_.attention_normed, sizes_.width)
                          .row_range(0, end - begin);
  const auto qkv = of_forward(buffers).qkv.row_range(begin, end);
  linear_forward<T>(exec, outputs_of(qkv_, first, last), own_parameters(buffers), normed,
                    qkv.column_range(first, last));
  normalize_heads(exec, buffers, rows, {first, last});
  rotate(exec, math::Rotation::forward, qkv, {first, std::min(last, rotated_width())}, begin,
         buffers.part);
}

/// Of queries, or keys, or both: those whose columns these are.
template <class T>
void BlockUnit<T>::normalize_heads(const Exec& exec, const UnitBuffers<T>& buffers, RowRange rows,
                                   Columns columns) const {
  const Activations made = of_forward(buffers);
  for (const HeadNorm& one : head_norms_) {
    const auto [begin, end] = one.columns;
    if (begin < columns.begin || end > columns.end) continue;
    math::head_norm_forward<T>(
        exec, one.norm.epsilon, own_parameters(buffers).at(one.norm.weight),
        made.qkv.row_range(rows.begin, rows.end).column_range(begin, end),
        made.unnormed.row_range(rows.begin, rows.end).column_range(begin, end));
  }
}

template <class T>
void BlockUnit<T>::attend(const Exec& exec, const UnitBuffers<T>& buffers, RowRange rows) const {
  const Activations made = of_forward(buffers);
  const View<T*> scores =
      array_in<T>(buffers.workspace, forward_.attention_scores,
                  math::attention_forward_workspace<T>(attention_, leaf_.kernels));
  if (leaf_.is_cut()) {
    const View<T**> kv = keys_and_values_in_order(exec, buffers, made.qkv, forward_.kv);
    math::attention_forward<T>(exec, attention_, queries(buffers.part), made.qkv, kv,
                               made.attention, made.log_sum_exp, scores);
    return;
  }
  // Rows of one sequence are queries of it; all rows are all queries of every sequence. Keys and
  // values of the rows before are still in `saved`.
  const bool is_all = rows.end - rows.begin == sizes_.rows;
  math::attention_forward<T>(exec, attention_, made.qkv, rows.begin,
                             is_all ? leaf_.tokens : rows.end, made.attention, made.log_sum_exp,
                             scores);
}

/// middle = x + attention Wout^T
template <class T>
void BlockUnit<T>::project_out(const Exec& exec, const UnitBuffers<T>& buffers,
                               RowRange rows) const {
  const auto [begin, end] = rows;
  const Activations made = of_forward(buffers);
  const auto x = buffers.input.matrix(sizes_.rows, sizes_.width).row_range(begin, end);
  const auto middle = made.middle.row_range(begin, end);
  math::copy<T>(exec, x.flat(), middle.flat());
  linear_forward_add<T>(exec, out_, own_parameters(buffers), made.attention.row_range(begin, end),
                        middle);
}

template <class T>
FeedForwardCall<T> BlockUnit<T>::feed_forward_call(const UnitBuffers<T>& buffers,
                                                   View<const T**> middle) const {
  const std::int64_t begin = feed_forward_saved_, end = begin + feed_forward_->saved_bytes();
  FeedForwardCall<T> call{own_parameters(buffers), middle, buffers.saved.range(begin, end),
                          buffers.workspace};
  if (defers_ && buffers.deferred)
    call.deferred = buffers.deferred.range(
        deferred_.feed_forward, deferred_.feed_forward + feed_forward_->deferred_bytes());
  return call;
}

/// y = middle + f(norm(middle)); without y, as much of it as is saved.
template <class T>
void BlockUnit<T>::mlp_forward(const Exec& exec, const UnitBuffers<T>& buffers,
                               RowRange rows) const {
  const auto [begin, end] = rows;
  const View<T**> middle = of_forward(buffers).middle;
  FeedForwardCall<T> call = feed_forward_call(buffers, middle.row_range(begin, end));
  call.first_row = begin;
  call.counts = buffers.counts;
  if (buffers.output) {
    call.y = buffers.output.matrix(sizes_.rows, sizes_.width).row_range(begin, end);
    call.border =
        border_in<T>(buffers.output, sizes_.rows, sizes_.width, feed_forward_->border_bytes());
  }
  feed_forward_->forward(exec, call);
}

/// Queries and keys, which are next to each other in a row, are rotated; values are not. `columns`:
/// of heads of these. `begin`: the first row, which is a position where there are no parts.
template <class T>
void BlockUnit<T>::rotate(const Exec& exec, math::Rotation rotation, View<T**> qkv, Columns columns,
                          std::int64_t begin, std::int64_t part) const {
  if (positions_ != Positions::rotary) return;
  rotate_heads<T>(exec, rotation, leaf_, qkv.column_range(columns.begin, columns.end),
                  attention_.head_width, rotary_base_, begin, part);
}

// ---- backward -----------------------------------------------------------------------------------

/// `gradient` is dL/dy, then dL/dmiddle, then dL/dx: each branch adds its part to what the residual
/// connection passes on unchanged.
template <class T>
void BlockUnit<T>::backward(const Exec& exec, const UnitBuffers<T>& buffers,
                            compute_t<T> loss_scale, bool /*gradients_opened*/) const {
  if (defers_ && buffers.phase == description_.first_of_gradients())
    return deferred_gradients(exec, buffers);
  if (leaf_.parts == 1) {
    mlp_backward(exec, buffers, loss_scale);
    attention_backward(exec, buffers);
    return;
  }
  switch (buffers.phase) {
    case 0:
      return hand_keys_and_values(exec, buffers, of_backward(buffers).qkv);
    case 1:
      return mlp_backward(exec, buffers, loss_scale);
    case 2:
      backward_to_queries(exec, buffers);
      return hand_their_gradients(exec, buffers);
    case 3:
      if (!defers_)
        return out_gradients(exec, buffers, buffers.gradient.matrix(sizes_.rows, sizes_.width),
                             leaf_sums(buffers, backward_.attention_sums));
      [[fallthrough]];
    default:
      take_gradients(exec, buffers);
      return backward_from_queries(exec, buffers);
  }
}

template <class T>
void BlockUnit<T>::mlp_backward(const Exec& exec, const UnitBuffers<T>& buffers,
                                compute_t<T> loss_scale) const {
  FeedForwardCall<T> call = feed_forward_call(buffers, of_backward(buffers).middle);
  call.gradient = buffers.gradient.matrix(sizes_.rows, sizes_.width);
  call.border = border_in<T>(buffers.gradient, sizes_.rows, sizes_.width,
                             feed_forward_->border_gradient_bytes());
  call.parameter_gradients = buffers.parameter_gradients;
  call.sums = leaf_sums(buffers, backward_.sums).workspace;
  call.loss_scale = loss_scale;
  feed_forward_->backward(exec, call);
  if (defers_ && out_.trained())
    math::copy<T>(exec, View<const T*>(call.gradient.flat()),
                  matrix_in(buffers.deferred, deferred_.dmiddle, sizes_.width).flat());
}

template <class T>
void BlockUnit<T>::attention_backward(const Exec& exec, const UnitBuffers<T>& buffers) const {
  backward_to_queries(exec, buffers);
  if (defers_)
    math::copy<T>(
        exec, View<const T*>(matrix_in(buffers.workspace, backward_.dqkv, sizes_.qkv_width).flat()),
        last_dqkv_in(buffers).flat());
  else
    out_gradients(exec, buffers, buffers.gradient.matrix(sizes_.rows, sizes_.width),
                  leaf_sums(buffers, backward_.attention_sums));
  backward_from_queries(exec, buffers);
}

/// Of all parameters.
template <class T>
void BlockUnit<T>::deferred_gradients(const Exec& exec, const UnitBuffers<T>& buffers) const {
  const Activations made = of_backward(buffers);
  const LeafSums<T> sums = leaf_sums(buffers, deferred_.sums);
  FeedForwardCall<T> call = feed_forward_call(buffers, made.middle);
  call.parameter_gradients = buffers.parameter_gradients;
  call.sums = sums.workspace;
  feed_forward_->backward_parameters(exec, call);
  if (out_.trained())
    out_gradients(exec, buffers, matrix_in(buffers.deferred, deferred_.dmiddle, sizes_.width),
                  sums);
  const DeferredNorm<T> norm = deferred_norm(buffers);
  const View<T**> normed = matrix_in(buffers.workspace, 0, sizes_.width);
  if (qkv_.weight.trained())
    norm_apply<T>(exec, attention_norm_, norm, buffers.input.matrix(sizes_.rows, sizes_.width),
                  made.attention_norm, normed);
  linear_backward_parameters<T>(exec, qkv_, normed, last_dqkv_in(buffers),
                                buffers.parameter_gradients, sums);
  norm_gradients<T>(exec, attention_norm_, norm, buffers.parameter_gradients);
  for (const HeadNorm& one : head_norms_)
    if (one.norm.weight.trained())
      math::copy<Compute>(exec, View<const Compute*>(head_norm_gradient(buffers, one)),
                          gradient_at(buffers.parameter_gradients, one.norm.weight));
}

template <class T>
View<compute_t<T>*> BlockUnit<T>::head_norm_gradient(const UnitBuffers<T>& buffers,
                                                     const HeadNorm& one) const {
  if (!defers_) return gradient_at(buffers.parameter_gradients, one.norm.weight);
  if (!one.norm.weight.trained()) return {};
  return array_in<Compute>(buffers.deferred, deferred_.head_norms, 2 * attention_.head_width)
      .range(one.first, one.first + attention_.head_width);
}

template <class T>
DeferredNorm<T> BlockUnit<T>::deferred_norm(const UnitBuffers<T>& buffers) const {
  return {array_in<T>(buffers.deferred, deferred_.norm_parameters, 2 * sizes_.width),
          array_in<Compute>(buffers.deferred, deferred_.norm_gradients, 2 * sizes_.width)};
}

/// The gradients of queries, keys and values. In parts those of the keys and values of all, from
/// this part's queries.
template <class T>
void BlockUnit<T>::backward_to_queries(const Exec& exec, const UnitBuffers<T>& buffers) const {
  const Activations made = of_backward(buffers);
  const View<T**> gradient = buffers.gradient.matrix(sizes_.rows, sizes_.width);
  const View<T**> dattention = matrix_in(buffers.workspace, backward_.dattention, sizes_.q_width);
  const View<T**> dqkv = matrix_in(buffers.workspace, backward_.dqkv, sizes_.qkv_width);
  const View<T*> scores =
      array_in<T>(buffers.workspace, backward_.attention_scores, backward_score_elements());
  const View<T**> kv = leaf_.is_cut()
                           ? keys_and_values_in_order(exec, buffers, made.qkv, backward_.kv)
                           : kv_of(made.qkv);
  const math::AttentionQueries queries = this->queries(buffers.part);

  if (recompute_.attention)
    math::attention_forward<T>(exec, attention_, queries, made.qkv, kv, made.attention,
                               made.log_sum_exp, scores);
  linear_backward_input<T>(exec, out_, own_parameters(buffers), gradient, dattention);
  if (!leaf_.is_cut()) {
    math::attention_backward<T>(exec, attention_, made.qkv, made.attention, made.log_sum_exp,
                                dattention, dqkv, scores);
    return;
  }
  const View<Compute**> dkv = gradients_in_order(buffers);
  math::attention_backward<T>(exec, attention_, queries, made.qkv, kv, made.attention,
                              made.log_sum_exp, dattention, queries_of(dqkv), dkv, scores);
  if (leaf_.parts == 1)
    math::put_by_part<Compute, T>(exec, leaf_.sequence(), View<const Compute**>(dkv), kv_of(dqkv));
}

/// dWout.
template <class T>
void BlockUnit<T>::out_gradients(const Exec& exec, const UnitBuffers<T>& buffers,
                                 View<const T**> dmiddle, const LeafSums<T>& sums) const {
  linear_backward_parameters<T>(exec, out_, of_backward(buffers).attention, dmiddle,
                                buffers.parameter_gradients, sums);
}

/// dWqkv, and dL/dx.
template <class T>
void BlockUnit<T>::backward_from_queries(const Exec& exec, const UnitBuffers<T>& buffers) const {
  const FlatParameter<T> parameters = own_parameters(buffers);
  const View<Compute*> gradients = buffers.parameter_gradients;
  const Activations made = of_backward(buffers);
  const View<const T**> x = buffers.input.matrix(sizes_.rows, sizes_.width);
  const View<T**> gradient = buffers.gradient.matrix(sizes_.rows, sizes_.width);
  const View<T**> dqkv = last_dqkv_in(buffers);
  const View<T**> normed = matrix_in(buffers.workspace, backward_.last_normed, sizes_.width);
  const LeafSums<T> sums = leaf_sums(buffers, backward_.last_sums);
  rotate(exec, math::Rotation::inverse, dqkv, {0, rotated_width()}, 0, buffers.part);
  heads_backward(exec, buffers, dqkv, sums);
  norm_again<T>(exec, attention_norm_, parameters, x, made.attention_norm, recompute_.norms,
                qkv_.weight.trained() && !defers_, normed);
  if (!defers_) linear_backward_parameters<T>(exec, qkv_, normed, dqkv, gradients, sums);
  const View<T**> dnormed = normed;
  linear_backward_input<T>(exec, qkv_, parameters, dqkv, dnormed);
  if (defers_)
    norm_backward<T>(exec, attention_norm_, parameters, x, made.attention_norm, dnormed,
                     deferred_norm(buffers), gradient, math::GradientUpdate::add, sums);
  else
    norm_backward<T>(exec, attention_norm_, parameters, x, made.attention_norm, dnormed, gradients,
                     gradient, math::GradientUpdate::add, sums);
}

/// Through the norms of queries and keys.
template <class T>
void BlockUnit<T>::heads_backward(const Exec& exec, const UnitBuffers<T>& buffers, View<T**> dqkv,
                                  const LeafSums<T>& sums) const {
  if (!has_head_norms()) return;
  const View<T**> unnormed = of_backward(buffers).unnormed;
  const View<Compute*> rstd =
      array_in<Compute>(buffers.workspace, backward_.head_rstd, head_rstd_elements());
  for (const HeadNorm& one : head_norms_)
    head_norm_backward<T>(exec, one.norm, own_parameters(buffers),
                          unnormed.column_range(one.columns.begin, one.columns.end),
                          rstd.range(0, sizes_.rows * one.heads),
                          dqkv.column_range(one.columns.begin, one.columns.end),
                          head_norm_gradient(buffers, one), sums);
}

// ---- parts and pieces of sequences --------------------------------------------------------------

template <class T>
math::AttentionQueries BlockUnit<T>::queries(std::int64_t part) const {
  return {leaf_.sequence(), part};
}

/// `offset` bytes into the workspace.
template <class T>
LeafSums<T> BlockUnit<T>::leaf_sums(const UnitBuffers<T>& buffers, std::int64_t offset) const {
  return {leaf_.leaves(), array_in<Compute>(buffers.workspace, offset, backward_sum_elements())};
}

template <class T>
void BlockUnit<T>::hand_keys_and_values(const Exec& exec, const UnitBuffers<T>& buffers,
                                        View<const T**> qkv) const {
  math::copy_rows<T, T>(exec, qkv.column_range(sizes_.q_width, sizes_.qkv_width),
                        view_as<T>(buffers.handed).matrix(sizes_.rows, kv_width()));
}

/// Those that were gathered, or this rank's, in the order of positions, `offset` bytes into the
/// workspace.
template <class T>
View<T**> BlockUnit<T>::keys_and_values_in_order(const Exec& exec, const UnitBuffers<T>& buffers,
                                                 View<T**> qkv, std::int64_t offset) const {
  const View<T**> kv = array_in<T>(buffers.workspace, offset, sequence_rows() * kv_width())
                           .matrix(sequence_rows(), kv_width());
  const View<const T**> by_part =
      leaf_.parts > 1 ? view_as<const T>(buffers.exchanged).matrix(sequence_rows(), kv_width())
                      : View<const T**>(kv_of(qkv));
  math::put_in_order<T>(exec, leaf_.sequence(), by_part, kv);
  return kv;
}

/// Gradients of keys and values in the same order.
template <class T>
View<compute_t<T>**> BlockUnit<T>::gradients_in_order(const UnitBuffers<T>& buffers) const {
  return array_in<Compute>(buffers.workspace, backward_.dkv, sequence_rows() * kv_width())
      .matrix(sequence_rows(), kv_width());
}

/// Gradients of queries are stored over the queries, which are no longer needed.
template <class T>
void BlockUnit<T>::hand_their_gradients(const Exec& exec, const UnitBuffers<T>& buffers) const {
  math::put_by_part<Compute, Compute>(
      exec, leaf_.sequence(), View<const Compute**>(gradients_in_order(buffers)),
      view_as<Compute>(buffers.handed).matrix(sequence_rows(), kv_width()));
  math::copy_rows<T, T>(exec,
                        queries_of(matrix_in(buffers.workspace, backward_.dqkv, sizes_.qkv_width)),
                        queries_of(of_backward(buffers).qkv));
}

template <class T>
void BlockUnit<T>::take_gradients(const Exec& exec, const UnitBuffers<T>& buffers) const {
  const View<T**> dqkv = last_dqkv_in(buffers);
  if (!defers_) math::copy_rows<T, T>(exec, queries_of(of_backward(buffers).qkv), queries_of(dqkv));
  math::copy_rows<Compute, T>(
      exec, view_as<Compute>(buffers.exchanged).matrix(sizes_.rows, kv_width()), kv_of(dqkv));
}

// ---- parameters, buffers, sizes -----------------------------------------------------------------

template <class T>
BlockUnit<T>::BlockUnit(const DecoderSettings& settings, LeafShape leaf, std::int64_t index,
                        Recompute recompute, const Frozen& frozen)
    : leaf_(leaf),
      defers_(leaf.defers_gradients),
      recompute_(recompute),
      attention_{leaf.batch, leaf.tokens, settings.heads, settings.kv_heads, settings.head_width()},
      sizes_{leaf.rows(), settings.width, settings.query_width(),
             (settings.heads + 2 * settings.kv_heads) * settings.head_width()},
      positions_(settings.positions),
      rotary_base_(settings.rotary_base) {
  description_.name = "block." + std::to_string(index);
  add_parameters(settings, frozen);
  add_phases();
  lay_out_saved();
  lay_out_forward();
  lay_out_backward();
  describe();
}

template <class T>
void BlockUnit<T>::add_parameters(const DecoderSettings& settings, const Frozen& frozen) {
  parameters_ = block_parameters(settings, !leaf_.has_expert_units());
  const SegmentSizes sizes = lay_out_parameters(parameters_, description_.name, frozen);
  description_.parameter_elements = sizes.frozen + sizes.trained;
  description_.frozen_elements = sizes.frozen;
  if (sizes.trained == 0) defers_ = leaf_.defers_gradients = false;

  attention_norm_ = find_norm(parameters_, "attention.norm", settings.norm, settings.norm_epsilon);
  qkv_ = find_linear(parameters_, "attention.qkv");
  out_ = find_linear(parameters_, "attention.out");
  if (settings.query_key_norm) {
    const auto find = [&](const char* name) {
      return find_norm(parameters_, name, math::NormKind::rmsnorm, settings.norm_epsilon);
    };
    const std::int64_t end = sizes_.q_width;
    head_norms_ = {{find("attention.query_norm"), {0, end}, settings.heads, 0},
                   {find("attention.key_norm"),
                    {end, rotated_width()},
                    settings.kv_heads,
                    settings.head_width()}};
  }
  feed_forward_ = make_feed_forward<T>(settings, leaf_, recompute_, parameters_);
}

template <class T>
void BlockUnit<T>::add_phases() {
  if (defers_) description_.deferred_phases = 1;
  if (leaf_.parts == 1) {
    description_.backward.resize(defers_ ? 2 : 1);
    return;
  }
  const plan::Span span{plan::Axis::shard, static_cast<int>(leaf_.parts)};
  const std::int64_t elements = sequence_rows() * kv_width();
  const plan::Exchange gather{plan::ExchangeKind::gather, span, elements, bytes_of<T>(1)};
  const plan::Exchange sum{plan::ExchangeKind::reduce_scatter, span, elements,
                           bytes_of<Compute>(1)};
  description_.forward.resize(3);
  description_.forward[0].then = gather;
  description_.forward[0].keeps_workspace = true;
  description_.forward[2].reads = {0};
  description_.backward.resize(5);
  description_.backward[0].then = gather;
  description_.backward[2].reads = {0};
  description_.backward[2].then = sum;
  description_.backward[2].keeps_workspace = !defers_;
  description_.backward[last_of_input(defers_)].reads = {2};
}

template <class T>
void BlockUnit<T>::lay_out_saved() {
  const bool attention = recompute_.attention, norms = recompute_.norms;
  Packing saved(buffer_alignment<T>);
  const auto place = [&saved](std::int64_t bytes, bool recomputed) {
    return ArrayLocation{bytes, recomputed, recomputed ? 0 : saved.place(bytes)};
  };
  ArrayLocations locations{};
  locations.attention_mean =
      place(bytes_of<Compute>(attention_norm_.mean_elements(sizes_.rows)), norms);
  locations.attention_rstd = place(bytes_of<Compute>(sizes_.rows), norms);
  locations.qkv = place(bytes_of<T>(sizes_.rows * sizes_.qkv_width), false);
  if (has_head_norms())
    locations.unnormed = place(bytes_of<T>(sizes_.rows * rotated_width()), false);
  locations.attention = place(bytes_of<T>(sizes_.rows * sizes_.q_width), attention);
  locations.log_sum_exp = place(bytes_of<Compute>(sizes_.rows * attention_.heads), attention);
  locations.middle = place(bytes_of<T>(sizes_.rows * sizes_.width), false);
  if (feed_forward_->saved_bytes() > 0)
    feed_forward_saved_ = saved.place(feed_forward_->saved_bytes());
  forward_.locations = backward_.locations = locations;
  description_.saved_bytes = saved.size();
}

template <class T>
void BlockUnit<T>::lay_out_forward() {
  Packing workspace(buffer_alignment<T>);
  const auto place_recomputed = [&workspace](ArrayLocation& array) {
    if (array.recomputed) array.offset = workspace.place(array.bytes);
  };
  ArrayLocations& locations = forward_.locations;
  forward_.attention_normed = workspace.place(bytes_of<T>(sizes_.rows * sizes_.width));
  place_recomputed(locations.attention_mean);
  place_recomputed(locations.attention_rstd);
  const std::int64_t projection_bytes = workspace.size();
  if (leaf_.parts > 1)
    workspace = Packing(buffer_alignment<T>);
  else
    workspace.start_over();
  if (leaf_.is_cut()) forward_.kv = workspace.place(bytes_of<T>(sequence_rows() * kv_width()));
  forward_.attention_scores =
      workspace.place(bytes_of<T>(math::attention_forward_workspace<T>(attention_, leaf_.kernels)));
  place_recomputed(locations.attention);
  place_recomputed(locations.log_sum_exp);
  workspace.start_over();
  workspace.place(feed_forward_->forward_workspace_bytes());
  description_.forward.back().workspace_bytes = workspace.size();
  if (leaf_.parts > 1) description_.forward[0].workspace_bytes = projection_bytes;
}

template <class T>
void BlockUnit<T>::lay_out_backward() {
  Packing workspace(buffer_alignment<T>);
  const auto place_recomputed = [&](ArrayLocation& array) {
    if (array.recomputed && !defers_) array.offset = workspace.place(array.bytes);
  };
  const std::int64_t qkv_bytes = bytes_of<T>(sizes_.rows * sizes_.qkv_width);
  ArrayLocations& locations = backward_.locations;
  workspace.place(feed_forward_->backward_workspace_bytes());
  const bool in_parts = leaf_.parts > 1;
  if (defers_) lay_out_deferred();
  const std::int64_t sum_bytes = bytes_of<Compute>(backward_sum_elements());
  const auto place_sums = [&] { return sum_bytes > 0 ? workspace.place(sum_bytes) : 0; };
  const std::int64_t mlp_end = workspace.end();
  if (in_parts) {
    backward_.sums = place_sums();
    description_.backward[1].workspace_bytes = workspace.size();
    workspace = Packing(buffer_alignment<T>);
  } else {
    workspace.start_over();
  }
  backward_.dattention =
      workspace.place(bytes_of<T>(sizes_.rows * std::max(sizes_.width, sizes_.q_width)));
  backward_.dqkv = workspace.place(qkv_bytes);
  backward_.attention_scores = workspace.place(bytes_of<T>(backward_score_elements()));
  place_recomputed(locations.attention);
  place_recomputed(locations.log_sum_exp);
  if (leaf_.is_cut()) {
    backward_.kv = workspace.place(bytes_of<T>(sequence_rows() * kv_width()));
    backward_.dkv = workspace.place(bytes_of<Compute>(sequence_rows() * kv_width()));
  }
  const auto place_head_rstd = [&] {
    if (has_head_norms())
      backward_.head_rstd = workspace.place(bytes_of<Compute>(head_rstd_elements()));
  };
  if (!in_parts) {
    place_recomputed(locations.attention_mean);
    place_recomputed(locations.attention_rstd);
    place_head_rstd();
    // Both steps have these at one place.
    workspace.start_over(std::max(workspace.end(), mlp_end));
  }
  backward_.attention_sums = place_sums();
  if (!in_parts) {
    backward_.sums = backward_.last_sums = backward_.attention_sums;
    backward_.last_dqkv = backward_.dqkv;
    backward_.last_normed = backward_.dattention;
    description_.backward[0].workspace_bytes = workspace.size();
    return;
  }
  description_.backward[2].workspace_bytes = workspace.size();
  workspace = Packing(buffer_alignment<T>);
  if (!defers_) backward_.last_dqkv = workspace.place(qkv_bytes);
  backward_.last_normed = workspace.place(bytes_of<T>(sizes_.rows * sizes_.width));
  place_recomputed(locations.attention_mean);
  place_recomputed(locations.attention_rstd);
  place_head_rstd();
  backward_.last_sums = place_sums();
  description_.backward[last_of_input(defers_)].workspace_bytes = workspace.size();
}

/// What backward leaves, and the workspace of what it defers.
template <class T>
void BlockUnit<T>::lay_out_deferred() {
  Packing deferred(buffer_alignment<T>);
  if (out_.trained()) deferred_.dmiddle = deferred.place(bytes_of<T>(sizes_.rows * sizes_.width));
  deferred_.norm_parameters = deferred.place(bytes_of<T>(2 * sizes_.width));
  deferred_.norm_gradients = deferred.place(bytes_of<Compute>(2 * sizes_.width));
  if (has_head_norms())
    deferred_.head_norms = deferred.place(bytes_of<Compute>(2 * attention_.head_width));
  ArrayLocations& locations = backward_.locations;
  for (ArrayLocation* array : {&locations.attention_mean, &locations.attention_rstd,
                               &locations.attention, &locations.log_sum_exp})
    if (array->recomputed) array->offset = deferred.place(array->bytes);
  deferred_.feed_forward = deferred.place(feed_forward_->deferred_bytes());
  description_.deferred_bytes = deferred.size();

  Packing workspace(buffer_alignment<T>);
  workspace.place(std::max(feed_forward_->parameters_workspace_bytes(),
                           bytes_of<T>(sizes_.rows * sizes_.width)));
  deferred_.sums = workspace.place(bytes_of<Compute>(backward_sum_elements()));
  description_.backward.back().workspace_bytes = workspace.size();
}

template <class T>
std::int64_t BlockUnit<T>::backward_sum_elements() const {
  std::int64_t most =
      std::max(leaf_sums_workspace(sizes_.width, leaf_.leaves()), feed_forward_->sum_elements());
  if (has_head_norms())
    most = std::max(most, leaf_sums_workspace(attention_.head_width, leaf_.leaves()));
  for (const Linear& layer : {qkv_, out_})
    most = std::max(most, leaf_sums_workspace(layer, leaf_.leaves()));
  return most;
}

template <class T>
std::int64_t BlockUnit<T>::backward_score_elements() const {
  const std::int64_t backward =
      math::attention_backward_workspace<T>(attention_, leaf_.pieces(), leaf_.kernels);
  return recompute_.attention
             ? std::max(backward, math::attention_forward_workspace<T>(attention_, leaf_.kernels))
             : backward;
}

template <class T>
typename BlockUnit<T>::Activations BlockUnit<T>::activations_in(const UnitBuffers<T>& buffers,
                                                                const ArrayLocations& locations,
                                                                View<std::byte*> again) const {
  const auto buffer_of = [&](const ArrayLocation& location) {
    return location.recomputed ? again : buffers.saved;
  };
  const auto matrix = [&](const ArrayLocation& location, std::int64_t columns) {
    return matrix_in(buffer_of(location), location.offset, columns);
  };
  const auto sums = [&](const ArrayLocation& location) {
    const std::int64_t count = location.bytes / bytes_of<Compute>(1);
    return array_in<Compute>(buffer_of(location), location.offset, count);
  };
  const auto statistics = [&](const ArrayLocation& mean, const ArrayLocation& rstd) {
    return NormStatistics<T>{mean.bytes == 0 ? View<Compute*>() : sums(mean), sums(rstd)};
  };
  return {statistics(locations.attention_mean, locations.attention_rstd),
          matrix(locations.qkv, sizes_.qkv_width),
          has_head_norms() ? matrix(locations.unnormed, rotated_width()) : View<T**>(),
          matrix(locations.attention, sizes_.q_width),
          sums(locations.log_sum_exp),
          matrix(locations.middle, sizes_.width)};
}

template <class T>
View<T**> BlockUnit<T>::matrix_in(View<std::byte*> buffer, std::int64_t offset,
                                  std::int64_t columns) const {
  return array_in<T>(buffer, offset, sizes_.rows * columns).matrix(sizes_.rows, columns);
}

template <class T>
void BlockUnit<T>::describe() {
  description_.output_bytes = bytes_of<T>(sizes_.rows * sizes_.width);
  if (feed_forward_->border_bytes() > 0)
    description_.output_bytes =
        behind_y<T>(sizes_.rows, sizes_.width) + feed_forward_->border_bytes();
  description_.recomputes = true;
  if (feed_forward_->counted() > 0) description_.counts = {feed_forward_->counted()};

  // A product of (m, k) and (k, n) takes 2 m n k. Queries look at half of the keys on average, so
  // scores, and probabilities times values, take tokens^2 head_width per head and sequence each.
  const auto product = [this](std::int64_t inputs, std::int64_t outputs) {
    return 2.0 * static_cast<double>(sizes_.rows) * static_cast<double>(inputs * outputs);
  };
  const double attention =
      product(sizes_.width, sizes_.qkv_width) + product(sizes_.q_width, sizes_.width);
  const double scores =
      static_cast<double>(sizes_.rows) * static_cast<double>(leaf_.tokens * sizes_.q_width);
  double forward = attention + 2.0 * scores + feed_forward_->forward_flops();
  // Two products for each of forward's, by either factor, unless that is frozen.
  description_.gradient_flops = 2.0 * (attention + 2.0 * scores) + feed_forward_->gradient_flops();
  for (const Linear& layer : {qkv_, out_})
    if (!layer.weight.trained())
      description_.gradient_flops -= product(layer.inputs, layer.outputs);
  const double again = feed_forward_->again_flops();
  double backward = description_.gradient_flops + scores + again;  // scores once more
  if (recompute_.attention) backward += 2.0 * scores;
  double recompute = attention + 2.0 * scores + feed_forward_->recompute_flops();
  const auto gradient = [&](const Linear& layer) {
    return layer.weight.trained() ? product(layer.inputs, layer.outputs) : 0.0;
  };
  double of_mlp = feed_forward_->gradient_flops() + again;
  if (defers_) {
    const double deferred = feed_forward_->parameter_flops() + gradient(out_) + gradient(qkv_);
    description_.backward.back().flops = deferred;
    backward -= deferred;
    of_mlp -= feed_forward_->parameter_flops();
  }
  int rest = 0;  // the phase of backward with all that the others have not
  if (leaf_.parts > 1) {
    const auto set = [](plan::Phase& phase, double flops) {
      phase.flops = phase.recompute_flops = flops;
    };
    const double to_kv = product(sizes_.width, kv_width()),
                 to_queries = product(sizes_.width, sizes_.q_width);
    set(description_.forward[0], to_kv);
    set(description_.forward[1], to_queries);
    forward -= to_kv + to_queries;
    recompute -= to_kv + to_queries;
    const double of_out = defers_ ? 0.0 : gradient(out_);
    const double last = to_kv + to_queries + (defers_ ? 0.0 : gradient(qkv_));
    description_.backward[1].flops = of_mlp;
    if (!defers_) description_.backward[3].flops = of_out;
    description_.backward[last_of_input(defers_)].flops = last;
    backward -= of_mlp + of_out + last;
    rest = 2;
  }
  description_.backward[rest].flops = backward;
  description_.forward.back().flops = forward;
  description_.forward.back().recompute_flops = recompute;
  describe_work(scores, rest);
}

/// The same of KernelWork. `scores`: operations of queries times keys; `rest`: the phase of
/// backward with attention.
template <class T>
void BlockUnit<T>::describe_work(double scores, int rest) {
  const auto rows = [&](std::int64_t columns, double kernels = 1.0) {
    return plan::row_work(static_cast<double>(bytes_of<T>(sizes_.rows * columns)), kernels);
  };
  const auto product = [&](std::int64_t inputs, std::int64_t outputs) {
    return plan::product_work(
        2.0 * static_cast<double>(sizes_.rows) * static_cast<double>(inputs * outputs), inputs,
        outputs);
  };
  const auto attend = [&](double times) {
    return plan::attention_work(times * scores, attention_.head_width);
  };
  const auto all_rows = static_cast<double>(sizes_.rows);
  const auto gradient = [&](const Linear& layer) {
    return linear_parameters_work<T>(layer, all_rows);
  };
  const std::int64_t of_heads = has_head_norms() ? 4 * rotated_width() : 2 * rotated_width();
  const plan::KernelWork qkv = linear_input_work(qkv_, all_rows),
                         out = linear_input_work(out_, all_rows);
  const plan::KernelWork attention = linear_forward_work<T>(qkv_, all_rows) +
                                     linear_forward_work<T>(out_, all_rows) +
                                     rows(2 * sizes_.width) + rows(of_heads) + attend(2.0);
  const plan::KernelWork residual = rows(2 * sizes_.width);
  plan::KernelWork forward = attention + residual + feed_forward_->forward_work();
  plan::KernelWork recompute = attention + residual + feed_forward_->recompute_work();
  plan::KernelWork backward = qkv + out + rows(of_heads) + rows(2 * sizes_.width) +
                              rows(4 * sizes_.width, 2.0) +
                              attend(recompute_.attention ? 7.0 : 5.0);
  plan::KernelWork of_mlp = feed_forward_->backward_work();
  if (defers_) {
    const plan::KernelWork deferred = feed_forward_->parameter_work();
    description_.backward.back().work = gradient(out_) + gradient(qkv_) + deferred;
    of_mlp += -1.0 * deferred;
  } else {
    backward += gradient(out_) + gradient(qkv_);
  }
  if (leaf_.parts > 1) {
    const plan::KernelWork to_kv = product(sizes_.width, kv_width()),
                           to_queries = product(sizes_.width, sizes_.q_width);
    const plan::KernelWork of_out = defers_ ? plan::KernelWork() : gradient(out_);
    const plan::KernelWork last = to_kv + to_queries;
    description_.forward[0].work = description_.forward[0].recompute_work = to_kv;
    description_.forward[1].work = description_.forward[1].recompute_work = to_queries;
    forward += -1.0 * qkv;
    recompute += -1.0 * qkv;
    description_.backward[1].work = of_mlp;
    if (!defers_) description_.backward[3].work = of_out;
    description_.backward[last_of_input(defers_)].work =
        last + (defers_ ? plan::KernelWork() : gradient(qkv_));
    backward += -1.0 * (qkv + of_out + (defers_ ? plan::KernelWork() : gradient(qkv_)));
  } else {
    backward += of_mlp;
  }
  description_.backward[rest].work = backward;
  description_.forward.back().work = forward;
  description_.forward.back().recompute_work = recompute;
}

template class BlockUnit<float>;
template class BlockUnit<double>;
template class BlockUnit<bf16>;
template class BlockUnit<fp16>;

}  // namespace ostrakon::model
