// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/attention.hpp>
#include <ostrakon/math/rotary.hpp>
#include <ostrakon/model/arrays.hpp>
#include <ostrakon/model/tensor_pieces.hpp>

namespace ostrakon::model {

// clang-format off
/// BlockUnit over tensor ranks: the same function, cut into pieces of heads and of columns of the
/// MLP, of which each rank computes its own for all rows. Between them each rank has an equal run
/// of the rows: norms, residual stream, input and output (sequence parallel). Products into the
/// residual stream, and gradients of norms' outputs, are sums over pieces by the tree of
/// math/piece_tree.hpp: bit for bit the same on any number of ranks that divides the pieces.
///
/// Phases, and the exchange after each, over the tensor ranks; [where ranks share sequences, over
/// those]:
///
///   forward    vectors    its parts of norms and biases                          gather
///              norm       norm(x) of its rows                                    gather
///              [project   queries, keys and values of its heads                  gather]
///              attend     (queries, keys, values,) attention, its part of Wout   sum
///              mlp_norm   middle = x + sum; norm(middle)                         gather
///              mlp        its columns of Wup and Wdown                           sum
///              output     y = middle + sum
///   backward   mlp_norm   dL/dy and norm(middle) of its rows                     gather
///              mlp        gradients of Wdown, Wup; its part of dL/dnorm(middle)  sum
///              norm       dL/dmiddle and norm(x) of its rows                     gather
///              [gather    keys and values of its heads                           gather]
///              attend     gradients of Wout, queries, keys, values (, Wqkv)      sum
///              [project   gradient of Wqkv; its part of dL/dnorm(x)              sum, tensor]
///              input      dL/dx; its rows' sums for the weights of norms         sum
///              vectors    gradients of its parts of those
// clang-format on
template <class T>
class TensorBlockUnit final : public Unit<T> {
 public:
  using typename Unit<T>::RowRange;

  TensorBlockUnit(const DecoderSettings& settings, LeafShape leaf, std::int64_t index,
                  Recompute recompute = {}, const Frozen& frozen = {});

  const plan::UnitDescription& description() const override { return description_; }
  const std::vector<Parameter>& parameters() const override { return parameters_; }

  void forward(const Exec& exec, const UnitBuffers<T>& buffers, RowRange rows) const override;
  void backward(const Exec& exec, const UnitBuffers<T>& buffers, compute_t<T> loss_scale,
                bool gradients_opened) const override;

 private:
  using Compute = compute_t<T>;
  using Gradients = View<Compute*>;
  enum class Step { vectors, norm, project, gather, attend, mlp_norm, mlp, output, input };

  /// Of a piece, in elements.
  struct Sizes {
    std::int64_t rows;  // of the leaf
    std::int64_t own_rows;
    std::int64_t width;  // of a row
    std::int64_t queries;
    std::int64_t kv;  // keys and values
    std::int64_t ffn;
    std::int64_t up;  // ffn for gelu; 2 ffn for swiglu, gate and up

    std::int64_t qkv() const { return queries + kv; }
  };

  /// Arrays that forward leaves for backward, and that its phases leave for later ones; those of
  /// pieces one after the other. What is computed again is not among them.
  struct Saved {
    View<T*> vectors;
    NormStatistics<T> attention_norm, mlp_norm;  // (own_rows) each
    View<T*> qkv;                                // with bias and rotation
    View<T*> attention;                          // before its output projection
    View<Compute*> log_sum_exp;
    View<T**> middle;  // (own_rows, width)
    View<T*> up;       // with bias, before the activation
    Gradients norms;   // of vectors that are summed over rows
  };
  Saved saved_in(Arrays<T>& arrays) const;
  Saved saved_in(const UnitBuffers<T>& buffers) const;

  // Workspaces of phases, each with all that its step takes.
  struct NormWork {
    NormStatistics<T> statistics;
    View<T**> normed;   // (own_rows, width), where it is not handed over
    View<T**> dnormed;  // the same, in T where sums are not
    Gradients sums;
  };
  struct AttentionWork {
    View<T**> kv;         // (sequences, kv): in the order of positions
    View<Compute**> dkv;  // the same
    View<T*> attention;   // of a piece, where it is computed again
    View<Compute*> log_sum_exp;
    View<T**> dattention;  // (rows, queries)
    View<T**> dqkv;        // (rows, qkv)
    View<T*> scores;
    Gradients sums, tree;
  };
  struct MlpWork {
    View<T**> up;         // where it is computed again
    View<T**> activated;  // (rows, ffn)
    Gradients sums, tree;
  };
  NormWork norm_work(Arrays<T>& arrays, bool is_backward) const;
  AttentionWork attention_work(Arrays<T>& arrays, bool is_backward) const;
  MlpWork mlp_work(Arrays<T>& arrays, bool is_backward) const;

  void add_parameters(const DecoderSettings& settings, const Frozen& frozen);
  void add_phases();
  void describe();

  // Steps of forward.
  void normalize(const Exec& exec, const UnitBuffers<T>& buffers) const;
  void project(const Exec& exec, const UnitBuffers<T>& buffers) const;
  void attend(const Exec& exec, const UnitBuffers<T>& buffers) const;
  void normalize_middle(const Exec& exec, const UnitBuffers<T>& buffers) const;
  void mlp(const Exec& exec, const UnitBuffers<T>& buffers) const;
  void output(const Exec& exec, const UnitBuffers<T>& buffers) const;
  // Steps of backward.
  void hand_mlp_inputs(const Exec& exec, const UnitBuffers<T>& buffers) const;
  void mlp_backward(const Exec& exec, const UnitBuffers<T>& buffers) const;
  void hand_attention_inputs(const Exec& exec, const UnitBuffers<T>& buffers) const;
  void attend_backward(const Exec& exec, const UnitBuffers<T>& buffers) const;
  void project_backward(const Exec& exec, const UnitBuffers<T>& buffers) const;
  void input_backward(const Exec& exec, const UnitBuffers<T>& buffers) const;

  void hand_keys_and_values(const Exec& exec, const UnitBuffers<T>& buffers) const;
  View<T**> keys_and_values(const Exec& exec, const UnitBuffers<T>& buffers, std::int64_t piece,
                            View<T**> in_order) const;
  void attention_of_piece(const Exec& exec, const UnitBuffers<T>& buffers, std::int64_t piece,
                          const AttentionWork& work, View<T**> attention,
                          View<Compute*> log_sum_exp) const;
  void attention_backward_of_piece(const Exec& exec, const UnitBuffers<T>& buffers,
                                   std::int64_t piece, const AttentionWork& work,
                                   View<const T**> dmiddle) const;
  void norm_again(const Exec& exec, const Norm& norm, const UnitBuffers<T>& buffers,
                  View<const T**> x, NormStatistics<T> statistics, View<T**> normed) const;
  void add_norm_gradient(const Exec& exec, const Norm& norm, const UnitBuffers<T>& buffers,
                         View<const T**> x, const NormStatistics<T>& statistics,
                         const NormWork& work) const;
  void bias_gradient(const Exec& exec, const UnitBuffers<T>& buffers, const ParameterLocation& bias,
                     std::int64_t piece, View<const T**> dy, const LeafSums<T>& sums) const;
  void rotate(const Exec& exec, math::Rotation rotation, View<T**> qkv, std::int64_t part) const;
  void activate(const Exec& exec, View<const T**> up, View<T**> activated) const;

  std::int64_t sum_elements() const;
  std::int64_t tree_elements() const;
  std::int64_t sequence_rows() const { return leaf_.batch * leaf_.tokens; }
  View<T**> piece_of(View<T*> all, std::int64_t piece, std::int64_t columns) const {
    const std::int64_t elements = sizes_.rows * columns;
    return all.range(piece * elements, (piece + 1) * elements).matrix(sizes_.rows, columns);
  }
  View<Compute*> log_sums_of(View<Compute*> all, std::int64_t piece) const {
    const std::int64_t elements = sizes_.rows * attention_.heads;
    return all.range(piece * elements, (piece + 1) * elements);
  }
  FlatParameter<T> vectors_in(const Saved& saved) const { return {saved.vectors, saved.vectors}; }

  LeafShape leaf_;
  Recompute recompute_;
  math::AttentionShape attention_;  // of a piece
  Sizes sizes_;
  Activation activation_;
  Positions positions_;
  double rotary_base_;

  std::vector<Parameter> parameters_;
  PieceSizes pieces_;
  Vectors vectors_;
  Norm attention_norm_, mlp_norm_;          // among the vectors, as
  ParameterLocation out_bias_, down_bias_;  // these
  ParameterLocation out_bias_piece_, down_bias_piece_;
  Linear qkv_, out_, up_, down_;  // of a piece

  std::vector<Step> forward_steps_, backward_steps_;
  plan::UnitDescription description_;
};

}  // namespace ostrakon::model
