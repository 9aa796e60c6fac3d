// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <ostrakon/math/attention.hpp>
#include <ostrakon/math/rotary.hpp>
#include <ostrakon/model/arrays.hpp>
#include <ostrakon/model/expert_border.hpp>
#include <ostrakon/model/expert_feed_forward.hpp>
#include <ostrakon/model/tensor_pieces.hpp>
#include <utility>
#include <vector>

namespace ostrakon::model {

// clang-format off
/// A block over tensor ranks: the function that BlockMaker describes, cut into pieces of heads and
/// of columns of the MLP, of which each rank computes its own for all rows. Between them each rank
/// has an equal run of the rows: norms, residual stream, input and output (sequence parallel).
/// Products into the
/// residual stream, and gradients of norms' outputs, are sums over pieces by the tree of
/// math/piece_tree.hpp: bit for bit the same on any number of ranks that divides the pieces.
///
/// Phases, and what each hands over, to which (exchange over the tensor ranks unless it says the
/// parts of sequences). Exchanges overlap with the phases before the one that reads them. In
/// forward rows are exchanged in LeafShape::tensor_chunks; phases marked * are one for each chunk.
///
///   forward    vectors        its parts of norms and biases                     gather -> norm
///              norm *         norm(x) of its rows                               gather -> project
///              project *      queries, keys, values of its heads; in parts keys
///                             and values, then in phases of their own queries   gather (parts) -> attend
///              attend         attention; a chunk of its part of Wout            sum -> mlp_norm
///              out *          the other chunks, between mlp_norm                sum -> mlp_norm
///              mlp_norm *     middle = x + sum; norm(middle)                    gather -> mlp
///              mlp *          its columns of Wup and Wdown                      sum -> output
///              output *       y = middle + sum
///   backward   gradient       dL/dy of its rows                                 gather -> mlp
///              mlp_norm       norm(middle)                                      gather -> up
///              [again         the product with Wup, where it is computed again; then mlp_norm
///                             comes before gradient, and is read here first]
///              mlp            gradient of Wdown; its part of dL/dnorm(middle)   sum -> middle
///              [gather        keys and values of its heads                      gather (parts) -> attend]
///              up             gradient of Wup, one half
///              middle         dL/dmiddle of its rows                            gather -> attend
///              up             the other half
///              norm           norm(x)                                           gather -> qkv
///              attend         gradients of queries, keys, values                sum (parts) -> project
///              out            gradient of Wout
///              project        its part of dL/dnorm(x)                           sum -> input
///              qkv            gradient of Wqkv
///              input          dL/dx; its rows' sums for the weights of norms    sum -> vectors
///              vectors        gradients of its parts of those
///
/// Where a rank exchanges nothing (several pieces on one rank), gradients of weights are computed
/// piece by piece within mlp, attend and project, with workspaces for one piece.
///
/// In front of a mixture of experts, which are a unit of their own, the MLP is that of the shared
/// experts; without these there are no phases mlp_norm of backward, again, mlp, up and output. All
/// else of the mixture is an ExpertFeedForward's, for the rank's own rows: in forward one more phase,
/// route, after the last mlp_norm, in backward with middle.
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
  enum class Step {
    vectors,
    gradient,
    norm,
    project,  // all columns; in parts keys and values
    queries,
    gather,
    attend,
    out,
    route,
    middle,
    mlp_norm,
    again,
    mlp,
    up,
    qkv,
    output,
    input
  };
  /// What a phase computes. `part`: in forward a chunk of rows; in backward a half of Wup.
  struct Task {
    Step step;
    std::int64_t part = 0;
  };

  /// Of a piece, in elements.
  struct Sizes {
    std::int64_t rows;  // of the leaf
    std::int64_t own_rows;
    std::int64_t chunks;
    std::int64_t width;  // of a row
    std::int64_t queries;
    std::int64_t kv;  // keys and values
    std::int64_t ffn;
    std::int64_t up;  // ffn for gelu; 2 ffn for swiglu, gate and up

    std::int64_t qkv() const { return queries + kv; }
    std::int64_t chunk_rows() const { return rows / chunks; }
    std::int64_t own_chunk_rows() const { return own_rows / chunks; }
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
    View<std::byte*> router;
    Gradients norms;  // of vectors that are summed over rows
  };
  Saved saved_in(Arrays<T>& arrays) const;
  Saved saved_in(const UnitBuffers<T>& buffers) const;

  // Workspaces of phases, each with all that its step takes. What later phases need is there for
  // each of the rank's pieces, else for one at a time.
  struct NormWork {
    NormStatistics<T> statistics;
    View<T**> normed;   // (own_rows, width), where it is not handed over
    View<T**> dnormed;  // the same, in T where sums are not
    Gradients sums;
  };
  struct AttentionWork {
    View<const std::byte*> gathered;  // keys and values of all parts
    View<T**> kv;                     // (sequences, kv): in the order of positions
    View<Compute**> dkv;              // the same
    View<T*> attention;               // where it is computed again
    View<Compute*> log_sum_exp;
    bool has_all_pieces = false;  // of these two
    View<T**> dattention;         // (rows, queries)
    View<T**> dqkv;               // (rows, qkv)
    View<T*> scores;
    Gradients sums, tree;

    std::int64_t slot(std::int64_t piece) const { return has_all_pieces ? piece : 0; }
  };
  struct MlpWork {
    View<T*> up;          // where it is computed again
    View<T**> activated;  // (rows, ffn)
    Gradients sums, tree;
  };
  struct RouterWork {
    View<std::byte*> workspace;
    Gradients sums;
  };
  NormWork norm_work(Arrays<T>& arrays, bool is_backward) const;
  AttentionWork attention_work(Arrays<T>& arrays, bool is_backward) const;
  AttentionWork weights_work(Arrays<T>& arrays, Step step) const;
  MlpWork mlp_work(Arrays<T>& arrays, bool is_backward) const;
  MlpWork up_work(Arrays<T>& arrays) const;
  RouterWork router_work(Arrays<T>& arrays, bool is_backward) const;
  std::int64_t workspace_bytes(Step step, bool is_backward) const;

  void add_parameters(const DecoderSettings& settings, const Frozen& frozen);
  void add_router(const DecoderSettings& settings);
  void add_phases();
  void add_forward_phases();
  void add_backward_phases();
  int add_phase(bool is_backward, Task task, std::vector<int> reads,
                std::optional<plan::Exchange> then);
  plan::Exchange gather_parts(std::int64_t element_bytes) const;
  plan::Exchange sum_parts(std::int64_t element_bytes) const;
  void describe();

  // Steps of forward.
  void normalize(const Exec& exec, const UnitBuffers<T>& buffers, std::int64_t chunk) const;
  void project(const Exec& exec, const UnitBuffers<T>& buffers, Step step,
               std::int64_t chunk) const;
  void attend(const Exec& exec, const UnitBuffers<T>& buffers) const;
  void project_out(const Exec& exec, const UnitBuffers<T>& buffers, std::int64_t chunk) const;
  void multiply_out(const Exec& exec, const UnitBuffers<T>& buffers, const AttentionWork& work,
                    std::int64_t chunk, bool attends) const;
  void normalize_middle(const Exec& exec, const UnitBuffers<T>& buffers, std::int64_t chunk) const;
  void route(const Exec& exec, const UnitBuffers<T>& buffers) const;
  void mlp(const Exec& exec, const UnitBuffers<T>& buffers, std::int64_t chunk) const;
  void output(const Exec& exec, const UnitBuffers<T>& buffers, std::int64_t chunk) const;
  // Steps of backward.
  void hand_normed_middle(const Exec& exec, const UnitBuffers<T>& buffers) const;
  void project_up_again(const Exec& exec, const UnitBuffers<T>& buffers) const;
  void mlp_backward(const Exec& exec, const UnitBuffers<T>& buffers) const;
  void middle_backward(const Exec& exec, const UnitBuffers<T>& buffers, Compute loss_scale) const;
  void route_backward(const Exec& exec, const UnitBuffers<T>& buffers, const Saved& saved,
                      const RouterWork& work, View<const T**> dnormed, Compute loss_scale) const;
  void hand_normed(const Exec& exec, const UnitBuffers<T>& buffers) const;
  void attend_backward(const Exec& exec, const UnitBuffers<T>& buffers) const;
  void project_backward(const Exec& exec, const UnitBuffers<T>& buffers) const;
  void input_backward(const Exec& exec, const UnitBuffers<T>& buffers) const;
  // Gradients of a piece's weights.
  void up_gradient(const Exec& exec, const UnitBuffers<T>& buffers, const MlpWork& work,
                   std::int64_t piece, std::int64_t half, View<const T**> normed) const;
  void out_gradient(const Exec& exec, const UnitBuffers<T>& buffers, const AttentionWork& work,
                    std::int64_t piece) const;
  void qkv_gradient(const Exec& exec, const UnitBuffers<T>& buffers, const AttentionWork& work,
                    std::int64_t piece) const;

  void hand_keys_and_values(const Exec& exec, const UnitBuffers<T>& buffers) const;
  View<T**> keys_and_values(const Exec& exec, const UnitBuffers<T>& buffers, std::int64_t piece,
                            View<const std::byte*> gathered, View<T**> in_order) const;
  void attention_of_piece(const Exec& exec, const UnitBuffers<T>& buffers, std::int64_t piece,
                          const AttentionWork& work) const;
  void attention_backward_of_piece(const Exec& exec, const UnitBuffers<T>& buffers,
                                   std::int64_t piece, const AttentionWork& work) const;
  void norm_again(const Exec& exec, const Norm& norm, const UnitBuffers<T>& buffers,
                  View<const T**> x, NormStatistics<T> statistics, View<T**> normed) const;
  void add_norm_gradient(const Exec& exec, const Norm& norm, const UnitBuffers<T>& buffers,
                         View<const T**> x, const NormStatistics<T>& statistics,
                         const NormWork& work) const;
  void bias_gradient(const Exec& exec, const UnitBuffers<T>& buffers, const ParameterLocation& bias,
                     std::int64_t piece, View<const T**> dy, const LeafSums<T>& sums) const;
  void rotate(const Exec& exec, math::Rotation rotation, const UnitBuffers<T>& buffers,
              std::int64_t first, std::int64_t last) const;

  std::int64_t sum_elements() const;
  std::int64_t tree_elements(std::int64_t rows) const;
  std::pair<std::int64_t, std::int64_t> half_of_up(std::int64_t half) const;
  /// Whether later phases need the attention, or the MLP's `up`, that one has computed again.
  bool keeps_attention(bool is_backward) const {
    return recompute_.attention && (is_backward ? keeps_pieces_ : sizes_.chunks > 1);
  }
  bool keeps_up() const { return recompute_.mlp && keeps_pieces_ && has_mlp(); }
  /// Gathered rows that a phase of backward reads.
  View<const T**> rows_read(const UnitBuffers<T>& buffers) const {
    return view_as<const T>(buffers.exchanged).matrix(sizes_.rows, sizes_.width);
  }
  View<const T**> second_rows_read(const UnitBuffers<T>& buffers) const {
    return view_as<const T>(buffers.second_exchanged).matrix(sizes_.rows, sizes_.width);
  }
  std::int64_t sequence_rows() const { return leaf_.batch * leaf_.tokens; }
  View<T**> piece_of(View<T*> all, std::int64_t piece, std::int64_t columns) const {
    return piece_of(all, piece, sizes_.rows, columns);
  }
  View<T**> piece_of(View<T*> all, std::int64_t piece, std::int64_t rows,
                     std::int64_t columns) const {
    return all.range(piece * rows * columns, (piece + 1) * rows * columns).matrix(rows, columns);
  }
  // Where a piece's arrays are that may be in the workspace.
  View<T**> attention_in(const Saved& saved, const AttentionWork& work, std::int64_t piece) const {
    return recompute_.attention ? piece_of(work.attention, work.slot(piece), sizes_.queries)
                                : piece_of(saved.attention, piece, sizes_.queries);
  }
  View<Compute*> log_sums_in(const Saved& saved, const AttentionWork& work,
                             std::int64_t piece) const {
    const std::int64_t elements = sizes_.rows * attention_.heads,
                       slot = recompute_.attention ? work.slot(piece) : piece;
    return (recompute_.attention ? work.log_sum_exp : saved.log_sum_exp)
        .range(slot * elements, (slot + 1) * elements);
  }
  View<T**> up_in(const Saved& saved, const MlpWork& work, std::int64_t piece) const {
    return recompute_.mlp ? piece_of(work.up, keeps_pieces_ ? piece : 0, sizes_.up)
                          : piece_of(saved.up, piece, sizes_.up);
  }
  /// body(first row of the leaf, first row of the chunk, rows) for each run of the leaf's rows that
  /// is in a chunk: one of each rank.
  template <class Body>
  void for_each_run(std::int64_t chunk, const Body& body) const {
    const std::int64_t rows = sizes_.own_chunk_rows();
    if (sizes_.chunks == 1) return body(0, 0, sizes_.rows);
    for (std::int64_t rank = 0; rank < leaf_.tensor_ranks; ++rank)
      body(rank * sizes_.own_rows + chunk * rows, rank * rows, rows);
  }
  /// A rank's own rows of a chunk.
  template <class A>
  View<A**> own_rows_of(View<A**> own, std::int64_t chunk) const {
    return own.row_range(chunk * sizes_.own_chunk_rows(), (chunk + 1) * sizes_.own_chunk_rows());
  }
  NormStatistics<T> own_rows_of(const NormStatistics<T>& own, std::int64_t chunk) const {
    return own.row_range(chunk * sizes_.own_chunk_rows(), (chunk + 1) * sizes_.own_chunk_rows());
  }
  FlatParameter<T> vectors_in(const Saved& saved) const { return {saved.vectors, saved.vectors}; }
  bool has_mlp() const { return sizes_.ffn > 0; }

  LeafShape leaf_;
  Recompute recompute_;
  /// Whether gradients of weights are in phases of their own, which overlap with exchanges.
  bool keeps_pieces_;
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
  Linear qkv_, out_, up_, down_;                        // of a piece
  std::unique_ptr<const ExpertFeedForward<T>> router_;  // of a mixture

  std::vector<Task> forward_tasks_, backward_tasks_;
  plan::UnitDescription description_;
};

}  // namespace ostrakon::model
