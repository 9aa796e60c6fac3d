// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/experts/expert_rows.hpp>

#include <ostrakon/base/error.hpp>
#include <ostrakon/math/equal_sizes.hpp>
#include <ostrakon/math/fast_divide.hpp>
#include <ostrakon/math/rows/row_kernel.hpp>

namespace ostrakon::math {
namespace {

/// Columns of a row in an item of work, and per thread on a device.
[[maybe_unused]] constexpr std::int64_t columns_of_item = 64;
[[maybe_unused]] constexpr int device_columns = 4;

std::int64_t per_token_of(const char* function, std::int64_t assignments, std::int64_t rows) {
  require(rows > 0 ? assignments % rows == 0 : assignments == 0, function, ": ", assignments,
          " assignments of ", rows, " rows, expected a multiple");
  return rows > 0 ? assignments / rows : 0;
}

/// y(r) = first(r), if given, + (base(r) + the sum of the row's copies, multiplied by their weights
/// if given).
template <class T, class F>
void sum_and_add(const Exec& exec, const char* name, View<const F**> first, View<const T**> base,
                 View<const std::int32_t*> slots, View<const compute_t<T>*> weights,
                 View<const T**> copies, View<T**> y) {
  using C = compute_t<T>;
  const std::int64_t rows = y.rows(), columns = y.columns();
  const std::int64_t per_token = per_token_of(name, slots.size(), rows);
  if (first) require_shape(name, "first", first, rows, columns);
  if (base) require_shape(name, "base", base, rows, columns);
  require_shape(name, "copies", copies, slots.size(), columns);
  require_size_if_any(name, "weights", weights, slots.size());
#if OSTRAKON_ON_DEVICE
  for_each_row(
      exec, name, rows, columns, KOKKOS_LAMBDA(const Row& row, std::int64_t r) {
        const std::int64_t begin = r * per_token, end = begin + per_token;
        row.loop(items_for(columns, device_columns), [&](std::int64_t item) {
          constexpr int n = device_columns;
          const std::int64_t column = item * n;
          Vector<C, n> sums = {};
          for (std::int64_t a = begin; a < end; ++a) {
            const C weight = weights ? weights[a] : C(1);
            const auto copy = load_lanes<n>(copies.row(slots[a]).data(), column, columns);
            for (int j = 0; j < n; ++j) sums.at[j] += weight * C(copy.at[j]);
          }
          if (base) {
            const auto more = load_lanes<n>(base.row(r).data(), column, columns);
            for (int j = 0; j < n; ++j) sums.at[j] = C(more.at[j]) + sums.at[j];
          }
          if (first) {
            const auto of_first = load_lanes<n>(first.row(r).data(), column, columns);
            for (int j = 0; j < n; ++j) sums.at[j] = C(of_first.at[j]) + sums.at[j];
          }
          Vector<T, n> results;
          for (int j = 0; j < n; ++j) results.at[j] = static_cast<T>(sums.at[j]);
          store_lanes<n>(y.row(r).data(), column, columns, results);
        });
      });
#else
  const std::int64_t runs = items_for(columns, columns_of_item);
  for_each_item(
      exec, name, rows * runs, KOKKOS_LAMBDA(std::int64_t item) {
        const std::int64_t r = item / runs, begin = item % runs * columns_of_item;
        const std::int64_t width = smaller(columns_of_item, columns - begin);
        C sums[columns_of_item] = {};
        for (std::int64_t a = r * per_token; a < (r + 1) * per_token; ++a) {
          const C weight = weights ? weights[a] : C(1);
          const auto copy = copies.row(slots[a]).range(begin, begin + width);
          for (std::int64_t j = 0; j < width; ++j)
            sums[j] = multiply_add(weight, C(copy[j]), sums[j]);
        }
        if (base)
          for (std::int64_t j = 0; j < width; ++j) sums[j] = C(base(r, begin + j)) + sums[j];
        if (first)
          for (std::int64_t j = 0; j < width; ++j) sums[j] = C(first(r, begin + j)) + sums[j];
        for (std::int64_t j = 0; j < width; ++j) y(r, begin + j) = static_cast<T>(sums[j]);
      });
#endif
}

/// Returns dweight = activated . dactivated + bias . dy; then multiplies dactivated, and dy, which
/// is stored in `weighted` if given, by `weight`.
template <class T>
KOKKOS_FUNCTION compute_t<T> weigh_row(const Row& row, compute_t<T> weight,
                                       View<const T*> activated, View<const T*> bias,
                                       View<T*> dactivated, View<const T*> dy, View<T*> weighted) {
  using C = compute_t<T>;
  const auto product = [](std::int64_t, C a, C b) { return Product<C>{a, b}; };
  C sum = row.template sum_of<C>(product, activated, dactivated);
  if (bias) sum += row.template sum_of<C>(product, bias, dy);
  const auto weigh = [=](std::int64_t, C element) { return weight * element; };
  row.map(weigh, dactivated, dactivated);
  if (weighted) row.map(weigh, weighted, dy);
  return sum;
}

}  // namespace

template <class T>
void gather_rows(const Exec& exec, View<const T**> x, View<const std::int32_t*> assignments,
                 View<T**> copies) {
  const std::int64_t per_token = per_token_of("gather_rows", assignments.size(), x.rows());
  gather_rows_of<T>(exec, per_token, x, assignments, copies);
}

template <class T>
void combine_outputs(const Exec& exec, View<const T**> x, View<const T**> base,
                     const Routes<compute_t<T>>& routes, View<const T**> outputs, View<T**> y) {
  sum_and_add<T, T>(exec, "combine_outputs", x, base, routes.slots, routes.weights, outputs, y);
}

template <class T>
void combine_gradients(const Exec& exec, View<const compute_t<T>**> first, View<const T**> base,
                       const Routes<compute_t<T>>& routes, View<const T**> copies, View<T**> dx) {
  sum_and_add<T, compute_t<T>>(exec, "combine_gradients", first, base, routes.slots, {}, copies,
                               dx);
}

template <class T>
void sum_copies(const Exec& exec, View<const std::int32_t*> slots, View<const T**> copies,
                View<compute_t<T>**> sums) {
  using C = compute_t<T>;
  const char* const name = "sum_copies";
  const std::int64_t columns = sums.columns();
  const std::int64_t per_token = per_token_of(name, slots.size(), sums.rows());
  require_shape(name, "copies", copies, slots.size(), columns);
  for_each_row(
      exec, name, sums.rows(), columns, KOKKOS_LAMBDA(const Row& row, std::int64_t r) {
        const auto sum = sums.row(r);
        row.map([](std::int64_t) { return C(0); }, sum);
        for (std::int64_t a = r * per_token; a < (r + 1) * per_token; ++a)
          row.map([](std::int64_t, C before, C copy) { return before + copy; }, sum, sum,
                  copies.row(slots[a]));
      });
}

template <class T>
void combine_sums(const Exec& exec, View<const compute_t<T>**> first, View<const T**> base,
                  View<const compute_t<T>**> sums, View<T**> dx) {
  using C = compute_t<T>;
  const char* const name = "combine_sums";
  const std::int64_t rows = dx.rows(), columns = dx.columns();
  require_shape(name, "first", first, rows, columns);
  if (base) require_shape(name, "base", base, rows, columns);
  require_shape(name, "sums", sums, rows, columns);
  for_each_row(
      exec, name, rows, columns, KOKKOS_LAMBDA(const Row& row, std::int64_t r) {
        if (base)
          row.map([](std::int64_t, C begin, C more, C sum) { return begin + (more + sum); },
                  dx.row(r), first.row(r), base.row(r), sums.row(r));
        else
          row.map([](std::int64_t, C begin, C sum) { return begin + sum; }, dx.row(r), first.row(r),
                  sums.row(r));
      });
}

template <class T>
void weigh_gradients(const Exec& exec, const Routes<compute_t<T>>& routes, std::int64_t begin,
                     View<const T**> activated, View<const T*> bias, View<T**> dactivated,
                     View<const T**> dy, View<compute_t<T>*> dweights) {
  using C = compute_t<T>;
  const char* const name = "weigh_gradients";
  const std::int64_t rows = dy.rows(), columns = dy.columns(), inner = dactivated.columns();
  require_shape(name, "activated", activated, rows, inner);
  require_shape(name, "dactivated", dactivated, rows, inner);
  require_size_if_any(name, "bias", bias, columns);
  require_equal_sizes(name, dweights.size(), routes.weights.size());
  const auto assignments = routes.assignments.range(begin, begin + rows);
  const View<const C*> weights = routes.weights;
  for_each_row(
      exec, name, rows, columns, KOKKOS_LAMBDA(const Row& row, std::int64_t r) {
        const std::int64_t assignment = assignments[r];
        const C sum = weigh_row<T>(row, weights[assignment], activated.row(r), bias,
                                   dactivated.row(r), dy.row(r), {});
        row.once([=] { dweights[assignment] = sum; });
      });
}

template <class T>
void weigh_rows(const Exec& exec, View<const compute_t<T>*> weights, View<const T**> activated,
                View<const T*> bias, View<T**> dactivated, View<const T**> dy, View<T**> weighted,
                View<compute_t<T>*> dweights) {
  const char* const name = "weigh_rows";
  const std::int64_t rows = dy.rows(), columns = dy.columns(), inner = dactivated.columns();
  require_shape(name, "activated", activated, rows, inner);
  require_shape(name, "dactivated", dactivated, rows, inner);
  require_shape(name, "weighted", weighted, rows, columns);
  require_size_if_any(name, "bias", bias, columns);
  require_equal_sizes(name, weights.size(), rows);
  require_equal_sizes(name, dweights.size(), rows);
  for_each_row(
      exec, name, rows, columns, KOKKOS_LAMBDA(const Row& row, std::int64_t r) {
        const auto sum = weigh_row<T>(row, weights[r], activated.row(r), bias, dactivated.row(r),
                                      dy.row(r), weighted.row(r));
        row.once([=] { dweights[r] = sum; });
      });
}

template <class T>
void gather_rows_of(const Exec& exec, std::int64_t per_token, View<const T**> x,
                    View<const std::int32_t*> assignments, View<T**> copies) {
  const char* const name = "gather_rows";
  const std::int64_t columns = x.columns();
  require_shape(name, "copies", copies, assignments.size(), columns);
  if (assignments.size() == 0) return;
  const FastDivide by_token(per_token);
  for_each_row(
      exec, name, assignments.size(), columns, KOKKOS_LAMBDA(const Row& row, std::int64_t slot) {
        row.map([](std::int64_t, T element) { return element; }, copies.row(slot),
                x.row(by_token.quotient(assignments[slot])));
      });
}

template <class C>
void gather_weights(const Exec& exec, View<const C*> from, View<const std::int32_t*> assignments,
                    View<C*> to) {
  require_equal_sizes("gather_weights", to.size(), assignments.size());
  for_each_item(
      exec, "gather_weights", to.size(),
      KOKKOS_LAMBDA(std::int64_t i) { to[i] = from[assignments[i]]; });
}

void count_one(const Exec& exec, View<std::int64_t*> count) {
  require_equal_sizes("count_one", count.size(), 1);
  for_each_item(
      exec, "count_one", 1, KOKKOS_LAMBDA(std::int64_t i) { count[i] += 1; });
}

template <class C>
void scatter_weights(const Exec& exec, View<const C*> from, View<const std::int32_t*> assignments,
                     View<C*> to) {
  require_equal_sizes("scatter_weights", from.size(), assignments.size());
  for_each_item(
      exec, "scatter_weights", from.size(),
      KOKKOS_LAMBDA(std::int64_t i) { to[assignments[i]] = from[i]; });
}

template <class T>
void gather_weighed_rows(const Exec& exec, View<const T**> x, const Routes<compute_t<T>>& routes,
                         View<T**> copies) {
  using C = compute_t<T>;
  const char* const name = "gather_weighed_rows";
  const View<const std::int32_t*> assignments = routes.assignments;
  const View<const C*> weights = routes.weights;
  const std::int64_t per_token = per_token_of(name, assignments.size(), x.rows());
  const std::int64_t columns = x.columns();
  require_equal_sizes(name, weights.size(), assignments.size());
  require_shape(name, "copies", copies, assignments.size(), columns);
  if (assignments.size() == 0) return;
  const FastDivide by_token(per_token);
  for_each_row(
      exec, name, assignments.size(), columns, KOKKOS_LAMBDA(const Row& row, std::int64_t slot) {
        const std::int64_t assignment = assignments[slot];
        const C weight = weights[assignment];
        row.map([=](std::int64_t, C element) { return weight * element; }, copies.row(slot),
                x.row(by_token.quotient(assignment)));
      });
}

#define OSTRAKON_INSTANTIATE(T)                                                                   \
  template void gather_rows<T>(const Exec&, View<const T**>, View<const std::int32_t*>,           \
                               View<T**>);                                                        \
  template void combine_outputs<T>(const Exec&, View<const T**>, View<const T**>,                 \
                                   const Routes<compute_t<T>>&, View<const T**>, View<T**>);      \
  template void combine_gradients<T>(const Exec&, View<const compute_t<T>**>, View<const T**>,    \
                                     const Routes<compute_t<T>>&, View<const T**>, View<T**>);    \
  template void weigh_gradients<T>(const Exec&, const Routes<compute_t<T>>&, std::int64_t,        \
                                   View<const T**>, View<const T*>, View<T**>, View<const T**>,   \
                                   View<compute_t<T>*>);                                          \
  template void weigh_rows<T>(const Exec&, View<const compute_t<T>*>, View<const T**>,            \
                              View<const T*>, View<T**>, View<const T**>, View<T**>,              \
                              View<compute_t<T>*>);                                               \
  template void gather_rows_of<T>(const Exec&, std::int64_t, View<const T**>,                     \
                                  View<const std::int32_t*>, View<T**>);                          \
  template void sum_copies<T>(const Exec&, View<const std::int32_t*>, View<const T**>,            \
                              View<compute_t<T>**>);                                              \
  template void combine_sums<T>(const Exec&, View<const compute_t<T>**>, View<const T**>,         \
                                View<const compute_t<T>**>, View<T**>);                           \
  template void gather_weighed_rows<T>(const Exec&, View<const T**>, const Routes<compute_t<T>>&, \
                                       View<T**>);
OSTRAKON_FOR_ALL_NUMBERS(OSTRAKON_INSTANTIATE)
#undef OSTRAKON_INSTANTIATE

#define OSTRAKON_INSTANTIATE(C)                                                            \
  template void gather_weights<C>(const Exec&, View<const C*>, View<const std::int32_t*>,  \
                                  View<C*>);                                               \
  template void scatter_weights<C>(const Exec&, View<const C*>, View<const std::int32_t*>, \
                                   View<C*>);
OSTRAKON_INSTANTIATE(float)
OSTRAKON_INSTANTIATE(double)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::math
