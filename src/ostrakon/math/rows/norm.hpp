// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/base/names.hpp>
#include <ostrakon/math/half.hpp>
#include <ostrakon/math/rows/row_sums.hpp>
#include <ostrakon/math/view.hpp>
#include <type_traits>

namespace ostrakon::math {

/// Layer norm (Ba et al. 2016) or RMS norm (Zhang & Sennrich 2019) over the columns of each row.
enum class NormKind { layernorm, rmsnorm };
constexpr Named<NormKind> norm_names[] = {{NormKind::layernorm, "layernorm"},
                                          {NormKind::rmsnorm, "rmsnorm"}};
constexpr const char* name(NormKind kind) { return name_in(norm_names, kind); }

/// What a norm multiplies by: its weight, 1 + its weight, or nothing. A weight begins with 1, one
/// of one_plus with 0.
enum class NormWeight { plain, one_plus, none };
constexpr Named<NormWeight> norm_weight_names[] = {
    {NormWeight::plain, "plain"}, {NormWeight::one_plus, "one_plus"}, {NormWeight::none, "none"}};
constexpr const char* name(NormWeight weight) { return name_in(norm_weight_names, weight); }

/// y = (x - mean) * rstd * gain + bias; mean is 0 and unused for rmsnorm. The gain is 1, the weight
/// or 1 + the weight, in compute_t<T>. Shapes: x, y (rows, width); weight, bias (width); bias may
/// be empty, and so is the weight of NormWeight::none; mean, rstd (rows), written. `mean` may be
/// empty for rmsnorm.
template <class T>
void norm_forward(const Exec& exec, NormKind kind, NormWeight gain, double epsilon,
                  View<const T**> x, View<const T*> weight, View<const T*> bias, View<T**> y,
                  View<compute_t<T>*> mean, View<compute_t<T>*> rstd);

/// Recomputes y from the saved mean and rstd, with the bits of norm_forward.
template <class T>
void norm_apply(const Exec& exec, NormKind kind, NormWeight gain, View<const T**> x,
                View<const T*> weight, View<const T*> bias, View<const compute_t<T>*> mean,
                View<const compute_t<T>*> rstd, View<T**> y);

/// Whether a gradient overwrites its output, which is then not read, or is added to it.
enum class GradientUpdate { overwrite, add };

/// dx = dL/dx or dx += dL/dx, for dy = dL/dy. Shapes as in norm_forward.
template <class T>
void norm_backward_input(const Exec& exec, NormKind kind, NormWeight gain, View<const T**> x,
                         View<const T*> weight, View<const compute_t<T>*> mean,
                         View<const compute_t<T>*> rstd, View<const T**> dy, View<T**> dx,
                         GradientUpdate update = GradientUpdate::add);

/// Does what norm_apply(`again`), norm_backward_input(`dx`) and sum_norm_gradients(`dweight`,
/// `dbias`) do, with their bits; on a device with one read of x and of dy. What is empty of again,
/// dweight and dbias is not computed; `bias` is for `again` alone. dx or `again` may be dy; other
/// arrays that are written share no memory with others.
template <class T>
void norm_backward(const Exec& exec, NormKind kind, NormWeight gain, View<const T**> x,
                   View<const T*> weight, View<const T*> bias, View<const compute_t<T>*> mean,
                   View<const compute_t<T>*> rstd, View<const T**> dy, View<T**> dx,
                   GradientUpdate update, View<T**> again, View<compute_t<T>*> dweight,
                   View<compute_t<T>*> dbias, const RowSums<compute_t<T>>& sums);

/// dweight, dbias (width): sums over the leaves of rows in a fixed order; overwritten, or added to
/// if sums.adds. An empty one is not computed. They are the same for a gain of 1 + the weight.
/// Workspace: norm_sums_workspace().
template <class T>
void sum_norm_gradients(const Exec& exec, NormKind kind, View<const T**> x,
                        View<const compute_t<T>*> mean, View<const compute_t<T>*> rstd,
                        View<const T**> dy, View<compute_t<T>*> dweight, View<compute_t<T>*> dbias,
                        const RowSums<compute_t<T>>& sums);

/// Elements of compute_t<T> of the workspace of these sums.
constexpr std::int64_t norm_sums_workspace(std::int64_t rows, std::int64_t width,
                                           std::int64_t leaves, KernelForm form = kernel_form,
                                           bool adds = false) {
  return row_sums_workspace(rows, 2 * width, leaves, rows_of_norm_block, form, adds);
}

// ---- for kernels of norms

/// The gain of an element, of that of the weight; of any number for NormWeight::none.
template <NormWeight gain, class C>
KOKKOS_INLINE_FUNCTION C gain_of(C weight) {
  return gain == NormWeight::none ? C(1) : gain == NormWeight::one_plus ? C(1) + weight : weight;
}

/// f(a constant with the value `gain`).
template <class F>
void with_gain(NormWeight gain, const F& f) {
  switch (gain) {
    case NormWeight::plain:
      return f(std::integral_constant<NormWeight, NormWeight::plain>());
    case NormWeight::one_plus:
      return f(std::integral_constant<NormWeight, NormWeight::one_plus>());
    case NormWeight::none:
      return f(std::integral_constant<NormWeight, NormWeight::none>());
  }
}

}  // namespace ostrakon::math
