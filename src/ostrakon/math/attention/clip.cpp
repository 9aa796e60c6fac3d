// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/attention/clip.hpp>

#include <ostrakon/math/equal_sizes.hpp>
#include <ostrakon/math/rows/row_kernel.hpp>

namespace ostrakon::math {

template <class T>
void clip_forward(const Exec& exec, compute_t<T> limit, View<const T**> x, View<T**> y) {
  using C = compute_t<T>;
  require_shape("clip_forward", "y", y, x.rows(), x.columns());
  for_each_row(
      exec, "clip_forward", x.rows(), x.columns(), KOKKOS_LAMBDA(const Row& row, std::int64_t r) {
        row.map([=](std::int64_t, C in) { return in < -limit  ? -limit
                                                 : in > limit ? limit
                                                              : in; },
                y.row(r), x.row(r));
      });
}

template <class T>
void clip_backward(const Exec& exec, compute_t<T> limit, View<const T**> x, View<const T**> dy,
                   View<T**> dx) {
  using C = compute_t<T>;
  require_shape("clip_backward", "dy", dy, x.rows(), x.columns());
  require_shape("clip_backward", "dx", dx, x.rows(), x.columns());
  for_each_row(
      exec, "clip_backward", x.rows(), x.columns(), KOKKOS_LAMBDA(const Row& row, std::int64_t r) {
        row.map([=](std::int64_t, C in, C d) { return in < -limit || in > limit ? C(0) : d; },
                dx.row(r), x.row(r), dy.row(r));
      });
}

#define OSTRAKON_INSTANTIATE(T)                                                               \
  template void clip_forward<T>(const Exec&, compute_t<T>, View<const T**>, View<T**>);       \
  template void clip_backward<T>(const Exec&, compute_t<T>, View<const T**>, View<const T**>, \
                                 View<T**>);
OSTRAKON_FOR_ALL_NUMBERS(OSTRAKON_INSTANTIATE)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::math
