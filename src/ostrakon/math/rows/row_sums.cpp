// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/rows/row_sums.hpp>

#include <ostrakon/math/equal_sizes.hpp>
#include <ostrakon/math/rows/row_blocks.hpp>

namespace ostrakon::math {

#if OSTRAKON_ON_DEVICE
namespace {

/// The contribution of a row of x to the sums of its columns.
template <class T>
struct ColumnTerms {
  static constexpr int n = vector_elements<T>();
  View<const T**> x;

  KOKKOS_INLINE_FUNCTION void add(std::int64_t r, std::int64_t column, compute_t<T>* sums) const {
    const auto values = load_lanes<n>(x.data() + r * x.stride(), column, x.columns());
    for (int k = 0; k < n; ++k) sums[k] += static_cast<compute_t<T>>(values.at[k]);
  }
};

}  // namespace
#endif

template <class T>
void sum_columns(const Exec& exec, View<const T**> x, View<compute_t<T>*> result,
                 const RowSums<compute_t<T>>& sums) {
  using C = compute_t<T>;
  require_equal_sizes("sum_columns", x.columns(), result.size());
#if OSTRAKON_ON_DEVICE
  const RowBlocks blocks(x.rows(), sums.leaves, rows_of_column_block);
  const View<C**> partial = sums_of_blocks("sum_columns", sums, blocks, x.columns());
  for_each_row_block<ColumnTerms<T>::n, 1>(exec, "sum_columns", blocks, x.columns(),
                                           ColumnTerms<T>{x}, partial);
  add_blocks<C, 1>(exec, "add_blocks", partial, sums, {{result}});
#else
  sum_leaves(exec, sums, x.rows(), std::array<View<C*>, 1>{result},
             [&](std::int64_t begin, std::int64_t end, const auto& sum) {
               column_sums<T>(exec, x.row_range(begin, end), sum[0]);
             });
#endif
}

#define OSTRAKON_INSTANTIATE(T)                                                   \
  template void sum_columns<T>(const Exec&, View<const T**>, View<compute_t<T>*>, \
                               const RowSums<compute_t<T>>&);
OSTRAKON_FOR_ALL_NUMBERS(OSTRAKON_INSTANTIATE)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::math
