// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/half.hpp>
#include <ostrakon/math/view.hpp>

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
void linear_cross_entropy_forward(const Exec& exec, View<const T**> x, View<const T**> weight,
                                  View<const std::int32_t*> targets, View<compute_t<T>*> losses,
                                  View<T*> workspace);

/// Loss and gradient in one pass: losses as above; dx and dweight, overwritten, are the gradients
/// of scale * sum(losses). Where dweight does not exist it is not computed.
template <class T>
void linear_cross_entropy_backward(const Exec& exec, View<const T**> x, View<const T**> weight,
                                   View<const std::int32_t*> targets, compute_t<T> scale,
                                   View<compute_t<T>*> losses, View<T**> dx,
                                   View<compute_t<T>**> dweight, View<T*> workspace);

}  // namespace ostrakon::math
