// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/dense_feed_forward.hpp>

#include <algorithm>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/model/packing.hpp>

namespace ostrakon::model {

// In the order of what forward and backward call.
template <class T>
void DenseFeedForward<T>::count_rows() {
  const auto bytes = [&](std::int64_t columns) {
    return static_cast<double>(bytes_of<T>(rows_ * columns));
  };
  const std::int64_t width = up_.inputs, up = up_.outputs, inner = down_.inputs;
  const plan::KernelWork norm = plan::row_work(bytes(2 * width));
  const auto elements = static_cast<double>(rows_ * inner);
  const plan::KernelWork activate = plan::activation_work(elements, bytes(up + inner));
  auto& work = this->work_;
  work.forward += norm + activate + plan::row_work(bytes(2 * width));  // the last: y = x
  if (!(recompute_.mlp && recompute_.norms)) work.recompute += norm;
  if (recompute_.mlp || up_.weight.trained()) work.backward += norm;
  if (down_.weight.trained()) work.backward += activate;
  work.backward += plan::activation_work(elements, bytes(2 * up + inner)) +
                   plan::row_work(bytes(4 * width), 2.0);
}

/// y = x + activation(norm(x) Wup^T) Wdown^T; without y, as much of it as is saved.
template <class T>
void DenseFeedForward<T>::forward(const Exec& exec, const FeedForwardCall<T>& call) const {
  const std::int64_t begin = call.first_row, end = begin + call.x.rows();
  const bool only_saves = !call.y;
  const Activations made = activations_in(call, forward_.locations, call.workspace);
  const auto up = made.up.row_range(begin, end);
  const View<T**> normed =
      matrix_in(call.workspace, forward_.normed, up_.inputs).row_range(0, end - begin);

  if (only_saves && recompute_.mlp && recompute_.norms) return;
  norm_forward<T>(exec, norm_, call.parameters, call.x, made.norm.row_range(begin, end), normed);
  if (only_saves && recompute_.mlp) return;
  linear_forward<T>(exec, up_, call.parameters, normed, up);
  if (only_saves) return;

  const View<T**> activated =
      matrix_in(call.workspace, forward_.activated, down_.inputs).row_range(0, end - begin);
  activate<T>(exec, activation_, up, activated);
  math::copy<T>(exec, call.x.flat(), call.y.flat());
  linear_forward_add<T>(exec, down_, call.parameters, activated, call.y);
}

template <class T>
void DenseFeedForward<T>::backward(const Exec& exec, const FeedForwardCall<T>& call) const {
  const FlatParameter<T>& parameters = call.parameters;
  const Backward arrays = backward_in(call);
  const NormStatistics<T> norm = arrays.made.norm;
  const View<T**> up = arrays.made.up;
  norm_again<T>(exec, norm_, parameters, call.x, norm, recompute_.norms,
                recompute_.mlp || (up_.weight.trained() && !defers_), arrays.normed);
  if (recompute_.mlp) linear_forward<T>(exec, up_, parameters, arrays.normed, up);
  if (down_.weight.trained()) activate<T>(exec, activation_, up, arrays.activated);
  if (defers_ && down_.trained())
    math::copy<T>(exec, View<const T*>(call.gradient.flat()), arrays.dy.flat());
  if (!defers_) down_gradients(exec, call, arrays);
  linear_backward_input<T>(exec, down_, parameters, call.gradient, arrays.dactivated);
  activate_backward<T>(exec, activation_, up, arrays.dactivated, arrays.dup);
  if (!defers_) up_gradients(exec, call, arrays);
  const View<T**> dnormed = arrays.normed;
  linear_backward_input<T>(exec, up_, parameters, arrays.dup, dnormed);
  const LeafSums<T> sums = {leaves_, call.sums};
  if (!defers_) {
    norm_backward<T>(exec, norm_, parameters, call.x, norm, dnormed, call.parameter_gradients,
                     call.gradient, math::GradientUpdate::add, sums);
    return;
  }
  norm_backward<T>(exec, norm_, parameters, call.x, norm, dnormed, deferred_norm(call),
                   call.gradient, math::GradientUpdate::add, sums);
}

template <class T>
void DenseFeedForward<T>::backward_parameters(const Exec& exec,
                                              const FeedForwardCall<T>& call) const {
  Backward arrays = deferred_in(call);
  arrays.normed = matrix_in(call.workspace, 0, up_.inputs);
  down_gradients(exec, call, arrays);
  const DeferredNorm<T> of_norm = deferred_norm(call);
  if (up_.weight.trained())
    norm_apply<T>(exec, norm_, of_norm, call.x, arrays.made.norm, arrays.normed);
  up_gradients(exec, call, arrays);
  norm_gradients<T>(exec, norm_, of_norm, call.parameter_gradients);
}

template <class T>
void DenseFeedForward<T>::down_gradients(const Exec& exec, const FeedForwardCall<T>& call,
                                         const Backward& arrays) const {
  linear_backward_parameters<T>(exec, down_, arrays.activated, arrays.dy, call.parameter_gradients,
                                {leaves_, call.sums});
}

template <class T>
void DenseFeedForward<T>::up_gradients(const Exec& exec, const FeedForwardCall<T>& call,
                                       const Backward& arrays) const {
  linear_backward_parameters<T>(exec, up_, arrays.normed, arrays.dup, call.parameter_gradients,
                                {leaves_, call.sums});
}

// ---- parameters, buffers, sizes -----------------------------------------------------------------

template <class T>
DenseFeedForward<T>::DenseFeedForward(const DecoderSettings& settings, const LeafShape& leaf,
                                      const Recompute& recompute,
                                      const std::vector<Parameter>& parameters)
    : rows_(leaf.rows()),
      leaves_(leaf.leaves()),
      defers_(leaf.defers_gradients),
      recompute_(recompute),
      activation_(settings.activation),
      norm_(find_norm(parameters, "mlp.norm", settings.norm, settings.norm_epsilon)),
      up_(find_linear(parameters, name_of_up(settings))),
      down_(find_linear(parameters, "mlp.down")) {
  lay_out_saved();
  lay_out_forward();
  lay_out_backward();
  this->count(up_, rows_, true, recompute.mlp);
  this->count(down_, rows_, false, false);
  count_rows();
  for (const Linear& layer : {up_, down_})
    this->sizes_.sum_elements =
        std::max(this->sizes_.sum_elements, leaf_sums_workspace(layer, leaves_));
}

template <class T>
void DenseFeedForward<T>::lay_out_saved() {
  Packing saved(buffer_alignment<T>);
  const auto place = [&saved](std::int64_t bytes, bool recomputed) {
    return ArrayLocation{bytes, recomputed, recomputed ? 0 : saved.place(bytes)};
  };
  ArrayLocations locations{};
  locations.mean = place(bytes_of<Compute>(norm_.mean_elements(rows_)), recompute_.norms);
  locations.rstd = place(bytes_of<Compute>(rows_), recompute_.norms);
  locations.up = place(bytes_of<T>(rows_ * up_.outputs), recompute_.mlp);
  forward_.locations = backward_.locations = locations;
  this->sizes_.saved = saved.size();
}

template <class T>
void DenseFeedForward<T>::lay_out_forward() {
  Packing workspace(buffer_alignment<T>);
  const auto place_recomputed = [&workspace](ArrayLocation& array) {
    if (array.recomputed) array.offset = workspace.place(array.bytes);
  };
  ArrayLocations& locations = forward_.locations;
  place_recomputed(locations.up);
  const std::int64_t up_end = workspace.end();
  forward_.normed = workspace.place(bytes_of<T>(rows_ * up_.inputs));
  place_recomputed(locations.mean);
  place_recomputed(locations.rstd);
  workspace.start_over(up_end);
  forward_.activated = workspace.place(bytes_of<T>(rows_ * down_.inputs));
  this->sizes_.forward_workspace = workspace.size();
}

template <class T>
void DenseFeedForward<T>::lay_out_backward() {
  Packing workspace(buffer_alignment<T>);
  const auto place_recomputed = [&workspace](ArrayLocation& array) {
    if (array.recomputed) array.offset = workspace.place(array.bytes);
  };
  ArrayLocations& locations = backward_.locations;
  backward_.activated = workspace.place(bytes_of<T>(rows_ * down_.inputs));
  backward_.normed = workspace.place(bytes_of<T>(rows_ * up_.inputs));
  if (defers_) {
    this->sizes_.backward_workspace = workspace.size();
    return lay_out_deferred();
  }
  place_recomputed(locations.mean);
  place_recomputed(locations.rstd);
  place_recomputed(locations.up);
  this->sizes_.backward_workspace = workspace.size();
}

/// For backward_parameters, instead of the last step of lay_out_backward. What is frozen takes
/// nothing.
template <class T>
void DenseFeedForward<T>::lay_out_deferred() {
  Packing deferred(buffer_alignment<T>);
  if (down_.trained()) deferred_.dy = deferred.place(bytes_of<T>(rows_ * down_.outputs));
  if (down_.weight.trained())
    deferred_.activated = deferred.place(bytes_of<T>(rows_ * down_.inputs));
  ArrayLocations& locations = backward_.locations;
  for (ArrayLocation* array : {&locations.mean, &locations.rstd, &locations.up})
    if (array->recomputed) array->offset = deferred.place(array->bytes);
  deferred_.norm_parameters = deferred.place(bytes_of<T>(2 * up_.inputs));
  deferred_.norm_gradients = deferred.place(bytes_of<Compute>(2 * up_.inputs));
  this->sizes_.deferred = deferred.size();
  this->sizes_.parameters_workspace = bytes_of<T>(rows_ * up_.inputs);
}

template <class T>
DeferredNorm<T> DenseFeedForward<T>::deferred_norm(const FeedForwardCall<T>& call) const {
  return {array_in<T>(call.deferred, deferred_.norm_parameters, 2 * up_.inputs),
          array_in<Compute>(call.deferred, deferred_.norm_gradients, 2 * up_.inputs)};
}

/// What backward leaves for backward_parameters.
template <class T>
typename DenseFeedForward<T>::Backward DenseFeedForward<T>::deferred_in(
    const FeedForwardCall<T>& call) const {
  Backward arrays;
  arrays.made = activations_in(call, backward_.locations, call.deferred);
  arrays.dup = arrays.made.up;
  if (down_.trained()) arrays.dy = matrix_in(call.deferred, deferred_.dy, down_.outputs);
  if (down_.weight.trained())
    arrays.activated = matrix_in(call.deferred, deferred_.activated, down_.inputs);
  return arrays;
}

/// The gradient of gate and up, the widest array of a block, replaces gate and up themselves.
template <class T>
typename DenseFeedForward<T>::Backward DenseFeedForward<T>::backward_in(
    const FeedForwardCall<T>& call) const {
  Backward arrays;
  if (defers_) arrays = deferred_in(call);
  arrays.normed = matrix_in(call.workspace, backward_.normed, up_.inputs);
  arrays.dactivated = matrix_in(call.workspace, backward_.activated, down_.inputs);
  if (defers_) return arrays;
  arrays.made = activations_in(call, backward_.locations, call.workspace);
  arrays.dup = arrays.made.up;
  arrays.dy = call.gradient;
  arrays.activated = arrays.dactivated;
  return arrays;
}

template <class T>
typename DenseFeedForward<T>::Activations DenseFeedForward<T>::activations_in(
    const FeedForwardCall<T>& call, const ArrayLocations& locations, View<std::byte*> again) const {
  const auto buffer_of = [&](const ArrayLocation& location) {
    return location.recomputed ? again : call.saved;
  };
  const auto sums = [&](const ArrayLocation& location) {
    const std::int64_t count = location.bytes / bytes_of<Compute>(1);
    return array_in<Compute>(buffer_of(location), location.offset, count);
  };
  return {
      {locations.mean.bytes == 0 ? View<Compute*>() : sums(locations.mean), sums(locations.rstd)},
      matrix_in(buffer_of(locations.up), locations.up.offset, up_.outputs)};
}

/// (rows, columns), `offset` bytes into `buffer`.
template <class T>
View<T**> DenseFeedForward<T>::matrix_in(View<std::byte*> buffer, std::int64_t offset,
                                         std::int64_t columns) const {
  return array_in<T>(buffer, offset, rows_ * columns).matrix(rows_, columns);
}

template class DenseFeedForward<float>;
template class DenseFeedForward<double>;
template class DenseFeedForward<bf16>;
template class DenseFeedForward<fp16>;

}  // namespace ostrakon::model
