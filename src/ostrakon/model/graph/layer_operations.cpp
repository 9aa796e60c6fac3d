// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/text.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/fp8/product.hpp>
#include <ostrakon/math/fp8/quantize.hpp>
#include <ostrakon/math/products/gemm.hpp>
#include <ostrakon/math/rows/activation.hpp>
#include <ostrakon/model/array_packer.hpp>
#include <ostrakon/model/graph/kernel.hpp>
#include <ostrakon/model/graph/lists.hpp>
#include <ostrakon/model/graph/operations.hpp>
#include <ostrakon/model/leaf_sums.hpp>
#include <utility>

namespace ostrakon::model::graph {
namespace {

using math::Transpose;

/// Throws Error for products of a linear layer that are not multiplied in 8 bits: sums that are no
/// multiple of what shares a scale, and sizes that a device's library does not take. `rows`: of a
/// leaf and of all.
void require_8bit_sizes(const std::string& name, math::ProductDType dtype, std::int64_t rows,
                        std::int64_t leaves, std::int64_t inputs, std::int64_t outputs,
                        math::KernelForm form) {
  const std::string key = text("precision.products = ", math::name(dtype), ": ", name);
  const std::int64_t block = math::numbers_of_scale(dtype);
  require(inputs % block == 0 && outputs % block == 0, key, ": sums over ", inputs, " inputs and ",
          outputs, " outputs; expected multiples of ", block,
          " (model.tensor_grain divides them), or precision.fp8_layers without this block");
  require(rows / leaves % block == 0, key, ": sums over ", rows / leaves,
          " tokens; expected a multiple of ", block,
          " (training.context_grain divides training.sequence_length)");
  constexpr std::int64_t multiple = 16;
  require(!math::multiplies_codes(form) ||
              (rows % multiple == 0 && inputs % multiple == 0 && outputs % multiple == 0),
          key, ": a product of ", rows, " rows, ", inputs, " inputs and ", outputs,
          " outputs; expected multiples of ", multiple,
          " on a device, or precision.fp8_layers without this block");
}

/// The work of rounding an operand with `outer` sums, each of `inner` numbers.
template <class T>
plan::KernelWork rounding_work(math::ProductDType dtype, std::int64_t outer, std::int64_t inner,
                               bool by_columns, math::KernelForm form) {
  const std::int64_t numbers = outer * inner;
  const auto read = static_cast<double>(bytes_of<T>(numbers));
  const bool has_blocks = dtype == math::ProductDType::mxfp8;
  if (math::multiplies_codes(form))
    return plan::row_work(
        (has_blocks ? 1.0 : math::device_reads(by_columns, inner, bytes_of<T>(1))) * read +
        static_cast<double>(numbers));
  // Scales of columns take a pass of their own.
  const bool has_pass = by_columns && !has_blocks;
  return plan::row_work((has_pass ? 3.0 : 2.0) * read, has_pass ? 3.0 : 1.0);
}

/// The `count` values that a call writes = a b in 8 bits, with its first scratch array; added to
/// what is there, if `adds`, or to `onto`.
template <class T>
void multiply_8bit(const Exec& exec, math::Fp8Formats formats, Transpose transpose_b,
                   View<const T**> a, View<const T**> b, const Arguments& arguments, int count,
                   bool adds, View<const T**> onto = {}) {
  const auto multiply_into = [&](auto c, auto added) {
    using A = typename decltype(c)::Element;
    math::fp8_gemm<T, A>(exec, formats, Transpose::no, transpose_b, a, b,
                         adds ? View<const A**>(c) : added, c, arguments.scratch<std::byte>(0));
  };
  using C = compute_t<T>;
  if (arguments.place_written(0).element == Element::sum)
    multiply_into(arguments.written<C>(0, count), View<const C**>());
  else
    multiply_into(arguments.written<T>(0, count), onto);
}

/// The call of a product, in 8 bits if `is_8bit`.
Call in_8_bits_if(bool is_8bit, Call product) {
  if (is_8bit) product.work = plan::in_8_bits(product.work, product.flops);
  return product;
}

/// The tag of calls whose first gradient is the sums of the columns of the one value that they
/// read, by the leaves of all rows.
constexpr const char* sums_of_columns = "sums of columns";

/// The `count` values that a call writes = a b, in their type; added to what is there, if `adds`.
template <class T>
void multiply(const Exec& exec, Transpose transpose_b, View<const T**> a, View<const T**> b,
              const Arguments& arguments, int count, bool adds) {
  using C = compute_t<T>;
  const C beta = adds ? 1 : 0;
  if (arguments.place_written(0).element == Element::sum)
    math::gemm<T, C>(exec, Transpose::no, transpose_b, 1, a, b, beta,
                     arguments.written<C>(0, count));
  else
    math::gemm<T>(exec, Transpose::no, transpose_b, 1, a, b, beta, arguments.written<T>(0, count));
}

}  // namespace

// ---- linear layers ------------------------------------------------------------------------------

template <class T>
Calls Operations<T>::linear_backward(int x, const std::string& name, const std::vector<int>& made,
                                     std::int64_t outputs, int halves) const {
  const std::int64_t inputs = columns_of(x), leaves = leaf_.leaves(), rows = value(x).rows;
  const math::ProductDType dtype = leaf_.products.dtype;
  const bool is_8bit = math::is_8bit(dtype);
  const math::Fp8Format of_gradients = leaf_.products.fp8_gradients;
  const std::vector<int> weights = weights_of(name);
  const auto count = static_cast<int>(made.size());
  std::vector<int> dy;
  for (int v : made) dy.push_back(~v);
  std::vector<int> dy_and_x = dy;
  dy_and_x.push_back(x);
  const std::int64_t half = halves == 1 ? outputs : std::min(round_up(outputs / 2, 16), outputs);
  Calls calls;
  for (std::int64_t first = 0, last = half; first < outputs; first = last, last = outputs) {
    Call weight =
        in_8_bits_if(is_8bit, product({"d " + name + ".weight" + (first > 0 ? ", second half" : ""),
                                       dy_and_x,
                                       {},
                                       {},
                                       {weights.front()}},
                                      x, inputs, last - first));
    weight.gradient_elements = (last - first) * inputs;
    // No card has shown yet that products in 8 bits add finished products.
    weight.can_add_gradients = leaf_.can_add_gradients() && leaves == 1 && !is_8bit;
    if (is_8bit)
      weight.work +=
          rounding_work<T>(dtype, leaves * (last - first), rows / leaves, true, leaf_.kernels) +
          rounding_work<T>(dtype, leaves * inputs, rows / leaves, true, leaf_.kernels);
    weight.scratch = {is_8bit
                          ? math::fp8_gemm_by_piece_workspace<T>(dtype, last - first, inputs, rows,
                                                                 leaves, leaf_.kernels)
                          : bytes_of<Compute>(weight_sums_workspace(last - first, inputs, leaves))};
    weight.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
      const View<Compute**> gradient =
          a.gradient<Compute>(0).matrix(outputs, inputs).row_range(first, last);
      if (is_8bit && gradient)
        return math::fp8_gemm_by_piece<T>(exec, {of_gradients, math::Fp8Format::e4m3, dtype},
                                          a.read<T>(0, count).column_range(first, last),
                                          a.read<T>(count), gradient, leaves,
                                          a.scratch<std::byte>(0));
      sum_weight_gradient<T>(exec, a.read<T>(count), a.read<T>(0, count).column_range(first, last),
                             gradient, {leaves, a.scratch<Compute>(0), {}, a.adds_gradients()});
    });
    calls.push_back(std::move(weight));
  }
  if (weights.size() > 1) {
    // Where y is a sum over pieces, a piece has some of the columns of the bias.
    const std::int64_t columns = elements_of(weights.back());
    const std::int64_t shift = columns < outputs ? columns : 0;
    Call bias = pass({"d " + name + ".bias", dy, {}, {}, {weights.back()}}, x, columns);
    bias.can_add_gradients = leaf_.can_add_gradients();
    bias.scratch = {bytes_of<Compute>(math::column_sums_workspace(
        value(x).rows, columns, leaves, leaf_.kernels, bias.can_add_gradients))};
    bias.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
      const std::int64_t first = a.piece() * shift;
      sum_bias_gradient<T>(exec, a.read<T>(0, count).column_range(first, first + columns),
                           a.gradient<Compute>(0),
                           {leaves, a.scratch<Compute>(0), {}, a.adds_gradients()});
    });
    if (shift == 0 && count == 1) bias.tag = sums_of_columns;
    calls.push_back(std::move(bias));
  }
  Call input = in_8_bits_if(
      is_8bit, product({"d " + name, dy, {~x}, {weights.front()}}, x, inputs, outputs));
  input.can_add = true;
  input.inner_dimension = outputs;
  if (is_8bit) {
    input.scratch = {math::fp8_gemm_workspace<T>(dtype, rows, inputs, outputs, leaf_.kernels)};
    input.work += rounding_work<T>(dtype, rows, outputs, false, leaf_.kernels) +
                  rounding_work<T>(dtype, inputs, outputs, true, leaf_.kernels);
  }
  input.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    const View<const T**> weight = a.weight<T>(0).matrix(outputs, inputs);
    if (is_8bit)
      multiply_8bit<T>(exec, {of_gradients, math::Fp8Format::e4m3, dtype}, Transpose::no,
                       a.read<T>(0, count), weight, a, 1, a.adds());
    else
      multiply<T>(exec, Transpose::no, a.read<T>(0, count), weight, a, 1, a.adds());
  });
  calls.push_back(std::move(input));
  return calls;
}

template <class T>
void Operations<T>::linear(int of, const std::string& name, const std::vector<int>& all,
                           const std::vector<std::vector<int>>& products, bool halves_gradient,
                           int onto) {
  const bool is_sum = value(all.front()).element == Element::sum;  // over pieces, as x has columns
  const int x = is_sum ? of : redistribute(of, Distribution::replicated);
  const std::int64_t inputs = columns_of(x);
  std::vector<int> weights = weights_of(name);
  if (is_sum) weights.resize(1);  // a bias is added where the sum is rounded
  const std::int64_t outputs = elements_of(weights.front()) / inputs;
  const math::ProductDType dtype = leaf_.products.dtype;
  const bool is_8bit = math::is_8bit(dtype);
  // The host adds a residual and a bias in passes of their own, a device in the product.
  const bool adds_apart = !math::is_of_device(leaf_.kernels);
  const double passes =
      adds_apart ? (weights.size() > 1 ? 1.0 : 0.0) + (onto >= 0 ? 1.0 : 0.0) : 0.0;
  const auto columns_before = [&](std::vector<int>::const_iterator end) {
    std::int64_t columns = 0;
    for (auto v = all.begin(); v != end; ++v) columns += columns_of(*v);
    return columns;
  };
  Operation linear{{}};
  for (const std::vector<int>& made : products) {
    const auto count = static_cast<int>(made.size());
    const auto begin = std::find(all.begin(), all.end(), made.front());
    const std::int64_t first = columns_before(begin), last = columns_before(begin + count);
    Call forward{products.size() == 1 ? name : name + " " + name_of(made.front()), {x}, made};
    if (onto >= 0) forward.reads.push_back(onto);
    forward.weights = weights;
    if (is_sum) forward.inner_dimension = inputs;
    if (is_8bit) {
      require_8bit_sizes(name, dtype, value(x).rows, leaf_.leaves(), inputs, last - first,
                         leaf_.kernels);
      forward.scratch = {
          math::fp8_gemm_workspace<T>(dtype, value(x).rows, last - first, inputs, leaf_.kernels)};
    }
    forward = in_8_bits_if(is_8bit, product(std::move(forward), x, inputs, last - first));
    forward.work += passes * row_work(x, 2 * (last - first));
    if (is_8bit)
      forward.work += rounding_work<T>(dtype, value(x).rows, inputs, false, leaf_.kernels) +
                      rounding_work<T>(dtype, last - first, inputs, false, leaf_.kernels);
    if (!adds_apart && onto >= 0) forward.work += row_work(x, last - first, 0.0);
    forward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
      const View<const T**> weight = a.weight<T>(0).matrix(outputs, inputs).row_range(first, last);
      const math::Addends<T> addends = {a.read<T>(1), a.weight<T>(1).range(first, last)};
      if (is_8bit) {
        multiply_8bit<T>(exec, {math::Fp8Format::e4m3, math::Fp8Format::e4m3, dtype},
                         Transpose::yes, a.read<T>(0), weight, a, count, a.adds(), addends.onto);
        if (addends.bias) math::add_bias<T>(exec, a.written<T>(0, count), addends.bias);
        return;
      }
      if (addends.onto || addends.bias)
        math::gemm_plus<T>(exec, Transpose::no, Transpose::yes, a.read<T>(0), weight, addends,
                           a.written<T>(0, count));
      else
        multiply<T>(exec, Transpose::yes, a.read<T>(0), weight, a, count, a.adds());
    });
    linear.forward.push_back(std::move(forward));
  }
  const bool halves = halves_gradient && graph_.setting.pieces > 1;
  linear.backward = linear_backward(x, name, all, outputs, halves ? 2 : 1);
  if (onto >= 0) linear.residuals = {onto};
  append(std::move(linear));
}

template <class T>
int Operations<T>::sum_of_product(int x, const std::string& name, std::int64_t outputs) {
  const int sum = add(name, outputs, Distribution::partial, Keep::never, Element::sum);
  linear(x, name, {sum}, {{sum}});
  return sum;
}

template <class T>
int Operations<T>::linear(int x, const std::string& name, std::int64_t columns, Keep keep,
                          bool halves_gradient) {
  if (value(x).tensor_distribution == Distribution::columns)
    return round_sum(sum_of_product(x, name, columns), name, name + ".bias");
  const int made = add(name, columns / leaf_.tensor_pieces(), Distribution::columns, keep);
  linear(x, name, {made}, {{made}}, halves_gradient);
  return made;
}

template <class T>
int Operations<T>::linear_onto(int onto, int x, const std::string& name, const std::string& made) {
  if (value(x).tensor_distribution == Distribution::columns)
    return round_sum(sum_of_product(x, name, columns_of(onto)), made, name + ".bias", onto);
  const int y = add_for(onto, made, columns_of(onto));
  linear(x, name, {y}, {{y}}, false, onto);
  return y;
}

// ---- activations --------------------------------------------------------------------------------

template <class T>
int Operations<T>::activation(int x, const std::string& name, Activation activation) {
  const std::int64_t up = columns_of(x), inner = math::is_gated(activation) ? up / 2 : up;
  const std::int64_t rows = value(x).rows;
  const auto work_of = [&](std::int64_t columns) {
    return plan::activation_work(static_cast<double>(rows * inner),
                                 static_cast<double>(bytes_of<T>(rows * columns)));
  };
  const int made = add_for(x, name, inner, Keep::activations);
  Call forward{name, {x}, {made}};
  forward.work = work_of(up + inner);
  forward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::activation_forward<T>(exec, activation, a.read<T>(0), a.written<T>(0));
  });
  forward.tag = text("again ", made);
  Call backward{"d " + name, {x, ~made}, {~x}};
  backward.replaces = {{~x, x}};
  backward.work = work_of(2 * up + inner);
  backward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::activation_backward<T>(exec, activation, a.read<T>(0), a.read<T>(1), a.written<T>(0));
  });
  // The host's kernels read dy after they have written what is made again.
  const int over = math::is_of_device(leaf_.kernels) ? 1 : -1;
  backward.fused = std::make_shared<FusedKernel>(FusedKernel{
      {{forward.tag, FusedKernel::Order::beside, 0, over},
       {sums_of_columns, FusedKernel::Order::behind}},
      make_kernel([=, leaves = leaf_.leaves()](const Exec& exec, const Arguments& all) {
        const Arguments a = *all.part(0);
        const std::optional<Arguments> remade = all.part(1), sums = all.part(2);
        math::activation_backward<T>(exec, activation, a.read<T>(0), a.read<T>(1), a.written<T>(0),
                                     remade ? remade->written<T>(0) : View<T**>(),
                                     sums ? sums->gradient<Compute>(0) : View<Compute*>(),
                                     {leaves, sums ? sums->scratch<Compute>(0) : View<Compute*>(),
                                      sums && sums->adds_gradients()});
      })});
  append({{forward}, {backward}});
  return made;
}

template <class T>
int Operations<T>::gate(int x, int gate, const std::string& name) {
  const std::int64_t columns = columns_of(x), gates = columns_of(gate);
  const int made = add_for(x, name, columns, Keep::never);
  Call forward = pass({name, {x, gate}, {made}}, x, 2 * columns + gates);
  forward.kernel = make_kernel([](const Exec& exec, const Arguments& a) {
    math::gate_forward<T>(exec, a.read<T>(0), a.read<T>(1), a.written<T>(0));
  });
  Call backward = pass({"d " + name, {x, gate, ~made}, {~x, ~gate}}, x, 3 * columns + 2 * gates);
  backward.replaces = {{~x, ~made}};
  backward.kernel = make_kernel([](const Exec& exec, const Arguments& a) {
    math::gate_backward<T>(exec, a.read<T>(0), a.read<T>(1), a.read<T>(2), a.written<T>(0),
                           a.written<T>(1));
  });
  append({{forward}, {backward}});
  return made;
}

template <class T>
int Operations<T>::soft_cap(int x, const std::string& name, double cap) {
  const auto limit = static_cast<Compute>(cap);
  const int made = add_for(x, name, columns_of(x));
  Call forward = pass({name, {x}, {made}}, x, 2 * columns_of(x));
  forward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::soft_cap_forward<T>(exec, limit, a.read<T>(0), a.written<T>(0));
  });
  Call backward = pass({"d " + name, {made, ~made}, {~x}}, x, 3 * columns_of(x));
  backward.replaces = {{~x, ~made}};
  backward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::soft_cap_backward<T>(exec, limit, a.read<T>(0), a.read<T>(1), a.written<T>(0));
  });
  append({{forward}, {backward}});
  return made;
}

#define OSTRAKON_INSTANTIATE(T)                                                              \
  template int Operations<T>::linear(int, const std::string&, std::int64_t, Keep, bool);     \
  template void Operations<T>::linear(int, const std::string&, const std::vector<int>&,      \
                                      const std::vector<std::vector<int>>&, bool, int);      \
  template int Operations<T>::linear_onto(int, int, const std::string&, const std::string&); \
  template int Operations<T>::activation(int, const std::string&, Activation);               \
  template int Operations<T>::gate(int, int, const std::string&);                            \
  template int Operations<T>::soft_cap(int, const std::string&, double);
OSTRAKON_FOR_ALL_NUMBERS(OSTRAKON_INSTANTIATE)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::model::graph
