// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/base/text.hpp>
#include <ostrakon/math/attention/head_norm.hpp>
#include <ostrakon/model/graph/kernel.hpp>
#include <ostrakon/model/graph/lists.hpp>
#include <ostrakon/model/graph/operations.hpp>
#include <ostrakon/model/leaf_sums.hpp>
#include <utility>

namespace ostrakon::model::graph {

template <class T>
int Operations<T>::norm(int of, const std::string& name, const NormSettings& settings) {
  const math::NormKind kind = settings.kind;
  const math::NormWeight gain = settings.weight;
  const bool has_weight = gain != math::NormWeight::none;
  const double epsilon = settings.epsilon;
  const int x = rows_of_rank(of);
  const std::int64_t width = columns_of(x), leaves = leaves_of(x);
  const std::vector<int> weights = has_weight ? whole_weights_of(name) : std::vector<int>();
  const int made = add_for(x, name, width, Keep::norm_outputs);
  std::vector<int> statistics = {add_for(x, name + ".rstd", 1, Keep::norms, Element::sum)};
  if (kind == math::NormKind::layernorm)
    statistics.push_back(add_for(x, name + ".mean", 1, Keep::norms, Element::sum));
  const auto with_statistics = [&](std::vector<int> values) {
    graph::append(values, statistics);
    return values;
  };

  Call forward = pass({name, {x}, with_statistics({made}), weights}, x, 2 * width);
  forward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::norm_forward<T>(exec, kind, gain, epsilon, a.read<T>(0), a.weight<T>(0), a.weight<T>(1),
                          a.written<T>(0), a.written<Compute>(2).flat(),
                          a.written<Compute>(1).flat());
  });
  Call again = pass({name, with_statistics({x}), {made}, weights}, x, 2 * width);
  again.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::norm_apply<T>(exec, kind, gain, a.read<T>(0), a.weight<T>(0), a.weight<T>(1),
                        a.read<Compute>(2).flat(), a.read<Compute>(1).flat(), a.written<T>(0));
  });
  again.tag = text("again ", made);
  const std::vector<int> reads = with_statistics({x, ~made});
  Calls backward;
  if (has_weight) {
    Call gradients = pass({"d " + name + ".weight", reads, {}, {}, weights}, x, 2 * width);
    gradients.can_add_gradients = leaf_.can_add_gradients();
    gradients.scratch = {bytes_of<Compute>(math::norm_sums_workspace(
        value(x).rows, width, leaves, leaf_.kernels, gradients.can_add_gradients))};
    gradients.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
      math::sum_norm_gradients<T>(exec, kind, a.read<T>(0), a.read<Compute>(3).flat(),
                                  a.read<Compute>(2).flat(), a.read<T>(1), a.gradient<Compute>(0),
                                  a.gradient<Compute>(1),
                                  {leaves, a.scratch<Compute>(0), a.adds_gradients()});
    });
    gradients.tag = text("d weight ", made);
    backward.push_back(std::move(gradients));
  }
  Call input = pass({"d " + name, reads, {~x}}, x, 3 * width);
  if (has_weight) input.weights = {weights.front()};
  input.can_add = true;
  input.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    // What it adds to is read last, behind the statistics.
    const bool has_mean = kind == math::NormKind::layernorm;
    math::norm_backward_input<T>(
        exec, kind, gain, a.read<T>(0), a.weight<T>(0),
        has_mean ? a.read<Compute>(3).flat() : View<const Compute*>(), a.read<Compute>(2).flat(),
        a.read<T>(1), a.written<T>(0),
        a.adds() ? math::GradientUpdate::add : math::GradientUpdate::overwrite);
  });
  input.fused = std::make_shared<FusedKernel>(FusedKernel{
      {{text("d weight ", made)}, {again.tag, FusedKernel::Order::beside, 0, 1}},
      make_kernel([=](const Exec& exec, const Arguments& all) {
        const Arguments a = *all.part(0);
        const std::optional<Arguments> sums = all.part(1), remade = all.part(2);
        const bool has_mean = kind == math::NormKind::layernorm;
        const View<const Compute*> none;
        math::norm_backward<T>(
            exec, kind, gain, a.read<T>(0), a.weight<T>(0),
            remade ? remade->weight<T>(1) : View<const T*>(),
            has_mean ? a.read<Compute>(3).flat() : none, a.read<Compute>(2).flat(), a.read<T>(1),
            a.written<T>(0), a.adds() ? math::GradientUpdate::add : math::GradientUpdate::overwrite,
            remade ? remade->written<T>(0) : View<T**>(),
            sums ? sums->gradient<Compute>(0) : View<Compute*>(),
            sums ? sums->gradient<Compute>(1) : View<Compute*>(),
            {leaves, sums ? sums->scratch<Compute>(0) : View<Compute*>(),
             sums && sums->adds_gradients()});
      })});
  backward.push_back(std::move(input));
  append({{forward}, std::move(backward), {}, again});
  return made;
}

template <class T>
int Operations<T>::head_norm(int x, const std::string& name, const math::HeadNorm& norm,
                             bool has_own_weights) {
  const bool has_weight = norm.gain != math::NormWeight::none;
  const std::int64_t head_width = norm.head_width, width = columns_of(x), leaves = leaf_.leaves();
  const std::int64_t heads = width / head_width, of_weight = has_own_weights ? width : head_width;
  // Where all heads have one weight, each piece and rank has some heads of every leaf.
  const std::vector<int> weights = !has_weight       ? std::vector<int>()
                                   : has_own_weights ? weights_of(name)
                                                     : whole_weights_of(name, leaves);
  const int made = add_among_columns(x, prefix_ + name);
  const int kept = add_for(x, name_of(x) + " unnormed", width);
  std::vector<int> statistics = {add_for(x, name + ".rstd", heads, Keep::never, Element::sum)};
  if (norm.kind == math::NormKind::layernorm)
    statistics.push_back(add_for(x, name + ".mean", heads, Keep::never, Element::sum));
  Call forward = pass({name, {x}, {made, kept}, weights}, x, 3 * width);
  forward.is_by_row = false;  // in place of what is one array for all rows
  forward.replaces = {{made, x}};
  forward.in_place = true;
  forward.tag = text("norm of heads ", made);
  head_norms_[made] = {norm, has_own_weights};
  forward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::head_norm_forward<T>(exec, norm, a.weight<T>(0), a.written<T>(0), a.written<T>(1));
  });
  Call find = pass({name + ".rstd", {kept}, statistics}, x, width);
  find.tag = text("statistics ", made);
  find.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::head_norm_statistics<T>(exec, norm, a.read<T>(0), a.written<Compute>(0),
                                  a.written<Compute>(1));
  });
  std::vector<int> reads = {kept, ~made};
  graph::append(reads, statistics);
  Calls backward = {std::move(find)};
  if (has_weight) {
    Call gradient = pass({"d " + name + ".weight", reads, {}, {}, weights}, x, 2 * width);
    gradient.scratch = {bytes_of<Compute>(math::head_norm_sums_workspace<T>(
        value(x).rows, head_width, of_weight, leaves, leaf_.kernels))};
    gradient.tag = text("d weight ", made);
    gradient.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
      const View<Compute*> sums = a.gradient<Compute>(0);
      sum_head_norm_gradient<T>(
          exec, head_width, a.read<T>(0), a.read<Compute>(2), a.read<Compute>(3), a.read<T>(1),
          sums.matrix(sums.size() / of_weight, of_weight), {leaves, a.scratch<Compute>(0)});
    });
    backward.push_back(std::move(gradient));
  }
  Call input = pass({"d " + name, reads, {~x}, weights}, x, 3 * width);
  input.replaces = {{~x, ~made}};
  input.in_place = true;
  input.tag = text("d norm of heads ", made);
  input.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::head_norm_backward_input<T>(exec, norm, a.weight<T>(0), a.read<T>(0), a.read<Compute>(2),
                                      a.read<Compute>(3), a.written<T>(0));
  });
  backward.push_back(std::move(input));
  append({{forward}, std::move(backward)});
  return made;
}

/// Ranks sum up their pieces of a row by themselves. Of these sums, one of squares and in backward
/// one of products for each row and piece, everyone gathers all.
template <class T>
std::vector<int> Operations<T>::row_norms(const std::vector<int>& x,
                                          const std::vector<std::string>& names,
                                          math::NormWeight gain, double epsilon) {
  const bool has_weight = gain != math::NormWeight::none;
  const auto count = static_cast<int>(x.size());
  const std::int64_t pieces = leaf_.tensor_pieces(), leaves = leaf_.leaves();
  const auto add_sums = [&](const char* what, Distribution over, Keep keep) {
    return add(names.front() + what, count, over, keep, Element::sum);
  };
  // The sums of all pieces, of own ones; a call that gathers them is appended.
  const auto gather = [&](int own, Calls& calls) {
    if (pieces == 1) return own;
    calls.push_back(division_.gather_pieces(graph_, own));
    calls.back().is_by_row = false;
    return calls.back().writes.front();
  };
  std::int64_t columns = 0;
  std::vector<int> made, kept, weights;
  for (int i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    made.push_back(add_among_columns(x[at], prefix_ + names[at]));
    kept.push_back(add_for(x[at], name_of(x[at]) + " unnormed", columns_of(x[at])));
    if (has_weight) weights.push_back(weights_of(names[at]).front());
    columns += columns_of(x[at]);
  }
  const auto width_of = [=](View<const T**> piece) { return pieces * piece.columns(); };
  const auto norm_of = [=](View<const T**> piece) {
    return math::HeadNorm{piece.columns(), math::NormKind::rmsnorm, gain, epsilon};
  };

  const int squares = add_sums(".squares", Distribution::columns, Keep::never);
  Call sum = pass({names.front() + ".squares", x, {squares}}, x.front(), columns);
  sum.is_by_row = false;  // of what is one array for all rows
  sum.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    for (int i = 0; i < count; ++i)
      math::head_norm_squares<T>(exec, width_of(a.read<T>(i)), a.read<T>(i),
                                 a.written<Compute>(0).column_range(i, i + 1));
  });
  Calls forward = {std::move(sum)};
  const int all_squares = gather(squares, forward);
  const int rstd = add_sums(".rstd", Distribution::replicated, Keep::always);
  Call find{names.front() + ".rstd", {all_squares}, {rstd}};
  find.is_by_row = false;
  find.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::head_norm_rstd<Compute>(exec, epsilon, a.read<Compute>(0), a.written<Compute>(0));
  });
  forward.push_back(std::move(find));

  std::vector<int> gradients;
  for (int v : made) gradients.push_back(~v);
  const int products = add_sums(".projections", Distribution::columns, Keep::never);
  Call project{"d " + names.front() + ".projections", kept, {products}, weights};
  graph::append(project.reads, gradients);
  project = pass(std::move(project), x.front(), 2 * columns);
  project.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    for (int i = 0; i < count; ++i)
      math::head_norm_projections<T>(exec, gain, width_of(a.read<T>(i)), a.weight<T>(i),
                                     a.read<T>(i), a.read<T>(count + i),
                                     a.written<Compute>(0).column_range(i, i + 1));
  });
  Calls backward = {std::move(project)};
  const int all_products = gather(products, backward);

  for (int i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const std::int64_t width = columns_of(x[at]);
    const std::vector<int> weight = has_weight ? std::vector<int>{weights[at]} : weights;
    Call apply = pass({names[at], {x[at], rstd}, {made[at], kept[at]}, weight}, x[at], 3 * width);
    apply.is_by_row = false;
    apply.replaces = {{made[at], x[at]}};
    apply.in_place = true;
    apply.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
      math::head_norm_forward<T>(exec, norm_of(a.written<T>(0)), a.weight<T>(0), a.written<T>(0),
                                 a.written<T>(1), a.read<Compute>(1).column_range(i, i + 1));
    });
    forward.push_back(std::move(apply));
    const std::vector<int> reads = {kept[at], ~made[at], rstd, all_products};
    if (has_weight) {
      Call gradient = pass({"d " + names[at] + ".weight", reads, {}, {}, weight}, x[at], 2 * width);
      gradient.reads.pop_back();
      gradient.scratch = {bytes_of<Compute>(math::head_norm_sums_workspace<T>(
          value(x[at]).rows, width, width, leaves, leaf_.kernels))};
      gradient.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
        sum_head_norm_gradient<T>(
            exec, width, a.read<T>(0), a.read<Compute>(2).column_range(i, i + 1), {}, a.read<T>(1),
            a.gradient<Compute>(0).matrix(1, width), {leaves, a.scratch<Compute>(0)});
      });
      backward.push_back(std::move(gradient));
    }
    Call input = pass({"d " + names[at], reads, {~x[at]}, weight}, x[at], 3 * width);
    input.replaces = {{~x[at], ~made[at]}};
    input.in_place = true;
    input.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
      math::head_norm_backward_input<T>(exec, norm_of(a.read<T>(0)), a.weight<T>(0), a.read<T>(0),
                                        a.read<Compute>(2).column_range(i, i + 1), {},
                                        a.written<T>(0), a.read<Compute>(3).column_range(i, i + 1));
    });
    backward.push_back(std::move(input));
  }
  append({std::move(forward), std::move(backward)});
  return made;
}

#define OSTRAKON_INSTANTIATE(T)                                                                \
  template int Operations<T>::norm(int, const std::string&, const NormSettings&);              \
  template int Operations<T>::head_norm(int, const std::string&, const math::HeadNorm&, bool); \
  template std::vector<int> Operations<T>::row_norms(                                          \
      const std::vector<int>&, const std::vector<std::string>&, math::NormWeight, double);
OSTRAKON_FOR_ALL_NUMBERS(OSTRAKON_INSTANTIATE)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::model::graph
