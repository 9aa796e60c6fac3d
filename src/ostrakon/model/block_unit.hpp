// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <memory>
#include <ostrakon/math/attention.hpp>
#include <ostrakon/math/rotary.hpp>
#include <ostrakon/model/arrays.hpp>
#include <ostrakon/model/decoder.hpp>
#include <ostrakon/model/expert_border.hpp>
#include <ostrakon/model/feed_forward.hpp>
#include <ostrakon/model/layers.hpp>

namespace ostrakon::model {

/// One transformer block, pre-norm; x is input and y output, both (rows, width):
///
///   middle = x      + attention(norm(x) Wqkv^T) Wout^T    each head of queries and keys normed
///                                                         again, with query_key_norm
///   y      = middle + f(norm(middle))
///
/// where f is an MLP or a mixture of experts, a FeedForward with its norm. The norms' and the
/// activation's outputs are not saved: backward computes them again, which costs one pass over
/// memory and no product, where gradients of weights need them. What else it computes again is
/// chosen with Recompute. `saved` serves one backward.
///
/// Where a leaf is a part of its sequences, keys and values are gathered from the other parts, and
/// their gradients summed over them; both while something else is computed. Phases of forward: up
/// to keys and values; queries; the rest. Of backward: keys and values; the MLP; the gradients of
/// queries, keys and values; that of Wout; the rest. Where gradients of parameters are deferred,
/// they are one more phase, and that of Wout is none.
template <class T>
class BlockUnit final : public Unit<T> {
 public:
  using typename Unit<T>::RowRange;

  BlockUnit(const DecoderSettings& settings, LeafShape leaf, std::int64_t index,
            Recompute recompute = {}, const Frozen& frozen = {});

  const plan::UnitDescription& description() const override { return description_; }
  const std::vector<Parameter>& parameters() const override { return parameters_; }

  void forward(const Exec& exec, const UnitBuffers<T>& buffers, RowRange rows) const override;
  void backward(const Exec& exec, const UnitBuffers<T>& buffers, compute_t<T> loss_scale,
                bool gradients_opened) const override;

 private:
  using Compute = compute_t<T>;

  /// Extents of its arrays, in elements.
  struct Sizes {
    std::int64_t rows;
    std::int64_t width;
    std::int64_t q_width;    // heads head_width
    std::int64_t qkv_width;  // (heads + 2 kv_heads) head_width
  };

  /// What forward computes for backward.
  struct Activations {
    NormStatistics<T> attention_norm;  // (rows) each
    View<T**> qkv;                     // (rows, qkv_width), with bias, norms and rotation
    View<T**> unnormed;                // (rows, rotated_width()), of qkv before norms, if any
    View<T**> attention;               // (rows, q_width), before its output projection
    View<Compute*> log_sum_exp;        // (batch, heads, tokens)
    View<T**> middle;                  // (rows, width), between attention and MLP
  };
  struct ArrayLocations {
    ArrayLocation attention_mean, attention_rstd, qkv, unnormed, attention, log_sum_exp, middle;
  };

  /// Bytes into the workspace of forward, in three steps that share their bytes; in parts the first
  /// is in two phases of its own. In brackets: only where it is computed again; kv: only where
  /// sequences are cut.
  ///   projection: attention_normed, [attention statistics]
  ///   attention:  kv (sequences, kv_width), attention_scores, [attention, log_sum_exp]
  ///   MLP:        that of FeedForward
  struct ForwardLayout {
    ArrayLocations locations;
    std::int64_t attention_normed, kv, attention_scores;
  };

  /// Bytes into the workspace of backward, in two steps that share their bytes; behind both: sums.
  /// In parts each step has a workspace and sums of its own; the second ends with dkv, and the last
  /// phase has norm(x), dqkv and the statistics.
  ///   MLP:       that of FeedForward
  ///   attention: dattention   (rows, q_width)   until dqkv; then norm(x), then its gradient
  ///              dqkv         (rows, qkv_width)
  ///              head_rstd    (rows, heads), of queries, then keys, where these have norms
  ///              attention_scores               during the backward of attention
  ///              [attention statistics, attention, log_sum_exp]
  struct BackwardLayout {
    ArrayLocations locations;
    std::int64_t dattention, dqkv, attention_scores;
    std::int64_t kv, dkv;               // where sequences are cut: (sequences, kv_width)
    std::int64_t sums, attention_sums;  // of leaves
    std::int64_t last_dqkv, last_normed, last_sums, head_rstd;
  };

  /// Bytes into what backward leaves for gradients of parameters, besides `saved`, where dqkv
  /// replaces qkv: of the block, then of the MLP.
  ///   dmiddle (rows, width) where Wout or its bias is trained, a DeferredNorm; gradients of the
  ///   norms of queries and keys (2 head_width)
  ///   [attention statistics, attention, log_sum_exp]
  /// And into the workspace of these: the MLP's, then norm(x), with the same bytes; sums.
  struct DeferredLayout {
    std::int64_t dmiddle, norm_parameters, norm_gradients, head_norms, feed_forward, sums;
  };

  void add_parameters(const DecoderSettings& settings, const Frozen& frozen);
  void add_phases();
  void lay_out_saved();
  void lay_out_forward();
  void lay_out_backward();
  void lay_out_deferred();
  void describe();
  void describe_work(double scores, int rest);

  /// The last phase of backward of sequences in parts, without what is deferred.
  static constexpr int last_of_input(bool defers) { return defers ? 3 : 4; }
  std::int64_t backward_score_elements() const;
  std::int64_t backward_sum_elements() const;
  std::int64_t head_rstd_elements() const {
    return sizes_.rows * std::max(attention_.heads, attention_.kv_heads);
  }
  /// (rows, columns), `offset` bytes into `buffer`.
  View<T**> matrix_in(View<std::byte*> buffer, std::int64_t offset, std::int64_t columns) const;
  /// `again`: the buffer of what is computed again.
  Activations activations_in(const UnitBuffers<T>& buffers, const ArrayLocations& locations,
                             View<std::byte*> again) const;
  Activations of_forward(const UnitBuffers<T>& buffers) const {
    return activations_in(buffers, forward_.locations, buffers.workspace);
  }
  Activations of_backward(const UnitBuffers<T>& buffers) const {
    return activations_in(buffers, backward_.locations,
                          defers_ ? buffers.deferred : buffers.workspace);
  }
  /// In the last phase of backward, and for what it defers.
  View<T**> last_dqkv_in(const UnitBuffers<T>& buffers) const {
    return defers_ ? of_backward(buffers).qkv
                   : matrix_in(buffers.workspace, backward_.last_dqkv, sizes_.qkv_width);
  }
  DeferredNorm<T> deferred_norm(const UnitBuffers<T>& buffers) const;

  void attention_forward(const Exec& exec, const UnitBuffers<T>& buffers, RowRange rows) const;
  void mlp_forward(const Exec& exec, const UnitBuffers<T>& buffers, RowRange rows) const;
  void mlp_backward(const Exec& exec, const UnitBuffers<T>& buffers, Compute loss_scale) const;
  void attention_backward(const Exec& exec, const UnitBuffers<T>& buffers) const;
  void deferred_gradients(const Exec& exec, const UnitBuffers<T>& buffers) const;

  struct Columns {
    std::int64_t begin, end;
  };

  void normalize(const Exec& exec, const UnitBuffers<T>& buffers, RowRange rows) const;
  void project(const Exec& exec, const UnitBuffers<T>& buffers, RowRange rows, std::int64_t first,
               std::int64_t last) const;
  void normalize_heads(const Exec& exec, const UnitBuffers<T>& buffers, RowRange rows,
                       Columns columns) const;
  void heads_backward(const Exec& exec, const UnitBuffers<T>& buffers, View<T**> dqkv,
                      const LeafSums<T>& sums) const;
  void attend(const Exec& exec, const UnitBuffers<T>& buffers, RowRange rows) const;
  void project_out(const Exec& exec, const UnitBuffers<T>& buffers, RowRange rows) const;
  void backward_to_queries(const Exec& exec, const UnitBuffers<T>& buffers) const;
  void out_gradients(const Exec& exec, const UnitBuffers<T>& buffers, View<const T**> dmiddle,
                     const LeafSums<T>& sums) const;
  void backward_from_queries(const Exec& exec, const UnitBuffers<T>& buffers) const;
  void hand_keys_and_values(const Exec& exec, const UnitBuffers<T>& buffers,
                            View<const T**> qkv) const;
  View<T**> keys_and_values_in_order(const Exec& exec, const UnitBuffers<T>& buffers, View<T**> qkv,
                                     std::int64_t offset) const;
  View<Compute**> gradients_in_order(const UnitBuffers<T>& buffers) const;
  LeafSums<T> leaf_sums(const UnitBuffers<T>& buffers, std::int64_t offset) const;
  void hand_their_gradients(const Exec& exec, const UnitBuffers<T>& buffers) const;
  void take_gradients(const Exec& exec, const UnitBuffers<T>& buffers) const;

  math::AttentionQueries queries(std::int64_t part) const;
  View<T**> queries_of(View<T**> qkv) const { return qkv.column_range(0, sizes_.q_width); }
  View<T**> kv_of(View<T**> qkv) const {
    return qkv.column_range(sizes_.q_width, sizes_.qkv_width);
  }
  std::int64_t kv_width() const { return sizes_.qkv_width - sizes_.q_width; }
  /// Columns of queries and keys.
  std::int64_t rotated_width() const {
    return (attention_.heads + attention_.kv_heads) * attention_.head_width;
  }
  /// The norm of some of these columns, whose gradient with that of others is one array.
  struct HeadNorm {
    Norm norm;
    Columns columns;
    std::int64_t heads;
    std::int64_t first;  // of the gradient
  };
  bool has_head_norms() const { return !head_norms_.empty(); }
  /// In what is deferred, or among those of all parameters; none where it is frozen.
  View<Compute*> head_norm_gradient(const UnitBuffers<T>& buffers, const HeadNorm& one) const;
  /// Rows of whole sequences.
  std::int64_t sequence_rows() const { return leaf_.batch * leaf_.tokens; }

  void rotate(const Exec& exec, math::Rotation rotation, View<T**> qkv, Columns columns,
              std::int64_t begin, std::int64_t part) const;
  FeedForwardCall<T> feed_forward_call(const UnitBuffers<T>& buffers, View<const T**> middle) const;

  LeafShape leaf_;
  bool defers_;  // gradients of parameters
  Recompute recompute_;
  math::AttentionShape attention_;
  Sizes sizes_;
  Positions positions_;
  double rotary_base_;

  std::vector<Parameter> parameters_;
  Norm attention_norm_;
  Linear qkv_;
  std::vector<HeadNorm> head_norms_;  // of queries and of keys; or none
  Linear out_;
  std::unique_ptr<const FeedForward<T>> feed_forward_;
  std::int64_t feed_forward_saved_ = 0;  // bytes into `saved`

  ForwardLayout forward_;
  BackwardLayout backward_;
  DeferredLayout deferred_;
  plan::UnitDescription description_;
};

}  // namespace ostrakon::model
