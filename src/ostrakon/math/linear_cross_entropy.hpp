// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/half.hpp>

namespace ostrakon::math {

/// The last linear layer and the cross-entropy in one, over chunks of rows, so that the matrix of
/// logits (rows x vocabulary) never exists. Shapes: x, dx (rows, width); weight, dweight
/// (vocabulary, width); targets, losses (rows). losses[r] = -log softmax(x weight^T)(r,
/// targets[r]), natural logarithm. Targets must lie in [0, vocabulary): checked where they were
/// loaded.

/// Elements of T (not bytes) of `workspace`.
template <class T>
std::int64_t linear_cross_entropy_workspace(std::int64_t rows, std::int64_t vocabulary);

template <class T>
void linear_cross_entropy_forward(const Exec& exec, ConstMatrix<T> x, ConstMatrix<T> weight,
                                  const std::int32_t* targets, compute_t<T>* losses, T* workspace);

/// Loss and gradient in one pass: losses as above; dx and dweight, overwritten, are the gradients
/// of scale * sum(losses). Where dweight.data is null, dweight is not computed.
template <class T>
void linear_cross_entropy_backward(const Exec& exec, ConstMatrix<T> x, ConstMatrix<T> weight,
                                   const std::int32_t* targets, compute_t<T> scale,
                                   compute_t<T>* losses, Matrix<T> dx, Matrix<compute_t<T>> dweight,
                                   T* workspace);

}  // namespace ostrakon::math
