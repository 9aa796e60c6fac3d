// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <ostrakon/model/unit_calls.hpp>
#include <string>
#include <vector>

namespace ostrakon::model {

/// What an operation makes, as a Builder names it: a matrix with a leaf's rows, which exists when
/// the unit is computed.
struct Value {
  int number = -1;
  std::uint64_t builder = 0;  ///< which Builder has made it; 0: none
};

/// What the kernels of an operation of one's own are given. Matrices have all rows and columns of a
/// leaf, or the rows or columns that are computed here: kernels go by the extents of these views.
template <class T>
struct OperationCall {
  Exec exec;                               ///< where kernels run; calls need not wait for them
  std::vector<View<const T**>> inputs;     ///< in backward only if it says that it reads them
  std::vector<Array<const T>> parameters;  ///< of an operation by element: of these columns
  Bytes<const std::byte> batch;            ///< as a SampleSource wrote it, of all rows
  std::int64_t first_row = 0;              ///< which row of the leaf the first one here is
  std::int64_t first_column = 0;           ///< which column
};

template <class T>
struct OperationForward : OperationCall<T> {
  View<T**> output;            ///< to be written
  Array<compute_t<T>> losses;  ///< in place of it, where the operation computes losses: (rows)
};

template <class T>
struct OperationBackward : OperationCall<T> {
  View<const T**> output;                  ///< only if backward says that it reads it
  View<const T**> gradient;                ///< dL/d output; none of losses
  compute_t<T> loss_scale = 1;             ///< of losses: dL is that of loss_scale * their sum
  std::vector<View<T**>> input_gradients;  ///< to be written: dL/d input, each by itself
  /// To be written: the sum over the rows that are here. Empty for a frozen parameter.
  std::vector<Array<compute_t<T>>> parameter_gradients;
};

/// What an element of an operation's output is computed from: that element of each input, which has
/// as many columns; or a whole row of each.
enum class Takes { elements, rows };

/// An operation of one's own, by its two kernels: output (rows, columns) of inputs with as many
/// rows. Each row is computed by itself, so that ranks may compute some of them.
template <class T>
struct Operation {
  std::string name;
  std::vector<Value> inputs;
  std::function<void(const OperationForward<T>&)> forward;
  /// None where there is nothing to differentiate: no inputs and no parameters.
  std::function<void(const OperationBackward<T>&)> backward = {};
  Takes takes = Takes::rows;
  std::int64_t columns = 0;  ///< of the output; 0: as many as the first input has
  /// With name, shape, initializer, deviation, decays, frozen. Of an operation by element the first
  /// extent is its columns.
  std::vector<Parameter> parameters = {};
  bool reads_batch = false;
  bool backward_reads_inputs = true;
  bool backward_reads_output = false;
  /// Floating-point operations of forward in a row, backward taking twice as many: for estimated
  /// times and MFU. The output of one without any is computed again in backward, and else saved.
  double flops = 0.0;
};

}  // namespace ostrakon::model
