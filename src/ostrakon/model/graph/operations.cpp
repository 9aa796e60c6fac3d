// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/graph/operations.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/activation.hpp>
#include <ostrakon/math/attention.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/gemm.hpp>
#include <ostrakon/math/head_norm.hpp>
#include <ostrakon/math/piece_tree.hpp>
#include <ostrakon/math/rotary.hpp>
#include <ostrakon/model/graph/kernel.hpp>
#include <ostrakon/model/graph/lists.hpp>
#include <ostrakon/model/leaf_sums.hpp>
#include <ostrakon/model/packing.hpp>
#include <stdexcept>
#include <utility>

namespace ostrakon::model::graph {
namespace {

using math::Transpose;

/// Copies one array to another of the same kind, or of the other type of numbers.
template <class T>
void copy_matrix(const Exec& exec, const Place& from, const Place& to, const Arguments& a, int i) {
  using C = compute_t<T>;
  if (from.element == Element::byte) throw std::logic_error("bytes of a value are not copied");
  if constexpr (!std::is_same<T, C>::value) {
    if (from.element == Element::sum && to.element == Element::number)
      return math::copy_rows<C, T>(exec, a.read<C>(i), a.written<T>(i));
    if (from.element == Element::sum)
      return math::copy_rows<C, C>(exec, a.read<C>(i), a.written<C>(i));
  }
  math::copy_rows<T, T>(exec, a.read<T>(i), a.written<T>(i));
}

template <class T>
void copy_of(const Exec& exec, const Arguments& a) {
  using C = compute_t<T>;
  if (a.reads() == 0) return math::copy<T>(exec, a.weight<T>(0), a.written<T>(0).flat());
  if (a.writes() == 0) return math::copy<C>(exec, a.read_whole<C>(0).flat(), a.gradient<C>(0));
  for (int i = 0; i < a.reads(); ++i)
    copy_matrix<T>(exec, a.place_read(i), a.place_written(i), a, i);
}

/// The first two values: the second lies where the sum does, or is copied there.
template <class A>
void add_up(const Exec& exec, const Arguments& a) {
  const View<A**> sum = a.written<A>(0);
  if (a.read<A>(1).data() != sum.data()) math::copy_rows<A, A>(exec, a.read<A>(1), sum);
  math::add_to<A>(exec, a.read<A>(0).flat(), sum.flat());
}

/// body(its index, its elements in `all`, which has `ranks` parts with some of each) for each of
/// the arrays that `size` tells the elements of.
template <class A, class Size, class Body>
void for_each_array(View<A*> all, std::int64_t ranks, int arrays, const Size& size,
                    const Body& body) {
  const View<A**> parts = all.matrix(ranks, all.size() / ranks);
  std::int64_t begin = 0;
  for (int i = 0; i < arrays; ++i) {
    const std::int64_t end = begin + size(i) / ranks;
    body(i, parts.column_range(begin, end));
    begin = end;
  }
}

Weight weight_of(const Parameter& parameter) {
  return {parameter.name, parameter.offset,      parameter.piece_elements(), !parameter.frozen,
          false,          parameter.piece_stride};
}

template <class T>
GraphKernels kernels_of(std::int64_t ranks) {
  using C = compute_t<T>;
  GraphKernels kernels;
  kernels.copy = make_kernel(copy_of<T>);
  kernels.add_up = make_kernel([](const Exec& exec, const Arguments& a) {
    a.place_written(0).element == Element::sum ? add_up<C>(exec, a) : add_up<T>(exec, a);
  });
  const auto shaped = [](auto flat, std::int64_t rows) {
    return flat.matrix(rows, flat.size() / rows);
  };
  // Takes the next array, whose pieces of this rank lie one after the other.
  const auto next = [](auto flat, std::int64_t& begin, const auto& pieces) {
    const std::int64_t first = std::exchange(begin, begin + pieces.rows() * pieces.columns());
    return flat.range(first, begin).matrix(pieces.rows(), pieces.columns());
  };
  kernels.hand_weights = make_kernel([=](const Exec& exec, const Arguments& a) {
    std::int64_t begin = 0;
    for (int i = 0; i < a.weights(); ++i) {
      const View<const T**> pieces = a.weight_pieces<T>(i);
      math::copy_rows<T, T>(exec, pieces, next(a.written<T>(0).flat(), begin, pieces));
    }
  });
  kernels.give_gradients = make_kernel([=](const Exec& exec, const Arguments& a) {
    std::int64_t begin = 0;
    for (int i = 0; i < a.gradients(); ++i) {
      const View<C**> sum = a.gradient_pieces<C>(i);
      const std::int64_t size = sum.rows() * sum.columns();
      const auto slot = [&](std::int64_t index) {
        if (index == 0) return sum;
        return shaped(a.scratch<C>(0).range((index - 1) * size, index * size), sum.rows());
      };
      math::sum_pieces(
          a.leaves(i),
          [&](std::int64_t to, std::int64_t) {
            math::copy_rows<C, C>(exec, next(a.read<C>(0).flat(), begin, sum), slot(to));
          },
          [&](std::int64_t from, std::int64_t to) {
            math::add_matrix<C>(exec, slot(from), slot(to));
          });
    }
  });
  kernels.take_weights = make_kernel([=](const Exec& exec, const Arguments& a) {
    for_each_array<const T>(
        a.read<T>(0).flat(), ranks, a.writes(), [&](int i) { return a.place_written(i).columns; },
        [&](int i, View<const T**> parts) {
          math::copy_rows<T, T>(exec, parts, shaped(a.written<T>(i).flat(), ranks));
        });
  });
  kernels.join_gradients = make_kernel([=](const Exec& exec, const Arguments& a) {
    for_each_array<C>(
        a.written<C>(0).flat(), ranks, a.reads(), [&](int i) { return a.place_read(i).columns; },
        [&](int i, View<C**> parts) {
          const View<const C**> all = shaped(a.read<C>(i).flat(), a.leaves(i) * ranks);
          for (std::int64_t leaf = 0; leaf < a.leaves(i); ++leaf)
            math::copy_rows<C, C>(
                exec, all.row_range(leaf * ranks, (leaf + 1) * ranks),
                parts.column_range(leaf * all.columns(), (leaf + 1) * all.columns()));
        });
  });
  return kernels;
}

/// What the call writes = a b, added to what is there where it adds, in the type of what it writes.
template <class T>
void multiply(const Exec& exec, Transpose transpose_b, View<const T**> a, View<const T**> b,
              const Arguments& arguments, int count) {
  using C = compute_t<T>;
  const C beta = arguments.adds() ? 1 : 0;
  if (arguments.place_written(0).element == Element::sum)
    math::gemm<T, C>(exec, Transpose::no, transpose_b, 1, a, b, beta,
                     arguments.written_joined<C>(0, count));
  else
    math::gemm<T>(exec, Transpose::no, transpose_b, 1, a, b, beta,
                  arguments.written_joined<T>(0, count));
}

}  // namespace

template <class T>
Operations<T>::Operations(const LeafShape& leaf, const Recompute& recompute,
                          const std::vector<Parameter>& parameters, std::int64_t width)
    : leaf_(leaf) {
  Setting& setting = graph_.setting;
  setting.number_bytes = static_cast<std::int64_t>(sizeof(T));
  setting.sum_bytes = static_cast<std::int64_t>(sizeof(Compute));
  setting.drops_norms = recompute.norms;
  setting.drops_attention = recompute.attention;
  setting.drops_mlp = recompute.mlp;
  setting.parts = leaf.parts;
  setting.pieces = leaf.tensor_pieces();
  setting.tensor_ranks = leaf.tensor_ranks;
  setting.chunks = leaf.tensor_chunks;
  setting.defers = leaf.defers_gradients;
  if (leaf.decodes()) setting.decoded_tokens = leaf.tokens;
  for (const Parameter& parameter : parameters) graph_.weights.push_back(weight_of(parameter));
  graph_.kernels = kernels_of<T>(leaf.tensor_ranks);
  if (width > 0) graph_.input = add("x", width, Over::rows);
}

template <class T>
Graph Operations<T>::take(std::vector<int> outputs) && {
  for (int& output : outputs) output = rows_of_rank(output);
  division_.gather_weights(graph_);
  graph_.outputs = std::move(outputs);
  return std::move(graph_);
}

template <class T>
void Operations<T>::append(Operation operation) {
  for (Calls* calls : {&operation.forward, &operation.backward})
    for (Call& call : *calls) call.name = prefix_ + call.name;
  if (operation.recompute) operation.recompute->name = prefix_ + operation.recompute->name;
  set_pieces(graph_, operation);
  graph_.operations.push_back(std::move(operation));
}

template <class T>
int Operations<T>::add(const std::string& name, std::int64_t columns, Over over, Keep keep,
                       Element element) {
  Value value{prefix_ + name, leaf_.rows(), columns};
  value.keep = keep;
  value.element = element;
  if (graph_.setting.pieces > 1) {
    value.over_tensor = over;
    if (over == Over::rows) value.rows = leaf_.own_rows();
    if (over == Over::columns) value.pieces = leaf_.own_pieces();
  }
  return graph_.add(std::move(value));
}

template <class T>
int Operations<T>::add_for(int x, const std::string& name, std::int64_t columns, Keep keep,
                           Element element) {
  const int made = add(name, columns, value(x).over_tensor, keep, element);
  graph_.values.back().rows = value(x).rows;
  graph_.values.back().per_row = value(x).per_row;
  return made;
}

template <class T>
std::vector<int> Operations<T>::columns(const std::vector<std::string>& names,
                                        const std::vector<std::int64_t>& columns) {
  const int group = graph_.add_group(0);
  std::int64_t& end = graph_.group_columns[static_cast<std::size_t>(group)];
  std::vector<int> made;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::int64_t own = columns[i] / leaf_.tensor_pieces();
    made.push_back(add(names[i], own, Over::columns));
    graph_.values.back().group = group;
    graph_.values.back().first_column = end;
    end += own;
  }
  return made;
}

template <class T>
int Operations<T>::rows_of_rank(int x) {
  const int rows = over_tensor(x, Over::rows);
  if (rows == x || value(rows).element == Element::number) return rows;
  const int made = add_for(rows, name_of(x) + " rounded", columns_of(rows));
  Call forward{"round " + name_of(x), {rows}, {made}};
  forward.work = row_work(rows, 2 * columns_of(rows));
  forward.kernel = graph_.kernels.copy;
  Operation round{{forward}};
  round.adds_to = {rows};
  append(std::move(round));
  return made;
}

template <class T>
int Operations<T>::weight(const std::string& name) const {
  const std::string full = prefix_ + name;
  for (std::size_t w = 0; w < graph_.weights.size(); ++w)
    if (graph_.weights[w].name == full) return static_cast<int>(w);
  return -1;
}

template <class T>
std::vector<int> Operations<T>::weights_of(const std::string& name) const {
  const int w = weight(name + ".weight"), b = weight(name + ".bias");
  require(w >= 0, "unit has no parameter ", name, ".weight");
  return b >= 0 ? std::vector<int>{w, b} : std::vector<int>{w};
}

template <class T>
std::vector<int> Operations<T>::whole_weights_of(const std::string& name, std::int64_t leaves) {
  std::vector<int> weights = weights_of(name);
  for (int& w : weights) w = division_.whole_weight(graph_, w, true, leaves);
  return weights;
}

template <class T>
plan::KernelWork Operations<T>::row_work(int x, std::int64_t columns, double kernels) const {
  return plan::row_work(static_cast<double>(bytes_of<T>(value(x).rows * columns)), kernels);
}

/// A product of (m, k) and (k, n) takes 2 m n k.
template <class T>
double Operations<T>::product_flops(int x, std::int64_t inputs, std::int64_t outputs) const {
  return 2.0 * static_cast<double>(value(x).rows) * static_cast<double>(inputs * outputs);
}

// ---- norms --------------------------------------------------------------------------------------

template <class T>
Operation Operations<T>::norm_forward(int x, const std::string& name, math::NormKind kind,
                                      double epsilon) {
  const std::int64_t width = columns_of(x);
  const bool has_mean = kind == math::NormKind::layernorm;
  const std::vector<int> weights = whole_weights_of(name);
  const int made = add_for(x, name, width, Keep::cheap);
  std::vector<int> statistics = {add_for(x, name + ".rstd", 1, Keep::norms, Element::sum)};
  if (has_mean) statistics.push_back(add_for(x, name + ".mean", 1, Keep::norms, Element::sum));
  // Arguments: x, then rstd and mean, which forward writes behind y.
  Call forward{name, {x}, {made}};
  graph::append(forward.writes, statistics);
  forward.weights = weights;
  forward.work = row_work(x, 2 * width);
  forward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::norm_forward<T>(
        exec, kind, epsilon, a.read<T>(0), a.weight<T>(0), a.weight<T>(1), a.written<T>(0),
        has_mean ? a.written<Compute>(2).flat() : View<Compute*>(), a.written<Compute>(1).flat());
  });
  Operation norm{{forward}};
  norm.recompute = Call{name, {x}, {made}};
  graph::append(norm.recompute->reads, statistics);
  norm.recompute->weights = weights;
  norm.recompute->work = forward.work;
  norm.recompute->kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::norm_apply<T>(exec, kind, a.read<T>(0), a.weight<T>(0), a.weight<T>(1),
                        has_mean ? a.read<Compute>(2).flat() : View<const Compute*>(),
                        a.read<Compute>(1).flat(), a.written<T>(0));
  });
  return norm;
}

template <class T>
int Operations<T>::norm(int of, const std::string& name, math::NormKind kind, double epsilon) {
  const int x = rows_of_rank(of);
  Operation norm = norm_forward(x, name, kind, epsilon);
  const Call& forward = norm.forward.front();
  const int made = forward.writes.front();
  const bool has_mean = kind == math::NormKind::layernorm;
  const auto mean_of = [has_mean](const Arguments& a, int i) {
    return has_mean ? a.read<Compute>(i).flat() : View<const Compute*>();
  };
  const std::int64_t width = columns_of(x), leaves = leaves_of(x);
  Call gradients{"d " + name + ".weight", {x, ~made}, {}};
  gradients.reads.insert(gradients.reads.end(), forward.writes.begin() + 1, forward.writes.end());
  gradients.gradients = forward.weights;
  gradients.scratch = {bytes_of<Compute>(norm_sums_workspace(width, leaves))};
  gradients.work = row_work(x, 2 * width);
  gradients.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    sum_norm_gradients<T>(exec, kind, a.read<T>(0), mean_of(a, 3), a.read<Compute>(2).flat(),
                          a.read<T>(1), a.gradient<Compute>(0), a.gradient<Compute>(1),
                          {leaves, a.scratch<Compute>(0)});
  });
  Call input{"d " + name, gradients.reads, {~x}};
  input.weights = {forward.weights.front()};
  input.can_add = true;
  input.work = row_work(x, 2 * width);
  input.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::norm_backward_input<T>(
        exec, kind, a.read<T>(0), a.weight<T>(0), mean_of(a, 3), a.read<Compute>(2).flat(),
        a.read<T>(1), a.written<T>(0),
        a.adds() ? math::GradientUpdate::add : math::GradientUpdate::overwrite);
  });
  norm.backward = {gradients, input};
  append(std::move(norm));
  return made;
}

template <class T>
int Operations<T>::head_norm(int x, const std::string& name, std::int64_t head_width,
                             double epsilon) {
  const std::int64_t width = columns_of(x), leaves = leaf_.leaves();
  // Pieces and ranks have some heads of every leaf.
  const std::vector<int> weights = whole_weights_of(name, leaves);
  const int made = graph_.add_like(x);
  Value& value = graph_.values[static_cast<std::size_t>(made)];
  value.name = prefix_ + name;
  value.group = graph_.values[static_cast<std::size_t>(x)].group;
  value.first_column = graph_.values[static_cast<std::size_t>(x)].first_column;
  const int kept = add_for(x, name_of(x) + " unnormed", width);
  const int rstd = add_for(x, name + ".rstd", width / head_width, Keep::cheap, Element::sum);
  Call forward{name, {x}, {made, kept}};
  forward.is_by_row = false;  // in place of what is one array for all rows
  forward.weights = weights;
  forward.replaces = {{made, x}};
  forward.in_place = true;
  forward.work = row_work(x, 2 * width);
  forward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::head_norm_forward<T>(exec, epsilon, a.weight<T>(0), a.written<T>(0), a.written<T>(1));
  });
  Call statistics{name + ".rstd", {kept}, {rstd}};
  statistics.work = row_work(x, width);
  statistics.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::head_norm_statistics<T>(exec, epsilon, head_width, a.read<T>(0),
                                  a.written<Compute>(0).flat());
  });
  Call gradient{"d " + name + ".weight", {kept, rstd, ~made}, {}};
  gradient.gradients = weights;
  gradient.scratch = {bytes_of<Compute>(bias_sums_workspace(head_width, leaves))};
  gradient.work = row_work(x, 2 * width);
  gradient.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    const View<Compute*> sums = a.gradient<Compute>(0);
    sum_head_norm_gradient<T>(exec, a.read<T>(0), a.read<Compute>(1).flat(), a.read<T>(2),
                              sums.matrix(sums.size() / head_width, head_width),
                              {leaves, a.scratch<Compute>(0)});
  });
  Call input{"d " + name, {kept, rstd, ~made}, {~x}};
  input.weights = weights;
  input.replaces = {{~x, ~made}};
  input.in_place = true;
  input.work = row_work(x, 2 * width);
  input.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::head_norm_backward_input<T>(exec, a.weight<T>(0), a.read<T>(0), a.read<Compute>(1).flat(),
                                      a.written<T>(0));
  });
  append({{forward}, {statistics, gradient, input}});
  return made;
}

// ---- linear layers ------------------------------------------------------------------------------

template <class T>
Calls Operations<T>::linear_backward(int x, const std::string& name, const std::vector<int>& made,
                                     std::int64_t outputs, int halves) const {
  const std::int64_t inputs = columns_of(x), leaves = leaf_.leaves();
  const std::vector<int> weights = weights_of(name);
  const auto count = static_cast<int>(made.size());
  std::vector<int> dy;
  for (int v : made) dy.push_back(~v);
  const std::int64_t middle = halves == 1 ? outputs : std::min(round_up(outputs / 2, 16), outputs);
  Calls calls;
  for (const auto& [begin, end] :
       {std::pair{std::int64_t{0}, middle}, std::pair{middle, outputs}}) {
    if (begin == end) continue;
    const std::int64_t first = begin, last = end;
    Call weight{"d " + name + ".weight" + (first > 0 ? ", second half" : ""), dy, {}};
    weight.reads.push_back(x);
    weight.gradients = {weights.front()};
    weight.gradient_elements = (last - first) * inputs;
    weight.scratch = {bytes_of<Compute>(weight_sums_workspace(last - first, inputs, leaves))};
    weight.flops = product_flops(x, inputs, last - first);
    weight.work = plan::product_work(weight.flops, inputs, last - first);
    weight.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
      sum_weight_gradient<T>(exec, a.read<T>(count),
                             a.read_joined<T>(0, count).column_range(first, last),
                             a.gradient<Compute>(0).matrix(outputs, inputs).row_range(first, last),
                             {leaves, a.scratch<Compute>(0)});
    });
    calls.push_back(std::move(weight));
  }
  if (weights.size() > 1) {
    // Where y is a sum over pieces, a piece has some of the columns of the bias.
    const std::int64_t columns = elements_of(weights.back());
    const std::int64_t shift = columns < outputs ? columns : 0;
    Call bias{"d " + name + ".bias", dy, {}};
    bias.gradients = {weights.back()};
    bias.scratch = {bytes_of<Compute>(bias_sums_workspace(columns, leaves))};
    bias.work = row_work(x, columns);
    bias.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
      const std::int64_t first = a.piece() * shift;
      sum_bias_gradient<T>(exec, a.read_joined<T>(0, count).column_range(first, first + columns),
                           a.gradient<Compute>(0), {leaves, a.scratch<Compute>(0)});
    });
    calls.push_back(std::move(bias));
  }
  Call input{"d " + name, dy, {~x}};
  input.weights = {weights.front()};
  input.can_add = true;
  input.terms = outputs;
  input.flops = product_flops(x, inputs, outputs);
  input.work = plan::product_work(input.flops, inputs, outputs);
  input.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    multiply<T>(exec, Transpose::no, a.read_joined<T>(0, count),
                a.weight<T>(0).matrix(outputs, inputs), a, 1);
  });
  calls.push_back(std::move(input));
  return calls;
}

template <class T>
void Operations<T>::linear(int of, const std::string& name, const std::vector<int>& all,
                           const std::vector<std::vector<int>>& products, bool halves_gradient) {
  const int x = over_tensor(of, Over::whole);
  const std::int64_t inputs = columns_of(x);
  const std::vector<int> weights = weights_of(name);
  const bool has_bias = weights.size() > 1;
  const std::int64_t outputs = elements_of(weights.front()) / inputs;
  const auto first_of = [&](int v) {
    std::int64_t first = 0;
    for (std::size_t i = 0; all[i] != v; ++i) first += columns_of(all[i]);
    return first;
  };
  Operation linear{{}};
  for (const std::vector<int>& made : products) {
    const std::int64_t first = first_of(made.front());
    std::int64_t columns = 0;
    for (int v : made) columns += columns_of(v);
    const auto count = static_cast<int>(made.size());
    Call forward{products.size() == 1 ? name : name + " " + name_of(made.front()), {x}, made};
    forward.weights = weights;
    forward.flops = product_flops(x, inputs, columns);
    forward.work = plan::product_work(forward.flops, inputs, columns);
    if (has_bias) forward.work += row_work(x, 2 * columns);
    forward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
      const View<T**> y = a.written_joined<T>(0, count);
      const View<const T**> weight = a.weight<T>(0).matrix(outputs, inputs);
      math::gemm<T>(exec, Transpose::no, Transpose::yes, 1, a.read<T>(0),
                    weight.row_range(first, first + columns), 0, y);
      if (has_bias) math::add_bias<T>(exec, y, a.weight<T>(1).range(first, first + columns));
    });
    linear.forward.push_back(std::move(forward));
  }
  const bool halves = halves_gradient && graph_.setting.pieces > 1;
  linear.backward = linear_backward(x, name, all, outputs, halves ? 2 : 1);
  append(std::move(linear));
}

template <class T>
int Operations<T>::linear(int x, const std::string& name, std::int64_t columns, Keep keep,
                          bool halves_gradient) {
  if (value(x).over_tensor == Over::columns)
    return round_sum(sum_of_product(x, name, columns), name + ".bias", name);
  const int made = add(name, columns / leaf_.tensor_pieces(), Over::columns, keep);
  linear(x, name, {made}, {{made}}, halves_gradient);
  return made;
}

/// x W^T of columns of x, a sum over pieces and ranks.
template <class T>
int Operations<T>::sum_of_product(int x, const std::string& name, std::int64_t outputs) {
  const std::int64_t inputs = columns_of(x);
  const int made = add(name, outputs, Over::sum, Keep::cheap, Element::sum);
  Call forward{name, {x}, {made}};
  forward.weights = {weights_of(name).front()};
  forward.terms = inputs;
  forward.flops = product_flops(x, inputs, outputs);
  forward.work = plan::product_work(forward.flops, inputs, outputs);
  forward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    multiply<T>(exec, Transpose::yes, a.read<T>(0), a.weight<T>(0).matrix(outputs, inputs), a, 1);
  });
  append({{forward}, linear_backward(x, name, {made}, outputs, 1)});
  return made;
}

/// onto + (sum + bias), rounded once.
template <class T>
int Operations<T>::add_sum(int onto, int sum, const std::string& bias, const std::string& made) {
  const int rows = over_tensor(sum, Over::rows);
  const int y = add_for(onto, made, columns_of(onto));
  Call forward{made, {rows, onto}, {y}};
  if (weight(bias) >= 0) forward.weights = {whole_weight(bias, false)};
  forward.work = row_work(onto, 3 * columns_of(onto));
  forward.kernel = make_kernel([](const Exec& exec, const Arguments& a) {
    math::add_residual<T>(exec, a.read<T>(1), a.read<Compute>(0), a.weight<T>(0), a.written<T>(0));
  });
  Operation operation{{forward}};
  operation.adds_to = {onto, rows};
  append(std::move(operation));
  return y;
}

/// sum, rounded, + bias.
template <class T>
int Operations<T>::round_sum(int sum, const std::string& bias, const std::string& made) {
  const int rows = over_tensor(sum, Over::rows);
  const int y = add_for(rows, made, columns_of(rows));
  Call forward{"round " + made, {rows}, {y}};
  if (weight(bias) >= 0) forward.weights = {whole_weight(bias, false)};
  forward.work = row_work(rows, 3 * columns_of(rows));
  forward.kernel = make_kernel([](const Exec& exec, const Arguments& a) {
    math::copy_rows<Compute, T>(exec, a.read<Compute>(0), a.written<T>(0));
    if (a.weights() > 0) math::add_bias<T>(exec, a.written<T>(0), a.weight<T>(0));
  });
  Operation operation{{forward}};
  operation.adds_to = {rows};
  append(std::move(operation));
  return y;
}

template <class T>
int Operations<T>::linear_onto(int onto, int x, const std::string& name, const std::string& made) {
  const std::int64_t inputs = columns_of(x), outputs = columns_of(onto);
  if (value(x).over_tensor == Over::columns)
    return add_sum(onto, sum_of_product(x, name, outputs), name + ".bias", made);
  const std::vector<int> weights = weights_of(name);
  const bool has_bias = weights.size() > 1;
  const int y = add_for(onto, made, outputs);
  Call forward{name, {x, onto}, {y}};
  forward.weights = weights;
  forward.flops = product_flops(x, inputs, outputs);
  forward.work = plan::product_work(forward.flops, inputs, outputs) + row_work(x, 2 * outputs);
  if (has_bias) forward.work += row_work(x, 2 * outputs);
  forward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    const View<T**> sum = a.written<T>(0);
    math::copy<T>(exec, a.read<T>(1).flat(), sum.flat());
    math::gemm<T>(exec, Transpose::no, Transpose::yes, 1, a.read<T>(0),
                  a.weight<T>(0).matrix(outputs, inputs), 1, sum);
    if (has_bias) math::add_bias<T>(exec, sum, a.weight<T>(1));
  });
  Operation operation{{forward}, linear_backward(x, name, {y}, outputs, 1)};
  operation.adds_to = {onto};
  append(std::move(operation));
  return y;
}

// ---- attention ----------------------------------------------------------------------------------

template <class T>
std::vector<int> Operations<T>::rotary(const std::vector<int>& x, const std::string& name,
                                       std::int64_t head_width, double base) {
  std::vector<int> made, dy, dx;
  Call forward{name, x, {}};
  Call backward{"d " + name, {}, {}};
  std::int64_t columns = 0;
  for (int v : x) {
    const int rotated = graph_.add_like(v, "rotated ");
    Value& value = graph_.values[static_cast<std::size_t>(rotated)];
    value.group = graph_.values[static_cast<std::size_t>(v)].group;
    value.first_column = graph_.values[static_cast<std::size_t>(v)].first_column;
    made.push_back(rotated);
    forward.replaces.emplace_back(rotated, v);
    backward.reads.push_back(~rotated);
    backward.writes.push_back(~v);
    backward.replaces.emplace_back(~v, ~rotated);
    columns += columns_of(v);
  }
  forward.writes = made;
  forward.in_place = backward.in_place = true;
  forward.is_by_row = false;  // positions are those of all rows
  forward.work = backward.work = row_work(x.front(), 2 * columns);
  const auto count = static_cast<int>(x.size());
  const auto kernel = [=, leaf = leaf_](math::Rotation rotation) {
    return make_kernel([=](const Exec& exec, const Arguments& a) {
      const View<T**> heads = a.written_joined<T>(0, count);
      if (!leaf.is_cut()) {
        math::rotate<T>(exec, rotation, heads, head_width, base, leaf.tokens, a.rows().begin);
        return;
      }
      leaf.for_each_run(a.part(), [&](std::int64_t first, const math::TokenRun& run) {
        math::rotate<T>(exec, rotation, heads.row_range(first, first + run.count), head_width, base,
                        run.count, run.position);
      });
    });
  };
  forward.kernel = kernel(math::Rotation::forward);
  backward.kernel = kernel(math::Rotation::inverse);
  append({{forward}, {backward}});
  return made;
}

template <class T>
int Operations<T>::attention(int queries, int own_keys, int own_values, const std::string& name,
                             std::int64_t head_width) {
  const LeafShape leaf = leaf_;
  const std::vector<int> whole = division_.whole_over_parts(graph_, {own_keys, own_values});
  const int keys = whole[0], values = whole[1];
  const std::int64_t q_width = columns_of(queries), kv_width = 2 * columns_of(keys);
  const std::int64_t heads = q_width / head_width;
  const int made = add_for(queries, name, q_width, Keep::attention);
  const int sums = add_for(queries, name + ".log_sum_exp", heads, Keep::attention, Element::sum);
  const math::AttentionShape shape{leaf.batch, leaf.tokens, heads, columns_of(keys) / head_width,
                                   head_width};
  // Queries look at half of the keys on average, so scores, and probabilities times values, take
  // tokens^2 head_width per head and sequence each.
  const double scores =
      static_cast<double>(value(queries).rows) * static_cast<double>(leaf.tokens * q_width);
  // Keys and values of cut sequences are put in the order of positions.
  const std::int64_t ordered = leaf.is_cut() ? leaf.batch * leaf.tokens * kv_width : 0;
  const std::int64_t all_rows = leaf.batch * leaf.tokens;

  Call forward{name, {queries, keys, values}, {made, sums}};
  forward.is_by_row = false;
  forward.scratch = {bytes_of<T>(math::attention_forward_workspace<T>(shape, leaf.kernels)),
                     bytes_of<T>(ordered)};
  forward.flops = 2.0 * scores;
  forward.work = plan::attention_work(forward.flops, head_width);
  forward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    const View<T**> out = a.written<T>(0);
    const View<Compute*> log_sum_exp = a.written<Compute>(1).flat();
    if (leaf.decodes()) {
      math::attention_forward<T>(exec, shape, a.rows().begin, a.read<T>(0),
                                 a.read_joined_whole<T>(1, 2), out, log_sum_exp, a.scratch<T>(0));
      return;
    }
    if (!leaf.is_cut()) {
      math::attention_forward<T>(exec, shape, a.read_joined_whole<T>(0, 3), 0, leaf.tokens, out,
                                 log_sum_exp, a.scratch<T>(0));
      return;
    }
    const View<T**> kv = a.scratch<T>(1).matrix(all_rows, kv_width);
    math::put_in_order<T>(exec, leaf.sequence(), a.read_joined_whole<T>(1, 2), kv);
    math::attention_forward<T>(exec, shape, {leaf.sequence(), a.part()}, a.read<T>(0), kv, out,
                               log_sum_exp, a.scratch<T>(0));
  });

  Call backward{
      "d " + name, {queries, keys, values, made, sums, ~made}, {~queries, ~keys, ~values}};
  backward.scratch = {
      bytes_of<T>(math::attention_backward_workspace<T>(shape, leaf.pieces(), leaf.kernels)),
      bytes_of<T>(ordered), bytes_of<Compute>(ordered)};
  backward.flops = 5.0 * scores;
  backward.repeated_flops = scores;
  backward.work = plan::attention_work(backward.flops, head_width);
  backward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    const View<const Compute*> log_sum_exp = a.read_whole<Compute>(4).flat();
    if (!leaf.is_cut()) {
      math::attention_backward<T>(exec, shape, a.read_joined_whole<T>(0, 3), a.read<T>(3),
                                  log_sum_exp, a.read<T>(5), a.written_joined<T>(0, 3),
                                  a.scratch<T>(0));
      return;
    }
    const View<T**> kv = a.scratch<T>(1).matrix(all_rows, kv_width);
    const View<Compute**> dkv = a.scratch<Compute>(2).matrix(all_rows, kv_width);
    math::put_in_order<T>(exec, leaf.sequence(), a.read_joined_whole<T>(1, 2), kv);
    math::attention_backward<T>(exec, shape, {leaf.sequence(), a.part()}, a.read<T>(0), kv,
                                a.read<T>(3), log_sum_exp, a.read<T>(5), a.written<T>(0), dkv,
                                a.scratch<T>(0));
    if (a.place_written(1).element == Element::sum)
      math::put_by_part<Compute, Compute>(exec, leaf.sequence(), View<const Compute**>(dkv),
                                          a.written_joined<Compute>(1, 2));
    else
      math::put_by_part<Compute, T>(exec, leaf.sequence(), View<const Compute**>(dkv),
                                    a.written_joined<T>(1, 2));
  });
  append({{forward}, {backward}});
  return made;
}

// ---- activations --------------------------------------------------------------------------------

template <class T>
int Operations<T>::activation(int x, const std::string& name, Activation activation) {
  const bool is_gated = activation == Activation::swiglu;
  const std::int64_t up = columns_of(x), inner = is_gated ? up / 2 : up;
  const std::int64_t rows = value(x).rows;
  const auto elements = static_cast<double>(rows * inner);
  const auto bytes = [&](std::int64_t columns) {
    return static_cast<double>(bytes_of<T>(rows * columns));
  };
  const int made = add_for(x, name, inner, Keep::cheap);
  Call forward{name, {x}, {made}};
  forward.work = plan::activation_work(elements, bytes(up + inner));
  forward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    if (is_gated)
      math::swiglu_forward<T>(exec, a.read<T>(0), a.written<T>(0));
    else
      math::gelu_forward<T>(exec, a.read<T>(0), a.written<T>(0));
  });
  Call backward{"d " + name, {x, ~made}, {~x}};
  backward.replaces = {{~x, x}};
  backward.work = plan::activation_work(elements, bytes(2 * up + inner));
  backward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    if (is_gated)
      math::swiglu_backward<T>(exec, a.read<T>(0), a.read<T>(1), a.written<T>(0));
    else
      math::gelu_backward<T>(exec, a.read<T>(0), a.read<T>(1), a.written<T>(0));
  });
  append({{forward}, {backward}});
  return made;
}

template <class T>
int Operations<T>::soft_cap(int x, const std::string& name, double cap) {
  const auto limit = static_cast<Compute>(cap);
  const int made = add_for(x, name, columns_of(x));
  Call forward{name, {x}, {made}};
  forward.work = row_work(x, 2 * columns_of(x));
  forward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::soft_cap_forward<T>(exec, limit, a.read<T>(0), a.written<T>(0));
  });
  Call backward{"d " + name, {made, ~made}, {~x}};
  backward.replaces = {{~x, ~made}};
  backward.work = row_work(x, 3 * columns_of(x));
  backward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::soft_cap_backward<T>(exec, limit, a.read<T>(0), a.read<T>(1), a.written<T>(0));
  });
  append({{forward}, {backward}});
  return made;
}

template class Operations<float>;
template class Operations<double>;
template class Operations<bf16>;
template class Operations<fp16>;

}  // namespace ostrakon::model::graph
