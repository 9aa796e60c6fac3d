// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/routing.hpp>
#include <ostrakon/model/expert_border.hpp>
#include <ostrakon/model/feed_forward.hpp>

namespace ostrakon::model {

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
class ExpertFeedForward final : public FeedForward<T> {
 public:
  ExpertFeedForward(const DecoderSettings& settings, const LeafShape& leaf,
                    const Recompute& recompute, const std::vector<Parameter>& parameters);

  void forward(const Exec& exec, const FeedForwardCall<T>& call) const override;
  void backward(const Exec& exec, const FeedForwardCall<T>& call) const override;
  void backward_parameters(const Exec& exec, const FeedForwardCall<T>& call) const override;

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
