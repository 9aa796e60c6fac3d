// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/routing.hpp>
#include <ostrakon/model/expert_border.hpp>
#include <ostrakon/model/layers.hpp>
#include <vector>

namespace ostrakon::model {

/// What a mixture of experts computes with; see UnitBuffers.
template <class T>
struct FeedForwardCall {
  FlatParameter<T> parameters;
  View<const T**> x;  ///< (rows, width)
  View<std::byte*> saved;
  View<std::byte*> workspace;
  View<std::byte*> deferred = {};  ///< from backward to backward_parameters, where it defers these

  View<T**> y = {};                 ///< forward: (rows, width); where it does not exist, only saves
  View<std::int64_t*> counts = {};  ///< forward: (counted()), added to where they exist
  /// What passes to and from experts that are a unit of their own: border_bytes() in forward, where
  /// y exists, and border_gradient_bytes() in backward.
  View<std::byte*> border = {};

  View<T**> gradient = {};       ///< backward: in, dL/dy; out, dL/dx. (rows, width)
  View<const T**> dnormed = {};  ///< backward of a mixture: (rows, width), gradient of norm(x) by
                                 ///< shared experts that are not its own; or none
  View<compute_t<T>*> parameter_gradients = {};  ///< backward: of the trained segment
  View<compute_t<T>*> sums = {};                 ///< backward: sum_elements()
  compute_t<T> loss_scale = 1;                   ///< backward: see Unit
};

/// A mixture of experts: y = x + (shared(n) + the sum over a token's experts e of weight_e
/// mlp_e(n)) with n = norm(x). The router's logits are n Wrouter^T, in compute_t<T> like all that
/// follows from them up to the weights.
///
/// Tokens are copied, sorted by expert, and each expert multiplies its run of copies. There are
/// experts.per_token copies of each token, whatever the router does: no token is dropped, and the
/// size of every array follows from the shape of the leaf. A token's result depends on no other
/// token, and an expert's gradient of a leaf on none outside of the leaf. See math/gemm.hpp
/// (gemm_by_row) for the exceptions.
///
/// Where experts are a unit of their own (LeafShape::has_expert_units), ExpertUnit, this is all but
/// they: y is x, and norm(x), the shared experts' output and the routes are handed on to it. Rows
/// are a tensor rank's own.
///
/// Saved are what the router decided, the statistics of the norm and the products before the
/// activations; the last two unless they are computed again.
template <class T>
class ExpertFeedForward {
 public:
  ExpertFeedForward(const DecoderSettings& settings, const LeafShape& leaf,
                    const Recompute& recompute, const std::vector<Parameter>& parameters);

  void forward(const Exec& exec, const FeedForwardCall<T>& call) const;
  /// Once after each forward: it may use `saved` as scratch.
  void backward(const Exec& exec, const FeedForwardCall<T>& call) const;
  /// Where LeafShape::defers_gradients: backward writes no gradients of parameters. This does, of
  /// `x`, `saved` and `deferred`; parameters and gradient do not exist.
  void backward_parameters(const Exec& exec, const FeedForwardCall<T>& call) const;

  std::int64_t saved_bytes() const { return sizes_.saved; }
  std::int64_t forward_workspace_bytes() const { return sizes_.forward_workspace; }
  std::int64_t backward_workspace_bytes() const { return sizes_.backward_workspace; }
  /// Bytes of the workspace of backward_parameters.
  std::int64_t parameters_workspace_bytes() const { return sizes_.parameters_workspace; }
  std::int64_t deferred_bytes() const { return sizes_.deferred; }
  /// Elements of compute_t<T>, besides the workspace.
  std::int64_t sum_elements() const { return sizes_.sum_elements; }
  /// Experts to which it counts assignments.
  std::int64_t counted() const { return sizes_.counted; }
  std::int64_t border_bytes() const { return sizes_.border; }
  std::int64_t border_gradient_bytes() const { return sizes_.border_gradient; }

  /// Floating-point operations: of forward; of one that only saves; of gradients in backward; of
  /// what backward computes again besides.
  double forward_flops() const { return flops_.forward; }
  double recompute_flops() const { return flops_.recompute; }
  double gradient_flops() const { return flops_.gradient; }
  /// Those of gradient_flops that gradients of parameters take.
  double parameter_flops() const { return flops_.parameters; }
  double again_flops() const { return flops_.again; }
  /// What kernels do in forward, in a forward that only saves, and in backward; parameter_work is
  /// what backward_parameters does of the last.
  const plan::KernelWork& forward_work() const { return work_.forward; }
  const plan::KernelWork& recompute_work() const { return work_.recompute; }
  const plan::KernelWork& backward_work() const { return work_.backward; }
  const plan::KernelWork& parameter_work() const { return work_.parameters; }

 private:
  using Compute = compute_t<T>;
  using Routes = math::Routes<Compute>;

  struct Mlp {
    Linear up, down;
  };

  /// What forward leaves for backward, of `rows` rows.
  struct Saved {
    Routes routes;
    NormStatistics<T> norm;  // (rows) each, unless computed again
    View<T**> up;            // (copies, up.outputs), before the activation, unless computed again
    View<T**> shared_up;     // (rows, shared up.outputs), the same
  };

  /// What backward leaves for backward_parameters, besides `saved`, where gradients of up, shared
  /// up and scores replace these. What is needed for frozen parameters alone does not exist.
  struct Deferred {
    NormStatistics<T> norm;      // computed again
    View<T**> up, shared_up;     // computed again
    View<T**> dy;                // (rows, width), gradient of the block's output
    View<T**> activated;         // (copies, expert width)
    View<T**> shared_activated;  // (rows, shared width)
    DeferredNorm<T> of_norm;
  };

  /// The workspace of each. Arrays on one line share their memory, one after the other.
  struct Workspace {
    NormStatistics<T> norm;      // computed again
    View<T**> up, shared_up;     // computed again
    View<T**> normed;            // (rows, width); forward: then the shared experts' output
    View<T**> copies;            // (copies, width)
    View<T**> activated;         // (copies, expert width)
    View<T**> shared_activated;  // (rows, shared width), where activated is
    View<Compute**> wide;    // (rows, width), norm(x) as the router takes it, where activated is
    View<Compute**> router;  // (experts, width), its weight so; only in 16 bits
    View<T*> padding;        // of products by row
    View<Compute*> bias;     // (experts), the same of its bias
    // backward
    View<T**> dactivated;         // (copies, expert width)
    View<T**> dshared_activated;  // (rows, shared width), where dactivated is
    View<T**> dshared;            // (rows, width), gradient of norm(x) from the shared experts
    View<Compute*> dweights;      // (copies)
    View<Compute**> dlogits;      // (rows, experts)
  };

  struct SavedAndBytes {
    Saved arrays;
    std::int64_t bytes;
  };
  struct WorkspaceAndBytes {
    Workspace arrays;
    std::int64_t bytes;
  };
  struct DeferredAndBytes {
    Deferred arrays;
    std::int64_t bytes;
  };
  enum class Step { forward, backward, parameters };

  /// What backward computes with.
  struct Backward {
    Saved saved;
    Workspace work;
    View<T**> dy, dup, shared_dy, dshared_up;
    View<Compute**> dlogits;
  };

  /// Those that are computed here.
  std::int64_t copies(std::int64_t rows) const {
    return experts_.empty() ? 0 : rows * router_.per_token;
  }
  std::int64_t up_columns() const { return experts_.empty() ? 0 : experts_.front().up.outputs; }
  bool has_shared() const { return shared_.up.outputs > 0; }
  bool trains_down() const;
  bool is_narrow() const { return !std::is_same<T, Compute>::value; }

  SavedAndBytes saved_in(View<std::byte*> buffer, std::int64_t rows, std::int64_t leaves) const;
  WorkspaceAndBytes workspace_in(View<std::byte*> buffer, std::int64_t rows, Step step) const;
  DeferredAndBytes deferred_in(View<std::byte*> buffer) const;
  Backward backward_in(const FeedForwardCall<T>& call, Step step) const;

  View<const Compute**> router_weight(const Exec& exec, const FlatParameter<T>& parameters,
                                      const Workspace& work) const;
  View<const Compute*> bias(const Exec& exec, const FlatParameter<T>& parameters,
                            const Workspace& work) const;
  View<const Compute**> widened(const Exec& exec, View<const T**> normed,
                                const Workspace& work) const;
  void route(const Exec& exec, const FeedForwardCall<T>& call, const Workspace& work,
             std::int64_t leaves, const Routes& routes) const;

  /// f(expert, its first copy, the one after its last) for each expert that has any.
  template <class Function>
  void for_each_expert(HostView<const std::int64_t*> offsets, std::int64_t leaves,
                       const Function& function) const;
  void multiply_up(const Exec& exec, const FeedForwardCall<T>& call, const Saved& saved,
                   const Workspace& work, HostView<const std::int64_t*> offsets,
                   std::int64_t leaves) const;
  void backward_of_experts(const Exec& exec, const FeedForwardCall<T>& call, const Backward& arrays,
                           HostView<const std::int64_t*> offsets) const;
  void backward_of_shared(const Exec& exec, const FeedForwardCall<T>& call,
                          const Backward& arrays) const;
  void count_rows();
  void backward_of_router(const Exec& exec, const FeedForwardCall<T>& call, const Backward& arrays,
                          View<const Compute*> dweights) const;
  void forward_of_shared(const Exec& exec, const FeedForwardCall<T>& call, const Saved& saved,
                         const Workspace& work) const;
  void hand_on(const Exec& exec, const FeedForwardCall<T>& call, const Saved& saved,
               const Workspace& work) const;
  // Gradients of parameters.
  void down_gradients(const Exec& exec, const FeedForwardCall<T>& call, const Backward& arrays,
                      HostView<const std::int64_t*> offsets) const;
  void up_gradients(const Exec& exec, const FeedForwardCall<T>& call, const Backward& arrays,
                    HostView<const std::int64_t*> offsets) const;
  void shared_down_gradients(const Exec& exec, const FeedForwardCall<T>& call,
                             const Backward& arrays) const;
  void shared_up_gradients(const Exec& exec, const FeedForwardCall<T>& call,
                           const Backward& arrays) const;
  void router_gradients(const Exec& exec, const FeedForwardCall<T>& call,
                        const Backward& arrays) const;
  LeafSums<T> sums_of(const FeedForwardCall<T>& call, HostView<const std::int64_t*> offsets,
                      std::int64_t expert) const;

  struct Sizes {
    std::int64_t saved = 0, forward_workspace = 0, backward_workspace = 0, sum_elements = 0;
    std::int64_t parameters_workspace = 0, deferred = 0, counted = 0;
    std::int64_t border = 0, border_gradient = 0;
  };
  struct Flops {
    double forward = 0.0, recompute = 0.0, gradient = 0.0, parameters = 0.0, again = 0.0;
  };
  struct Work {
    plan::KernelWork forward, recompute, backward, parameters;
  };

  /// Counts the products of a layer that computes `rows` rows; `saved`: backward reads its output.
  void count(const Linear& layer, std::int64_t rows, bool saved, bool computed_again);

  Sizes sizes_;
  Flops flops_;
  Work work_;

  bool defers_;
  math::KernelForm kernels_;
  std::int64_t rows_, leaves_, width_, inner_;
  Recompute recompute_;
  Activation activation_;
  math::Router router_;
  double loss_factor_;  // of the auxiliary loss; 0: none
  Norm norm_;
  Linear gate_;               // the router's product
  ParameterLocation bias_;    // of its scores
  std::vector<Mlp> experts_;  // none: they are a unit of their own
  ExpertBorder border_;
  Mlp shared_;
};

}  // namespace ostrakon::model
