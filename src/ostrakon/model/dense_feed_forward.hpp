// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/model/arrays.hpp>
#include <ostrakon/model/feed_forward.hpp>

namespace ostrakon::model {

/// One MLP: y = x + activation(norm(x) Wup^T) Wdown^T. Backward writes the gradient of the
/// activation's input over the input itself.
template <class T>
class DenseFeedForward final : public FeedForward<T> {
 public:
  DenseFeedForward(const DecoderSettings& settings, const LeafShape& leaf,
                   const Recompute& recompute, const std::vector<Parameter>& parameters);

  void forward(const Exec& exec, const FeedForwardCall<T>& call) const override;
  void backward(const Exec& exec, const FeedForwardCall<T>& call) const override;
  void backward_parameters(const Exec& exec, const FeedForwardCall<T>& call) const override;

 private:
  using Compute = compute_t<T>;

  /// What kernels without products read and write.
  void count_rows();

  /// What forward computes for backward.
  struct Activations {
    NormStatistics<T> norm;  // (rows) each
    View<T**> up;            // (rows, up_.outputs), with bias, before the activation
  };
  struct ArrayLocations {
    ArrayLocation mean, rstd, up;
  };

  /// Bytes into the workspace of forward. In brackets: only where it is computed again.
  ///   [up], and either normed (rows, width) and [statistics], or then activated (rows, ffn_width)
  struct ForwardLayout {
    ArrayLocations locations;
    std::int64_t normed, activated;
  };

  /// Bytes into what backward leaves for backward_parameters, besides `saved`, where dup is. For
  /// the gradients of down, as far as these are trained:
  ///   dy (rows, width), activated (rows, ffn_width)
  /// and [statistics, up], a DeferredNorm
  struct DeferredLayout {
    std::int64_t dy, activated, norm_parameters, norm_gradients;
  };

  /// Bytes into the workspace of backward.
  ///   activated  (rows, ffn_width) until dWdown; then its gradient
  ///   normed     (rows, width)     until dWup; then its gradient
  ///   [statistics, up]
  /// Where gradients of parameters are deferred, the last are there, and so is activated; the
  /// workspace of backward_parameters is normed.
  struct BackwardLayout {
    ArrayLocations locations;
    std::int64_t activated, normed;
  };

  /// What backward computes with.
  struct Backward {
    Activations made;
    View<T**> activated, dactivated, normed, dy;
    View<T**> dup;  // where made.up is
  };

  void lay_out_saved();
  void lay_out_forward();
  void lay_out_backward();
  void lay_out_deferred();
  DeferredNorm<T> deferred_norm(const FeedForwardCall<T>& call) const;
  Backward deferred_in(const FeedForwardCall<T>& call) const;
  Backward backward_in(const FeedForwardCall<T>& call) const;
  void down_gradients(const Exec& exec, const FeedForwardCall<T>& call,
                      const Backward& arrays) const;
  void up_gradients(const Exec& exec, const FeedForwardCall<T>& call, const Backward& arrays) const;
  View<T**> matrix_in(View<std::byte*> buffer, std::int64_t offset, std::int64_t columns) const;
  /// `again`: the buffer of what is computed again.
  Activations activations_in(const FeedForwardCall<T>& call, const ArrayLocations& locations,
                             View<std::byte*> again) const;

  std::int64_t rows_, leaves_;
  bool defers_;
  Recompute recompute_;
  Activation activation_;
  Norm norm_;
  Linear up_, down_;
  ForwardLayout forward_;
  BackwardLayout backward_;
  DeferredLayout deferred_;
};

}  // namespace ostrakon::model
