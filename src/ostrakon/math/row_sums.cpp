// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/row_sums.hpp>

namespace ostrakon::math {

template <class T>
void sum_columns(const Exec& exec, View<const T**> x, View<compute_t<T>*> result,
                 const RowSums<compute_t<T>>& sums) {
  sum_leaves(exec, sums, x.rows(), std::array{result},
             [&](std::int64_t begin, std::int64_t end, const auto& sum) {
               column_sums<T>(exec, x.row_range(begin, end), sum[0]);
             });
}

#define OSTRAKON_INSTANTIATE(T)                                                   \
  template void sum_columns<T>(const Exec&, View<const T**>, View<compute_t<T>*>, \
                               const RowSums<compute_t<T>>&);
OSTRAKON_INSTANTIATE(float)
OSTRAKON_INSTANTIATE(double)
OSTRAKON_INSTANTIATE(bf16)
OSTRAKON_INSTANTIATE(fp16)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::math
