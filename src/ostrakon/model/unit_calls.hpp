// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/half.hpp>
#include <ostrakon/math/view.hpp>
#include <ostrakon/model/unit.hpp>
#include <type_traits>
#include <vector>

// What a unit of one's own computes with. An array that a call does not have is empty: its size()
// is 0, and nothing is to be read or written there.

namespace ostrakon::model {

/// An array in device memory (where there is no device: host memory). Owns nothing; valid for the
/// call that it comes with. See math/view.hpp.
template <class A>
using Array = View<A*>;

/// The array as a row-major matrix. Throws Error where it has fewer elements, as the output of a
/// call that recomputes, which has none.
template <class A>
View<A**> as_matrix(const View<A*>& array, std::int64_t rows, std::int64_t columns) {
  require(rows >= 0 && columns >= 0 && rows * columns <= array.size(), "a matrix of ", rows, " x ",
          columns, " in an array of ", array.size(), " elements");
  return array.matrix(rows, columns);
}

/// f(i) for each i in [0, count), in any order, on `exec`; does not wait. F: a KOKKOS_LAMBDA.
template <class F>
void for_each(const Exec& exec, std::int64_t count, const F& f) {
  launch(exec, [=](const KernelSpace& where) {
    Kokkos::parallel_for(Kokkos::RangePolicy<KernelSpace>(where, 0, count), f);
  });
}

/// f(i, j) of the element at `at` of a matrix, row by row.
template <class F>
struct OfElement {
  F f;
  std::int64_t columns;

  KOKKOS_FUNCTION void operator()(std::int64_t at) const { f(at / columns, at % columns); }
};

/// f(i, j) for each row i and column j of so many, in any order.
template <class F>
void for_each(const Exec& exec, std::int64_t rows, std::int64_t columns, const F& f) {
  for_each(exec, rows * columns, OfElement<F>{f, columns});
}

/// A planned buffer of so many bytes, in which a unit places arrays of any type. Byte: std::byte,
/// or const std::byte where the unit may only read.
template <class Byte>
class Bytes {
 public:
  Bytes() = default;
  /// `name` is for messages, and must outlive it.
  Bytes(View<Byte*> data, const char* name) : data_(data), name_(name) {}

  Byte* data() const { return data_.data(); }
  std::int64_t size() const { return data_.size(); }

  /// `count` elements of A from byte `first` on; const where the unit may only read. Buffers are
  /// aligned to 64 bytes or more. Throws Error, naming the buffer, where they are not inside, or
  /// `first` is not a multiple of A's alignment.
  template <class A>
  auto array(std::int64_t first, std::int64_t count) const {
    const auto size = static_cast<std::int64_t>(sizeof(A));
    require(first >= 0 && count >= 0 && first % static_cast<std::int64_t>(alignof(A)) == 0 &&
                count <= (data_.size() - first) / size && first <= data_.size(),
            count, " elements of ", size, " bytes from byte ", first, " on of its ", name_,
            ", which has ", data_.size(), " bytes");
    return view_as<A>(data_.range(first, first + count * size));
  }

 private:
  View<Byte*> data_;
  const char* name_ = "";
};

/// A unit's parameters, or their gradients, one array each, by their place in the unit's list.
/// A: the elements.
template <class A>
class ParameterArrays {
 public:
  ParameterArrays() = default;
  /// The segments of a flat parameter; none where a call does not have one. `parameters` outlives
  /// it.
  ParameterArrays(View<A*> trained, View<A*> frozen, const std::vector<Parameter>& parameters)
      : trained_(trained), frozen_(frozen), parameters_(&parameters) {}

  /// The array of parameter `index`. Empty where the call does not have it: a gradient of what is
  /// frozen.
  /// Throws Error where there is no such parameter.
  Array<A> operator()(int index) const {
    const int count = parameters_ == nullptr ? 0 : static_cast<int>(parameters_->size());
    require(index >= 0 && index < count, "parameter ", index, " of a unit that has ", count);
    const Parameter& parameter = (*parameters_)[static_cast<std::size_t>(index)];
    const View<A*>& segment = parameter.frozen ? frozen_ : trained_;
    // Arrays that the call does not have: null, or with memory where gradients are checked.
    if (segment.size() == 0)
      return segment ? Array<A>(segment.data() + parameter.offset, 0) : segment;
    return segment.range(parameter.offset, parameter.offset + parameter.elements());
  }

  /// Returns that array as a matrix of the parameter's shape: its first extent, and the product of
  /// the others. Empty where the array is.
  View<A**> matrix(int index) const {
    const Array<A> array = (*this)(index);
    const std::vector<std::int64_t>& shape = (*parameters_)[static_cast<std::size_t>(index)].shape;
    const std::int64_t rows = shape.empty() ? 1 : shape.front();
    if (array.size() == 0) return {array.data(), 0, 0, 0, array.origin()};
    return array.matrix(rows, array.size() / rows);
  }

 private:
  View<A*> trained_;
  View<A*> frozen_;
  const std::vector<Parameter>* parameters_ = nullptr;
};

/// What forward and backward have in common. T: float, double, bf16 or fp16, in which parameters
/// and activations are kept; kernels compute in compute_t<T>, which is float for the 16-bit types.
template <class T>
struct UnitCall {
  Exec exec;                            ///< where kernels run; calls need not wait for them
  int phase = 0;                        ///< which one of UnitDescription::forward, or backward
  Bytes<const std::byte> batch;         ///< as a SampleSource wrote it; empty unless reads_batch
  Array<const T> input;                 ///< (input), the output of the unit before
  ParameterArrays<const T> parameters;  ///< in backward only if backward_reads_parameters
  ParameterArrays<const T> tied_parameters;  ///< of the unit that it is tied to
  Bytes<std::byte>
      workspace;  ///< of the phase; undefined before it, unless the one before keeps it
  Bytes<const std::byte> exchanged;         ///< what came of the first exchange that it reads
  Bytes<const std::byte> second_exchanged;  ///< of the second
  /// For the exchange after this phase. Empty in a call that recomputes, if no phase reads it then.
  Bytes<std::byte> handed;
};

/// Forward: reads batch, input and parameters; writes output (or losses) and saved.
template <class T>
struct ForwardCall : UnitCall<T> {
  /// (output). Empty in a call that recomputes, and in all phases but the last one and those with
  /// Phase::writes_output.
  Array<T> output;
  /// (output), of the loss unit, in place of `output`: what the loss is the mean of.
  Array<compute_t<T>> losses;
  /// For backward. All phases of a forward share it.
  Bytes<std::byte> saved;
  /// The call is there for `saved` alone, which gets the same bits as in the first forward: what
  /// only the output takes need not be computed (activation checkpointing).
  bool recomputes = false;
};

/// Backward: reads what forward has read and saved; writes gradients.
template <class T>
struct BackwardCall : UnitCall<T> {
  /// One array for both: before, its first `output` elements are dL/d output; after, its first
  /// `input` elements are dL/d input. The loss unit's is undefined before, and gets the gradient of
  /// loss_scale * (sum of losses). All phases share it.
  Array<T> gradient;
  /// As forward left it. May be used as scratch: nothing in it is needed afterwards.
  Bytes<std::byte> saved;
  compute_t<T> loss_scale = 1;  ///< of the loss unit: multiplies its losses
  /// Each of them, (elements of the parameter), has to be written. With `adds_gradients` they hold
  /// what a unit that is tied to this one has written: add to them.
  ParameterArrays<compute_t<T>> parameter_gradients;
  bool adds_gradients = false;
  /// Of the unit that this one is tied to. Zero before: write those that this unit reads.
  ParameterArrays<compute_t<T>> tied_gradients;
};

}  // namespace ostrakon::model
