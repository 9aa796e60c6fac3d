// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/linear_cross_entropy.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/elementary.hpp>
#include <ostrakon/math/equal_sizes.hpp>
#include <ostrakon/math/gemm.hpp>
#include <ostrakon/math/row_kernel.hpp>
#include <ostrakon/math/scratch.hpp>

namespace ostrakon::math {
namespace {

constexpr char kernel_name[] = "linear_cross_entropy";

/// Rows whose logits exist at a time: about 2^22 logits (16 MiB of float), but never so few rows
/// that the matrix products suffer.
std::int64_t chunk_rows(std::int64_t rows, std::int64_t vocabulary) {
  constexpr std::int64_t logits = std::int64_t{1} << 22;
  const std::int64_t fitting = logits / std::max<std::int64_t>(1, vocabulary);
  return std::min(rows, std::clamp<std::int64_t>(fitting, 128, 1024));
}

template <class T>
void check_shapes(const View<const T**>& x, const View<const T**>& weight,
                  const View<const std::int32_t*>& targets, const View<compute_t<T>*>& losses) {
  require(x.columns() == weight.columns() && weight.rows() >= 1, kernel_name, ": x (", x.rows(),
          ", ", x.columns(), ") and weight (", weight.rows(), ", ", weight.columns(),
          "), expected equal widths and a vocabulary of at least 1");
  require_size(kernel_name, "targets", targets, x.rows());
  require_size(kernel_name, "losses", losses, x.rows());
}

template <class T>
View<compute_t<T>**> chunk_logits(const Exec& exec, View<const T**> x, View<const T**> weight,
                                  View<compute_t<T>*> room) {
  const View<compute_t<T>**> logits = room.matrix(x.rows(), weight.rows());
  gemm<T>(exec, Transpose::no, Transpose::yes, 1, x, weight, 0, logits);
  return logits;
}

template <class T>
void losses_of(const Exec& exec, View<const T**> logits, View<const std::int32_t*> targets,
               View<T*> losses) {
  for_each_row(
      exec, "cross_entropy", logits.rows(), KOKKOS_LAMBDA(const Row& row, std::int64_t index) {
        const auto z = logits.row(index);
        const T largest = row.maximum(logits.columns(), z[0], [&](std::int64_t i) { return z[i]; });
        const T total = row.template sum<T>(
            logits.columns(), [&](std::int64_t i) { return fast_exp(z[i] - largest); });
        row.once([&] { losses[index] = (largest - z[targets[index]]) + log(total); });
      });
}

/// The same, and dlogits = (softmax - one at the target) * scale, rounded once; logits are
/// clobbered.
template <class T, class C = compute_t<T>>
void losses_and_dlogits(const Exec& exec, View<C**> logits, View<const std::int32_t*> targets,
                        C scale, View<C*> losses, View<T**> dlogits) {
  for_each_row(
      exec, "dcross_entropy", logits.rows(), KOKKOS_LAMBDA(const Row& row, std::int64_t index) {
        const auto z = logits.row(index);
        const auto dz = dlogits.row(index);
        const std::int64_t target = targets[index];
        const C at_target = z[target];
        const C largest = row.maximum(logits.columns(), z[0], [&](std::int64_t i) { return z[i]; });
        const C total = row.template sum<C>(logits.columns(), [&](std::int64_t i) {
          z[i] = fast_exp(z[i] - largest);
          return z[i];
        });
        const C factor = scale / total;
        row.loop(logits.columns(), [&](std::int64_t i) { z[i] *= factor; });
        row.once([&] {
          z[target] -= scale;
          losses[index] = (largest - at_target) + log(total);
        });
        if (is_16bit<T>)
          row.loop(logits.columns(), [&](std::int64_t i) { dz[i] = static_cast<T>(z[i]); });
      });
}

}  // namespace

template <class T>
std::int64_t linear_cross_entropy_workspace(std::int64_t rows, std::int64_t vocabulary) {
  const std::int64_t logits = chunk_rows(rows, vocabulary) * vocabulary;
  return scratch_elements<T, compute_t<T>>(logits) + (is_16bit<T> ? logits : 0);
}

template <class T>
void linear_cross_entropy_forward(const Exec& exec, View<const T**> x, View<const T**> weight,
                                  View<const std::int32_t*> targets, View<compute_t<T>*> losses,
                                  View<T*> workspace) {
  check_shapes<T>(x, weight, targets, losses);
  Scratch<T> scratch(workspace, kernel_name);
  const std::int64_t chunk = chunk_rows(x.rows(), weight.rows());
  const View<compute_t<T>*> room = scratch.template take<compute_t<T>>(chunk * weight.rows());
  for (std::int64_t begin = 0; begin < x.rows(); begin += chunk) {
    const std::int64_t end = std::min(x.rows(), begin + chunk);
    const auto logits = chunk_logits<T>(exec, x.row_range(begin, end), weight, room);
    losses_of<compute_t<T>>(exec, logits, targets.range(begin, end), losses.range(begin, end));
  }
}

template <class T>
void linear_cross_entropy_backward(const Exec& exec, View<const T**> x, View<const T**> weight,
                                   View<const std::int32_t*> targets, compute_t<T> scale,
                                   View<compute_t<T>*> losses, View<T**> dx,
                                   View<compute_t<T>**> dweight, View<T*> workspace) {
  using C = compute_t<T>;
  check_shapes<T>(x, weight, targets, losses);
  require_shape(kernel_name, "dx", dx, x.rows(), x.columns());
  if (dweight) require_shape(kernel_name, "dweight", dweight, weight.rows(), weight.columns());
  const std::int64_t chunk = chunk_rows(x.rows(), weight.rows());
  Scratch<T> scratch(workspace, kernel_name);
  const View<C*> room = scratch.template take<C>(chunk * weight.rows());
  const View<T*> stored_room =
      stored_at(room, scratch.template take<T>(is_16bit<T> ? chunk * weight.rows() : 0));
  std::int64_t begin = 0;
  do {  // at least once: without rows dweight becomes 0
    const std::int64_t end = std::min(x.rows(), begin + chunk);
    const View<const T**> x_chunk = x.row_range(begin, end);
    const View<C**> logits = chunk_logits<T>(exec, x_chunk, weight, room);
    const View<T**> dlogits = stored_room.matrix(logits.rows(), logits.columns());
    losses_and_dlogits<T>(exec, logits, targets.range(begin, end), scale, losses.range(begin, end),
                          dlogits);
    gemm<T>(exec, Transpose::no, Transpose::no, C(1), dlogits, weight, C(0),
            dx.row_range(begin, end));
    if (dweight)
      gemm<T>(exec, Transpose::yes, Transpose::no, C(1), dlogits, x_chunk, begin == 0 ? C(0) : C(1),
              dweight);
    begin = end;
  } while (begin < x.rows());
}

#define OSTRAKON_INSTANTIATE(T)                                                                 \
  template std::int64_t linear_cross_entropy_workspace<T>(std::int64_t, std::int64_t);          \
  template void linear_cross_entropy_forward<T>(const Exec&, View<const T**>, View<const T**>,  \
                                                View<const std::int32_t*>, View<compute_t<T>*>, \
                                                View<T*>);                                      \
  template void linear_cross_entropy_backward<T>(                                               \
      const Exec&, View<const T**>, View<const T**>, View<const std::int32_t*>, compute_t<T>,   \
      View<compute_t<T>*>, View<T**>, View<compute_t<T>**>, View<T*>);
OSTRAKON_INSTANTIATE(float)
OSTRAKON_INSTANTIATE(double)
OSTRAKON_INSTANTIATE(bf16)
OSTRAKON_INSTANTIATE(fp16)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::math
