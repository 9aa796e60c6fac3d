// SPDX-License-Identifier: Apache-2.0
// Operations of a mixture of experts: its router, and products of rows that are sorted by expert.
#include <algorithm>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/expert_rows.hpp>
#include <ostrakon/math/gemm.hpp>
#include <ostrakon/model/block_parameters.hpp>
#include <ostrakon/model/expert_border.hpp>
#include <ostrakon/model/graph/kernel.hpp>
#include <ostrakon/model/graph/lists.hpp>
#include <ostrakon/model/graph/operations.hpp>
#include <ostrakon/model/leaf_sums.hpp>

namespace ostrakon::model::graph {
namespace {

using math::Transpose;

template <class T>
constexpr bool is_narrow = !std::is_same<T, compute_t<T>>::value;

/// An array in compute_t<T>: itself, or a copy of it in `room`.
template <class T>
View<const compute_t<T>*> widened(const Exec& exec, View<const T*> array,
                                  View<compute_t<T>*> room) {
  if constexpr (is_narrow<T>) {
    if (!array) return {};
    math::convert<T, compute_t<T>>(exec, array, room.range(0, array.size()));
    return room.range(0, array.size());
  } else {
    return array;
  }
}
template <class T>
std::int64_t bytes_to_widen(std::int64_t elements) {
  return is_narrow<T> ? bytes_of<compute_t<T>>(elements) : 0;
}

/// Routes of `rows` rows in the bytes of Experts::lists, without weights.
template <class T>
struct ListedRoutes {
  math::Routes<compute_t<T>> routes;
  std::int64_t bytes;

  ListedRoutes(const Experts& experts, std::int64_t rows, View<std::byte*> lists) {
    const std::int64_t all = rows * experts.router.per_token, count = experts.router.experts;
    // Some rows that are decoded are of one leaf.
    const std::int64_t leaves = rows == experts.rows ? experts.leaves : 1;
    Arrays<T> arrays(lists);
    routes.scores = arrays.template take<compute_t<T>>(rows * count).matrix(rows, count);
    routes.chosen = arrays.template take<std::int32_t>(all);
    routes.slots = arrays.template take<std::int32_t>(all);
    routes.assignments = arrays.template take<std::int32_t>(all);
    routes.offsets = arrays.template take<std::int64_t>(count * leaves + 1);
    bytes = arrays.size();
  }
};

/// The routes of so many rows that a call reads as value `lists`, with weights as value `weights`
/// if it reads these.
template <class T>
math::Routes<compute_t<T>> routes_read(const Arguments& a, const Experts& experts,
                                       std::int64_t rows, int lists, int weights = -1) {
  auto routes = ListedRoutes<T>(experts, rows, a.bytes(a.place_read(lists))).routes;
  if (weights >= 0) routes.weights = to_read(a.template read<compute_t<T>>(weights).flat());
  return routes;
}

/// What a call adds to, which it reads last; none where it does not.
template <class T>
View<const T**> added_to(const Arguments& a) {
  return a.adds() ? a.template read<T>(a.reads() - 1) : View<const T**>();
}

/// Tells which of all rows, sorted by expert, each expert has.
class ExpertRows {
 public:
  ExpertRows(const Exec& exec, const Experts& experts, View<const std::int64_t*> offsets)
      : experts_(experts.router.experts),
        leaves_((offsets.size() - 1) / experts_),
        offsets_(exec, offsets) {}

  /// f(expert, its first row, the one after its last) for each expert that has any.
  template <class Function>
  void for_each(const Function& function) const {
    for (std::int64_t e = 0; e < experts_; ++e) {
      const HostView<const std::int64_t*> leaves = of(e);
      if (leaves[0] < leaves[leaves_]) function(static_cast<int>(e), leaves[0], leaves[leaves_]);
    }
  }
  /// The first row of each leaf of an expert, and the end of the last.
  HostView<const std::int64_t*> of(std::int64_t e) const {
    return offsets_.view().range(e * leaves_, (e + 1) * leaves_ + 1);
  }

 private:
  std::int64_t experts_, leaves_;
  math::OffsetsOnHost offsets_;
};

/// A linear layer that each expert has.
struct ExpertLayer {
  std::vector<int> weights;  // of the graph: weights of all experts, then their biases
  bool has_bias = false;
  std::int64_t inputs = 0, outputs = 0;
  std::int64_t padding = 0;     // bytes of scratch memory of products
  std::int64_t sums = 0;        // and of gradients of weights
  double flops = 0.0;           // of forward, and of the gradient of its input
  double gradient_flops = 0.0;  // of gradients of weights
  plan::KernelWork work, bias_work, gradient_work;
};

/// The layer `name` of each expert, of `assignments` rows in all.
template <class T>
ExpertLayer find_layer(const Graph& graph, const std::vector<std::vector<int>>& weights,
                       const Experts& experts, std::int64_t inputs, std::int64_t assignments,
                       math::KernelForm kernels) {
  ExpertLayer layer;
  const auto weight = [&](int w) { return graph.weights[static_cast<std::size_t>(w)]; };
  const auto count = static_cast<std::int64_t>(weights.size());
  layer.has_bias = weights.front().size() > 1;
  layer.inputs = inputs;
  layer.outputs = weight(weights.front().front()).elements / inputs;
  layer.padding = bytes_of<T>(math::gemm_by_row_workspace<T>(
      inputs, layer.outputs, math::rows_of_a_product_in<T>(kernels)));
  layer.sums =
      bytes_of<compute_t<T>>(std::max(weight_sums_workspace(layer.outputs, inputs, experts.leaves),
                                      bias_sums_workspace(layer.outputs, experts.leaves)));
  for (std::size_t i = 0; i < weights.front().size(); ++i)
    for (const std::vector<int>& own : weights) layer.weights.push_back(own[i]);
  // What it costs is told of rows that are evenly divided over experts, as far as they can be.
  for (std::int64_t e = 0; e < count; ++e) {
    const std::int64_t rows = (e + 1) * assignments / count - e * assignments / count;
    const double product =
        2.0 * static_cast<double>(rows) * static_cast<double>(inputs * layer.outputs);
    const plan::KernelWork work = plan::product_work(product, inputs, layer.outputs);
    const plan::KernelWork pass =
        plan::row_work(static_cast<double>(bytes_of<T>(rows * layer.outputs)));
    const std::vector<int>& own = weights[static_cast<std::size_t>(e)];
    layer.flops += product;
    layer.work += work;
    if (weight(own.front()).trained) layer.gradient_flops += product;
    if (weight(own.front()).trained) layer.gradient_work += work;
    if (layer.has_bias) layer.bias_work += 2.0 * pass;
    if (layer.has_bias && weight(own.back()).trained) layer.gradient_work += pass;
  }
  return layer;
}

/// y = x W^T + b, by each expert of its rows.
template <class T>
void multiply_by_experts(const Exec& exec, const Arguments& a, const Experts& experts,
                         const ExpertRows& rows, View<const T**> x, View<T**> y, View<T*> padding) {
  rows.for_each([&](int e, std::int64_t begin, std::int64_t end) {
    const View<T**> own = y.row_range(begin, end);
    math::gemm_by_row<T>(exec, Transpose::yes, x.row_range(begin, end),
                         a.weight<T>(e).matrix(y.columns(), x.columns()), own, padding);
    if (const auto bias = a.weight<T>(static_cast<int>(experts.router.experts) + e))
      math::add_bias<T>(exec, own, bias);
  });
}

/// Gradients of the weights of all experts of dy and x, (assignments, outputs) and (assignments,
/// inputs): those of one without rows are zero, not what the array had before.
template <class T>
Call expert_gradients(const Experts& experts, const ExpertLayer& layer, const std::string& name,
                      int dy, int x) {
  using C = compute_t<T>;
  Call call{"d " + name + ".weight", {dy, x, experts.lists}, {}};
  call.gradients = layer.weights;
  call.scratch = {layer.sums};
  call.flops = layer.gradient_flops;
  call.work = layer.gradient_work;
  call.kernel = make_kernel([=, outputs = layer.outputs](const Exec& exec, const Arguments& a) {
    const ExpertRows rows(exec, experts, routes_read<T>(a, experts, experts.rows, 2).offsets);
    const auto count = static_cast<int>(experts.router.experts);
    const View<const T**> gradient = a.read<T>(0), input = a.read<T>(1);
    for (int e = 0; e < count; ++e) {
      const LeafSums<T> sums{experts.leaves, a.scratch<C>(0), rows.of(e)};
      sum_weight_gradient<T>(exec, input, gradient,
                             a.gradient<C>(e).matrix(outputs, input.columns()), sums);
      sum_bias_gradient<T>(exec, gradient, a.gradient<C>(count + e), sums);
    }
  });
  return call;
}

}  // namespace

// ---- the router ---------------------------------------------------------------------------------

template <class T>
int Operations<T>::add_bytes(const std::string& name, std::int64_t bytes) {
  Value value{prefix_ + name, 1, bytes};
  value.element = Element::byte;
  value.over_tensor = Over::rows;
  return graph_.add(std::move(value));
}

template <class T>
Operation Operations<T>::route(int x, const std::string& name, Experts& experts) {
  const math::Router router = experts.router;
  const std::int64_t width = columns_of(x), count = router.experts;
  experts.rows = value(x).rows;
  experts.leaves = leaves_of(x);
  experts.lists = add_bytes(name + ".lists", ListedRoutes<T>(experts, experts.rows, {}).bytes);
  experts.weights = add_for(x, name + ".weights", router.per_token, Keep::always, Element::sum);
  const Experts all = experts;
  const bool has_balance = weight(name + ".balance") >= 0;
  std::vector<int> weights = {whole_weight(name + ".weight")};
  if (has_balance) weights.push_back(whole_weight(name + ".balance"));
  const std::int64_t wide_rows = bytes_to_widen<T>(experts.rows * width),
                     wide_weight = bytes_to_widen<T>(count * width);
  const double product = product_flops(x, width, count);
  const plan::KernelWork scores =
      plan::row_work(static_cast<double>(bytes_of<Compute>(2 * experts.rows * count)));
  const std::int64_t first_counted = std::exchange(counted_, counted_ + count);

  Call forward{name, {x}, {experts.lists, experts.weights}};
  forward.is_by_row = false;
  forward.weights = weights;
  forward.scratch = {wide_rows, wide_weight, has_balance ? bytes_to_widen<T>(count) : 0};
  forward.flops = product;
  forward.work = plan::product_work(product, width, count) + scores;
  forward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    const View<const T**> rows = a.read<T>(0);
    auto routes = ListedRoutes<T>(all, rows.rows(), a.bytes(a.place_written(0))).routes;
    routes.weights = a.written<Compute>(1).flat();
    math::gemm<Compute>(
        exec, Transpose::no, Transpose::yes, 1,
        widened<T>(exec, rows.flat(), a.scratch<Compute>(0)).matrix(rows.rows(), width),
        widened<T>(exec, a.weight<T>(0), a.scratch<Compute>(1)).matrix(count, width), 0,
        routes.scores);
    const auto bias = widened<T>(exec, a.weight<T>(1), a.scratch<Compute>(2));
    math::choose_experts<Compute>(exec, router, bias, routes);
    const std::int64_t leaves = (routes.offsets.size() - 1) / count;
    math::sort_by_expert<Compute>(exec, router, leaves, routes);
    if (const View<std::int64_t*> counts = a.buffers().counts)
      math::add_counts(exec, leaves, routes.offsets,
                       counts.range(first_counted, first_counted + count));
  });

  // Backward begins with the gradients of the weights, and leaves that of x for the caller to make
  // of experts.dx and what else x is taken by.
  const int dlogits = add_for(x, "d " + name + ".logits", count, Keep::cheap, Element::sum);
  experts.dx = add_for(x, "d " + name + ".x", width, Keep::cheap, Element::sum);
  Call logits{
      "d " + name + ".logits", {experts.lists, experts.weights, ~experts.weights}, {dlogits}};
  logits.work = scores;
  logits.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::router_backward<Compute>(
        exec, router, all.leaves,
        static_cast<Compute>(a.buffers().loss_scale) * static_cast<Compute>(all.loss_factor),
        routes_read<T>(a, all, all.rows, 0, 1), a.read<Compute>(2).flat(), a.written<Compute>(0));
  });
  Call gradient{"d " + name + ".weight", {dlogits, x}, {}};
  gradient.gradients = {weights.front()};
  gradient.scratch = {wide_rows,
                      bytes_of<Compute>(weight_sums_workspace(count, width, all.leaves))};
  gradient.flops = product;
  gradient.work = plan::product_work(product, width, count);
  gradient.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::gemm_by_piece<Compute>(
        exec, a.read<Compute>(0),
        widened<T>(exec, a.read<T>(1).flat(), a.scratch<Compute>(0)).matrix(all.rows, width),
        a.gradient<Compute>(0).matrix(count, width), all.leaves, a.scratch<Compute>(1));
  });
  Call balance{"d " + name + ".balance", {experts.lists}, {}};
  if (has_balance) balance.gradients = {weights.back()};
  balance.scratch = {bytes_of<Compute>(math::excess_workspace(router, all.leaves))};
  balance.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::count_excess<Compute>(exec, router, all.leaves, routes_read<T>(a, all, all.rows, 0),
                                a.gradient<Compute>(0), a.scratch<Compute>(0));
  });
  Call input{"d " + name, {dlogits}, {experts.dx}};
  input.weights = {weights.front()};
  input.scratch = {wide_weight};
  input.flops = product;
  input.work = plan::product_work(product, width, count);
  input.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::gemm<Compute>(
        exec, Transpose::no, Transpose::no, 1, a.read<Compute>(0),
        widened<T>(exec, a.weight<T>(0), a.scratch<Compute>(0)).matrix(count, width), 0,
        a.written<Compute>(0));
  });
  return {{forward}, {logits, gradient, balance, input}};
}

template <class T>
int Operations<T>::dispatch(int of, const std::string& name, Experts& experts) {
  const int x = rows_of_rank(of);
  Operation operation = route(x, name, experts);
  const Experts all = experts;
  const std::int64_t width = columns_of(x), assignments = all.rows * all.router.per_token;
  const auto bytes = static_cast<double>(bytes_of<T>(assignments * width));
  const int copies = add_for(x, "copies", width, Keep::cheap);
  graph_.values.back().rows = assignments;
  graph_.values.back().per_row = all.router.per_token;
  Call gather{"gather", {x, all.lists}, {copies}};
  gather.is_by_row = false;
  gather.work = plan::row_work(2.0 * bytes);
  gather.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    const View<const T**> rows = a.read<T>(0);
    math::gather_rows<T>(exec, rows, routes_read<T>(a, all, rows.rows(), 1).assignments,
                         a.written<T>(0));
  });
  operation.forward.push_back(std::move(gather));
  Call combine{"d copies", {all.dx, all.lists, ~copies}, {~x}};
  combine.can_add = combine.adds_from_anywhere = true;
  combine.work = plan::row_work(bytes + static_cast<double>(bytes_of<T>(2 * all.rows * width)));
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
  const ExpertLayer layer = find_layer<T>(graph_, expert_weights(all, name), all, columns_of(x),
                                          value(x).rows, leaf_.kernels);
  const std::string own = "mlp.experts" + name;
  const int y = add_for(x, own, layer.outputs, Keep::mlp);
  Call forward{own, {x, all.lists}, {y}};
  forward.is_by_row = false;
  forward.weights = layer.weights;
  forward.scratch = {layer.padding};
  forward.flops = layer.flops;
  forward.work = layer.work + layer.bias_work;
  forward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    const View<const T**> input = a.read<T>(0);
    const std::int64_t rows = input.rows() / all.router.per_token;
    multiply_by_experts<T>(exec, a, all, {exec, all, routes_read<T>(a, all, rows, 1).offsets},
                           input, a.written<T>(0), a.scratch<T>(0));
  });
  Call input{"d " + own, {~y, all.lists}, {~x}};
  input.weights = layer.weights;
  input.scratch = {layer.padding};
  input.flops = layer.flops;
  input.work = layer.work;
  input.kernel = make_kernel([=, inputs = layer.inputs](const Exec& exec, const Arguments& a) {
    const View<const T**> dy = a.read<T>(0);
    const ExpertRows rows(exec, all, routes_read<T>(a, all, all.rows, 1).offsets);
    rows.for_each([&](int e, std::int64_t begin, std::int64_t end) {
      math::gemm_by_row<T>(exec, Transpose::no, dy.row_range(begin, end),
                           a.weight<T>(e).matrix(dy.columns(), inputs),
                           a.written<T>(0).row_range(begin, end), a.scratch<T>(0));
    });
  });
  append({{forward}, {expert_gradients<T>(all, layer, own, ~y, x), input}});
  return y;
}

/// The gradient of a weight needs no output of an expert: with dy the gradient of the combined
/// output it is (x W^T + b) . dy = x . (dy W) + b . dy.
template <class T>
int Operations<T>::combine(const Experts& experts, int onto, int shared, int x,
                           const std::string& name) {
  const Experts all = experts;
  const ExpertLayer layer = find_layer<T>(graph_, expert_weights(all, name), all, columns_of(x),
                                          value(x).rows, leaf_.kernels);
  const std::string own = "mlp.experts" + name;
  const std::int64_t width = layer.outputs, assignments = value(x).rows;
  const auto bytes = [](std::int64_t elements) {
    return static_cast<double>(bytes_of<T>(elements));
  };
  const int y = add_for(onto, "y", width);
  Call forward{own, {x, all.lists, all.weights, onto}, {y}};
  if (shared >= 0) forward.reads.push_back(shared);
  forward.is_by_row = false;
  forward.weights = layer.weights;
  forward.scratch = {layer.padding, bytes_of<T>(assignments * width)};
  forward.flops = layer.flops;
  forward.work = layer.work + layer.bias_work +
                 plan::row_work(bytes(assignments * width) + bytes(2 * all.rows * width));
  forward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    const View<const T**> input = a.read<T>(0), before = a.read<T>(3);
    const auto routes = routes_read<T>(a, all, before.rows(), 1, 2);
    const View<T**> outputs = a.scratch<T>(1).matrix(input.rows(), width);
    multiply_by_experts<T>(exec, a, all, {exec, all, routes.offsets}, input, outputs,
                           a.scratch<T>(0));
    math::combine_outputs<T>(exec, before, shared >= 0 ? a.read<T>(4) : View<const T**>(), routes,
                             outputs, a.written<T>(0));
  });

  Call input{"d " + own, {~y, x, all.lists, all.weights}, {~x, ~all.weights}};
  input.weights = layer.weights;
  input.scratch = forward.scratch;
  input.flops = layer.flops;
  input.work = layer.work + plan::row_work(2.0 * bytes(assignments * width)) +
               plan::row_work(bytes(assignments * 3 * layer.inputs));
  input.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    const auto routes = routes_read<T>(a, all, all.rows, 2, 3);
    const View<const T**> rows_of_x = a.read<T>(1);
    const View<T**> dx = a.written<T>(0), dy = a.scratch<T>(1).matrix(dx.rows(), width);
    math::gather_rows<T>(exec, a.read<T>(0), routes.assignments, dy);
    const ExpertRows rows(exec, all, routes.offsets);
    rows.for_each([&](int e, std::int64_t begin, std::int64_t end) {
      math::gemm_by_row<T>(exec, Transpose::no, dy.row_range(begin, end),
                           a.weight<T>(e).matrix(width, dx.columns()), dx.row_range(begin, end),
                           a.scratch<T>(0));
      math::weigh_gradients<T>(exec, routes, begin, rows_of_x.row_range(begin, end),
                               a.weight<T>(static_cast<int>(all.router.experts) + e),
                               dx.row_range(begin, end), dy.row_range(begin, end),
                               a.written<Compute>(1).flat());
    });
  });
  // Gradients of weights take the gradient of y once more, times the weights of the router.
  const int weighed = add_for(x, "d " + own + ".outputs", width, Keep::cheap);
  Call weigh{"weigh d y", {~y, all.lists, all.weights}, {weighed}};
  weigh.expands = true;
  weigh.work = plan::row_work(2.0 * bytes(assignments * width));
  weigh.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::gather_weighed_rows<T>(exec, a.read<T>(0), routes_read<T>(a, all, all.rows, 1, 2),
                                 a.written<T>(0));
  });
  Operation operation{{forward}, {input, weigh, expert_gradients<T>(all, layer, own, weighed, x)}};
  operation.adds_to = {onto};
  if (shared >= 0) operation.adds_to.push_back(shared);
  append(std::move(operation));
  return y;
}

template <class T>
std::vector<std::vector<int>> Operations<T>::expert_weights(const Experts& experts,
                                                            const std::string& layer) const {
  std::vector<std::vector<int>> weights;
  for (std::int64_t e = 0; e < experts.router.experts; ++e)
    weights.push_back(weights_of(name_of_expert(e) + layer));
  return weights;
}

// ---- experts that are a unit of their own -------------------------------------------------------

template <class T>
int Operations<T>::route_apart(int of, const std::string& name, const ExpertBorder& border,
                               Experts& experts) {
  const int x = rows_of_rank(of);
  Operation operation = route(x, name, experts);
  const Experts all = experts;
  experts.border = add_bytes("to experts", border.rows_in<T>({}).bytes);
  // What comes back has another size than what went.
  const auto back = [=](const Arguments& a, int i) {
    const Place& place = a.place_read(i);
    const std::int64_t bytes = border.gradients_in<T>({}).bytes;
    return border.gradients_in<T>(
        a.buffers().in(place.home).range(place.offset, place.offset + bytes));
  };
  Call weights{"d " + name + ".weights", {~experts.border}, {~all.weights}};
  weights.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::copy<Compute>(exec, View<const Compute*>(back(a, 0).dweights),
                        a.written<Compute>(0).flat());
  });
  operation.backward.insert(operation.backward.begin(), std::move(weights));
  Call combine{"d copies", {all.dx, ~experts.border}, {~x}};
  combine.can_add = combine.adds_from_anywhere = true;
  combine.work = row_work(x, 2 * columns_of(x));
  combine.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::combine_sums<T>(exec, a.read<Compute>(0), added_to<T>(a),
                          View<const Compute**>(back(a, 1).normed), a.written<T>(0));
  });
  operation.backward.push_back(std::move(combine));
  append(std::move(operation));
  return x;
}

template <class T>
std::vector<int> Operations<T>::hand_to_experts(const Experts& experts, int onto, int shared, int x,
                                                const ExpertBorder& border) {
  const Experts all = experts;
  const int y = add_for(onto, "y", columns_of(onto));
  Call forward{"hand to experts", {onto, x, all.lists, all.weights}, {y, all.border}};
  if (shared >= 0) forward.reads.push_back(shared);
  forward.is_by_row = false;
  forward.work = row_work(x, 4 * columns_of(x), 2.0);
  forward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    const auto copy = [&exec](auto from, auto to) {
      using A = typename decltype(to)::Element;
      math::copy<A>(exec, View<const A*>(from), to);
    };
    const auto routes = routes_read<T>(a, all, all.rows, 2, 3);
    const auto handed = border.rows_in<T>(a.bytes(a.place_written(1)));
    copy(a.read<T>(0).flat(), a.written<T>(0).flat());
    copy(a.read<T>(1).flat(), handed.normed.flat());
    copy(routes.weights, handed.routes.weights);
    copy(routes.slots, handed.routes.slots);
    copy(routes.assignments, handed.routes.assignments);
    copy(routes.offsets, handed.routes.offsets);
    if (shared >= 0) copy(a.read<T>(4).flat(), handed.shared.flat());
  });
  Operation operation{{forward}};
  operation.adds_to = {onto};
  if (shared >= 0) operation.adds_to.push_back(shared);
  append(std::move(operation));
  return {y, all.border};
}

#define OSTRAKON_INSTANTIATE(T)                                                                    \
  template int Operations<T>::dispatch(int, const std::string&, Experts&);                         \
  template int Operations<T>::expert_linear(const Experts&, int, const std::string&);              \
  template int Operations<T>::combine(const Experts&, int, int, int, const std::string&);          \
  template int Operations<T>::route_apart(int, const std::string&, const ExpertBorder&, Experts&); \
  template std::vector<int> Operations<T>::hand_to_experts(const Experts&, int, int, int,          \
                                                           const ExpertBorder&);
OSTRAKON_INSTANTIATE(float)
OSTRAKON_INSTANTIATE(double)
OSTRAKON_INSTANTIATE(bf16)
OSTRAKON_INSTANTIATE(fp16)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::model::graph
