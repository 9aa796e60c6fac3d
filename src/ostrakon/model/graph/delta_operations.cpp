// SPDX-License-Identifier: Apache-2.0
// Operations of gated delta nets.
#include <ostrakon/math/attention/head_norm.hpp>
#include <ostrakon/math/delta_net/convolution.hpp>
#include <ostrakon/math/delta_net/delta_rule.hpp>
#include <ostrakon/math/delta_net/gated_norm.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/model/array_packer.hpp>
#include <ostrakon/model/graph/kernel.hpp>
#include <ostrakon/model/graph/operations.hpp>
#include <ostrakon/model/leaf_sums.hpp>
#include <utility>

namespace ostrakon::model::graph {

template <class T>
int Operations<T>::convolution(int x, const std::string& name, std::int64_t taps) {
  const std::int64_t columns = columns_of(x), tokens = leaf_.tokens, leaves = leaf_.leaves();
  const LeafShape leaf = leaf_;
  const std::vector<int> weights = {weight(name + ".weight")};
  const int made = add_for(x, name, columns, Keep::attention);
  const int sums = add_for(x, name + ".sums", columns, Keep::never);
  // A row takes rows before it.
  const auto convolve = [&](Call call, std::int64_t passes) {
    call.is_by_row = false;
    call.work = row_work(x, passes * columns);
    call.work.activations = static_cast<double>(value(x).rows * columns);
    return call;
  };
  Call forward = convolve({name, {x}, {made}, weights}, 2);
  const bool decodes = leaf_.decodes() && taps > 1;
  if (decodes)
    forward.writes.push_back(add_state(name + ".before", taps - 1, columns, Element::number));
  forward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    const View<const T**> in = a.read<T>(0), factors = a.weight<T>(0).matrix(columns, taps);
    if (!decodes)
      return math::convolution_forward<T>(exec, tokens, {}, in, factors, a.written<T>(0));
    const View<T**> out = a.written<T>(0);
    for_each_decoded(a, [&](const DecodedRun& run, std::int64_t row) {
      const View<T**> before = of_sequence(a.written<T>(1), leaf, run.sequence);
      const View<const T**> own = in.row_range(row, row + run.count);
      if (run.position == 0) math::fill<T>(exec, before.flat(), T(0));
      math::convolution_forward<T>(exec, run.count, before, own, factors,
                                   out.row_range(row, row + run.count));
      math::keep_last_rows<T>(exec, own, before);
    });
  });
  Call slopes = convolve({"d " + name + ".sums", {x, ~made}, {sums}, weights}, 3);
  slopes.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::convolution_backward_sums<T>(exec, tokens, a.read<T>(0),
                                       a.weight<T>(0).matrix(columns, taps), a.read<T>(1),
                                       a.written<T>(0));
  });
  Call gradient =
      pass({"d " + name + ".weight", {x, sums}, {}, {}, weights}, x, 2 * taps * columns);
  gradient.scratch = {bytes_of<Compute>(bias_sums_workspace(columns * taps, leaves))};
  gradient.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    sum_convolution_gradient<T>(exec, tokens, a.read<T>(0), a.read<T>(1), a.gradient<Compute>(0),
                                {leaves, a.scratch<Compute>(0)});
  });
  Call input = pass({"d " + name, {sums}, {~x}, weights}, x, 2 * columns);
  input.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::convolution_backward_input<T>(exec, tokens, a.weight<T>(0).matrix(columns, taps),
                                        a.read<T>(0), a.written<T>(0));
  });
  append({{forward}, {slopes, gradient, input}});
  return made;
}

template <class T>
int Operations<T>::delta_rule(int x, int gates, const std::string& name,
                              const DeltaNetSettings& settings) {
  const std::int64_t pieces = leaf_.tensor_pieces(), leaves = leaf_.leaves();
  const LeafShape leaf = leaf_;
  // Sequences that are decoded are of different lengths, so each is computed by itself.
  const math::DeltaRuleShape shape{
      leaf.decodes() ? 1 : leaf.batch, leaf.tokens,        settings.key_heads / pieces,
      settings.value_heads / pieces,   settings.key_width, settings.value_width};
  const std::int64_t heads = shape.value_heads, columns = shape.state_columns();
  const int made = add_for(x, name, shape.value_columns(), Keep::attention);
  const bool decodes = leaf_.decodes();
  const int states = decodes ? add_state(name + ".state", 1, columns, Element::sum)
                             : add_for(x, name + ".states", columns, Keep::attention, Element::sum);
  if (!decodes) graph_.values.back().rows = shape.sequences * shape.chunks();
  const std::vector<int> weights = {weight(name + ".decay"), weight(name + ".step")};
  // For each row and head of values: products of its queries, keys and changes with the state, and
  // within a chunk those of queries and keys with keys, and of both with changes.
  const auto of_state = static_cast<double>(value(x).rows * columns);
  const auto of_chunk = static_cast<double>(value(x).rows * math::delta_rule_chunk * heads);
  const auto key_width = static_cast<double>(shape.key_width);
  const auto value_width = static_cast<double>(shape.value_width);

  Call forward{name, {x, gates}, {made, states}, weights};
  forward.is_by_row = false;
  forward.scratch = {bytes_of<Compute>(math::delta_rule_forward_workspace(shape)),
                     bytes_of<Compute>(decodes ? 0 : shape.sequences * columns)};
  forward.flops = 6.0 * of_state + of_chunk * (4.0 * key_width + 3.0 * value_width);
  forward.work = plan::attention_work(forward.flops, shape.key_width);
  forward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    const View<const T**> in = a.read<T>(0), steps = a.read<T>(1);
    const View<T**> out = a.written<T>(0);
    const View<Compute**> saved = a.written<Compute>(1);
    const View<const T*> decay = a.weight<T>(0), bias = a.weight<T>(1);
    if (!decodes)
      return math::delta_rule_forward<T>(exec, shape, false, in, steps, decay, bias,
                                         a.scratch<Compute>(1).matrix(shape.sequences, columns),
                                         saved, out, a.scratch<Compute>(0));
    for_each_decoded(a, [&](const DecodedRun& run, std::int64_t row) {
      const std::int64_t end = row + run.count;
      math::DeltaRuleShape of_run = shape;
      of_run.tokens = run.count;
      math::delta_rule_forward<T>(exec, of_run, run.position > 0, in.row_range(row, end),
                                  steps.row_range(row, end), decay, bias,
                                  of_sequence(saved, leaf, run.sequence), {},
                                  out.row_range(row, end), a.scratch<Compute>(0));
    });
  });
  const int terms = add_for(gates, name + ".terms", 2 * heads, Keep::never, Element::sum);
  Call backward{"d " + name, {x, gates, states, ~made}, {~x, ~gates, terms}, weights};
  backward.scratch = {bytes_of<Compute>(math::delta_rule_backward_workspace(shape))};
  backward.repeated_flops = 2.0 * of_state + of_chunk * (4.0 * key_width + value_width);
  backward.flops = 2.0 * forward.flops + backward.repeated_flops;
  backward.work = plan::attention_work(backward.flops, shape.key_width);
  backward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::delta_rule_backward<T>(exec, shape, a.read<T>(0), a.read<T>(1), a.weight<T>(0),
                                 a.weight<T>(1), a.read<Compute>(2), a.read<T>(3), a.written<T>(0),
                                 a.written<T>(1), a.written<Compute>(2), a.scratch<Compute>(0));
  });
  Call parameters =
      pass({"d " + name + ".decay and step", {terms}, {}, {}, weights}, gates, 2 * heads);
  parameters.scratch = {bytes_of<Compute>(delta_sums_workspace(heads, leaves))};
  parameters.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    sum_delta_rule_gradients<T>(exec, a.read<Compute>(0), a.gradient<Compute>(0),
                                a.gradient<Compute>(1), {leaves, a.scratch<Compute>(0)});
  });
  append({{forward}, {backward, parameters}});
  return made;
}

template <class T>
int Operations<T>::gated_norm(int x, int gate, const std::string& name, std::int64_t head_width,
                              double epsilon) {
  const std::int64_t columns = columns_of(x), leaves = leaf_.leaves();
  // Pieces and ranks have some heads of every leaf.
  const std::vector<int> weights = whole_weights_of(name, leaves);
  const int made = add_for(x, name, columns, Keep::never);
  const int rstd = add_for(x, name + ".rstd", columns / head_width, Keep::never, Element::sum);
  const auto gated = [&](Call call, std::int64_t passes) {
    call = pass(std::move(call), x, passes * columns);
    call.work.activations = static_cast<double>(value(x).rows * columns);
    return call;
  };
  Call forward = gated({name, {x, gate}, {made}, weights}, 3);
  forward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::gated_norm_forward<T>(exec, epsilon, a.read<T>(0), a.read<T>(1), a.weight<T>(0),
                                a.written<T>(0));
  });
  Call statistics = pass({name + ".rstd", {x}, {rstd}}, x, columns);
  statistics.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    const math::HeadNorm norm{head_width, math::NormKind::rmsnorm, math::NormWeight::plain,
                              epsilon};
    math::head_norm_statistics<T>(exec, norm, a.read<T>(0), a.written<Compute>(0), {});
  });
  const std::vector<int> reads = {x, gate, rstd, ~made};
  Call gradient = gated({"d " + name + ".weight", reads, {}, {}, weights}, 3);
  gradient.scratch = {bytes_of<Compute>(bias_sums_workspace(head_width, leaves))};
  gradient.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    const View<Compute*> sums = a.gradient<Compute>(0);
    sum_gated_norm_gradient<T>(exec, a.read<T>(0), a.read<T>(1), a.read<Compute>(2).flat(),
                               a.read<T>(3), sums.matrix(sums.size() / head_width, head_width),
                               {leaves, a.scratch<Compute>(0)});
  });
  Call input = gated({"d " + name, reads, {~x, ~gate}, weights}, 5);
  input.replaces = {{~x, ~made}};
  input.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::gated_norm_backward_input<T>(exec, a.read<T>(0), a.read<T>(1), a.weight<T>(0),
                                       a.read<Compute>(2).flat(), a.read<T>(3), a.written<T>(0),
                                       a.written<T>(1));
  });
  append({{forward}, {statistics, gradient, input}});
  return made;
}

#define OSTRAKON_INSTANTIATE(T)                                                                  \
  template int Operations<T>::convolution(int, const std::string&, std::int64_t);                \
  template int Operations<T>::delta_rule(int, int, const std::string&, const DeltaNetSettings&); \
  template int Operations<T>::gated_norm(int, int, const std::string&, std::int64_t, double);
OSTRAKON_FOR_ALL_NUMBERS(OSTRAKON_INSTANTIATE)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::model::graph
