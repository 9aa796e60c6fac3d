// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/rows/activation.hpp>

#include <cmath>
#include <ostrakon/math/elementary.hpp>
#include <ostrakon/math/equal_sizes.hpp>
#include <ostrakon/math/rows/row_blocks.hpp>
#include <ostrakon/math/rows/row_kernel.hpp>
#include <stdexcept>
#include <type_traits>

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
KOKKOS_INLINE_FUNCTION T gelu_sigmoid(T clamped) {
  return fast_sigmoid(clamped * multiply_add(gelu_cubic<T> * clamped, clamped, gelu_linear<T>));
}
/// From c = gelu_clamp(x) and s = gelu_sigmoid(c).
template <class T>
KOKKOS_INLINE_FUNCTION T gelu_derivative(T c, T s) {
  return multiply_add(c * s * (T(1) - s), multiply_add(T(3) * gelu_cubic<T> * c, c, gelu_linear<T>),
                      s);
}
template <class T>
KOKKOS_INLINE_FUNCTION T gelu_derivative(T x) {
  const T c = gelu_clamp(x);
  return gelu_derivative(c, gelu_sigmoid(c));
}

/// f(x), f that of the activation or of its gate.
template <Activation kind, class C>
KOKKOS_INLINE_FUNCTION C value_at(C x) {
  if constexpr (kind == Activation::gelu || kind == Activation::geglu)
    return gelu(x);
  else if constexpr (kind == Activation::gelu_exact || kind == Activation::geglu_exact)
    return x * fast_normal(x).integral;
  else if constexpr (kind == Activation::relu)
    return x < C(0) ? C(0) : x;  // NaN stays
  else if constexpr (kind == Activation::relu_squared)
    return x < C(0) ? C(0) : x * x;
  else
    return x * fast_sigmoid(x);
}

/// f'(x).
template <Activation kind, class C>
KOKKOS_INLINE_FUNCTION C derivative_at(C x) {
  if constexpr (kind == Activation::gelu) {
    return gelu_derivative(x);
  } else if constexpr (kind == Activation::gelu_exact) {
    const Normal<C> normal = fast_normal(x);
    return multiply_add(x, normal.density, normal.integral);
  } else if constexpr (kind == Activation::relu) {
    return x > C(0) ? C(1) : C(0);
  } else {
    return x < C(0) ? C(0) : C(2) * x;
  }
}

constexpr double clamp_limit = 7.0, clamped_slope = 1.702;  // of swiglu_clamped

template <class C>
KOKKOS_INLINE_FUNCTION C below(C x) {
  return x > C(clamp_limit) ? C(clamp_limit) : x;
}
template <class C>
KOKKOS_INLINE_FUNCTION C within(C x) {
  return x < C(-clamp_limit) ? C(-clamp_limit) : below(x);
}

template <Activation kind, class C>
KOKKOS_INLINE_FUNCTION C gated(C gate, C up) {
  if constexpr (kind == Activation::swiglu_clamped) {
    const C g = below(gate);
    return g * fast_sigmoid(C(clamped_slope) * g) * (within(up) + C(1));
  } else {
    return value_at<kind>(gate) * up;
  }
}

/// Gradients of gate and up.
template <Activation kind, class C>
KOKKOS_INLINE_FUNCTION Two<C, C> gated_gradient(C g, C u, C d) {
  if constexpr (kind == Activation::swiglu) {
    const C s = fast_sigmoid(g);
    return {d * u * s * (C(1) + g * (C(1) - s)), d * g * s};
  } else if constexpr (kind == Activation::swiglu_clamped) {
    const C gate = below(g);
    const C s = fast_sigmoid(C(clamped_slope) * gate);
    const C dgate =
        d * (within(u) + C(1)) * s * multiply_add(C(clamped_slope) * gate, C(1) - s, C(1));
    const C dup = d * gate * s;
    // One comparison each, as loops with more of them are not vectorised.
    return {g > C(clamp_limit) ? C(0) : dgate, within(u) == u ? dup : C(0)};
  } else if constexpr (kind == Activation::geglu) {
    const C c = gelu_clamp(g);
    const C s = gelu_sigmoid(c);
    return {d * u * gelu_derivative(c, s), d * g * s};
  } else {
    const Normal<C> normal = fast_normal(g);
    return {d * u * multiply_add(g, normal.density, normal.integral), d * g * normal.integral};
  }
}

#if OSTRAKON_ON_DEVICE

/// What a thread computes of vectors of a row (row_blocks.hpp): y and, with `has_gradient`, also dx
/// of x and dy, as they are stored, to sums over rows, unless these are null. An empty y is left
/// out. x and dx of gated activations have a second half, `half` columns on.
template <Activation kind, bool has_gradient, class T>
struct ActivationTerms {
  using C = compute_t<T>;
  static constexpr bool is_pair = is_gated(kind);
  static constexpr int n = vector_elements<T>();
  View<const T**> x, dy;
  View<T**> y, dx;
  std::int64_t half;
  bool whole;  ///< whether all rows are whole vectors

  ActivationTerms(View<const T**> x_, View<const T**> dy_, View<T**> y_, View<T**> dx_,
                  std::int64_t half_)
      : x(x_),
        dy(dy_),
        y(y_),
        dx(dx_),
        half(half_),
        whole(half % n == 0 && are_whole<n>(x, dy, y, dx)) {}

  KOKKOS_INLINE_FUNCTION void add(std::int64_t r, std::int64_t column, C* sums) const {
    const T* const in = x.data() + r * x.stride();
    const Vector<T, n> first = load(in, column);
    Vector<T, n> second = first, gradient = first;
    if constexpr (is_pair) second = load(in + half, column);
    if constexpr (has_gradient) gradient = load(dy.data() + r * dy.stride(), column);
    // What y needs is computed without a y, too: its gradient needs most of it.
    Vector<T, n> out;
    for (int k = 0; k < n; ++k) out.at[k] = static_cast<T>(value(first.at[k], second.at[k]));
    if (y) store(y.data() + r * y.stride(), column, out);
    if constexpr (has_gradient) differentiate(r, column, first, second, gradient, sums);
  }

 private:
  KOKKOS_INLINE_FUNCTION void differentiate(std::int64_t r, std::int64_t column,
                                            const Vector<T, n>& first, const Vector<T, n>& second,
                                            const Vector<T, n>& gradient, C* sums) const {
    Vector<T, n> dfirst, dsecond;
    for (int k = 0; k < n; ++k) {
      const Two<C, C> both = derivatives(first.at[k], second.at[k], gradient.at[k]);
      dfirst.at[k] = static_cast<T>(both.first);
      dsecond.at[k] = static_cast<T>(both.second);
    }
    T* const to = dx.data() + r * dx.stride();
    store(to, column, dfirst);
    if constexpr (is_pair) store(to + half, column, dsecond);
    if (sums == nullptr) return;
    for (int k = 0; k < n; ++k) {
      sums[k] += C(dfirst.at[k]);
      if constexpr (is_pair) sums[n + k] += C(dsecond.at[k]);
    }
  }

  KOKKOS_INLINE_FUNCTION Vector<T, n> load(const T* row, std::int64_t column) const {
    return whole ? load_vector<n>(row + column) : load_lanes<n>(row, column, half);
  }
  KOKKOS_INLINE_FUNCTION void store(T* row, std::int64_t column, const Vector<T, n>& values) const {
    if (whole)
      store_vector<n>(row + column, values);
    else
      store_lanes<n>(row, column, half, values);
  }

  KOKKOS_INLINE_FUNCTION static C value(C in, C up) {
    if constexpr (is_pair)
      return gated<kind>(in, up);
    else
      return value_at<kind>(in);
  }
  KOKKOS_INLINE_FUNCTION static Two<C, C> derivatives(C in, C up, C d) {
    if constexpr (is_pair)
      return gated_gradient<kind>(in, up, d);
    else
      return {d * derivative_at<kind>(in), C(0)};
  }
};

template <Activation kind, class T>
void activate(const Exec& exec, View<const T**> x, View<T**> y) {
  using Terms = ActivationTerms<kind, false, T>;
  const Terms terms(x, {}, y, {}, y.columns());
  for_each_vector_of_rows<Terms::n>(
      exec, "activation", y.rows(), y.columns(),
      KOKKOS_LAMBDA(std::int64_t r, std::int64_t column) { terms.add(r, column, nullptr); });
}

template <Activation kind, class T>
void differentiate(const Exec& exec, const char* name, View<const T**> x, View<const T**> dy,
                   View<T**> dx, View<T**> again) {
  using Terms = ActivationTerms<kind, true, T>;
  const Terms terms(x, dy, again, dx, dy.columns());
  for_each_vector_of_rows<Terms::n>(
      exec, name, dy.rows(), dy.columns(),
      KOKKOS_LAMBDA(std::int64_t r, std::int64_t column) { terms.add(r, column, nullptr); });
}

#else

template <Activation kind, class T>
void activate(const Exec& exec, View<const T**> x, View<T**> y) {
  for_each_row(
      exec, "activation", y.rows(), y.columns(), KOKKOS_LAMBDA(const Row& row, std::int64_t r) {
        row.map([](std::int64_t, compute_t<T> in) { return value_at<kind>(in); }, y.row(r),
                x.row(r));
      });
}

template <Activation kind, class T>
void activate_gated(const Exec& exec, View<const T**> x, View<T**> y) {
  const std::int64_t columns = y.columns();
  for_each_row(
      exec, "activation", y.rows(), columns, KOKKOS_LAMBDA(const Row& row, std::int64_t r) {
        using C = compute_t<T>;
        row.map([](std::int64_t, C gate, C up) { return gated<kind>(gate, up); }, y.row(r),
                x.row(r).range(0, columns), x.row(r).range(columns, 2 * columns));
      });
}

template <Activation kind, class T>
void differentiate(const Exec& exec, View<const T**> x, View<const T**> dy, View<T**> dx) {
  for_each_row(
      exec, "dactivation", dy.rows(), dy.columns(), KOKKOS_LAMBDA(const Row& row, std::int64_t r) {
        using C = compute_t<T>;
        row.map([](std::int64_t, C in, C d) { return d * derivative_at<kind>(in); }, dx.row(r),
                x.row(r), dy.row(r));
      });
}

template <Activation kind, class T>
void differentiate_gated(const Exec& exec, View<const T**> x, View<const T**> dy, View<T**> dx) {
  const std::int64_t columns = dy.columns();
  for_each_row(
      exec, "dactivation", dy.rows(), columns, KOKKOS_LAMBDA(const Row& row, std::int64_t r) {
        using C = compute_t<T>;
        row.map_two([](std::int64_t, C g, C u, C d) { return gated_gradient<kind>(g, u, d); },
                    dx.row(r).range(0, columns), dx.row(r).range(columns, 2 * columns),
                    x.row(r).range(0, columns), x.row(r).range(columns, 2 * columns), dy.row(r));
      });
}

#endif

/// body(the activation as a constant), so that loops do not ask for it.
template <class Body>
void for_kind(Activation activation, const Body& body) {
  switch (activation) {
#define OSTRAKON_KIND(kind) \
  case Activation::kind:    \
    return body(std::integral_constant<Activation, Activation::kind>());
    OSTRAKON_KIND(gelu)
    OSTRAKON_KIND(gelu_exact)
    OSTRAKON_KIND(relu)
    OSTRAKON_KIND(relu_squared)
    OSTRAKON_KIND(swiglu)
    OSTRAKON_KIND(geglu)
    OSTRAKON_KIND(geglu_exact)
    OSTRAKON_KIND(swiglu_clamped)
#undef OSTRAKON_KIND
  }
  throw std::logic_error("unknown activation");
}

}  // namespace

template <class T>
void activation_forward(const Exec& exec, Activation activation, View<const T**> x, View<T**> y) {
  const std::int64_t columns = y.columns();
  require_shape("activation_forward", "x", x, y.rows(),
                is_gated(activation) ? 2 * columns : columns);
  for_kind(activation, [&](auto kind) {
#if OSTRAKON_ON_DEVICE
    activate<kind.value, T>(exec, x, y);
#else
    if constexpr (is_gated(kind.value))
      activate_gated<kind.value, T>(exec, x, y);
    else
      activate<kind.value, T>(exec, x, y);
#endif
  });
}

template <class T>
void activation_backward(const Exec& exec, Activation activation, View<const T**> x,
                         View<const T**> dy, View<T**> dx) {
  const std::int64_t columns = is_gated(activation) ? 2 * dy.columns() : dy.columns();
  require_shape("activation_backward", "x", x, dy.rows(), columns);
  require_shape("activation_backward", "dx", dx, dy.rows(), columns);
  for_kind(activation, [&](auto kind) {
#if OSTRAKON_ON_DEVICE
    differentiate<kind.value, T>(exec, "dactivation", x, dy, dx, {});
#else
    if constexpr (is_gated(kind.value))
      differentiate_gated<kind.value, T>(exec, x, dy, dx);
    else
      differentiate<kind.value, T>(exec, x, dy, dx);
#endif
  });
}

template <class T>
void activation_backward(const Exec& exec, Activation activation, View<const T**> x,
                         View<const T**> dy, View<T**> dx, View<T**> again,
                         View<compute_t<T>*> dbias, const RowSums<compute_t<T>>& sums) {
#if OSTRAKON_ON_DEVICE
  using C = compute_t<T>;
  const char* const name = "activation_backward";
  const std::int64_t half = dy.columns(), columns = is_gated(activation) ? 2 * half : half;
  require_shape(name, "x", x, dy.rows(), columns);
  require_shape(name, "dx", dx, dy.rows(), columns);
  if (again) require_shape(name, "again", again, dy.rows(), half);
  require_size_if_any(name, "dbias", dbias, columns);
  for_kind(activation, [&](auto kind) {
    if (!dbias) return differentiate<kind.value, T>(exec, name, x, dy, dx, again);
    using Terms = ActivationTerms<kind.value, true, T>;
    const Terms terms(x, dy, again, dx, half);
    const RowBlocks blocks(dy.rows(), sums.leaves, rows_of_column_block);
    const View<C**> partial = sums_of_blocks(name, sums, blocks, columns);
    for_each_row_block<Terms::n, Terms::is_pair ? 2 : 1>(exec, name, blocks, half, terms, partial);
    add_blocks<C, 1>(exec, "add_blocks", partial, sums, {{dbias}});
  });
#else
  if (again) activation_forward<T>(exec, activation, x, again);
  activation_backward<T>(exec, activation, x, dy, dx);
  if (dbias) sum_columns<T>(exec, dx, dbias, sums);
#endif
}

template <class T>
void gate_forward(const Exec& exec, View<const T**> x, View<const T**> gate, View<T**> y) {
  const char* const name = "gate_forward";
  const bool is_of_rows = gate.columns() == 1;
  require_shape(name, "gate", gate, x.rows(), is_of_rows ? 1 : x.columns());
  require_shape(name, "y", y, x.rows(), x.columns());
  for_each_row(
      exec, name, x.rows(), x.columns(), KOKKOS_LAMBDA(const Row& row, std::int64_t r) {
        using C = compute_t<T>;
        if (is_of_rows) {
          const C open = fast_sigmoid(C(gate(r, 0)));
          row.map([=](std::int64_t, C in) { return open * in; }, y.row(r), x.row(r));
        } else {
          row.map([](std::int64_t, C in, C g) { return fast_sigmoid(g) * in; }, y.row(r), x.row(r),
                  gate.row(r));
        }
      });
}

template <class T>
void gate_backward(const Exec& exec, View<const T**> x, View<const T**> gate, View<const T**> dy,
                   View<T**> dx, View<T**> dgate) {
  const char* const name = "gate_backward";
  const bool is_of_rows = gate.columns() == 1;
  require_shape(name, "gate", gate, x.rows(), is_of_rows ? 1 : x.columns());
  require_shape(name, "dy", dy, x.rows(), x.columns());
  require_shape(name, "dx", dx, x.rows(), x.columns());
  require_shape(name, "dgate", dgate, x.rows(), gate.columns());
  for_each_row(
      exec, name, x.rows(), x.columns(), KOKKOS_LAMBDA(const Row& row, std::int64_t r) {
        using C = compute_t<T>;
        if (is_of_rows) {
          const C open = fast_sigmoid(C(gate(r, 0)));
          const C dopen = row.template sum_of<C>([](std::int64_t, C in, C d) { return in * d; },
                                                 x.row(r), dy.row(r));
          row.map([=](std::int64_t, C d) { return open * d; }, dx.row(r), dy.row(r));
          row.once([&] { dgate(r, 0) = static_cast<T>(dopen * open * (C(1) - open)); });
        } else {
          row.map_two(
              [](std::int64_t, C in, C g, C d) {
                const C open = fast_sigmoid(g);
                return Two<C, C>{open * d, in * d * open * (C(1) - open)};
              },
              dx.row(r), dgate.row(r), x.row(r), gate.row(r), dy.row(r));
        }
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
  template void activation_backward<T>(const Exec&, Activation, View<const T**>, View<const T**>, \
                                       View<T**>, View<T**>, View<compute_t<T>*>,                 \
                                       const RowSums<compute_t<T>>&);                             \
  template void gate_forward<T>(const Exec&, View<const T**>, View<const T**>, View<T**>);        \
  template void gate_backward<T>(const Exec&, View<const T**>, View<const T**>, View<const T**>,  \
                                 View<T**>, View<T**>);                                           \
  template void soft_cap_forward<T>(const Exec&, compute_t<T>, View<const T**>, View<T**>);       \
  template void soft_cap_backward<T>(const Exec&, compute_t<T>, View<const T**>, View<const T**>, \
                                     View<T**>);                                                  \
  template void activation_forward<T>(const Exec&, Activation, View<const T**>, View<T**>);       \
  template void activation_backward<T>(const Exec&, Activation, View<const T**>, View<const T**>, \
                                       View<T**>);
OSTRAKON_FOR_ALL_NUMBERS(OSTRAKON_INSTANTIATE)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::math
