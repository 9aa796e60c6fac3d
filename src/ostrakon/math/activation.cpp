// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/activation.hpp>

#include <cmath>
#include <ostrakon/math/elementary.hpp>
#include <ostrakon/math/equal_sizes.hpp>
#include <ostrakon/math/row_kernel.hpp>

namespace ostrakon::math {
namespace {

// gelu(x) = x/2 (1 + tanh(u)) = x fast_sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3).
template <class T>
constexpr T gelu_linear = T(1.5957691216057308);  // 2 sqrt(2/pi)
template <class T>
constexpr T gelu_cubic = T(0.071354816272600244);  // 0.044715 times gelu_linear

/// The polynomial may overflow, to an infinity with the sign of x, for which the result is right,
/// too.
template <class T>
KOKKOS_INLINE_FUNCTION T gelu(T x) {
  return x * fast_sigmoid(x * multiply_add(gelu_cubic<T> * x, x, gelu_linear<T>));
}

/// Clamps x: beyond +-16 gelu is x or 0 to the last bit, and the polynomials must not overflow.
template <class T>
KOKKOS_INLINE_FUNCTION T gelu_clamp(T x) {
  x = x < T(-16) ? T(-16) : x;
  return x > T(16) ? T(16) : x;
}

template <class T>
KOKKOS_INLINE_FUNCTION T gelu_derivative(T x) {
  const T c = gelu_clamp(x);
  const T s = fast_sigmoid(c * multiply_add(gelu_cubic<T> * c, c, gelu_linear<T>));
  return multiply_add(c * s * (T(1) - s), multiply_add(T(3) * gelu_cubic<T> * c, c, gelu_linear<T>),
                      s);
}

}  // namespace

template <class T>
void gelu_forward(const Exec& exec, View<const T**> x, View<T**> y) {
  const std::int64_t columns = x.columns();
  require_shape("gelu_forward", "y", y, x.rows(), columns);
  for_each_row(
      exec, "gelu_forward", x.rows(), columns, KOKKOS_LAMBDA(const Row& row, std::int64_t r) {
        row.map([](std::int64_t, compute_t<T> in) { return gelu(in); }, y.row(r), x.row(r));
      });
}

template <class T>
void gelu_backward(const Exec& exec, View<const T**> x, View<const T**> dy, View<T**> dx) {
  const std::int64_t columns = x.columns();
  require_shape("gelu_backward", "dy", dy, x.rows(), columns);
  require_shape("gelu_backward", "dx", dx, x.rows(), columns);
  for_each_row(
      exec, "gelu_backward", x.rows(), columns, KOKKOS_LAMBDA(const Row& row, std::int64_t r) {
        using C = compute_t<T>;
        row.map([](std::int64_t, C in, C dout) { return dout * gelu_derivative(in); }, dx.row(r),
                x.row(r), dy.row(r));
      });
}

template <class T>
void swiglu_forward(const Exec& exec, View<const T**> gate_up, View<T**> y) {
  const std::int64_t columns = y.columns();
  require_shape("swiglu_forward", "gate_up", gate_up, y.rows(), 2 * columns);
  for_each_row(
      exec, "swiglu_forward", y.rows(), columns, KOKKOS_LAMBDA(const Row& row, std::int64_t r) {
        using C = compute_t<T>;
        row.map([](std::int64_t, C gate, C up) { return gate * fast_sigmoid(gate) * up; }, y.row(r),
                gate_up.row(r).range(0, columns), gate_up.row(r).range(columns, 2 * columns));
      });
}

template <class T>
void swiglu_backward(const Exec& exec, View<const T**> gate_up, View<const T**> dy,
                     View<T**> dgate_up) {
  const std::int64_t columns = dy.columns();
  require_shape("swiglu_backward", "gate_up", gate_up, dy.rows(), 2 * columns);
  require_shape("swiglu_backward", "dgate_up", dgate_up, dy.rows(), 2 * columns);
  for_each_row(
      exec, "swiglu_backward", dy.rows(), columns, KOKKOS_LAMBDA(const Row& row, std::int64_t r) {
        using C = compute_t<T>;
        row.map_two(
            [](std::int64_t, C g, C u, C d) {
              const C s = fast_sigmoid(g);
              return Two<C, C>{d * u * s * (C(1) + g * (C(1) - s)), d * g * s};
            },
            dgate_up.row(r).range(0, columns), dgate_up.row(r).range(columns, 2 * columns),
            gate_up.row(r).range(0, columns), gate_up.row(r).range(columns, 2 * columns),
            dy.row(r));
      });
}

template <class T>
void soft_cap_forward(const Exec& exec, compute_t<T> cap, View<const T**> x, View<T**> y) {
  const auto capped = KOKKOS_LAMBDA(std::int64_t, compute_t<T> in) {
    return cap * std::tanh(in / cap);
  };
  require_shape("soft_cap_forward", "y", y, x.rows(), x.columns());
  for_each_row(
      exec, "soft_cap_forward", x.rows(), x.columns(),
      KOKKOS_LAMBDA(const Row& row, std::int64_t r) { row.map(capped, y.row(r), x.row(r)); });
}

template <class T>
void soft_cap_backward(const Exec& exec, compute_t<T> cap, View<const T**> y, View<const T**> dy,
                       View<T**> dx) {
  using C = compute_t<T>;
  const auto slope = KOKKOS_LAMBDA(std::int64_t, C out, C d) {
    return d * multiply_add(-(out / cap), out / cap, C(1));
  };
  require_shape("soft_cap_backward", "dx", dx, y.rows(), y.columns());
  for_each_row(
      exec, "soft_cap_backward", y.rows(), y.columns(),
      KOKKOS_LAMBDA(const Row& row, std::int64_t r) {
        row.map(slope, dx.row(r), y.row(r), dy.row(r));
      });
}

#define OSTRAKON_INSTANTIATE(T)                                                                   \
  template void soft_cap_forward<T>(const Exec&, compute_t<T>, View<const T**>, View<T**>);       \
  template void soft_cap_backward<T>(const Exec&, compute_t<T>, View<const T**>, View<const T**>, \
                                     View<T**>);                                                  \
  template void gelu_forward<T>(const Exec&, View<const T**>, View<T**>);                         \
  template void gelu_backward<T>(const Exec&, View<const T**>, View<const T**>, View<T**>);       \
  template void swiglu_forward<T>(const Exec&, View<const T**>, View<T**>);                       \
  template void swiglu_backward<T>(const Exec&, View<const T**>, View<const T**>, View<T**>);
OSTRAKON_INSTANTIATE(float)
OSTRAKON_INSTANTIATE(double)
OSTRAKON_INSTANTIATE(bf16)
OSTRAKON_INSTANTIATE(fp16)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::math
