// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/half.hpp>
#include <ostrakon/math/rows/norm.hpp>
#include <ostrakon/math/rows/row_sums.hpp>
#include <ostrakon/math/view.hpp>

namespace ostrakon::math {

/// A norm of each head of queries or of keys by itself: y = (x - mean) rstd gain, rstd = 1 /
/// sqrt(variance + epsilon). Layer norm has no bias here, and RMS norm (Zhang & Sennrich 2019) has
/// a mean of 0. The gain is 1, the weight or 1 + the weight.
struct HeadNorm {
  std::int64_t head_width = 1;
  NormKind kind = NormKind::rmsnorm;
  NormWeight gain = NormWeight::plain;
  double epsilon = 1e-5;
};

// Heads are adjacent columns: x, y and their gradients are (rows, heads * head_width), with gaps
// between rows if they are columns of a wider matrix. The weight is (head_width), the same for all
// heads, or (heads * head_width), or empty for NormWeight::none; rstd (rows, heads) and, of layer
// norm, mean (rows, heads).

/// Replaces x by y, and stores the input. With a `rstd`, that is taken in place of the head's own.
template <class T>
void head_norm_forward(const Exec& exec, const HeadNorm& norm, View<const T*> weight, View<T**> x,
                       View<T**> kept, View<const compute_t<T>**> rstd = {});

/// Computes rstd and mean from the input of the norm.
template <class T>
void head_norm_statistics(const Exec& exec, const HeadNorm& norm, View<const T**> x,
                          View<compute_t<T>**> rstd, View<compute_t<T>**> mean);

/// Replaces dL/dy by dL/dx. With `projections` (pieces * rows, 1) the sum over pieces of these is
/// taken in place of the head's own, see head_norm_projections.
template <class T>
void head_norm_backward_input(const Exec& exec, const HeadNorm& norm, View<const T*> weight,
                              View<const T**> x, View<const compute_t<T>**> rstd,
                              View<const compute_t<T>**> mean, View<T**> gradient,
                              View<const compute_t<T>**> projections = {});

/// dweight (head_width) or (heads * head_width), overwritten: the sum over leaves of rows and, of a
/// weight for all heads, over heads, in a fixed order. Workspace: head_norm_sums_workspace().
template <class T>
void head_norm_backward_parameters(const Exec& exec, std::int64_t head_width, View<const T**> x,
                                   View<const compute_t<T>**> rstd, View<const compute_t<T>**> mean,
                                   View<const T**> dy, View<compute_t<T>*> dweight,
                                   const RowSums<compute_t<T>>& sums);

/// Elements of compute_t<T> of the workspace of these sums, for a weight of `of_weight` elements.
template <class T>
std::int64_t head_norm_sums_workspace(std::int64_t rows, std::int64_t head_width,
                                      std::int64_t of_weight, std::int64_t leaves,
                                      KernelForm form = kernel_form);

// RMS norm of whole rows of `columns` columns, of which x has a piece: a head here is all that x
// has of a row. What is needed of the other pieces are two sums of each row.

/// squares (rows, 1) = the sum over the columns of x of x^2 / columns.
template <class T>
void head_norm_squares(const Exec& exec, std::int64_t columns, View<const T**> x,
                       View<compute_t<T>**> squares);

/// rstd (rows, n) = 1 / sqrt(the sum of squares over pieces, in their order, + epsilon); squares
/// (pieces * rows, n), one piece after the other.
template <class C>
void head_norm_rstd(const Exec& exec, double epsilon, View<const C**> squares, View<C**> rstd);

/// projections (rows, 1) = the sum over the columns of x of dy gain x / columns.
template <class T>
void head_norm_projections(const Exec& exec, NormWeight gain, std::int64_t columns,
                           View<const T*> weight, View<const T**> x, View<const T**> dy,
                           View<compute_t<T>**> projections);

}  // namespace ostrakon::math
