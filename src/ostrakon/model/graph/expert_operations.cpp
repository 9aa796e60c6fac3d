// SPDX-License-Identifier: Apache-2.0
// Operations of a mixture of experts: products of rows that are sorted by expert.
#include <algorithm>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/experts/expert_rows.hpp>
#include <ostrakon/math/products/gemm.hpp>
#include <ostrakon/model/graph/kernel.hpp>
#include <ostrakon/model/graph/lists.hpp>
#include <ostrakon/model/graph/operations.hpp>
#include <ostrakon/model/graph/routes.hpp>
#include <ostrakon/model/layer_parameters.hpp>
#include <ostrakon/model/leaf_sums.hpp>
#include <ostrakon/model/moe_dispatch_layout.hpp>

namespace ostrakon::model::graph {
namespace {

using math::Transpose;

/// Tells which of all rows, sorted by expert, each expert has.
struct ExpertRows {
  std::int64_t experts;
  HostView<const std::int64_t*> offsets;  // Routes::offsets

  /// The first row of each leaf of an expert, and the end of the last.
  HostView<const std::int64_t*> of(std::int64_t e) const {
    const std::int64_t leaves = (offsets.size() - 1) / experts;
    return offsets.range(e * leaves, (e + 1) * leaves + 1);
  }
  /// f(expert, its first row, the one after its last) for each expert that has any.
  template <class Function>
  void for_each(const Function& f) const {
    for (std::int64_t e = 0; e < experts; ++e) {
      const std::int64_t begin = of(e)[0], end = of(e)[of(e).size() - 1];
      if (begin < end) f(static_cast<int>(e), begin, end);
    }
  }
};

/// Those of the routes of so many rows that a call reads as value `lists`.
template <class T>
ExpertRows expert_rows(const Exec& exec, const Arguments& a, const Experts& experts,
                       std::int64_t rows, int lists) {
  const auto routes = routes_read<T>(a, experts, rows, lists);
  return {experts.router.experts, a.on_host(exec, lists, routes.offsets)};
}

/// A linear layer that each expert has.
struct ExpertLayer {
  std::string name;
  std::vector<int> weights, biases;  // of the graph, of all experts
  std::int64_t inputs = 0, outputs = 0;
  std::int64_t padding = 0;     // bytes of scratch memory of products
  std::int64_t sums = 0;        // and of gradients of weights
  double flops = 0.0;           // of forward, and of the gradient of its input
  double gradient_flops = 0.0;  // of gradients of weights
  plan::KernelWork work, bias_work, gradient_work;

  std::vector<int> all() const {
    std::vector<int> all = weights;
    append(all, biases);
    return all;
  }
};

/// The layer "mlp.experts.3" + `name` of each expert, of rows of x.
template <class T>
ExpertLayer find_layer(Operations<T>& operations, const Experts& experts, int x,
                       const std::string& name, math::KernelForm kernels) {
  const Graph& graph = operations.graph();
  const Value& rows_of_x = graph.values[static_cast<std::size_t>(x)];
  const auto is_trained = [&](int w) { return graph.weights[static_cast<std::size_t>(w)].trained; };
  const std::int64_t count = experts.router.experts;
  ExpertLayer layer;
  layer.name = experts.name + ".experts" + name;
  layer.inputs = rows_of_x.columns;
  for (std::int64_t e = 0; e < count; ++e) {
    const std::vector<int> own = operations.weights_of(name_of_expert(experts.name, e) + name);
    layer.weights.push_back(own.front());
    if (own.size() > 1) layer.biases.push_back(own.back());
    layer.outputs = operations.elements_of(own.front()) / layer.inputs;
    // What it costs is told of rows that are evenly divided over experts, as far as they can be.
    const std::int64_t rows = (e + 1) * rows_of_x.rows / count - e * rows_of_x.rows / count;
    const double flops =
        2.0 * static_cast<double>(rows) * static_cast<double>(layer.inputs * layer.outputs);
    const plan::KernelWork product = plan::product_work(flops, layer.inputs, layer.outputs);
    const plan::KernelWork pass =
        plan::row_work(static_cast<double>(bytes_of<T>(rows * layer.outputs)));
    layer.flops += flops;
    layer.work += product;
    if (is_trained(own.front())) layer.gradient_flops += flops;
    if (is_trained(own.front())) layer.gradient_work += product;
    if (own.size() > 1) layer.bias_work += 2.0 * pass;
    if (own.size() > 1 && is_trained(own.back())) layer.gradient_work += pass;
  }
  layer.padding = bytes_of<T>(math::gemm_by_row_workspace<T>(
      layer.inputs, layer.outputs, math::rows_of_a_product_in<T>(kernels)));
  layer.sums = bytes_of<compute_t<T>>(
      std::max(weight_sums_workspace(layer.outputs, layer.inputs, experts.leaves),
               bias_sums_workspace(layer.outputs, experts.leaves)));
  return layer;
}

/// y = x W^T + b, by each expert of its rows.
template <class T>
void multiply_by_experts(const Exec& exec, const Arguments& a, const ExpertRows& rows,
                         View<const T**> x, View<T**> y, View<T*> padding) {
  rows.for_each([&](int e, std::int64_t begin, std::int64_t end) {
    const View<T**> own = y.row_range(begin, end);
    math::gemm_by_row<T>(exec, Transpose::yes, x.row_range(begin, end),
                         a.weight<T>(e).matrix(y.columns(), x.columns()), own, padding);
    if (const auto bias = a.weight<T>(static_cast<int>(rows.experts) + e))
      math::add_bias<T>(exec, own, bias);
  });
}

/// Gradients of the weights of all experts of dy and x, (assignments, outputs) and (assignments,
/// inputs): those of one without rows are zero, not what the array had before.
template <class T>
Call expert_gradients(const Experts& experts, const ExpertLayer& layer, int dy, int x) {
  using C = compute_t<T>;
  Call call{"d " + layer.name + ".weight", {dy, x, experts.lists}, {}, {}, layer.all()};
  call.scratch = {layer.sums};
  call.flops = layer.gradient_flops;
  call.work = layer.gradient_work;
  call.kernel = make_kernel([=, outputs = layer.outputs](const Exec& exec, const Arguments& a) {
    const ExpertRows rows = expert_rows<T>(exec, a, experts, experts.rows, 2);
    const View<const T**> gradient = a.read<T>(0), input = a.read<T>(1);
    for (int e = 0; e < static_cast<int>(rows.experts); ++e) {
      const LeafSums<T> sums{experts.leaves, a.scratch<C>(0), rows.of(e)};
      sum_weight_gradient<T>(exec, input, gradient,
                             a.gradient<C>(e).matrix(outputs, input.columns()), sums);
      sum_bias_gradient<T>(exec, gradient, a.gradient<C>(static_cast<int>(rows.experts) + e), sums);
    }
  });
  return call;
}

std::vector<int> those_that_exist(std::vector<int> values) {
  values.erase(std::remove(values.begin(), values.end(), -1), values.end());
  return values;
}

}  // namespace

template <class T>
int Operations<T>::dispatch(int of, const std::string& name, Experts& experts) {
  const int x = rows_of_rank(of);
  Operation operation = route(x, name, nullptr, experts);
  const Experts all = experts;
  const std::int64_t width = columns_of(x), assignments = all.rows * all.router.per_token;
  const int copies = add_for(x, "copies", width, Keep::never);
  graph_.values.back().rows = assignments;
  graph_.values.back().per_row = all.router.per_token;
  Call gather = pass({"gather", {x, all.lists}, {copies}}, copies, 2 * width);
  gather.is_by_row = false;
  gather.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    const View<const T**> rows = a.read<T>(0);
    math::gather_rows<T>(exec, rows, routes_read<T>(a, all, rows.rows(), 1).assignments,
                         a.written<T>(0));
  });
  operation.forward.push_back(std::move(gather));
  Call combine{"d copies", {all.dx, all.lists, ~copies}, {~x}};
  combine.can_add = combine.adds_from_anywhere = true;
  combine.work =
      plan::row_work(static_cast<double>(bytes_of<T>((assignments + 2 * all.rows) * width)));
  combine.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::combine_gradients<T>(exec, a.read<Compute>(0), added_to<T>(a),
                               routes_read<T>(a, all, all.rows, 1), a.read<T>(2), a.written<T>(0));
  });
  operation.backward.push_back(std::move(combine));
  append(std::move(operation));
  return copies;
}

// ---- experts ------------------------------------------------------------------------------------

template <class T>
int Operations<T>::expert_linear(const Experts& experts, int x, const std::string& name) {
  const Experts all = experts;
  const ExpertLayer layer = find_layer<T>(*this, all, x, name, leaf_.kernels);
  const int y = add_for(x, layer.name, layer.outputs, Keep::mlp);
  Call forward{layer.name, {x, all.lists}, {y}, layer.all()};
  forward.is_by_row = false;
  forward.scratch = {layer.padding};
  forward.flops = layer.flops;
  forward.work = layer.work + layer.bias_work;
  forward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    const View<const T**> input = a.read<T>(0);
    const std::int64_t rows = input.rows() / all.router.per_token;
    multiply_by_experts<T>(exec, a, expert_rows<T>(exec, a, all, rows, 1), input, a.written<T>(0),
                           a.scratch<T>(0));
  });
  Call input{"d " + layer.name, {~y, all.lists}, {~x}, layer.weights};
  input.scratch = {layer.padding};
  input.flops = layer.flops;
  input.work = layer.work;
  input.kernel = make_kernel([=, inputs = layer.inputs](const Exec& exec, const Arguments& a) {
    const View<const T**> dy = a.read<T>(0);
    const ExpertRows rows = expert_rows<T>(exec, a, all, all.rows, 1);
    rows.for_each([&](int e, std::int64_t begin, std::int64_t end) {
      math::gemm_by_row<T>(exec, Transpose::no, dy.row_range(begin, end),
                           a.weight<T>(e).matrix(dy.columns(), inputs),
                           a.written<T>(0).row_range(begin, end), a.scratch<T>(0));
    });
  });
  append({{forward}, {expert_gradients<T>(all, layer, ~y, x), input}});
  return y;
}

/// The gradient of a weight needs no output of an expert: with dy the gradient of the combined
/// output it is (x W^T + b) . dy = x . (dy W) + b . dy.
template <class T>
int Operations<T>::combine(const Experts& experts, int onto, int shared, int x,
                           const std::string& name) {
  const Experts all = experts;
  const ExpertLayer layer = find_layer<T>(*this, all, x, name, leaf_.kernels);
  const std::int64_t width = layer.outputs, assignments = value(x).rows;
  const int y = onto >= 0 ? add_for(onto, "y", width) : add("y", width, Distribution::rows);
  const std::vector<int> residuals = those_that_exist({onto, shared});
  Call forward{layer.name, {x, all.lists, all.weights}, {y}, layer.all()};
  graph::append(forward.reads, residuals);
  forward.is_by_row = false;
  forward.scratch = {layer.padding, bytes_of<T>(assignments * width)};
  forward.flops = layer.flops;
  forward.work =
      layer.work + layer.bias_work +
      plan::row_work(static_cast<double>(bytes_of<T>((assignments + 2 * all.rows) * width)));
  forward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    const View<const T**> input = a.read<T>(0);
    const View<T**> outputs = a.scratch<T>(1).matrix(input.rows(), width), made = a.written<T>(0);
    multiply_by_experts<T>(exec, a, expert_rows<T>(exec, a, all, made.rows(), 1), input, outputs,
                           a.scratch<T>(0));
    const bool adds = onto >= 0;
    math::combine_outputs<T>(exec, adds ? a.read<T>(3) : View<const T**>(), a.read<T>(adds ? 4 : 3),
                             routes_read<T>(a, all, made.rows(), 1, 2), outputs, made);
  });

  Call input{"d " + layer.name, {~y, x, all.lists, all.weights}, {~x, ~all.weights}, layer.all()};
  input.scratch = forward.scratch;
  input.flops = layer.flops;
  input.work = layer.work + row_work(x, 2 * width) + row_work(x, 3 * layer.inputs);
  input.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    const auto routes = routes_read<T>(a, all, all.rows, 2, 3);
    const View<const T**> rows_of_x = a.read<T>(1);
    const View<T**> dx = a.written<T>(0), dy = a.scratch<T>(1).matrix(dx.rows(), width);
    math::gather_rows<T>(exec, a.read<T>(0), routes.assignments, dy);
    const ExpertRows rows = expert_rows<T>(exec, a, all, all.rows, 2);
    rows.for_each([&](int e, std::int64_t begin, std::int64_t end) {
      math::gemm_by_row<T>(exec, Transpose::no, dy.row_range(begin, end),
                           a.weight<T>(e).matrix(width, dx.columns()), dx.row_range(begin, end),
                           a.scratch<T>(0));
      math::weigh_gradients<T>(exec, routes, begin, rows_of_x.row_range(begin, end),
                               a.weight<T>(static_cast<int>(rows.experts) + e),
                               dx.row_range(begin, end), dy.row_range(begin, end),
                               a.written<Compute>(1).flat());
    });
  });
  // Gradients of weights take the gradient of y once more, times the weights of the router.
  const int weighed = add_for(x, "d " + layer.name + ".outputs", width, Keep::never);
  Call weigh = pass({"weigh d y", {~y, all.lists, all.weights}, {weighed}}, x, 2 * width);
  weigh.rematerialize = true;
  weigh.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::gather_weighed_rows<T>(exec, a.read<T>(0), routes_read<T>(a, all, all.rows, 1, 2),
                                 a.written<T>(0));
  });
  append({{forward}, {input, weigh, expert_gradients<T>(all, layer, weighed, x)}, residuals});
  return y;
}

// ---- experts that are a unit of their own -------------------------------------------------------

template <class T>
int Operations<T>::route_apart(int of, const std::string& name, const MoeDispatchLayout& dispatch,
                               Experts& experts) {
  const int x = rows_of_rank(of);
  Operation operation = route(x, name, &dispatch, experts);
  Call combine = pass({"d copies", {experts.dx, ~experts.handed_over}, {~x}}, x, 2 * columns_of(x));
  combine.can_add = combine.adds_from_anywhere = true;
  combine.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::combine_sums<T>(exec, a.read<Compute>(0), added_to<T>(a),
                          View<const Compute**>(handed_back<T>(a, dispatch, 1).normed),
                          a.written<T>(0));
  });
  operation.backward.push_back(std::move(combine));
  append(std::move(operation));
  return x;
}

template <class T>
std::vector<int> Operations<T>::hand_to_experts(const Experts& experts, int onto, int shared, int x,
                                                const MoeDispatchLayout& dispatch) {
  const Experts all = experts;
  const int y = add_for(onto, "y", columns_of(onto));
  const std::vector<int> residuals = those_that_exist({onto, shared});
  Call forward{"hand to experts", {x, all.lists, all.weights}, {y, all.handed_over}};
  graph::append(forward.reads, residuals);
  forward.is_by_row = false;
  forward.work = row_work(x, 4 * columns_of(x), 2.0);
  forward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    const auto copy = [&exec](auto from, auto to) {
      using A = typename decltype(to)::Element;
      if (to) math::copy<A>(exec, View<const A*>(from), to);
    };
    const auto routes = routes_read<T>(a, all, all.rows, 1, 2);
    const auto handed = dispatch.rows_in<T>(a.bytes(a.place_written(1)));
    copy(a.read<T>(0).flat(), handed.normed.flat());
    copy(routes.weights, handed.routes.weights);
    copy(routes.slots, handed.routes.slots);
    copy(routes.assignments, handed.routes.assignments);
    copy(routes.offsets, handed.routes.offsets);
    copy(a.read<T>(3).flat(), a.written<T>(0).flat());
    copy(a.read<T>(4).flat(), handed.shared.flat());
  });
  if (!dispatch.is_apart || shared < 0) {
    append({{forward}, {}, residuals});
    return {y, all.handed_over};
  }
  Call backward = pass({"d shared", {~all.handed_over}, {~shared}}, x, 2 * columns_of(x));
  backward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::copy_rows<T, T>(exec, handed_back<T>(a, dispatch, 0).shared, a.written<T>(0));
  });
  append({{forward}, {backward}, {onto}});
  return {y, all.handed_over};
}

#define OSTRAKON_INSTANTIATE(T)                                                              \
  template int Operations<T>::dispatch(int, const std::string&, Experts&);                   \
  template int Operations<T>::expert_linear(const Experts&, int, const std::string&);        \
  template int Operations<T>::combine(const Experts&, int, int, int, const std::string&);    \
  template int Operations<T>::route_apart(int, const std::string&, const MoeDispatchLayout&, \
                                          Experts&);                                         \
  template std::vector<int> Operations<T>::hand_to_experts(const Experts&, int, int, int,    \
                                                           const MoeDispatchLayout&);
OSTRAKON_FOR_ALL_NUMBERS(OSTRAKON_INSTANTIATE)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::model::graph
