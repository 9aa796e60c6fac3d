// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/optim/muon.hpp>

#include <algorithm>
#include <cmath>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/products/gemm.hpp>
#include <ostrakon/math/rows/row_kernel.hpp>
#include <ostrakon/optim/rules.hpp>
#include <ostrakon/optim/update_loop.hpp>

namespace ostrakon::optim {
namespace {

using math::Transpose;

// Coefficients of Jordan 2024: the polynomial is steep at 0, so that small singular values grow
// fast, and not exactly 1 at 1.
constexpr double a = 3.4445;
constexpr double b = -4.7750;
constexpr double c = 2.0315;

template <class T>
DirectionRule<T> direction_rule(const OptimizerSettings& settings, const UpdateStep& step) {
  return {Momentum<T>(settings, step)};
}

template <class T>
PlainRule<T> apply_rule(const OptimizerSettings& settings, const UpdateStep& step,
                        std::int64_t rows, std::int64_t columns) {
  const double rate = step.learning_rate * settings.muon_rate_factor;
  const double scale = 0.2 * std::sqrt(static_cast<double>(std::max(rows, columns)));
  return {rate * scale, rate * step.weight_decay};
}

/// The workspace of orthogonalize, in bytes from its start.
template <class T>
struct Workspace {
  std::int64_t other;       ///< T (rows, columns): iterations alternate between it and x
  std::int64_t square;      ///< T (n, n), n the smaller extent
  std::int64_t polynomial;  ///< T (n, n)
  std::int64_t norms;       ///< double (rows + 1): squares of rows, then 1 / Frobenius norm
  std::int64_t bytes;

  Workspace(std::int64_t rows, std::int64_t columns) {
    const std::int64_t smaller = std::min(rows, columns);
    std::int64_t end = 0;
    const auto place = [&](std::int64_t count, std::size_t size) {
      const std::int64_t begin = end;
      const std::int64_t next = begin + count * static_cast<std::int64_t>(size);
      end = (next + 63) / 64 * 64;
      return begin;
    };
    other = place(rows * columns, sizeof(T));
    square = place(smaller * smaller, sizeof(T));
    polynomial = place(smaller * smaller, sizeof(T));
    norms = place(rows + 1, sizeof(double));
    bytes = end;
  }
};

/// norms(rows) = 1 / the Frobenius norm of x, or 0.
template <class T>
void inverse_norm(const Exec& exec, View<T**> x, View<double*> norms) {
  math::for_each_row(
      exec, "muon_squares", x.rows(), x.columns(),
      KOKKOS_LAMBDA(const math::Row& row, std::int64_t index) {
        const double sum = row.template sum_of<double>(
            [](std::int64_t, double value) {
              return math::Product<double>{value, value};
            },
            x.row(index));
        row.once([&] { norms[index] = sum; });
      });
  const std::int64_t rows = x.rows();
  math::for_each_item(
      exec, "muon_norm", 1, KOKKOS_LAMBDA(std::int64_t) {
        double sum = 0;
        for (std::int64_t i = 0; i < rows; ++i) sum += norms[i];
        norms[rows] = sum > 0 ? 1.0 / math::sqrt(sum) : 0.0;
      });
}

/// to = factor(0) * from; `to` and `from` may be the same array.
template <class T>
void scaled_copy(const Exec& exec, View<T**> from, View<const double*> factor, View<T**> to) {
  math::for_each_row(
      exec, "muon_scale", from.rows(), from.columns(),
      KOKKOS_LAMBDA(const math::Row& row, std::int64_t index) {
        // The product is in double: the factor of a tiny matrix may overflow a float.
        const double by = factor[0];
        row.map([=](std::int64_t, T element) { return by * static_cast<double>(element); },
                to.row(index), from.row(index));
      });
}

/// to = b * square + a * identity.
template <class T>
void start_polynomial(const Exec& exec, View<T**> square, View<T**> to) {
  math::for_each_row(
      exec, "muon_start", square.rows(), square.columns(),
      KOKKOS_LAMBDA(const math::Row& row, std::int64_t index) {
        const auto out = to.row(index);
        row.map([](std::int64_t, T element) { return static_cast<T>(b) * element; }, out,
                square.row(index));
        row.once([&] { out[index] += static_cast<T>(a); });
      });
}

}  // namespace

template <class T, class Moment, class Space>
void muon_direction(const math::ExecutorFor<Space>& where, const OptimizerSettings& settings,
                    const UpdateStep& step, View<T*, Space> gradients,
                    View<Moment*, Space> momentum) {
  update_all(where, "muon_direction", direction_rule<T>(settings, step),
             {step.rounding_key, step.step}, step.first_element, gradients, View<const T*, Space>(),
             momentum, View<Moment*, Space>());
}

template <class T, class Space>
void muon_apply(const math::ExecutorFor<Space>& where, const OptimizerSettings& settings,
                const UpdateStep& step, std::int64_t rows, std::int64_t columns,
                View<T*, Space> parameters, View<const T*, Space> direction) {
  const View<T*, Space> none;
  update_all(where, "muon_apply", apply_rule<T>(settings, step, rows, columns), {}, 0, parameters,
             direction, none, none);
}

template <class T>
std::int64_t orthogonalize_workspace(std::int64_t rows, std::int64_t columns) {
  return Workspace<T>(rows, columns).bytes;
}

template <class T>
void orthogonalize(const Exec& exec, View<T**> x, int iterations, View<std::byte*> workspace) {
  require(iterations >= 1, "muon: ", iterations, " iterations, expected at least 1");
  const std::int64_t smaller = std::min(x.rows(), x.columns());
  const Workspace<T> offsets(x.rows(), x.columns());
  const auto matrix_at = [&](std::int64_t offset, std::int64_t rows, std::int64_t columns) {
    const std::int64_t bytes = rows * columns * static_cast<std::int64_t>(sizeof(T));
    return view_as<T>(workspace.range(offset, offset + bytes)).matrix(rows, columns);
  };
  const View<T**> square = matrix_at(offsets.square, smaller, smaller);
  const View<T**> polynomial = matrix_at(offsets.polynomial, smaller, smaller);
  const View<double*> norms =
      view_as<double>(workspace.range(offsets.norms, offsets.bytes)).range(0, x.rows() + 1);

  // The last iteration ends in x.
  View<T**> from = x;
  View<T**> to = matrix_at(offsets.other, x.rows(), x.columns());
  if (iterations % 2 == 1) std::swap(from, to);
  inverse_norm(exec, x, norms);
  scaled_copy<T>(exec, x, norms.range(x.rows(), x.rows() + 1), from);

  const bool wide = x.rows() <= x.columns();
  for (int iteration = 0; iteration < iterations; ++iteration) {
    // X (a + b X^T X + c (X^T X)^2), or with X X^T from the left, whichever product is smaller.
    math::gemm<T>(exec, wide ? Transpose::no : Transpose::yes,
                  wide ? Transpose::yes : Transpose::no, T(1), from, from, T(0), square);
    start_polynomial(exec, square, polynomial);
    math::gemm<T>(exec, Transpose::no, Transpose::no, static_cast<T>(c), square, square, T(1),
                  polynomial);
    if (wide)
      math::gemm<T>(exec, Transpose::no, Transpose::no, T(1), polynomial, from, T(0), to);
    else
      math::gemm<T>(exec, Transpose::no, Transpose::no, T(1), from, polynomial, T(0), to);
    std::swap(from, to);
  }
}

#define OSTRAKON_INSTANTIATE(T, Space)                                                          \
  template void muon_apply<T, Space>(const math::ExecutorFor<Space>&, const OptimizerSettings&, \
                                     const UpdateStep&, std::int64_t, std::int64_t,             \
                                     View<T*, Space>, View<const T*, Space>);
OSTRAKON_INSTANTIATE(float, OnDevice)
OSTRAKON_INSTANTIATE(double, OnDevice)
OSTRAKON_INSTANTIATE(float, OnHost)
OSTRAKON_INSTANTIATE(double, OnHost)
#undef OSTRAKON_INSTANTIATE

#define OSTRAKON_INSTANTIATE(T, Moment, Space)                                                \
  template void muon_direction<T, Moment, Space>(const math::ExecutorFor<Space>&,             \
                                                 const OptimizerSettings&, const UpdateStep&, \
                                                 View<T*, Space>, View<Moment*, Space>);
OSTRAKON_FOR_ALL_UPDATES(OSTRAKON_INSTANTIATE)
#undef OSTRAKON_INSTANTIATE

#define OSTRAKON_INSTANTIATE(T)                                                 \
  template std::int64_t orthogonalize_workspace<T>(std::int64_t, std::int64_t); \
  template void orthogonalize<T>(const Exec&, View<T**>, int, View<std::byte*>);
OSTRAKON_INSTANTIATE(float)
OSTRAKON_INSTANTIATE(double)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::optim
