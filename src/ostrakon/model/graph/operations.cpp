// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/graph/operations.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/activation.hpp>
#include <ostrakon/math/attention.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/gemm.hpp>
#include <ostrakon/math/head_norm.hpp>
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
template <class T>
void add_up(const Exec& exec, const Arguments& a) {
  const View<T**> sum = a.written<T>(0);
  if (a.read<T>(1).data() != sum.data()) math::copy_rows<T, T>(exec, a.read<T>(1), sum);
  math::add_to<T>(exec, a.read<T>(0).flat(), sum.flat());
}

}  // namespace

template <class T>
Operations<T>::Operations(const LeafShape& leaf, const Recompute& recompute,
                          const std::vector<Parameter>& parameters, std::int64_t width)
    : leaf_(leaf), rows_(leaf.rows()) {
  Setting& setting = graph_.setting;
  setting.number_bytes = static_cast<std::int64_t>(sizeof(T));
  setting.sum_bytes = static_cast<std::int64_t>(sizeof(Compute));
  setting.drops_norms = recompute.norms;
  setting.drops_attention = recompute.attention;
  setting.drops_mlp = recompute.mlp;
  setting.parts = leaf.parts;
  setting.defers = leaf.defers_gradients;
  if (leaf.decodes()) setting.decoded_tokens = leaf.tokens;
  for (const Parameter& parameter : parameters)
    graph_.weights.push_back(
        {parameter.name, parameter.offset, parameter.elements(), !parameter.frozen});
  graph_.copy = make_kernel(copy_of<T>);
  graph_.add_up = make_kernel(add_up<T>);
  if (width > 0) graph_.input = add("x", width);
}

template <class T>
Graph Operations<T>::take(std::vector<int> outputs) && {
  graph_.outputs = std::move(outputs);
  return std::move(graph_);
}

template <class T>
int Operations<T>::add(const std::string& name, std::int64_t columns, Keep keep, Element element) {
  Value value{name, rows_, columns};
  value.keep = keep;
  value.element = element;
  return graph_.add(std::move(value));
}

template <class T>
int Operations<T>::add_for(int x, const std::string& name, std::int64_t columns, Keep keep,
                           Element element) {
  const int made = add(name, columns, keep, element);
  graph_.values.back().rows = graph_.values[static_cast<std::size_t>(x)].rows;
  return made;
}

template <class T>
std::vector<int> Operations<T>::columns(const std::vector<std::string>& names,
                                        const std::vector<std::int64_t>& columns) {
  const int group = graph_.add_group(0);
  std::int64_t& end = graph_.group_columns[static_cast<std::size_t>(group)];
  std::vector<int> made;
  for (std::size_t i = 0; i < names.size(); ++i) {
    made.push_back(add(names[i], columns[i]));
    graph_.values.back().group = group;
    graph_.values.back().first_column = end;
    end += columns[i];
  }
  return made;
}

template <class T>
int Operations<T>::weight(const std::string& name) const {
  for (std::size_t w = 0; w < graph_.weights.size(); ++w)
    if (graph_.weights[w].name == name) return static_cast<int>(w);
  return -1;
}

template <class T>
std::vector<int> Operations<T>::weights_of(const std::string& name) const {
  const int w = weight(name + ".weight"), b = weight(name + ".bias");
  require(w >= 0, "unit has no parameter ", name, ".weight");
  return b >= 0 ? std::vector<int>{w, b} : std::vector<int>{w};
}

template <class T>
plan::KernelWork Operations<T>::row_work(std::int64_t columns, double kernels) const {
  return plan::row_work(static_cast<double>(bytes_of<T>(rows_ * columns)), kernels);
}

/// A product of (m, k) and (k, n) takes 2 m n k.
template <class T>
double Operations<T>::product_flops(std::int64_t inputs, std::int64_t outputs) const {
  return 2.0 * static_cast<double>(rows_) * static_cast<double>(inputs * outputs);
}

// ---- norms --------------------------------------------------------------------------------------

template <class T>
int Operations<T>::norm(int x, const std::string& name, math::NormKind kind, double epsilon) {
  const std::int64_t width = columns_of(x);
  const bool has_mean = kind == math::NormKind::layernorm;
  const std::vector<int> weights = weights_of(name);
  const int made = add_for(x, name, width, Keep::cheap);
  std::vector<int> statistics = {add_for(x, name + ".rstd", 1, Keep::norms, Element::sum)};
  if (has_mean) statistics.push_back(add_for(x, name + ".mean", 1, Keep::norms, Element::sum));
  // Arguments: x, then rstd and mean, which forward writes behind y.
  Call forward{name, {x}, {made}};
  append(forward.writes, statistics);
  forward.weights = weights;
  forward.work = row_work(2 * width);
  forward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::norm_forward<T>(
        exec, kind, epsilon, a.read<T>(0), a.weight<T>(0), a.weight<T>(1), a.written<T>(0),
        has_mean ? a.written<Compute>(2).flat() : View<Compute*>(), a.written<Compute>(1).flat());
  });
  const auto mean_of = [has_mean](const Arguments& a, int i) {
    return has_mean ? a.read<Compute>(i).flat() : View<const Compute*>();
  };
  Operation norm{{forward}};
  norm.recompute = Call{name, {x}, {made}};
  append(norm.recompute->reads, statistics);
  norm.recompute->weights = weights;
  norm.recompute->work = forward.work;
  norm.recompute->kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::norm_apply<T>(exec, kind, a.read<T>(0), a.weight<T>(0), a.weight<T>(1), mean_of(a, 2),
                        a.read<Compute>(1).flat(), a.written<T>(0));
  });
  const std::int64_t leaves = leaf_.leaves();
  Call gradients{"d " + name + ".weight", {x, ~made}, {}};
  append(gradients.reads, statistics);
  gradients.gradients = weights;
  gradients.scratch = {bytes_of<Compute>(norm_sums_workspace(width, leaves))};
  gradients.work = row_work(2 * width);
  gradients.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    sum_norm_gradients<T>(exec, kind, a.read<T>(0), mean_of(a, 3), a.read<Compute>(2).flat(),
                          a.read<T>(1), a.gradient<Compute>(0), a.gradient<Compute>(1),
                          {leaves, a.scratch<Compute>(0)});
  });
  Call input{"d " + name, gradients.reads, {~x}};
  input.weights = {weights.front()};
  input.can_add = true;
  input.work = row_work(2 * width);
  input.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::norm_backward_input<T>(
        exec, kind, a.read<T>(0), a.weight<T>(0), mean_of(a, 3), a.read<Compute>(2).flat(),
        a.read<T>(1), a.written<T>(0),
        a.adds() ? math::GradientUpdate::add : math::GradientUpdate::overwrite);
  });
  norm.backward = {gradients, input};
  graph_.operations.push_back(std::move(norm));
  return made;
}

template <class T>
int Operations<T>::head_norm(int x, const std::string& name, std::int64_t head_width,
                             double epsilon) {
  const std::int64_t width = columns_of(x), leaves = leaf_.leaves();
  const std::vector<int> weights = weights_of(name);
  const int made = graph_.add_like(x);
  Value& value = graph_.values[static_cast<std::size_t>(made)];
  value.name = name;
  value.group = graph_.values[static_cast<std::size_t>(x)].group;
  value.first_column = graph_.values[static_cast<std::size_t>(x)].first_column;
  const int kept = add(name_of(x) + " unnormed", width);
  const int rstd = add(name + ".rstd", width / head_width, Keep::cheap, Element::sum);
  Call forward{name, {x}, {made, kept}};
  forward.weights = weights;
  forward.replaces = {{made, x}};
  forward.in_place = true;
  forward.work = row_work(2 * width);
  forward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::head_norm_forward<T>(exec, epsilon, a.weight<T>(0), a.written<T>(0), a.written<T>(1));
  });
  Call statistics{name + ".rstd", {kept}, {rstd}};
  statistics.work = row_work(width);
  statistics.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::head_norm_statistics<T>(exec, epsilon, head_width, a.read<T>(0),
                                  a.written<Compute>(0).flat());
  });
  Call gradient{"d " + name + ".weight", {kept, rstd, ~made}, {}};
  gradient.gradients = weights;
  gradient.scratch = {bytes_of<Compute>(bias_sums_workspace(head_width, leaves))};
  gradient.work = row_work(2 * width);
  gradient.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    sum_head_norm_gradient<T>(exec, a.read<T>(0), a.read<Compute>(1).flat(), a.read<T>(2),
                              a.gradient<Compute>(0), {leaves, a.scratch<Compute>(0)});
  });
  Call input{"d " + name, {kept, rstd, ~made}, {~x}};
  input.weights = weights;
  input.replaces = {{~x, ~made}};
  input.in_place = true;
  input.work = row_work(2 * width);
  input.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::head_norm_backward_input<T>(exec, a.weight<T>(0), a.read<T>(0), a.read<Compute>(1).flat(),
                                      a.written<T>(0));
  });
  graph_.operations.push_back({{forward}, {statistics, gradient, input}});
  return made;
}

// ---- linear layers ------------------------------------------------------------------------------

template <class T>
Calls Operations<T>::linear_backward(int x, const std::string& name, const std::vector<int>& made,
                                     std::int64_t outputs) const {
  const std::int64_t inputs = columns_of(x), leaves = leaf_.leaves();
  const std::vector<int> weights = weights_of(name);
  const auto count = static_cast<int>(made.size());
  std::vector<int> dy;
  for (int v : made) dy.push_back(~v);
  const double flops = product_flops(inputs, outputs);
  Calls calls;
  Call weight{"d " + name + ".weight", dy, {}};
  weight.reads.push_back(x);
  weight.gradients = {weights.front()};
  weight.scratch = {bytes_of<Compute>(weight_sums_workspace(outputs, inputs, leaves))};
  weight.flops = flops;
  weight.work = plan::product_work(flops, inputs, outputs);
  weight.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    sum_weight_gradient<T>(exec, a.read<T>(count), a.read_joined<T>(0, count),
                           a.gradient<Compute>(0).matrix(outputs, inputs),
                           {leaves, a.scratch<Compute>(0)});
  });
  calls.push_back(std::move(weight));
  if (weights.size() > 1) {
    Call bias{"d " + name + ".bias", dy, {}};
    bias.gradients = {weights.back()};
    bias.scratch = {bytes_of<Compute>(bias_sums_workspace(outputs, leaves))};
    bias.work = row_work(outputs);
    bias.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
      sum_bias_gradient<T>(exec, a.read_joined<T>(0, count), a.gradient<Compute>(0),
                           {leaves, a.scratch<Compute>(0)});
    });
    calls.push_back(std::move(bias));
  }
  Call input{"d " + name, dy, {~x}};
  input.weights = {weights.front()};
  input.can_add = true;
  input.flops = flops;
  input.work = plan::product_work(flops, inputs, outputs);
  input.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::gemm<T>(exec, Transpose::no, Transpose::no, 1, a.read_joined<T>(0, count),
                  a.weight<T>(0).matrix(outputs, inputs), a.adds() ? 1 : 0, a.written<T>(0));
  });
  calls.push_back(std::move(input));
  return calls;
}

template <class T>
void Operations<T>::linear(int x, const std::string& name, const std::vector<int>& all,
                           const std::vector<std::vector<int>>& products) {
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
    forward.flops = product_flops(inputs, columns);
    forward.work = plan::product_work(forward.flops, inputs, columns);
    if (has_bias) forward.work += row_work(2 * columns);
    forward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
      const View<T**> y = a.written_joined<T>(0, count);
      const View<const T**> weight = a.weight<T>(0).matrix(outputs, inputs);
      math::gemm<T>(exec, Transpose::no, Transpose::yes, 1, a.read<T>(0),
                    weight.row_range(first, first + columns), 0, y);
      if (has_bias) math::add_bias<T>(exec, y, a.weight<T>(1).range(first, first + columns));
    });
    linear.forward.push_back(std::move(forward));
  }
  linear.backward = linear_backward(x, name, all, outputs);
  graph_.operations.push_back(std::move(linear));
}

template <class T>
int Operations<T>::linear(int x, const std::string& name, std::int64_t columns, Keep keep) {
  const int made = add(name, columns, keep);
  linear(x, name, {made}, {{made}});
  return made;
}

template <class T>
int Operations<T>::linear_onto(int onto, int x, const std::string& name, const std::string& made) {
  const std::int64_t inputs = columns_of(x), outputs = columns_of(onto);
  const std::vector<int> weights = weights_of(name);
  const bool has_bias = weights.size() > 1;
  const int y = add(made, outputs);
  Call forward{name, {x, onto}, {y}};
  forward.weights = weights;
  forward.flops = product_flops(inputs, outputs);
  forward.work = plan::product_work(forward.flops, inputs, outputs) + row_work(2 * outputs);
  if (has_bias) forward.work += row_work(2 * outputs);
  forward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    const View<T**> sum = a.written<T>(0);
    math::copy<T>(exec, a.read<T>(1).flat(), sum.flat());
    math::gemm<T>(exec, Transpose::no, Transpose::yes, 1, a.read<T>(0),
                  a.weight<T>(0).matrix(outputs, inputs), 1, sum);
    if (has_bias) math::add_bias<T>(exec, sum, a.weight<T>(1));
  });
  Operation operation{{forward}, linear_backward(x, name, {y}, outputs)};
  operation.adds_to = {onto};
  graph_.operations.push_back(std::move(operation));
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
  forward.work = backward.work = row_work(2 * columns);
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
  graph_.operations.push_back({{forward}, {backward}});
  return made;
}

template <class T>
int Operations<T>::attention(int queries, int keys, int values, const std::string& name,
                             const Heads& heads) {
  const LeafShape leaf = leaf_;
  const std::int64_t q_width = columns_of(queries), kv_width = 2 * heads.kv_count * heads.width;
  const int made = add(name, q_width, Keep::attention);
  const int sums = add(name + ".log_sum_exp", heads.count, Keep::attention, Element::sum);
  const math::AttentionShape shape{leaf.batch, leaf.tokens, heads.count, heads.kv_count,
                                   heads.width};
  // Queries look at half of the keys on average, so scores, and probabilities times values, take
  // tokens^2 head_width per head and sequence each.
  const double scores = static_cast<double>(rows_) * static_cast<double>(leaf.tokens * q_width);
  // Keys and values of cut sequences are put in the order of positions.
  const std::int64_t ordered = leaf.is_cut() ? leaf.batch * leaf.tokens * kv_width : 0;
  const std::int64_t all_rows = leaf.batch * leaf.tokens;

  Call forward{name, {queries, keys, values}, {made, sums}};
  forward.scratch = {bytes_of<T>(math::attention_forward_workspace<T>(shape, leaf.kernels)),
                     bytes_of<T>(ordered)};
  forward.flops = 2.0 * scores;
  forward.work = plan::attention_work(forward.flops, heads.width);
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
  backward.work = plan::attention_work(backward.flops, heads.width);
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
  Operation attention{{forward}, {backward}};
  attention.over_parts = {OverParts::rows, OverParts::whole, OverParts::whole};
  graph_.operations.push_back(std::move(attention));
  return made;
}

// ---- activations --------------------------------------------------------------------------------

template <class T>
int Operations<T>::activation(int x, const std::string& name, Activation activation) {
  const bool is_gated = activation == Activation::swiglu;
  const std::int64_t up = columns_of(x), inner = is_gated ? up / 2 : up;
  const auto elements = static_cast<double>(rows_ * inner);
  const auto bytes = [&](std::int64_t columns) {
    return static_cast<double>(bytes_of<T>(rows_ * columns));
  };
  const int made = add(name, inner, Keep::cheap);
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
  graph_.operations.push_back({{forward}, {backward}});
  return made;
}

template class Operations<float>;
template class Operations<double>;
template class Operations<bf16>;
template class Operations<fp16>;

}  // namespace ostrakon::model::graph
