// SPDX-License-Identifier: Apache-2.0
// The router of a mixture of experts.
#include <optional>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/products/gemm.hpp>
#include <ostrakon/model/array_packer.hpp>
#include <ostrakon/model/graph/routes.hpp>
#include <ostrakon/model/leaf_sums.hpp>
#include <utility>

namespace ostrakon::model::graph {
namespace {

using math::Transpose;

template <class T>
constexpr bool is_narrow = !std::is_same<T, compute_t<T>>::value;

/// A matrix in compute_t<T>: itself, or a copy of it in `room`.
template <class T>
View<const compute_t<T>**> widened(const Exec& exec, View<const T**> matrix,
                                   View<compute_t<T>*> room) {
  if constexpr (is_narrow<T>) {
    if (!matrix) return {};
    const View<compute_t<T>*> copy = room.range(0, matrix.rows() * matrix.columns());
    math::convert<T, compute_t<T>>(exec, matrix.flat(), copy);
    return copy.matrix(matrix.rows(), matrix.columns());
  } else {
    return matrix;
  }
}
template <class T>
std::int64_t bytes_to_widen(std::int64_t elements) {
  return is_narrow<T> ? bytes_of<compute_t<T>>(elements) : 0;
}

}  // namespace

template <class T>
int Operations<T>::add_bytes(const std::string& name, std::int64_t bytes) {
  Value value{prefix_ + name, 1, bytes};
  value.element = Element::byte;
  value.tensor_distribution = Distribution::rows;
  return graph_.add(std::move(value));
}

template <class T>
Operation Operations<T>::route(int x, const std::string& name, const MoeDispatchLayout* dispatch,
                               Experts& experts) {
  const math::Router router = experts.router;
  const std::int64_t width = columns_of(x), count = router.experts;
  experts.rows = value(x).rows;
  experts.leaves = leaves_of(x);
  experts.lists = add_bytes(name + ".lists", ListedRoutes<T>(experts, experts.rows, {}).bytes);
  experts.weights = add_for(x, name + ".weights", router.per_token, Keep::always, Element::sum);
  const Experts all = experts;
  const bool has_balance = weight(name + ".balance") >= 0, has_bias = weight(name + ".bias") >= 0;
  std::vector<int> weights = {whole_weight(name + ".weight")};
  if (has_balance) weights.push_back(whole_weight(name + ".balance"));
  if (has_bias) weights.push_back(whole_weight(name + ".bias"));
  const int balance_index = has_balance ? 1 : -1, bias_index = has_balance ? 2 : 1;
  const std::int64_t wide_rows = bytes_to_widen<T>(experts.rows * width),
                     wide_weight = bytes_to_widen<T>(count * width);
  const plan::KernelWork scores =
      plan::row_work(static_cast<double>(bytes_of<Compute>(2 * experts.rows * count)));
  const std::int64_t first_counted = std::exchange(counted_, counted_ + count);
  const auto wide_weight_of = [=](const Exec& exec, const Arguments& a, int scratch) {
    return widened<T>(exec, a.weight<T>(0).matrix(count, width), a.scratch<Compute>(scratch));
  };

  Call forward = product({name, {x}, {all.lists, all.weights}, weights}, x, width, count);
  forward.is_by_row = false;
  forward.scratch = {wide_rows, wide_weight, has_balance ? bytes_to_widen<T>(count) : 0,
                     has_bias ? bytes_to_widen<T>(count) : 0};
  forward.work += scores;
  forward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    const View<const T**> rows = a.read<T>(0);
    auto routes = ListedRoutes<T>(all, rows.rows(), a.bytes(a.place_written(0))).routes;
    routes.weights = a.written<Compute>(1).flat();
    math::gemm<Compute>(exec, Transpose::no, Transpose::yes, 1,
                        widened<T>(exec, rows, a.scratch<Compute>(0)), wide_weight_of(exec, a, 1),
                        0, routes.scores);
    const auto vector = [&](int index, int scratch) {
      const View<const T*> own = index < 0 ? View<const T*>() : a.weight<T>(index);
      const auto wide = widened<T>(exec, own.matrix(1, count), a.scratch<Compute>(scratch));
      return wide ? wide.flat() : View<const Compute*>();
    };
    if (has_bias) math::add_bias<Compute>(exec, routes.scores, vector(bias_index, 3));
    math::choose_experts<Compute>(exec, router, vector(balance_index, 2), routes);
    const std::int64_t leaves = (routes.offsets.size() - 1) / count;
    math::sort_by_expert<Compute>(exec, router, leaves, routes);
    if (const View<std::int64_t*> counts = a.buffers().counts)
      math::add_counts(exec, leaves, routes.offsets,
                       counts.range(first_counted, first_counted + count));
  });

  // Backward begins with the gradients of the weights, and leaves that of x for the caller to make
  // of experts.dx and what else x is taken by.
  const int dlogits = add_for(x, "d " + name + ".logits", count, Keep::never, Element::sum);
  experts.dx = add_for(x, "d " + name + ".x", width, Keep::never, Element::sum);
  std::optional<MoeDispatchLayout> apart;
  if (dispatch != nullptr) {
    apart = *dispatch;
    experts.handed_over = add_bytes("to experts", dispatch->rows_in<T>({}).bytes);
  }
  const int dweights = apart ? ~experts.handed_over : ~all.weights;
  Call logits{"d " + name + ".logits", {all.lists, all.weights, dweights}, {dlogits}};
  logits.work = scores;
  logits.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::router_backward<Compute>(
        exec, router, all.leaves,
        static_cast<Compute>(a.buffers().loss_scale) * static_cast<Compute>(all.loss_factor),
        routes_read<T>(a, all, all.rows, 0, 1),
        apart ? handed_back<T>(a, *apart, 2).dweights : a.read<Compute>(2).flat(),
        a.written<Compute>(0));
  });
  Call gradient =
      product({"d " + name + ".weight", {dlogits, x}, {}, {}, {weights.front()}}, x, width, count);
  gradient.scratch = {wide_rows,
                      bytes_of<Compute>(weight_sums_workspace(count, width, all.leaves))};
  gradient.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::gemm_by_piece<Compute>(
        exec, a.read<Compute>(0), widened<T>(exec, a.read<T>(1), a.scratch<Compute>(0)),
        a.gradient<Compute>(0).matrix(count, width), all.leaves, a.scratch<Compute>(1));
  });
  Call balance{"d " + name + ".balance", {all.lists}, {}};
  if (has_balance) balance.gradients = {weights[1]};
  balance.scratch = {bytes_of<Compute>(math::excess_workspace(router, all.leaves))};
  balance.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::load_imbalance<Compute>(exec, router, all.leaves, routes_read<T>(a, all, all.rows, 0),
                                  a.gradient<Compute>(0), a.scratch<Compute>(0));
  });
  Call input = product({"d " + name, {dlogits}, {experts.dx}, {weights.front()}}, x, width, count);
  input.scratch = {wide_weight};
  input.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::gemm<Compute>(exec, Transpose::no, Transpose::no, 1, a.read<Compute>(0),
                        wide_weight_of(exec, a, 0), 0, a.written<Compute>(0));
  });
  if (!has_bias) return {{forward}, {logits, gradient, balance, input}};
  Call bias = pass({"d " + name + ".bias", {dlogits}, {}, {}, {weights.back()}}, dlogits, count);
  bias.scratch = {bytes_of<Compute>(
      math::column_sums_workspace(value(dlogits).rows, count, all.leaves, leaf_.kernels))};
  bias.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    sum_bias_gradient<Compute>(exec, a.read<Compute>(0), a.gradient<Compute>(0),
                               {all.leaves, a.scratch<Compute>(0)});
  });
  return {{forward}, {logits, gradient, bias, balance, input}};
}

#define OSTRAKON_INSTANTIATE(T)                                                              \
  template int Operations<T>::add_bytes(const std::string&, std::int64_t);                   \
  template Operation Operations<T>::route(int, const std::string&, const MoeDispatchLayout*, \
                                          Experts&);
OSTRAKON_FOR_ALL_NUMBERS(OSTRAKON_INSTANTIATE)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::model::graph
