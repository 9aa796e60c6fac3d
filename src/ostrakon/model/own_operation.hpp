// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/view.hpp>
#include <ostrakon/math/work_items.hpp>
#include <ostrakon/model/unit.hpp>
#include <string>
#include <vector>

namespace ostrakon::model {

/// An array in device memory (where there is no device: host memory). Owns nothing; valid for the
/// call that it comes with. See math/view.hpp.
template <class A>
using Array = View<A*>;

/// f(i) for each i in [0, count), in any order, on `exec`; does not wait. F: a KOKKOS_LAMBDA.
template <class F>
void for_each(const Exec& exec, std::int64_t count, const F& f) {
  launch(exec, "own", [=](const KernelSpace& where) {
    Kokkos::parallel_for(
        Kokkos::RangePolicy<KernelSpace, math::CapturesAsArgument>(where, 0, count), f);
  });
}

/// f(i, j) for each row i and column j of so many, in any order.
template <class F>
void for_each(const Exec& exec, std::int64_t rows, std::int64_t columns, const F& f) {
  using Kokkos::Iterate;
  using Policy = Kokkos::MDRangePolicy<KernelSpace, Kokkos::IndexType<std::int64_t>,
                                       Kokkos::Rank<2, Iterate::Right, Iterate::Right>,
                                       math::CapturesAsArgument>;
  if (rows == 0 || columns == 0) return;
  launch(exec, "own", [=](const KernelSpace& where) {
    Kokkos::parallel_for(Policy(where, {0, 0}, {rows, columns}), f);
  });
}

/// The samples of a leaf, as a SampleSource wrote them: arrays of any type, which are read.
class BatchBytes {
 public:
  BatchBytes() = default;
  explicit BatchBytes(View<const std::byte*> data) : data_(data) {}

  View<const std::byte*> data() const { return data_; }
  std::int64_t size() const { return data_.size(); }

  /// `count` elements of A from byte `first` on. Throws Error where they are not inside, or `first`
  /// is not a multiple of A's alignment.
  template <class A>
  View<const A*> array(std::int64_t first, std::int64_t count) const {
    const auto size = static_cast<std::int64_t>(sizeof(A));
    require(first >= 0 && count >= 0 && first % static_cast<std::int64_t>(alignof(A)) == 0 &&
                count <= (data_.size() - first) / size && first <= data_.size(),
            count, " elements of ", size, " bytes from byte ", first, " on of its batch",
            data_ ? "" : " (reads_batch is false)", ", which has ", data_.size(), " bytes");
    return view_as<A>(data_.range(first, first + count * size));
  }

 private:
  View<const std::byte*> data_;
};

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
  std::vector<View<const T**>> inputs;     ///< in backward null unless it says that it reads them
  std::vector<Array<const T>> parameters;  ///< of an operation by element: of these columns
  BatchBytes batch;                        ///< of all rows
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

/// Has the kernels of operations of one's own computed, and sees what they do.
template <class T>
class OperationWatch : public KernelWatch {
 public:
  virtual void forward(const Operation<T>& operation, const OperationForward<T>& call) = 0;
  virtual void backward(const Operation<T>& operation, const OperationBackward<T>& call) = 0;
};

}  // namespace ostrakon::model
