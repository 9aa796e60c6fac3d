// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/half.hpp>
#include <ostrakon/math/work_items.hpp>
#include <vector>

namespace ostrakon::math {

// Arrays of one call must have equal sizes; otherwise the call throws Error.

/// x[i] = value.
template <class T>
void fill(const Exec& exec, View<T*> x, T value);

/// y[i] = x[i].
template <class T>
void copy(const Exec& exec, View<const T*> x, View<T*> y);

// The next functions run in both spaces: as a kernel, or on the calling thread, which Kokkos need
// not know; bitwise equal in both.

/// y[i] = x[i] in another type: float and double to the same type, float to and from 16-bit types.
template <class A, class B, class Space>
void convert(const ExecutorFor<Space>& where, View<const A*, Space> x, View<B*, Space> y);

/// y[i] += x[i].
template <class T, class Space>
void add_to(const ExecutorFor<Space>& where, View<const T*, Space> x, View<T*, Space> y);

/// Sums the rows of x (pieces, count) in the order of the fixed binary tree (see
/// plan/ir/reduction_tree.hpp); the sum replaces row 0, other rows are clobbered.
template <class T>
void tree_sum(const Exec& exec, View<T**> x);

/// Sums every `tree` neighbouring rows of x (pieces, count), the last group perhaps fewer, by the
/// fixed binary tree, and the trees' sums in order: ((T0 + T1) + T2) + ... If `continues`, they are
/// added to the content of sum (count). 16-bit rows are converted to float first. x is unchanged;
/// sum may be its row 0, unless `continues`. The bits are those of host::chain_sum.
template <class T>
void chain_sum(const Exec& exec, View<const T**> x, std::int64_t tree, bool continues,
               View<compute_t<T>*> sum);

/// Sums on the calling thread, which Kokkos need not know, with the bits of the kernels.
namespace host {

/// sum (count) = the sum of the rows of x (pieces, count) by the fixed binary tree. `sum` may be
/// row 0, else it may not overlap x; all of x is clobbered. Rows of 16 bits are converted to float;
/// they are unchanged, and may not overlap `sum`.
template <class T>
void tree_sum(HostView<T**> x, HostView<compute_t<T>*> sum);

/// Sums every `tree` neighbouring rows, the last group perhaps fewer, by the fixed binary tree, and
/// the trees' sums in order: ((T0 + T1) + T2) + ... If `continues`, they are added to the content
/// of `sum`, which then may not overlap x. Otherwise as tree_sum.
template <class T>
void chain_sum(HostView<T**> x, int tree, bool continues, HostView<compute_t<T>*> sum);

/// Sums rows of T at arbitrary addresses, each as long as `sum`; they are unchanged. If it does not
/// continue, `sum` may be one of them.
template <class T>
void chain_sum(const std::vector<const std::byte*>& rows, int tree, bool continues,
               HostView<compute_t<T>*> sum);

}  // namespace host

/// x(i, j) += bias(j) for every row.
template <class T>
void add_bias(const Exec& exec, View<T**> x, View<const T*> bias);

/// y = x + (sum + bias), rounded once; bias (columns) may be empty. All are (rows, columns).
template <class T>
void add_residual(const Exec& exec, View<const T**> x, View<const compute_t<T>**> sum,
                  View<const T*> bias, View<T**> y);

/// sums(j) = sum over rows of x(i, j), in a fixed order. Overwrites sums.
template <class T>
void column_sums(const Exec& exec, View<const T**> x, View<compute_t<T>*> sums);

}  // namespace ostrakon::math
