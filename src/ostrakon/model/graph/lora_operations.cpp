// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/products/gemm.hpp>
#include <ostrakon/model/array_packer.hpp>
#include <ostrakon/model/graph/kernel.hpp>
#include <ostrakon/model/graph/operations.hpp>
#include <ostrakon/model/leaf_sums.hpp>
#include <utility>

namespace ostrakon::model::graph {

using math::Transpose;

/// The narrow value between both products has the scale already; its gradient is that of x A^T, so
/// it has the scale, too. Neither takes a pass of its own.
template <class T>
int Operations<T>::adapt(int y, int x, const std::string& layer, std::int64_t first, double scale) {
  const std::string down = layer + ".lora_a", up = layer + ".lora_b";
  const int a_weight = weights_of(down).front(), b_weight = weights_of(up).front();
  const std::int64_t inputs = columns_of(x), rank = elements_of(a_weight) / inputs;
  const std::int64_t outputs = elements_of(b_weight) / rank, last = first + outputs;
  const std::int64_t leaves = leaf_.leaves();
  const auto factor = static_cast<Compute>(scale);

  const int narrow = add_for(x, down, rank);
  Call project = product({down, {x}, {narrow}, {a_weight}}, x, inputs, rank);
  project.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::gemm<T>(exec, Transpose::no, Transpose::yes, factor, a.read<T>(0),
                  a.weight<T>(0).matrix(rank, inputs), 0, a.written<T>(0));
  });
  const math::ProductDType dtype =
      std::exchange(leaf_.products.dtype, math::ProductDType::as_stored);
  append({{std::move(project)}, linear_backward(x, down, {narrow}, rank, 1)});
  leaf_.products.dtype = dtype;

  // Columns of an array stay where they are; what is made again finds the unadapted values anew.
  const bool is_of_group = value(y).group >= 0;
  const int made = add_among_columns(y, name_of(y) + " adapted");
  Call add = product({up, {narrow, y}, {made}, {b_weight}}, x, rank, outputs);
  add.replaces = {{made, y}};
  add.in_place = is_of_group;
  add.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    const View<T**> sum = a.written<T>(0);
    if (a.read<T>(1).data() != sum.data()) math::copy_rows<T, T>(exec, a.read<T>(1), sum);
    math::gemm<T>(exec, Transpose::no, Transpose::yes, 1, a.read<T>(0),
                  a.weight<T>(0).matrix(outputs, rank), 1, sum.column_range(first, last));
  });
  Call weight =
      product({"d " + up + ".weight", {~made, narrow}, {}, {}, {b_weight}}, x, rank, outputs);
  weight.can_add_gradients = leaf_.can_add_gradients() && leaves == 1;
  weight.scratch = {bytes_of<Compute>(weight_sums_workspace(outputs, rank, leaves))};
  weight.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    sum_weight_gradient<T>(exec, a.read<T>(1), a.read<T>(0).column_range(first, last),
                           a.gradient<Compute>(0).matrix(outputs, rank),
                           {leaves, a.scratch<Compute>(0), {}, a.adds_gradients()});
  });
  Call input = product({"d " + up, {~made}, {~narrow}, {b_weight}}, x, rank, outputs);
  input.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::gemm<T>(exec, Transpose::no, Transpose::no, factor,
                  a.read<T>(0).column_range(first, last), a.weight<T>(0).matrix(outputs, rank), 0,
                  a.written<T>(0));
  });
  Operation operation{{std::move(add)}, {std::move(weight), std::move(input)}};
  operation.residuals = {y};
  append(std::move(operation));
  return made;
}

#define OSTRAKON_INSTANTIATE(T) \
  template int Operations<T>::adapt(int, int, const std::string&, std::int64_t, double);
OSTRAKON_FOR_ALL_NUMBERS(OSTRAKON_INSTANTIATE)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::model::graph
