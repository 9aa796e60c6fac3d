// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/piece_tree.hpp>
#include <ostrakon/model/decoder.hpp>
#include <ostrakon/model/graph/kernel.hpp>
#include <ostrakon/model/own_operation.hpp>
#include <utility>
#include <vector>

namespace ostrakon::model {

/// How the calls of an operation of one's own are laid out.
struct OwnShape {
  LeafShape leaf;
  bool is_loss = false, by_columns = false;
  std::int64_t leaves = 1;             ///< by which gradients of parameters are summed over rows
  std::vector<std::int64_t> elements;  ///< of each parameter here
  std::int64_t all_elements() const {
    std::int64_t all = 0;
    for (std::int64_t count : elements) all += count;
    return all;
  }
};

/// Has the call take these of its rows.
template <class T>
void take_rows(OperationForward<T>& call, std::int64_t begin, std::int64_t end) {
  for (auto& input : call.inputs) input = input.row_range(begin, end);
  call.output = call.output.row_range(begin, end);
  call.losses = call.losses.range(begin, end);
  call.first_row += begin;
}
template <class T>
void take_rows(OperationBackward<T>& call, std::int64_t begin, std::int64_t end) {
  for (auto& input : call.inputs) input = input.row_range(begin, end);
  for (auto& gradient : call.input_gradients) gradient = gradient.row_range(begin, end);
  call.output = call.output.row_range(begin, end);
  call.gradient = call.gradient.row_range(begin, end);
  call.first_row += begin;
}

/// The kernels of an operation of one's own, as those of its calls.
template <class T>
class OwnKernels {
  using C = compute_t<T>;

 public:
  OwnKernels(Operation<T> operation, OwnShape shape)
      : operation_(std::move(operation)), shape_(std::move(shape)) {}

  void forward(const Exec& exec, const graph::Arguments& a) const {
    run_forward(exec, a, a.place_written(0).columns, 0);
  }
  /// Reads the output's gradient but of losses, then inputs, then the output; writes gradients of
  /// inputs, then losses.
  void backward(const Exec& exec, const graph::Arguments& a) const {
    if (shape_.is_loss) run_forward(exec, a, 1, static_cast<int>(inputs()));
    OperationBackward<T> call;
    set(call, exec, a, a.place_read(0).columns);
    int next = shape_.is_loss ? 0 : 1;
    if (!shape_.is_loss) call.gradient = a.read<T>(0);
    const bool reads_inputs = operation_.backward_reads_inputs || shape_.is_loss;
    for (std::size_t i = 0; i < inputs(); ++i)
      call.inputs.push_back(reads_inputs ? a.read<T>(next++) : View<const T**>());
    if (operation_.backward_reads_output) call.output = a.read<T>(next);
    call.loss_scale = static_cast<C>(a.buffers().loss_scale);
    for (std::size_t i = 0; i < inputs(); ++i)
      call.input_gradients.push_back(a.written<T>(static_cast<int>(i)));
    for (int i = 0; i < a.gradients(); ++i) call.parameter_gradients.push_back(a.gradient<C>(i));
    run_backward(exec, a, call);
  }

 private:
  std::size_t inputs() const { return operation_.inputs.size(); }

  void set(OperationCall<T>& call, const Exec& exec, const graph::Arguments& a,
           std::int64_t columns) const {
    call.exec = exec;
    if (operation_.reads_batch) call.batch = BatchBytes(a.buffers().batch);
    for (int i = 0; i < a.weights(); ++i) call.parameters.push_back(a.weight<T>(i));
    if (shape_.by_columns)
      call.first_column = a.piece() * columns;
    else
      call.first_row = a.buffers().tensor_rank * shape_.leaf.own_rows();
  }

  /// The output is what the call writes as `written`.
  void run_forward(const Exec& exec, const graph::Arguments& a, std::int64_t columns,
                   int written) const {
    OperationForward<T> call;
    set(call, exec, a, columns);
    for (std::size_t i = 0; i < inputs(); ++i)
      call.inputs.push_back(a.read<T>(static_cast<int>(i)));
    if (shape_.is_loss)
      call.losses = a.written<C>(written).flat();
    else
      call.output = a.written<T>(written);
    if (OperationWatch<T>* const watch = watch_of(a)) return watch->forward(operation_, call);
    operation_.forward(call);
  }

  static OperationWatch<T>* watch_of(const graph::Arguments& a) {
    return static_cast<OperationWatch<T>*>(a.buffers().watch);
  }
  void compute_backward(const graph::Arguments& a, const OperationBackward<T>& call) const {
    if (OperationWatch<T>* const watch = watch_of(a)) return watch->backward(operation_, call);
    operation_.backward(call);
  }

  /// Gradients of parameters are sums over leaves by the tree that all others take.
  void run_backward(const Exec& exec, const graph::Arguments& a,
                    const OperationBackward<T>& call) const {
    if (shape_.leaves == 1 || call.parameter_gradients.empty()) return compute_backward(a, call);
    const std::int64_t rows = a.place_read(0).rows / shape_.leaves;
    const std::int64_t all = shape_.all_elements();
    const auto slot = [&](std::int64_t index, std::size_t i) {
      const Array<C>& whole = call.parameter_gradients[i];
      if (index == 0 || whole.size() == 0) return whole;
      std::int64_t begin = (index - 1) * all;
      for (std::size_t j = 0; j < i; ++j) begin += shape_.elements[j];
      return a.scratch<C>(0).range(begin, begin + shape_.elements[i]);
    };
    math::sum_pieces(
        shape_.leaves,
        [&](std::int64_t to, std::int64_t leaf) {
          OperationBackward<T> of_leaf = call;
          take_rows(of_leaf, leaf * rows, (leaf + 1) * rows);
          for (std::size_t i = 0; i < call.parameter_gradients.size(); ++i)
            of_leaf.parameter_gradients[i] = slot(to, i);
          compute_backward(a, of_leaf);
        },
        [&](std::int64_t from, std::int64_t to) {
          for (std::size_t i = 0; i < call.parameter_gradients.size(); ++i)
            if (call.parameter_gradients[i].size() > 0)
              math::add_to<C>(exec, View<const C*>(slot(from, i)), slot(to, i));
        });
  }

  Operation<T> operation_;
  OwnShape shape_;
};

}  // namespace ostrakon::model
