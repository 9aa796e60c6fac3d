// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <ostrakon/model/own_operation.hpp>
#include <string>

namespace ostrakon::model {

/// Finds what is wrong with the kernels of operations of one's own, but for wrong values: each call
/// is computed several times, in copies of its arrays. Rows, and columns where it is by element,
/// are computed all at once and in two parts. T: float or double.
template <class T>
class OperationCheck final : public OperationWatch<T> {
 public:
  void forward(const Operation<T>& operation, const OperationForward<T>& call) override {
    check(operation, operation.forward, call, "forward");
  }
  void backward(const Operation<T>& operation, const OperationBackward<T>& call) override {
    check(operation, operation.backward, call, "backward");
  }

  /// The operation in which something was found first, and what; empty: nothing was.
  const std::string& operation() const { return operation_; }
  const std::string& fault() const { return fault_; }

 private:
  /// How the results of a call are compared with what its arrays held before. `rounding`: the
  /// difference that is allowed, as a part of the largest element; none: results are stored, and
  /// not compared. `has_all_rows`: whether the call has all rows, over which gradients of
  /// parameters are sums.
  struct Comparison {
    std::optional<double> rounding = {};
    bool has_all_rows = true;
  };

  template <class Call, class Kernel>
  void check(const Operation<T>& operation, const Kernel& kernel, const Call& call,
             const char* name);
  template <class Call, class Kernel>
  void compute(const Kernel& kernel, Call call, const std::string& name,
               const Comparison& comparison);

  std::string operation_, fault_;
};

}  // namespace ostrakon::model
