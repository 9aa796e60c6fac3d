// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/expert_feed_forward.hpp>

#include <algorithm>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/expert_rows.hpp>
#include <ostrakon/math/gemm.hpp>
#include <ostrakon/model/arrays.hpp>
#include <tuple>
#include <type_traits>
#include <utility>

namespace ostrakon::model {

// ---- forward ------------------------------------------------------------------------------------

template <class T>
void ExpertFeedForward<T>::forward(const Exec& exec, const FeedForwardCall<T>& call) const {
  const std::int64_t rows = call.x.rows();
  // Some rows are of one leaf. Nothing of the rows before is read, so these have their arrays.
  const std::int64_t leaves = rows == rows_ ? leaves_ : 1;
  const Workspace work = workspace_in(call.workspace, rows, Step::forward).arrays;
  Saved saved = saved_in(call.saved, rows, leaves).arrays;
  if (recompute_.norms) saved.norm = work.norm;
  if (recompute_.mlp) std::tie(saved.up, saved.shared_up) = std::pair(work.up, work.shared_up);

  norm_forward<T>(exec, norm_, call.parameters, call.x, saved.norm, work.normed);
  route(exec, call, work, leaves, saved.routes);
  const bool only_saves = !call.y;
  if (only_saves && recompute_.mlp) return;

  if (has_shared())
    linear_forward<T>(exec, shared_.up, call.parameters, work.normed, saved.shared_up);
  if (experts_.empty()) {
    if (!only_saves) hand_on(exec, call, saved, work);
    return;
  }
  const math::OffsetsOnHost offsets(exec, saved.routes.offsets);
  multiply_up(exec, call, saved, work, offsets.view(), leaves);
  if (only_saves) return;

  activate<T>(exec, activation_, saved.up, work.activated);
  for_each_expert(offsets.view(), leaves,
                  [&](std::int64_t expert, std::int64_t begin, std::int64_t end) {
                    linear_forward_by_row<T>(exec, experts_[expert].down, call.parameters,
                                             work.activated.row_range(begin, end),
                                             work.copies.row_range(begin, end), work.padding);
                  });
  if (has_shared()) forward_of_shared(exec, call, saved, work);
  math::combine_outputs<T>(exec, call.x, has_shared() ? work.normed : View<T**>(), saved.routes,
                           work.copies, call.y);
}

/// Their output in work.normed.
template <class T>
void ExpertFeedForward<T>::forward_of_shared(const Exec& exec, const FeedForwardCall<T>& call,
                                             const Saved& saved, const Workspace& work) const {
  activate<T>(exec, activation_, saved.shared_up, work.shared_activated);
  linear_forward<T>(exec, shared_.down, call.parameters, work.shared_activated, work.normed);
}

/// To the unit of the experts.
template <class T>
void ExpertFeedForward<T>::hand_on(const Exec& exec, const FeedForwardCall<T>& call,
                                   const Saved& saved, const Workspace& work) const {
  const auto handed = border_.template rows_in<T>(call.border);
  const auto copy = [&exec](auto from, auto to) {
    using Element = typename decltype(to)::Element;
    math::copy<Element>(exec, View<const Element*>(from), to);
  };
  copy(call.x.flat(), call.y.flat());
  copy(work.normed.flat(), handed.normed.flat());
  copy(saved.routes.weights, handed.routes.weights);
  copy(saved.routes.slots, handed.routes.slots);
  copy(saved.routes.assignments, handed.routes.assignments);
  copy(saved.routes.offsets, handed.routes.offsets);
  if (!has_shared()) return;
  forward_of_shared(exec, call, saved, work);
  copy(work.normed.flat(), handed.shared.flat());
}

/// Experts, weights and order of the rows of work.normed.
template <class T>
void ExpertFeedForward<T>::route(const Exec& exec, const FeedForwardCall<T>& call,
                                 const Workspace& work, std::int64_t leaves,
                                 const Routes& routes) const {
  using math::Transpose;
  math::gemm<Compute>(exec, Transpose::no, Transpose::yes, 1, widened(exec, work.normed, work),
                      router_weight(exec, call.parameters, work), 0, routes.scores);
  math::choose_experts<Compute>(exec, router_, bias(exec, call.parameters, work), routes);
  math::sort_by_expert<Compute>(exec, router_, leaves, routes);
  if (call.counts) math::add_counts(exec, leaves, routes.offsets, call.counts);
}

template <class T>
View<const compute_t<T>**> ExpertFeedForward<T>::router_weight(const Exec& exec,
                                                               const FlatParameter<T>& parameters,
                                                               const Workspace& work) const {
  const View<const T*> weight = parameters.at(gate_.weight);
  if constexpr (std::is_same<T, Compute>::value) {
    return weight.matrix(gate_.outputs, gate_.inputs);
  } else {
    math::convert<T, Compute>(exec, weight, work.router.flat());
    return work.router;
  }
}

template <class T>
View<const compute_t<T>*> ExpertFeedForward<T>::bias(const Exec& exec,
                                                     const FlatParameter<T>& parameters,
                                                     const Workspace& work) const {
  const View<const T*> bias = parameters.at(bias_);
  if constexpr (std::is_same<T, Compute>::value) {
    return bias;
  } else {
    if (bias) math::convert<T, Compute>(exec, bias, work.bias);
    return work.bias;
  }
}

template <class T>
View<const compute_t<T>**> ExpertFeedForward<T>::widened(const Exec& exec, View<const T**> normed,
                                                         const Workspace& work) const {
  if constexpr (std::is_same<T, Compute>::value) {
    return normed;
  } else {
    math::convert<T, Compute>(exec, normed.flat(), work.wide.flat());
    return work.wide;
  }
}

template <class T>
template <class Function>
void ExpertFeedForward<T>::for_each_expert(HostView<const std::int64_t*> offsets,
                                           std::int64_t leaves, const Function& function) const {
  for (std::int64_t e = 0; e < router_.experts; ++e) {
    const std::int64_t begin = offsets[e * leaves], end = offsets[(e + 1) * leaves];
    if (begin < end) function(e, begin, end);
  }
}

/// The copies of norm(x), and their products before the activation.
template <class T>
void ExpertFeedForward<T>::multiply_up(const Exec& exec, const FeedForwardCall<T>& call,
                                       const Saved& saved, const Workspace& work,
                                       HostView<const std::int64_t*> offsets,
                                       std::int64_t leaves) const {
  math::gather_rows<T>(exec, work.normed, saved.routes.assignments, work.copies);
  for_each_expert(offsets, leaves, [&](std::int64_t expert, std::int64_t begin, std::int64_t end) {
    linear_forward_by_row<T>(exec, experts_[expert].up, call.parameters,
                             work.copies.row_range(begin, end), saved.up.row_range(begin, end),
                             work.padding);
  });
}

// ---- backward -----------------------------------------------------------------------------------

template <class T>
typename ExpertFeedForward<T>::Backward ExpertFeedForward<T>::backward_in(
    const FeedForwardCall<T>& call, Step step) const {
  Backward arrays;
  Workspace& work = arrays.work;
  work = workspace_in(call.workspace, rows_, step).arrays;
  arrays.saved = saved_in(call.saved, rows_, leaves_).arrays;
  const Deferred deferred = defers_ ? deferred_in(call.deferred).arrays : Deferred();
  if (recompute_.norms) arrays.saved.norm = defers_ ? deferred.norm : work.norm;
  if (recompute_.mlp) {
    arrays.saved.up = defers_ ? deferred.up : work.up;
    arrays.saved.shared_up = defers_ ? deferred.shared_up : work.shared_up;
  }
  // The gradient of gate and up replaces these themselves.
  arrays.dup = arrays.saved.up;
  arrays.dshared_up = arrays.saved.shared_up;
  arrays.dy = work.copies;
  const bool is_later = step == Step::parameters;
  arrays.shared_dy = is_later ? deferred.dy : call.gradient;
  arrays.dlogits = is_later ? arrays.saved.routes.scores : work.dlogits;
  if (defers_ && deferred.activated) work.activated = deferred.activated;
  if (defers_ && deferred.shared_activated) work.shared_activated = deferred.shared_activated;
  return arrays;
}

template <class T>
void ExpertFeedForward<T>::backward(const Exec& exec, const FeedForwardCall<T>& call) const {
  const Backward arrays = backward_in(call, Step::backward);
  const Saved& saved = arrays.saved;
  const Workspace& work = arrays.work;
  norm_again<T>(exec, norm_, call.parameters, call.x, saved.norm, recompute_.norms,
                recompute_.mlp || !defers_, work.normed);
  const bool are_apart = experts_.empty();
  const auto back = are_apart ? border_.template gradients_in<T>(call.border)
                              : typename ExpertBorder::Gradients<T>();
  if (defers_ && trains_down())
    math::copy<T>(exec, View<const T*>(call.gradient.flat()),
                  deferred_in(call.deferred).arrays.dy.flat());
  if (!are_apart) {
    const math::OffsetsOnHost offsets(exec, saved.routes.offsets);
    backward_of_experts(exec, call, arrays, offsets.view());
  }
  if (has_shared()) backward_of_shared(exec, call, arrays);
  backward_of_router(exec, call, arrays, are_apart ? back.dweights : work.dweights);
  const View<T**> dnormed = work.normed;
  const View<const T**> dshared = has_shared() ? View<const T**>(work.dshared) : call.dnormed;
  if (are_apart)
    math::combine_sums<T>(exec, work.wide, dshared, back.normed, dnormed);
  else
    math::combine_gradients<T>(exec, work.wide, dshared, saved.routes, work.copies, dnormed);
  const LeafSums<T> sums{leaves_, call.sums};
  if (defers_)
    norm_backward<T>(exec, norm_, call.parameters, call.x, saved.norm, dnormed,
                     deferred_in(call.deferred).arrays.of_norm, call.gradient,
                     math::GradientUpdate::add, sums);
  else
    norm_backward<T>(exec, norm_, call.parameters, call.x, saved.norm, dnormed,
                     call.parameter_gradients, call.gradient, math::GradientUpdate::add, sums);
}

template <class T>
void ExpertFeedForward<T>::backward_parameters(const Exec& exec,
                                               const FeedForwardCall<T>& call) const {
  const Backward arrays = backward_in(call, Step::parameters);
  const DeferredNorm<T> of_norm = deferred_in(call.deferred).arrays.of_norm;
  norm_apply<T>(exec, norm_, of_norm, call.x, arrays.saved.norm, arrays.work.normed);
  if (!experts_.empty()) {
    const math::OffsetsOnHost offsets(exec, arrays.saved.routes.offsets);
    if (trains_down())
      math::gather_weighed_rows<T>(exec, arrays.shared_dy, arrays.saved.routes, arrays.dy);
    down_gradients(exec, call, arrays, offsets.view());
    up_gradients(exec, call, arrays, offsets.view());
  }
  if (has_shared()) {
    shared_down_gradients(exec, call, arrays);
    shared_up_gradients(exec, call, arrays);
  }
  router_gradients(exec, call, arrays);
  norm_gradients<T>(exec, norm_, of_norm, call.parameter_gradients);
}

/// Gradients of the experts' parameters, of weights in work.dweights, and of copies of norm(x) in
/// work.copies. That of a weight needs no output of an expert: with dy the gradient of the combined
/// output it is (activated Wdown^T + b) . dy = activated . (dy Wdown) + b . dy.
template <class T>
void ExpertFeedForward<T>::backward_of_experts(const Exec& exec, const FeedForwardCall<T>& call,
                                               const Backward& arrays,
                                               HostView<const std::int64_t*> offsets) const {
  const Saved& saved = arrays.saved;
  const Workspace& work = arrays.work;
  if (recompute_.mlp) multiply_up(exec, call, saved, work, offsets, leaves_);
  activate<T>(exec, activation_, saved.up, work.activated);
  math::gather_rows<T>(exec, call.gradient, saved.routes.assignments, arrays.dy);
  for_each_expert(offsets, leaves_, [&](std::int64_t expert, std::int64_t begin, std::int64_t end) {
    const Linear& down = experts_[expert].down;
    const View<T**> dy = arrays.dy.row_range(begin, end);
    const View<T**> dactivated = work.dactivated.row_range(begin, end);
    linear_backward_input_by_row<T>(exec, down, call.parameters, dy, dactivated, work.padding);
    math::weigh_gradients<T>(exec, saved.routes, begin, work.activated.row_range(begin, end),
                             call.parameters.at(down.bias), dactivated, dy, work.dweights);
  });
  if (!defers_) down_gradients(exec, call, arrays, offsets);
  activate_backward<T>(exec, activation_, saved.up, work.dactivated, arrays.dup);
  if (!defers_) up_gradients(exec, call, arrays, offsets);
  for_each_expert(offsets, leaves_, [&](std::int64_t expert, std::int64_t begin, std::int64_t end) {
    linear_backward_input_by_row<T>(exec, experts_[expert].up, call.parameters,
                                    arrays.dup.row_range(begin, end),
                                    work.copies.row_range(begin, end), work.padding);
  });
}

template <class T>
LeafSums<T> ExpertFeedForward<T>::sums_of(const FeedForwardCall<T>& call,
                                          HostView<const std::int64_t*> offsets,
                                          std::int64_t expert) const {
  return {leaves_, call.sums, offsets.range(expert * leaves_, (expert + 1) * leaves_ + 1)};
}

/// All experts: the gradient of one without tokens is zero, not what the array had before.
template <class T>
void ExpertFeedForward<T>::down_gradients(const Exec& exec, const FeedForwardCall<T>& call,
                                          const Backward& arrays,
                                          HostView<const std::int64_t*> offsets) const {
  for (std::int64_t e = 0; e < router_.experts; ++e)
    linear_backward_parameters<T>(exec, experts_[e].down, arrays.work.activated, arrays.dy,
                                  call.parameter_gradients, sums_of(call, offsets, e));
}

/// Overwrites work.copies.
template <class T>
void ExpertFeedForward<T>::up_gradients(const Exec& exec, const FeedForwardCall<T>& call,
                                        const Backward& arrays,
                                        HostView<const std::int64_t*> offsets) const {
  math::gather_rows<T>(exec, arrays.work.normed, arrays.saved.routes.assignments,
                       arrays.work.copies);
  for (std::int64_t e = 0; e < router_.experts; ++e)
    linear_backward_parameters<T>(exec, experts_[e].up, arrays.work.copies, arrays.dup,
                                  call.parameter_gradients, sums_of(call, offsets, e));
}

/// Of the MLP that computes all rows; the gradient of norm(x) in work.dshared.
template <class T>
void ExpertFeedForward<T>::backward_of_shared(const Exec& exec, const FeedForwardCall<T>& call,
                                              const Backward& arrays) const {
  const Workspace& work = arrays.work;
  const View<T**> up = arrays.saved.shared_up, dactivated = work.dshared_activated;
  if (recompute_.mlp) linear_forward<T>(exec, shared_.up, call.parameters, work.normed, up);
  if (shared_.down.weight.trained()) activate<T>(exec, activation_, up, work.shared_activated);
  if (!defers_) shared_down_gradients(exec, call, arrays);
  linear_backward_input<T>(exec, shared_.down, call.parameters, call.gradient, dactivated);
  activate_backward<T>(exec, activation_, up, dactivated, arrays.dshared_up);
  if (!defers_) shared_up_gradients(exec, call, arrays);
  linear_backward_input<T>(exec, shared_.up, call.parameters, arrays.dshared_up, work.dshared);
}

template <class T>
void ExpertFeedForward<T>::shared_down_gradients(const Exec& exec, const FeedForwardCall<T>& call,
                                                 const Backward& arrays) const {
  linear_backward_parameters<T>(exec, shared_.down, arrays.work.shared_activated, arrays.shared_dy,
                                call.parameter_gradients, {leaves_, call.sums});
}

template <class T>
void ExpertFeedForward<T>::shared_up_gradients(const Exec& exec, const FeedForwardCall<T>& call,
                                               const Backward& arrays) const {
  linear_backward_parameters<T>(exec, shared_.up, arrays.work.normed, arrays.dshared_up,
                                call.parameter_gradients, {leaves_, call.sums});
}

/// The gradient of norm(x) in work.wide.
template <class T>
void ExpertFeedForward<T>::backward_of_router(const Exec& exec, const FeedForwardCall<T>& call,
                                              const Backward& arrays,
                                              View<const Compute*> dweights) const {
  const Workspace& work = arrays.work;
  math::router_backward<Compute>(exec, router_, leaves_,
                                 call.loss_scale * static_cast<Compute>(loss_factor_),
                                 arrays.saved.routes, dweights, arrays.dlogits);
  if (!defers_) router_gradients(exec, call, arrays);
  math::gemm<Compute>(exec, math::Transpose::no, math::Transpose::no, 1,
                      View<const Compute**>(arrays.dlogits),
                      router_weight(exec, call.parameters, work), 0, work.wide);
  if (defers_)
    math::copy<Compute>(exec, View<const Compute*>(arrays.dlogits.flat()),
                        arrays.saved.routes.scores.flat());
}

/// Of the router's weight, and what its bias is updated by.
template <class T>
void ExpertFeedForward<T>::router_gradients(const Exec& exec, const FeedForwardCall<T>& call,
                                            const Backward& arrays) const {
  if (gate_.weight.trained())
    math::gemm_by_piece<Compute>(
        exec, arrays.dlogits, widened(exec, arrays.work.normed, arrays.work),
        gradient_at(call.parameter_gradients, gate_.weight).matrix(gate_.outputs, gate_.inputs),
        leaves_, call.sums);
  if (bias_.trained())
    math::count_excess<Compute>(exec, router_, leaves_, arrays.saved.routes,
                                gradient_at(call.parameter_gradients, bias_), call.sums);
}

// ---- parameters, buffers, sizes -----------------------------------------------------------------

template <class T>
ExpertFeedForward<T>::ExpertFeedForward(const DecoderSettings& settings, const LeafShape& leaf,
                                        const Recompute& recompute,
                                        const std::vector<Parameter>& parameters)
    : defers_(leaf.defers_gradients),
      kernels_(leaf.kernels),
      rows_(leaf.own_rows()),
      leaves_(leaf.own_row_leaves()),
      width_(settings.width),
      inner_(settings.experts.width),
      recompute_(recompute),
      activation_(settings.activation),
      router_(settings.experts.router()),
      loss_factor_(settings.experts.balance == RouterBalance::loss ? settings.experts.balance_rate
                                                                   : 0.0),
      norm_(find_norm(parameters, "mlp.norm", settings.norm, settings.norm_epsilon)),
      gate_(find_linear(parameters, "mlp.router")),
      bias_(find_parameter(parameters, "mlp.router.balance")) {
  const auto find_mlp = [&](const std::string& name) {
    return Mlp{find_linear(parameters, name_of_up(settings, name)),
               find_linear(parameters, name + ".down")};
  };
  if (!leaf.has_expert_units())
    for (std::int64_t e = 0; e < router_.experts; ++e)
      experts_.push_back(find_mlp(name_of_expert(e)));
  if (settings.experts.shared > 0) shared_ = find_mlp("mlp.shared");
  border_ = ExpertBorder(settings, leaf);

  sizes_ = {
      saved_in({}, rows_, leaves_).bytes, workspace_in({}, rows_, Step::forward).bytes,
      workspace_in({}, rows_, Step::backward).bytes,
      std::max(leaf_sums_workspace(gate_, leaves_), math::excess_workspace(router_, leaves_))};
  sizes_.counted = router_.experts;
  if (experts_.empty()) {
    sizes_.border = border_.template rows_in<T>({}).bytes;
    sizes_.border_gradient = border_.template gradients_in<T>({}).bytes;
  }
  if (defers_) {
    sizes_.parameters_workspace = workspace_in({}, rows_, Step::parameters).bytes;
    sizes_.deferred = deferred_in({}).bytes;
  }
  const auto add_sums = [&](const Mlp& mlp) {
    const Linear layers[] = {mlp.up, mlp.down};  // nvcc can't loop over a list of these itself
    for (const Linear& layer : layers)
      sizes_.sum_elements = std::max(sizes_.sum_elements, leaf_sums_workspace(layer, leaves_));
  };
  count(gate_, rows_, true, false);
  if (has_shared()) {
    add_sums(shared_);
    count(shared_.up, rows_, true, recompute.mlp);
    count(shared_.down, rows_, false, false);
  }
  // Rows are evenly divided over experts for this, as far as they can be.
  const std::int64_t all = copies(rows_);
  std::int64_t e = 0;
  for (const Mlp& mlp : experts_) {
    const std::int64_t rows = (e + 1) * all / router_.experts - e * all / router_.experts;
    ++e;
    add_sums(mlp);
    count(mlp.up, rows, true, recompute.mlp);
    count(mlp.down, rows, false, false);
  }
  count_rows();
}

/// A product of (m, k) and (k, n) takes 2 m n k, and each of forward's has two in backward, by
/// either factor, unless that is frozen.
template <class T>
void ExpertFeedForward<T>::count(const Linear& layer, std::int64_t rows, bool saved,
                                 bool computed_again) {
  const double product =
      2.0 * static_cast<double>(rows) * static_cast<double>(layer.inputs * layer.outputs);
  const auto all_rows = static_cast<double>(rows);
  const plan::KernelWork forward = linear_forward_work<T>(layer, all_rows),
                         of_parameters = linear_parameters_work<T>(layer, all_rows);
  const bool trained = layer.weight.trained();
  flops_.forward += product;
  work_.forward += forward;
  if (saved && !computed_again) {
    flops_.recompute += product;
    work_.recompute += forward;
  }
  flops_.gradient += trained ? 2.0 * product : product;
  work_.backward += linear_input_work(layer, all_rows) + of_parameters;
  if (trained) flops_.parameters += product;
  work_.parameters += of_parameters;
  if (computed_again) {
    flops_.again += product;
    work_.backward += forward;
  }
}

// In the order of what forward and backward call. What experts that are a unit of their own do is
// theirs.
template <class T>
void ExpertFeedForward<T>::count_rows() {
  const auto bytes = [](std::int64_t rows, std::int64_t columns) {
    return static_cast<double>(bytes_of<T>(rows * columns));
  };
  const std::int64_t all = experts_.empty() ? 0 : copies(rows_);
  const plan::KernelWork norm = plan::row_work(bytes(rows_, 2 * width_));
  const plan::KernelWork route =
      plan::row_work(static_cast<double>(bytes_of<Compute>(2 * rows_ * router_.experts)));
  // Copies of rows, and sums of them with what the block reads.
  const plan::KernelWork gather =
                             all > 0 ? plan::row_work(bytes(all, 2 * width_)) : plan::KernelWork(),
                         combine = plan::row_work(bytes(all, width_) + bytes(rows_, 2 * width_));
  auto& work = work_;
  work.forward += norm + route + gather + combine;
  work.recompute += norm + route + (recompute_.mlp ? plan::KernelWork() : gather);
  // Copies of the output's gradient, and of the norm; these once more where up is computed again.
  work.backward += norm + route + (recompute_.mlp ? 3.0 : 2.0) * gather + combine;
  const auto activate = [&](const Mlp& mlp, std::int64_t rows, bool is_activated_again) {
    const std::int64_t up = mlp.up.outputs, inner = mlp.down.inputs;
    const auto elements = static_cast<double>(rows * inner);
    const plan::KernelWork once = plan::activation_work(elements, bytes(rows, up + inner));
    work.forward += once;
    if (is_activated_again) work.backward += once;
    work.backward += plan::activation_work(elements, bytes(rows, 2 * up + inner));
  };
  if (all > 0) {
    activate(experts_.front(), all, true);
    work.backward += plan::row_work(bytes(all, 3 * inner_ + 2 * width_));  // weights' gradients
  }
  if (has_shared()) activate(shared_, rows_, shared_.down.weight.trained());
  work.backward += plan::row_work(bytes(rows_, 4 * width_), 2.0);
}

/// Whether the second layer of any MLP has gradients.
template <class T>
bool ExpertFeedForward<T>::trains_down() const {
  return shared_.down.trained() || std::any_of(experts_.begin(), experts_.end(),
                                               [](const Mlp& mlp) { return mlp.down.trained(); });
}

template <class T>
typename ExpertFeedForward<T>::SavedAndBytes ExpertFeedForward<T>::saved_in(
    View<std::byte*> buffer, std::int64_t rows, std::int64_t leaves) const {
  const std::int64_t all = rows * router_.per_token, experts = router_.experts;
  Arrays<T> arrays(buffer);
  Saved saved;
  saved.routes.scores = arrays.template take<Compute>(rows * experts).matrix(rows, experts);
  saved.routes.chosen = arrays.template take<std::int32_t>(all);
  saved.routes.weights = arrays.template take<Compute>(all);
  saved.routes.slots = arrays.template take<std::int32_t>(all);
  saved.routes.assignments = arrays.template take<std::int32_t>(all);
  saved.routes.offsets = arrays.template take<std::int64_t>(experts * leaves + 1);
  if (!recompute_.norms)
    saved.norm = {arrays.template take<Compute>(norm_.mean_elements(rows)),
                  arrays.template take<Compute>(rows)};
  if (!recompute_.mlp) {
    saved.up = arrays.matrix(copies(rows), up_columns());
    if (has_shared()) saved.shared_up = arrays.matrix(rows, shared_.up.outputs);
  }
  return {saved, arrays.size()};
}

template <class T>
typename ExpertFeedForward<T>::WorkspaceAndBytes ExpertFeedForward<T>::workspace_in(
    View<std::byte*> buffer, std::int64_t rows, Step step) const {
  const std::int64_t all = copies(rows), experts = router_.experts;
  const std::int64_t of_experts = all * inner_, of_shared = rows * shared_.down.inputs;
  const std::int64_t most_activated = std::max(of_experts, of_shared);
  Arrays<T> arrays(buffer);
  Workspace work;
  const auto part_of = [](View<T*> array, std::int64_t count, std::int64_t of_rows) {
    return array.range(0, count).matrix(of_rows, of_rows > 0 ? count / of_rows : 0);
  };
  const bool computes_again = step == Step::forward || !defers_;
  if (recompute_.norms && computes_again)
    work.norm = {arrays.template take<Compute>(norm_.mean_elements(rows)),
                 arrays.template take<Compute>(rows)};
  if (recompute_.mlp && computes_again) {
    work.up = arrays.matrix(all, up_columns());
    if (has_shared()) work.shared_up = arrays.matrix(rows, shared_.up.outputs);
  }
  work.normed = arrays.matrix(rows, width_);
  work.copies = arrays.matrix(all, width_);
  const std::int64_t wide = step == Step::backward || is_narrow() ? rows * width_ : 0;
  // Of backward: or in `deferred`.
  const bool is_kept = defers_ && trains_down() && step != Step::forward;
  const std::int64_t in_room = is_kept || step == Step::parameters ? 0 : most_activated;
  const View<std::byte*> room =
      arrays.template take<std::byte>(std::max(bytes_of<T>(in_room), bytes_of<Compute>(wide)));
  if (in_room > 0) {
    work.activated = part_of(view_as<T>(room), of_experts, all);
    work.shared_activated = part_of(view_as<T>(room), of_shared, rows);
  }
  if (wide > 0) work.wide = view_as<Compute>(room).range(0, wide).matrix(rows, width_);
  if (step == Step::parameters) return {work, arrays.size()};
  if (is_narrow())
    work.router = arrays.template take<Compute>(experts * width_).matrix(experts, width_);
  if (is_narrow() && bias_.exists()) work.bias = arrays.template take<Compute>(experts);
  if (!experts_.empty())
    work.padding =
        arrays.template take<T>(std::max(by_row_workspace<T>(experts_.front().up, kernels_),
                                         by_row_workspace<T>(experts_.front().down, kernels_)));
  if (step == Step::forward) return {work, arrays.size()};
  const View<T*> gradients = arrays.template take<T>(most_activated);
  work.dactivated = part_of(gradients, of_experts, all);
  work.dshared_activated = part_of(gradients, of_shared, rows);
  if (has_shared()) work.dshared = arrays.matrix(rows, width_);
  work.dweights = arrays.template take<Compute>(all);
  work.dlogits = arrays.template take<Compute>(rows * experts).matrix(rows, experts);
  return {work, arrays.size()};
}

template <class T>
typename ExpertFeedForward<T>::DeferredAndBytes ExpertFeedForward<T>::deferred_in(
    View<std::byte*> buffer) const {
  const std::int64_t all = copies(rows_);
  Arrays<T> arrays(buffer);
  Deferred deferred;
  if (recompute_.norms)
    deferred.norm = {arrays.template take<Compute>(norm_.mean_elements(rows_)),
                     arrays.template take<Compute>(rows_)};
  if (recompute_.mlp) {
    deferred.up = arrays.matrix(all, up_columns());
    if (has_shared()) deferred.shared_up = arrays.matrix(rows_, shared_.up.outputs);
  }
  if (trains_down()) {
    deferred.dy = arrays.matrix(rows_, width_);
    if (!experts_.empty()) deferred.activated = arrays.matrix(all, inner_);
    if (has_shared()) deferred.shared_activated = arrays.matrix(rows_, shared_.down.inputs);
  }
  deferred.of_norm = {arrays.template take<T>(2 * width_),
                      arrays.template take<Compute>(2 * width_)};
  return {deferred, arrays.size()};
}

template class ExpertFeedForward<float>;
template class ExpertFeedForward<double>;
template class ExpertFeedForward<bf16>;
template class ExpertFeedForward<fp16>;

}  // namespace ostrakon::model
