// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/dense_feed_forward.hpp>

#include <algorithm>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/model/packing.hpp>

namespace ostrakon::model {

/// y = x + activation(norm(x) Wup^T) Wdown^T; without y, as much of it as is saved.
template <class T>
void DenseFeedForward<T>::forward(const Exec& exec, const FeedForwardCall<T>& call) const {
  const std::int64_t begin = call.first_row, end = begin + call.x.rows();
  const bool only_saves = !call.y;
  const Activations made = activations_in(call, forward_.locations);
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
  const View<Compute*> gradients = call.parameter_gradients;
  const Activations made = activations_in(call, backward_.locations);
  const View<T**> activated = matrix_in(call.workspace, backward_.activated, down_.inputs);
  const View<T**> normed = matrix_in(call.workspace, backward_.normed, up_.inputs);

  norm_again<T>(exec, norm_, parameters, call.x, made.norm, recompute_.norms,
                up_.weight.trained() || recompute_.mlp, normed);
  if (recompute_.mlp) linear_forward<T>(exec, up_, parameters, normed, made.up);
  if (down_.weight.trained()) activate<T>(exec, activation_, made.up, activated);
  const LeafSums<T> sums = {leaves_, call.sums};
  linear_backward_parameters<T>(exec, down_, activated, call.gradient, gradients, sums);
  const View<T**> dactivated = activated;
  linear_backward_input<T>(exec, down_, parameters, call.gradient, dactivated);

  // The gradient of gate and up, the widest array of a block, replaces gate and up themselves.
  const View<T**> dup = activation_ == Activation::gelu ? dactivated : made.up;
  activate_backward<T>(exec, activation_, made.up, dactivated, dup);

  linear_backward_parameters<T>(exec, up_, normed, dup, gradients, sums);
  const View<T**> dnormed = normed;
  linear_backward_input<T>(exec, up_, parameters, dup, dnormed);
  norm_backward<T>(exec, norm_, parameters, call.x, made.norm, dnormed, gradients, call.gradient,
                   math::GradientUpdate::add, sums);
}

// ---- parameters, buffers, sizes -----------------------------------------------------------------

template <class T>
DenseFeedForward<T>::DenseFeedForward(const DecoderSettings& settings, const LeafShape& leaf,
                                      const Recompute& recompute,
                                      const std::vector<Parameter>& parameters)
    : rows_(leaf.rows()),
      leaves_(leaf.leaves()),
      recompute_(recompute),
      activation_(settings.activation),
      norm_(find_norm(parameters, "mlp.norm", settings.norm, settings.norm_epsilon)),
      up_(find_linear(parameters, name_of_up(settings))),
      down_(find_linear(parameters, "mlp.down")) {
  lay_out_saved();
  lay_out_forward();
  lay_out_backward();
  this->flops_.add(up_, rows_, true, recompute.mlp);
  this->flops_.add(down_, rows_, false, false);
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
  place_recomputed(locations.mean);
  place_recomputed(locations.rstd);
  place_recomputed(locations.up);
  this->sizes_.backward_workspace = workspace.size();
}

template <class T>
typename DenseFeedForward<T>::Activations DenseFeedForward<T>::activations_in(
    const FeedForwardCall<T>& call, const ArrayLocations& locations) const {
  const auto buffer_of = [&](const ArrayLocation& location) {
    return location.recomputed ? call.workspace : call.saved;
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
