// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <ostrakon/model/decoder.hpp>
#include <ostrakon/model/layers.hpp>
#include <vector>

namespace ostrakon::model {

/// What the second half of a block computes with; see UnitBuffers.
template <class T>
struct FeedForwardCall {
  FlatParameter<T> parameters;
  View<const T**> x;  ///< (rows, width)
  View<std::byte*> saved;
  View<std::byte*> workspace;
  View<std::byte*> deferred = {};  ///< from backward to backward_parameters, where it defers these

  std::int64_t first_row = 0;  ///< forward: of x in the leaf, where decoding has some of its rows
  View<T**> y = {};            ///< forward: (rows, width); where it does not exist, only saves
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

/// The second half of a block: y = x + f(norm(x)), where f is an MLP or a mixture of such. It holds
/// no arrays. The outputs of norm and activation are not saved: backward computes them again.
template <class T>
class FeedForward {
 public:
  virtual ~FeedForward() = default;

  virtual void forward(const Exec& exec, const FeedForwardCall<T>& call) const = 0;
  /// Once after each forward: it may use `saved` as scratch.
  virtual void backward(const Exec& exec, const FeedForwardCall<T>& call) const = 0;
  /// Where LeafShape::defers_gradients: backward writes no gradients of parameters. This does, of
  /// `x`, `saved` and `deferred`; parameters and gradient do not exist.
  virtual void backward_parameters(const Exec& exec, const FeedForwardCall<T>& call) const = 0;

  std::int64_t saved_bytes() const { return sizes_.saved; }
  std::int64_t forward_workspace_bytes() const { return sizes_.forward_workspace; }
  std::int64_t backward_workspace_bytes() const { return sizes_.backward_workspace; }
  /// Of backward_parameters.
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
  /// Of these, those of parameters.
  double parameter_flops() const { return flops_.parameters; }
  double again_flops() const { return flops_.again; }
  /// Of all of forward; of one that only saves; of all of backward, and of these what
  /// backward_parameters does.
  const plan::KernelWork& forward_work() const { return work_.forward; }
  const plan::KernelWork& recompute_work() const { return work_.recompute; }
  const plan::KernelWork& backward_work() const { return work_.backward; }
  const plan::KernelWork& parameter_work() const { return work_.parameters; }

 protected:
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
};

/// The one that the settings describe. `parameters`: of the block, laid out.
template <class T>
std::unique_ptr<const FeedForward<T>> make_feed_forward(const DecoderSettings& settings,
                                                        const LeafShape& leaf,
                                                        const Recompute& recompute,
                                                        const std::vector<Parameter>& parameters);

}  // namespace ostrakon::model
