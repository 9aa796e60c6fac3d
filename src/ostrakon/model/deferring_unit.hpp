// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <ostrakon/model/unit.hpp>
#include <vector>

namespace ostrakon::model {

/// A unit that computes gradients of parameters in phases of their own where it is given room for
/// what these need (UnitBuffers::deferred), else at once. The two ways have the same bits, and what
/// forward saves is the same, but backward at once needs less memory.
template <class T>
class DeferringUnit final : public Unit<T> {
 public:
  using typename Unit<T>::RowRange;

  /// Two units that differ in whether they defer. Throws std::logic_error where they differ in what
  /// forward leaves, or in parameters.
  DeferringUnit(std::unique_ptr<const Unit<T>> deferring, std::unique_ptr<const Unit<T>> at_once);

  const plan::UnitDescription& description() const override { return description_; }
  const std::vector<Parameter>& parameters() const override { return deferring_->parameters(); }

  void forward(const Exec& exec, const UnitBuffers<T>& buffers, RowRange rows) const override;
  void backward(const Exec& exec, const UnitBuffers<T>& buffers, compute_t<T> loss_scale,
                bool gradients_opened) const override;

 private:
  std::unique_ptr<const Unit<T>> deferring_, at_once_;
  plan::UnitDescription description_;
};

}  // namespace ostrakon::model
