// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/optim/optimizer.hpp>

namespace ostrakon::optim {

/// Muon (Jordan 2024): momentum whose matrix is replaced by the nearest one with equal singular
/// values. It has three parts, as only the second needs the whole matrix:
///
///   muon_direction   any stretch of the matrix: momentum, Nesterov
///   orthogonalize    the whole matrix, gathered: the same bits on any rank
///   muon_apply       any stretch of it
///
/// The step is learning_rate * 0.2 * sqrt(max(rows, columns)) times the orthogonal matrix (Liu et
/// al. 2025, "Muon is scalable"). Its elements then have the root mean square 0.2 that AdamW's
/// updates have, so that one learning rate, schedule and weight decay serve both rules; Jordan's
/// own sqrt(max(1, rows / columns)) asks for a rate of its own, and which extent is the output's.
///
/// Directions and steps are computed in either space, as update() is.

/// Computes momentum = mu * momentum + gradient, and replaces the gradients by the direction: the
/// momentum, or with Nesterov gradient + mu * momentum. Reads gradient_scale of the step, and for
/// 16-bit moments its rounding key. Instantiated as update() is. Throws Error if sizes differ.
template <class T, class Moment, class Space>
void muon_direction(const math::ExecutorFor<Space>& where, const OptimizerSettings& settings,
                    const UpdateStep& step, View<T*, Space> gradients,
                    View<Moment*, Space> momentum);

/// With rate = learning_rate * muon_rate_factor, for a stretch of a (rows, columns) matrix:
/// parameters -= rate * (0.2 * sqrt(max(rows, columns)) * direction + weight_decay * parameters).
/// Throws Error if sizes differ.
template <class T, class Space>
void muon_apply(const math::ExecutorFor<Space>& where, const OptimizerSettings& settings,
                const UpdateStep& step, std::int64_t rows, std::int64_t columns,
                View<T*, Space> parameters, View<const T*, Space> direction);

/// Bytes of workspace for orthogonalize of a (rows, columns) matrix.
template <class T>
std::int64_t orthogonalize_workspace(std::int64_t rows, std::int64_t columns);

/// Replaces x = U S V^T, divided by its Frobenius norm, by U p(S) V^T, where p is the polynomial
/// 3.4445 s - 4.7750 s^3 + 2.0315 s^5 applied `iterations` times (Newton-Schulz): with 5, singular
/// values above 0.002 end between 0.68 and 1.21. A matrix of zeros stays zero.
/// In T throughout, 3 products an iteration over the smaller extent. Allocates nothing;
/// `workspace` (device memory) is aligned to 64 bytes. The bits of one matrix depend on its shape
/// and values alone (and on the BLAS).
template <class T>
void orthogonalize(const Exec& exec, View<T**> x, int iterations, View<std::byte*> workspace);

}  // namespace ostrakon::optim
