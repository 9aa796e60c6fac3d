// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/attention/attention.hpp>
#include <ostrakon/math/attention/attention_library.hpp>
#include <ostrakon/math/attention/clip.hpp>
#include <ostrakon/math/attention/key_ring.hpp>
#include <ostrakon/model/array_packer.hpp>
#include <ostrakon/model/graph/kernel.hpp>
#include <ostrakon/model/graph/operations.hpp>
#include <ostrakon/model/leaf_sums.hpp>
#include <utility>

namespace ostrakon::model::graph {

template <class T>
std::vector<int> Operations<T>::clip(const std::vector<int>& x, const std::string& name,
                                     double limit) {
  std::vector<std::string> names;
  std::vector<std::int64_t> widths;
  std::int64_t all = 0;
  for (int v : x) {
    // Names have the prefix already, which columns() adds.
    names.push_back("clipped " + name_of(v).substr(prefix_.size()));
    widths.push_back(columns_of(v) * leaf_.tensor_pieces());
    all += columns_of(v);
  }
  const std::vector<int> made = columns(names, widths);
  Call forward = pass({name, x, made}, x.front(), 2 * all);
  Call backward = pass({"d " + name, x, {}}, x.front(), 3 * all);
  for (std::size_t i = 0; i < x.size(); ++i) {
    backward.reads.push_back(~made[i]);
    backward.writes.push_back(~x[i]);
    backward.replaces.emplace_back(~x[i], ~made[i]);
  }
  const auto count = static_cast<int>(x.size());
  const auto most = static_cast<Compute>(limit);
  forward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::clip_forward<T>(exec, most, a.read<T>(0, count), a.written<T>(0, count));
  });
  backward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::clip_backward<T>(exec, most, a.read<T>(0, count), a.read<T>(count, count),
                           a.written<T>(0, count));
  });
  append({{forward}, {backward}});
  return made;
}

template <class T>
int Operations<T>::attention(int queries, int keys, int values, const std::string& name,
                             std::int64_t head_width, const AttentionSettings& settings) {
  math::AttentionShape shape = attention_shape(queries, head_width, settings);
  shape.kv_heads = columns_of(keys) / head_width;
  shape.value_width = columns_of(values) / shape.kv_heads;
  return attend(queries, keys, values, name, shape, settings.sinks);
}

template <class T>
int Operations<T>::latent_attention(int queries, int keys, int latents, const std::string& name,
                                    const AttentionSettings& settings) {
  math::AttentionShape shape =
      attention_shape(queries, columns_of(keys) + columns_of(latents), settings);
  shape.value_width = columns_of(latents);
  shape.values_in_keys = true;
  return attend(queries, keys, latents, name, shape, settings.sinks);
}

/// Returns the shape of attention to a single head of keys and values.
template <class T>
math::AttentionShape Operations<T>::attention_shape(int queries, std::int64_t head_width,
                                                    const AttentionSettings& settings) const {
  // Sequences that are decoded are of different lengths, so each is computed by itself.
  math::AttentionShape shape{leaf_.decodes() ? 1 : leaf_.batch, leaf_.tokens,
                             columns_of(queries) / head_width, 1, head_width};
  shape.scores = {settings.scale, settings.soft_cap, settings.window,
                  settings.alibi ? settings.heads : 0};
  return shape;
}

namespace {

/// Returns what of attention a library may compute. Throws Error where that is always, but none
/// can.
template <class T>
math::LibraryUse library_use(const math::AttentionShape& shape, const LeafShape& leaf,
                             const std::string& name, bool has_sinks) {
  if (leaf.attention == math::LibraryUse::never || leaf.decodes()) return math::LibraryUse::never;
  const std::string why_not =
      has_sinks            ? "attention sinks; expected none"
      : leaf.has_pairs()   ? "pairs of answers in a sequence; expected another training.objective"
      : leaf.has_documents ? "documents that are packed; expected data.documents = continue"
      : leaf.context_ranks > 1 ? "parallel.context above 1; expected 1"
      : leaf.grain > 1         ? "training.context_grain above 1; expected 1"
                       : math::why_not_by_library(shape, math::library_dtype<T>, leaf.kernels);
  require(why_not.empty() || leaf.attention == math::LibraryUse::automatic,
          "runtime.attention = cudnn: ", name, ": ", why_not,
          ", or runtime.attention = auto or own");
  return why_not.empty() ? leaf.attention : math::LibraryUse::never;
}

}  // namespace

template <class T>
int Operations<T>::attend(int queries, int own_keys, int own_values, const std::string& name,
                          const math::AttentionShape& whole_shape, bool has_sinks) {
  const LeafShape leaf = leaf_;
  const std::int64_t window = whole_shape.scores.window;
  const std::int64_t cached_rows = leaf.decodes() ? leaf.cached_rows(window) : 0;
  const bool has_ring = leaf.decodes() && cached_rows < leaf.tokens;
  math::AttentionShape of_piece = whole_shape;
  of_piece.library = library_use<T>(whole_shape, leaf, name, has_sinks);
  if (has_ring)
    of_piece.tokens = std::min(leaf.tokens, math::most_ordered_keys(leaf.decoded_rows, window));
  const std::vector<int> whole =
      division_.whole_over_parts(graph_, {own_keys, own_values}, leaf.batch * cached_rows);
  const int keys = whole[0], values = whole[1];
  const std::int64_t heads = of_piece.heads, head_width = of_piece.head_width;
  const std::int64_t kv_width = of_piece.kv_columns(), out_width = of_piece.out_columns();
  const int made = add_for(queries, name, out_width, Keep::attention);
  const int sums = add_for(queries, name + ".log_sum_exp", heads, Keep::attention, Element::sum);
  // Slopes are those of heads among all, of which pieces have some.
  const auto shape_of = [=](const Arguments& a) {
    math::AttentionShape shape = of_piece;
    shape.scores.first_head = a.piece() * heads;
    return shape;
  };
  const std::vector<int> sinks =
      has_sinks ? std::vector<int>{weight(name + ".sinks")} : std::vector<int>{};
  // Queries look at half of the keys on average, or at what a window leaves of these, so scores
  // take twice as many head_width per query and head, and probabilities times values value_width.
  const auto rows = static_cast<double>(value(queries).rows);
  const double keys_seen = 2.0 * math::attention_keys_of_query(whole_shape);
  const double scores = rows * (keys_seen * static_cast<double>(of_piece.query_columns()));
  const double outputs = rows * (keys_seen * static_cast<double>(out_width));
  // Keys and values of cut sequences, and those of a ring, are put in the order of positions.
  const std::int64_t all_rows = of_piece.batch * of_piece.tokens;
  const std::int64_t ordered = leaf.is_cut() || has_ring ? all_rows * kv_width : 0;

  Call forward{name, {queries, keys, values}, {made, sums}, sinks};
  forward.is_by_row = false;
  forward.scratch = {bytes_of<T>(math::attention_forward_workspace<T>(of_piece, leaf.kernels)),
                     bytes_of<T>(ordered)};
  forward.flops = scores + outputs;
  forward.work = plan::attention_work(forward.flops, head_width);
  forward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    const View<T**> out = a.written<T>(0);
    const View<Compute*> log_sum_exp = a.written<Compute>(1).flat();
    const math::AttentionShape shape = shape_of(a);
    const View<const T*> logits = a.weight<T>(0);
    if (leaf.decodes()) {
      for_each_decoded(a, [&](const DecodedRun& run, std::int64_t row) {
        const std::int64_t end = row + run.count;
        View<const T**> kv = of_sequence(a.read_whole<T>(1, 2), leaf, run.sequence);
        std::int64_t begin = run.position;
        if (has_ring) {
          const View<T**> in_order = a.scratch<T>(1).matrix(all_rows, kv_width);
          math::take_in_order<T>(exec, kv, window, begin, begin + run.count, in_order);
          begin -= math::first_ordered_key(begin, window);
          kv = in_order;
        }
        math::attention_forward<T>(
            exec, shape, begin, a.read<T>(0).row_range(row, end), kv, out.row_range(row, end),
            log_sum_exp.range(row * heads, end * heads), a.scratch<T>(0), logits);
      });
      return;
    }
    if (!leaf.is_cut()) {
      math::attention_forward<T>(exec, shape, a.read_whole<T>(0, 3), 0, leaf.tokens, out,
                                 log_sum_exp, a.scratch<T>(0), logits, a.buffers().document_begins);
      return;
    }
    const View<T**> kv = a.scratch<T>(1).matrix(all_rows, kv_width);
    math::put_in_order<T>(exec, leaf.sequence(), a.read_whole<T>(1, 2), kv);
    math::attention_forward<T>(exec, shape,
                               {leaf.sequence(), a.context_rank(), a.buffers().document_begins},
                               a.read<T>(0), kv, out, log_sum_exp, a.scratch<T>(0), logits);
  });

  Call backward{
      "d " + name, {queries, keys, values, made, sums, ~made}, {~queries, ~keys, ~values}};
  backward.scratch = {
      bytes_of<T>(math::attention_backward_workspace<T>(of_piece, leaf.pieces(), leaf.kernels)),
      bytes_of<T>(ordered), bytes_of<Compute>(ordered)};
  backward.flops = 3.0 * scores + 2.0 * outputs;
  backward.repeated_flops = scores;
  backward.work = plan::attention_work(backward.flops, head_width);
  backward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    const View<const Compute*> log_sum_exp = a.read_whole<Compute>(4).flat();
    const math::AttentionShape shape = shape_of(a);
    if (!leaf.is_cut()) {
      math::attention_backward<T>(exec, shape, a.read_whole<T>(0, 3), a.read<T>(3), log_sum_exp,
                                  a.read<T>(5), a.written<T>(0, 3), a.scratch<T>(0),
                                  a.buffers().document_begins);
      return;
    }
    const View<T**> kv = a.scratch<T>(1).matrix(all_rows, kv_width);
    const View<Compute**> dkv = a.scratch<Compute>(2).matrix(all_rows, kv_width);
    math::put_in_order<T>(exec, leaf.sequence(), a.read_whole<T>(1, 2), kv);
    math::attention_backward<T>(
        exec, shape, {leaf.sequence(), a.context_rank(), a.buffers().document_begins}, a.read<T>(0),
        kv, a.read<T>(3), log_sum_exp, a.read<T>(5), a.written<T>(0), dkv, a.scratch<T>(0));
    if (a.place_written(1).element == Element::sum)
      math::put_by_part<Compute, Compute>(exec, leaf.sequence(), View<const Compute**>(dkv),
                                          a.written<Compute>(1, 2));
    else
      math::put_by_part<Compute, T>(exec, leaf.sequence(), View<const Compute**>(dkv),
                                    a.written<T>(1, 2));
  });
  Operation operation{{forward}, {backward}};
  if (has_sinks) {
    Call of_sinks = pass({"d " + name + ".sinks", {made, sums, ~made}, {}, sinks, sinks}, queries,
                         2 * out_width);
    const std::int64_t leaves = leaf.leaves();
    of_sinks.scratch = {bytes_of<Compute>(bias_sums_workspace(heads, leaves))};
    of_sinks.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
      sum_sink_gradient<T>(exec, of_piece, a.weight<T>(0), a.read<T>(0),
                           a.read_whole<Compute>(1).flat(), a.read<T>(2), a.gradient<Compute>(0),
                           {leaves, a.scratch<Compute>(0)});
    });
    operation.backward.insert(operation.backward.begin(), std::move(of_sinks));
  }
  append(std::move(operation));
  return made;
}

#define OSTRAKON_INSTANTIATE(T)                                                              \
  template std::vector<int> Operations<T>::clip(const std::vector<int>&, const std::string&, \
                                                double);                                     \
  template int Operations<T>::attention(int, int, int, const std::string&, std::int64_t,     \
                                        const AttentionSettings&);                           \
  template int Operations<T>::latent_attention(int, int, int, const std::string&,            \
                                               const AttentionSettings&);
OSTRAKON_FOR_ALL_NUMBERS(OSTRAKON_INSTANTIATE)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::model::graph
