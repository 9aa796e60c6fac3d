// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/math/attention/attention.hpp>
#include <ostrakon/math/half.hpp>
#include <ostrakon/math/rows/norm.hpp>
#include <ostrakon/math/view.hpp>

namespace ostrakon::model {

/// How gradients of parameters are summed over rows: those of each of `leaves` equal runs of rows
/// by themselves, and the leaves by the tree of math/piece_tree.hpp.
template <class T>
struct LeafSums {
  std::int64_t leaves = 1;
  View<compute_t<T>*> workspace = {};  ///< of the functions below; none for one leaf
  /// Where runs are not equal: the first row of each, and the end of the last, (leaves + 1). Linear
  /// layers alone.
  HostView<const std::int64_t*> runs = {};
  /// Whether sums are added to the gradients; else these are overwritten. For biases, and for
  /// weights of linear layers in one leaf.
  bool adds = false;
};

// Elements of compute_t<T> of the workspace that the sums below need. What is summed is overwritten
// in each, unless LeafSums::adds; a gradient that does not exist is not computed.

/// dweight (outputs, inputs) = dy^T x; dy (rows, outputs), x (rows, inputs).
template <class T>
void sum_weight_gradient(const Exec& exec, View<const T**> x, View<const T**> dy,
                         View<compute_t<T>**> dweight, const LeafSums<T>& sums);
std::int64_t weight_sums_workspace(std::int64_t outputs, std::int64_t inputs, std::int64_t leaves);

/// dbias (outputs) = column sums of dy (rows, outputs). Workspace: math::column_sums_workspace(),
/// or bias_sums_workspace() where there are runs.
template <class T>
void sum_bias_gradient(const Exec& exec, View<const T**> dy, View<compute_t<T>*> dbias,
                       const LeafSums<T>& sums);
std::int64_t bias_sums_workspace(std::int64_t outputs, std::int64_t leaves);

/// dweight (1, head_width) or (1, heads * head_width) of the norm of each head; x and dy (rows,
/// heads
/// * head_width), rstd and, of layer norm, mean (rows, heads). See math/attention/head_norm.hpp.
/// Where dweight has several rows, each has the sum over an equal run of leaves. Workspace:
/// math::head_norm_sums_workspace().
template <class T>
void sum_head_norm_gradient(const Exec& exec, std::int64_t head_width, View<const T**> x,
                            View<const compute_t<T>**> rstd, View<const compute_t<T>**> mean,
                            View<const T**> dy, View<compute_t<T>**> dweight,
                            const LeafSums<T>& sums);

/// dweight (channels * taps) of a convolution of sequences of `tokens` rows; x and dp (rows,
/// channels), see math/delta_net/convolution.hpp. Workspace: as of a bias of so many columns.
template <class T>
void sum_convolution_gradient(const Exec& exec, std::int64_t tokens, View<const T**> x,
                              View<const T**> dp, View<compute_t<T>*> dweight,
                              const LeafSums<T>& sums);

/// ddecay and dbias (heads) of a delta rule; terms (rows, 2 heads) as of math::delta_rule_backward.
/// Workspace: delta_sums_workspace() elements.
template <class T>
void sum_delta_rule_gradients(const Exec& exec, View<const compute_t<T>**> terms,
                              View<compute_t<T>*> ddecay, View<compute_t<T>*> dbias,
                              const LeafSums<T>& sums);
std::int64_t delta_sums_workspace(std::int64_t heads, std::int64_t leaves);

/// dweight (1, head_width) of a norm of heads with gates, as sum_head_norm_gradient; see
/// math/delta_net/gated_norm.hpp.
template <class T>
void sum_gated_norm_gradient(const Exec& exec, View<const T**> x, View<const T**> gate,
                             View<const compute_t<T>*> rstd, View<const T**> dy,
                             View<compute_t<T>**> dweight, const LeafSums<T>& sums);

/// dsinks (heads) = the gradient of attention's sinks by all rows; see
/// math::attention_backward_sinks. Workspace: as of a bias of so many columns.
template <class T>
void sum_sink_gradient(const Exec& exec, const math::AttentionShape& shape, View<const T*> sinks,
                       View<const T**> out, View<const compute_t<T>*> log_sum_exp,
                       View<const T**> dout, View<compute_t<T>*> dsinks, const LeafSums<T>& sums);

}  // namespace ostrakon::model
