// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/cross_entropy/logits.hpp>
#include <ostrakon/math/half.hpp>
#include <ostrakon/math/kernel_form.hpp>
#include <ostrakon/math/view.hpp>

namespace ostrakon::math {

/// The last linear layer fused with the cross-entropy, over chunks of rows, so that the matrix of
/// logits (rows x vocabulary) never exists. Shapes: x, dx (rows, width); weight, dweight
/// (vocabulary, width); bias, dbias (vocabulary); targets, losses (rows). losses[r] = -log
/// softmax(logits)(r, targets[r]), natural logarithm, unless targets have another form; logits are
/// what `logits` makes of x weight^T. Targets must be in [0, vocabulary), which is checked when
/// they are loaded, or -1: such a row has loss 0 and no part in any gradient. margins (rows),
/// unless empty: as losses_of has them.

/// Elements of T (not bytes) of `workspace`, for kernels of `form`; `has_bias`: whether a gradient
/// of a bias is computed.
template <class T>
std::int64_t linear_cross_entropy_workspace(std::int64_t rows, std::int64_t vocabulary,
                                            KernelForm form = kernel_form, bool has_bias = false);

/// Logits of a row that linear_cross_entropy_backward reads twice from memory: on a device those
/// that stay neither in registers nor in the shared memory of as many teams as plans count with
/// (block_team.hpp, team_cluster.hpp), on a host all.
template <class T>
std::int64_t logits_read_again(std::int64_t vocabulary, KernelForm form);

template <class T>
void linear_cross_entropy_forward(const Exec& exec, View<const T**> x, View<const T**> weight,
                                  View<const std::int32_t*> targets, View<compute_t<T>*> losses,
                                  View<T*> workspace, const Logits<T>& logits = {},
                                  View<compute_t<T>*> margins = {});

/// Whether the gradient of the weight is one product, over all rows, in
/// linear_cross_entropy_backward.
template <class T>
bool takes_rows_at_once(std::int64_t rows, std::int64_t vocabulary, KernelForm form = kernel_form);

/// Computes losses and gradients in one pass: dx, dweight and dbias, overwritten, are the gradients
/// of scale * the sum of losses, of the form of targets, times their factors. An empty dweight or
/// dbias is not computed. `adds`: dweight is added to what is there; it takes rows at once then.
template <class T>
void linear_cross_entropy_backward(const Exec& exec, View<const T**> x, View<const T**> weight,
                                   const Targets<compute_t<T>>& targets, compute_t<T> scale,
                                   View<compute_t<T>*> losses, View<T**> dx,
                                   View<compute_t<T>**> dweight, View<T*> workspace,
                                   const Logits<T>& logits = {}, View<compute_t<T>*> dbias = {},
                                   bool adds = false);

/// Does what linear_cross_entropy_backward does, with dweight and dbias as the sums over `pieces`
/// equal runs of rows by the tree of piece_tree.hpp. On the host in fp32 losses and dx do not
/// depend on the number of rows. It takes one more product: losses come first, then the logits of
/// some words of all rows are computed again, so that neither all logits nor copies of dweight
/// exist.
template <class T>
std::int64_t linear_cross_entropy_by_piece_workspace(std::int64_t rows, std::int64_t width,
                                                     std::int64_t vocabulary, std::int64_t pieces,
                                                     KernelForm form = kernel_form);

template <class T>
void linear_cross_entropy_backward_by_piece(
    const Exec& exec, View<const T**> x, View<const T**> weight,
    const Targets<compute_t<T>>& targets, compute_t<T> scale, View<compute_t<T>*> losses,
    View<T**> dx, View<compute_t<T>**> dweight, std::int64_t pieces, View<T*> workspace,
    const Logits<T>& logits = {}, View<compute_t<T>*> dbias = {});

// The next functions divide the vocabulary into pieces of `words` words, the last one perhaps
// fewer. Each piece is computed separately, here or on another rank: statistics of all pieces
// first, then losses from them, then gradients of each. Results do not depend on how pieces are
// distributed.

/// Rows of `statistics` per piece: the largest logit, the sum of exponentials relative to it, the
/// target's logit if the piece has it and, for smoothed losses, the sum of logits.
inline std::int64_t piece_statistics(const LossForm& form) { return form.smooths() ? 4 : 3; }

/// Elements of T (not bytes) of `workspace` for cross_entropy_statistics and
/// cross_entropy_gradients.
template <class T>
std::int64_t cross_entropy_piece_workspace(std::int64_t rows, std::int64_t width,
                                           std::int64_t words, std::int64_t leaves,
                                           KernelForm form = kernel_form);

/// Computes statistics (piece_statistics(targets.form), rows) of the piece with `weight` (words,
/// width) and the bias of `logits` (words), whose first word is `first_word`.
template <class T>
void cross_entropy_statistics(const Exec& exec, View<const T**> x, View<const T**> weight,
                              std::int64_t first_word, const Targets<compute_t<T>>& targets,
                              View<compute_t<T>**> statistics, View<T*> workspace,
                              const Logits<T>& logits = {});

/// Computes losses, and the logs of the sums of exponentials (rows), from the concatenated
/// statistics of all `pieces`. Sums over pieces are by the tree of piece_tree.hpp. Statistics for
/// smoothed losses give others, too.
template <class C>
void combine_statistics(const Exec& exec, View<const C**> statistics, std::int64_t pieces,
                        std::int64_t words, const Targets<C>& targets, View<C*> losses,
                        View<C*> log_sums, View<C*> margins = {});

/// Computes the gradients of such a sum from one piece: dx (rows, width) with the terms of
/// its words only, and dweight (words, width) and dbias (words), unless empty, as sums over
/// `leaves` equal runs of rows by the tree of piece_tree.hpp. All are overwritten.
template <class T>
void cross_entropy_gradients(const Exec& exec, View<const T**> x, View<const T**> weight,
                             std::int64_t first_word, const Targets<compute_t<T>>& targets,
                             View<const compute_t<T>*> log_sums, compute_t<T> scale,
                             View<compute_t<T>**> dx, View<compute_t<T>**> dweight,
                             std::int64_t leaves, View<T*> workspace, const Logits<T>& logits = {},
                             View<compute_t<T>*> dbias = {});

}  // namespace ostrakon::math
