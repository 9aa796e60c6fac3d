// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/half.hpp>

namespace ostrakon::math {

/// x[0..count) = value.
template <class T>
void fill(const Exec& exec, T* x, std::int64_t count, T value);

/// y[0..count) = x[0..count).
template <class T>
void copy(const Exec& exec, const T* x, T* y, std::int64_t count);

/// y[i] = x[i] in another type: float and double to themselves, float to and from the 16-bit types.
template <class A, class B>
void convert(const Exec& exec, const A* x, B* y, std::int64_t count);

/// y[i] += x[i].
template <class T>
void add_to(const Exec& exec, const T* x, T* y, std::int64_t count);

/// Sums `pieces` arrays of `count` elements, piece p at x + p * count, in the order of the fixed
/// binary tree (see plan/reduction_tree.hpp); the sum replaces piece 0, other pieces are clobbered.
template <class T>
void tree_sum(const Exec& exec, T* x, int pieces, std::int64_t count);

/// The same, bit for bit, without Kokkos: on the calling thread, which Kokkos need not know, and on
/// host-accessible memory.
namespace host {

template <class A, class B>
void convert(const A* x, B* y, std::int64_t count);

template <class T>
void add_to(const T* x, T* y, std::int64_t count);

/// The sum goes to sum[0..count), which may be piece 0 and else shares no element with x; all of x
/// is clobbered. Pieces of 16 bits stay as they are: what is summed is their conversion to float,
/// and the sum shares nothing with them.
template <class T>
void tree_sum(T* x, int pieces, std::int64_t count, compute_t<T>* sum);

/// Sums every `tree` neighbouring pieces by such a tree, the last ones maybe fewer, and the trees'
/// sums in order: ((T0 + T1) + T2) + ... Where `continues` they are added to what is in `sum`,
/// which then shares no element with x. Else as tree_sum.
template <class T>
void chain_sum(T* x, int pieces, int tree, bool continues, std::int64_t count, compute_t<T>* sum);

}  // namespace host

/// x(i, j) += bias[j] for every row.
template <class T>
void add_bias(const Exec& exec, Matrix<T> x, const T* bias);

/// sums[j] = sum over rows of x(i, j), always in the same order. Overwrites.
template <class T>
void column_sums(const Exec& exec, ConstMatrix<T> x, compute_t<T>* sums);

}  // namespace ostrakon::math
