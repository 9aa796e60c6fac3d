// SPDX-License-Identifier: Apache-2.0
// Operations that read the tokens of a leaf, or predict them.
#include <algorithm>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/embedding.hpp>
#include <ostrakon/math/gemm.hpp>
#include <ostrakon/math/linear_cross_entropy.hpp>
#include <ostrakon/model/graph/kernel.hpp>
#include <ostrakon/model/graph/operations.hpp>
#include <ostrakon/model/packing.hpp>

namespace ostrakon::model::graph {
namespace {

using math::Transpose;

template <class T>
void embed(const Exec& exec, const Arguments& a, const LeafShape& leaf) {
  const View<T**> y = a.written<T>(0);
  const auto table = [&](int i) {
    const View<const T*> weight = a.weight<T>(i);
    return weight.matrix(weight.size() / y.columns(), y.columns());
  };
  const auto tokens = a.buffers().tokens;
  if (!leaf.is_cut()) {
    math::embedding_forward<T>(exec, tokens.range(0, y.rows()), leaf.tokens, a.rows().begin,
                               table(0), table(1), y);
    return;
  }
  leaf.for_each_run(a.part(), [&](std::int64_t begin, const math::TokenRun& run) {
    math::embedding_forward<T>(exec, tokens.range(begin, begin + run.count), run.count,
                               run.position, table(0), table(1),
                               y.row_range(begin, begin + run.count));
  });
}

/// dpositions (positions of a sequence, some columns) of dy (rows, as many columns).
template <class T>
void position_gradients(const Exec& exec, const Arguments& a, const LeafShape& leaf,
                        View<const T**> dy, View<compute_t<T>**> dpositions) {
  if (leaf.sums_by_leaf()) {
    // A position of a sequence is in one of its pieces: the tree is over sequences.
    const math::SequenceParts sequence = leaf.sequence();
    for (std::int64_t r = 0; r < sequence.runs(); ++r) {
      const math::TokenRun run = sequence.run(a.part(), r);
      math::embedding_positions_backward<T>(
          exec, dy, leaf.batch, run.row,
          dpositions.row_range(run.position, run.position + run.count));
    }
    return;
  }
  const auto tokens = a.buffers().tokens;
  if (!leaf.is_cut())
    return math::embedding_backward<T>(exec, tokens, leaf.tokens, dy, {}, dpositions);
  leaf.for_each_run(a.part(), [&](std::int64_t begin, const math::TokenRun& run) {
    math::embedding_backward<T>(exec, tokens.range(begin, begin + run.count), run.count,
                                dy.row_range(begin, begin + run.count), {},
                                dpositions.row_range(run.position, run.position + run.count));
  });
}

/// dwords (words, width) and dpositions (positions of a sequence, width), each if it is trained.
template <class T>
void embedding_gradients(const Exec& exec, const Arguments& a, const LeafShape& leaf,
                         View<compute_t<T>**> dwords, View<compute_t<T>**> dpositions) {
  const View<const T**> dy = a.read<T>(0);
  const auto tokens = a.buffers().tokens;
  if (leaf.sums_by_leaf() && dwords)
    math::embedding_backward_by_piece<T>(exec, tokens, dy, dwords, leaf.leaves(),
                                         a.scratch<std::int32_t>(0));
  else if (!leaf.sums_by_leaf() && !leaf.is_cut())
    return math::embedding_backward<T>(exec, tokens, leaf.tokens, dy, dwords, dpositions);
  else if (!leaf.sums_by_leaf())
    math::embedding_backward<T>(exec, tokens, leaf.tokens, dy, dwords, {});
  if (dpositions) position_gradients<T>(exec, a, leaf, dy, dpositions);
}

/// Rows that a piece of a table of `words` rows has: as all others, unless it is the last one.
std::int64_t words_of(std::int64_t piece, std::int64_t words, std::int64_t words_of_piece) {
  return std::min(words_of_piece, words - piece * words_of_piece);
}

/// The rows of a rank's words and the columns of its positions, as addends of those of all ranks.
template <class T>
void look_up(const Exec& exec, const Arguments& a, const LeafShape& leaf, std::int64_t words,
             std::int64_t words_of_piece) {
  using C = compute_t<T>;
  const View<C**> sum = a.written<C>(0);
  // This zero changes no number that is added to it, not even the sign of a zero.
  math::fill<C>(exec, sum.flat(), -C(0));
  const View<const T**> table = a.weight_pieces<T>(0);
  for (std::int64_t own = 0; own < table.rows(); ++own) {
    const std::int64_t piece = a.piece() + own, count = words_of(piece, words, words_of_piece);
    math::embedding_forward_some<T>(exec, a.buffers().tokens, piece * words_of_piece,
                                    table.row(own).matrix(count, sum.columns()), sum);
  }
  if (a.weights() == 1) return;
  const View<const T**> positions = a.weight_pieces<T>(1);
  const std::int64_t width = sum.columns() / leaf.tensor_pieces();
  for (std::int64_t own = 0; own < positions.rows(); ++own) {
    const std::int64_t first = (a.piece() + own) * width;
    const View<const T**> of_piece = positions.row(own).matrix(positions.columns() / width, width);
    const View<C**> columns = sum.column_range(first, first + width);
    if (!leaf.is_cut()) {
      math::add_positions<T>(exec, leaf.tokens, 0, of_piece, columns);
      continue;
    }
    leaf.for_each_run(a.part(), [&](std::int64_t begin, const math::TokenRun& run) {
      math::add_positions<T>(exec, run.count, run.position, of_piece,
                             columns.row_range(begin, begin + run.count));
    });
  }
}

/// The gradients of a piece's words, for all rows, and of the columns of its positions.
template <class T>
void some_embedding_gradients(const Exec& exec, const Arguments& a, const LeafShape& leaf,
                              std::int64_t words, std::int64_t words_of_piece) {
  using C = compute_t<T>;
  const View<const T**> dy = a.read<T>(0);
  const View<C*> dwords = a.gradient<C>(0), dpositions = a.gradient<C>(1);
  if (dwords) {
    const std::int64_t count = words_of(a.piece(), words, words_of_piece);
    const View<C**> table = dwords.matrix(count, dy.columns());
    const View<std::int32_t*> own = a.scratch<std::int32_t>(1);
    math::find_own_words(exec, a.buffers().tokens, a.piece() * words_of_piece, count, own);
    if (leaf.sums_by_leaf())
      math::embedding_backward_by_piece<T>(exec, own, dy, table, leaf.leaves(),
                                           a.scratch<std::int32_t>(0));
    else
      math::embedding_backward<T>(exec, own, leaf.tokens, dy, table, {});
  }
  if (!dpositions) return;
  const std::int64_t width = dy.columns() / leaf.tensor_pieces(), first = a.piece() * width;
  position_gradients<T>(exec, a, leaf, dy.column_range(first, first + width),
                        dpositions.matrix(leaf.tokens, width));
}

}  // namespace

template <class T>
int Operations<T>::embedding(std::int64_t words, std::int64_t width, bool has_positions) {
  const int table = weight("token.weight"), positions = weight("position.weight");
  const std::vector<int> weights =
      has_positions ? std::vector<int>{table, positions} : std::vector<int>{table};
  const LeafShape leaf = leaf_;
  const bool in_pieces = graph_.setting.pieces > 1;
  const int y = in_pieces ? add("embedding", width, Over::sum, Keep::cheap, Element::sum)
                          : add("embedding", width, Over::rows);
  const std::int64_t rows = value(y).rows, words_of_piece = elements_of(table) / width;
  Call forward{"embedding", {}, {y}};
  forward.weights = weights;
  Call backward{"d embedding", {~y}, {}};
  backward.gradients = weights;
  std::int64_t elements = 0;
  for (int w : weights) elements += elements_of(w);
  const std::int64_t lists =
      leaf.sums_by_leaf() ? round_up(bytes_of<std::int32_t>(math::embedding_by_piece_workspace(
                                         rows, words_of_piece, leaf.kernels)),
                                     buffer_alignment<T>)
                          : 0;
  backward.scratch = {lists, in_pieces ? bytes_of<std::int32_t>(rows) : 0};
  // Rows are added up where the table's piece is; gradients are cleared, then rows added.
  forward.work = row_work(y, (has_positions && !in_pieces ? 3 : 2) * width);
  backward.work =
      row_work(y, 3 * width) + plan::row_work(static_cast<double>(bytes_of<Compute>(elements)));
  forward.takes_all_pieces = true;
  if (in_pieces)
    forward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
      look_up<T>(exec, a, leaf, words, words_of_piece);
    });
  else
    forward.kernel =
        make_kernel([leaf](const Exec& exec, const Arguments& a) { embed<T>(exec, a, leaf); });
  backward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    for (int i = 0; i < a.gradients() && !a.buffers().gradients_opened; ++i)
      if (const View<Compute*> gradient = a.gradient<Compute>(i))
        math::fill<Compute>(exec, gradient, Compute(0));
    if (in_pieces) return some_embedding_gradients<T>(exec, a, leaf, words, words_of_piece);
    embedding_gradients<T>(exec, a, leaf, a.gradient<Compute>(0).matrix(words, width),
                           a.gradient<Compute>(1).matrix(leaf.tokens, width));
  });
  append({{forward}, {backward}});
  return y;
}

template <class T>
int Operations<T>::last_row(int x) {
  const int y = add("last row", columns_of(x), Over::rows);
  graph_.values.back().rows = 1;
  Call forward{"last row", {x}, {y}};
  forward.kernel = make_kernel([](const Exec& exec, const Arguments& a) {
    const View<const T**> rows = a.read<T>(0);
    math::copy_rows<T, T>(exec, rows.row_range(rows.rows() - 1, rows.rows()), a.written<T>(0));
  });
  append({{forward}});
  return y;
}

template <class T>
int Operations<T>::logits(int x, int weight) {
  const std::int64_t width = columns_of(x), words = elements_of(weight) / width;
  const int y = add_for(x, "logits", words, Keep::always, Element::sum);
  Call forward{"logits", {x}, {y}};
  forward.weights = {weight};
  forward.flops = 2.0 * static_cast<double>(elements_of(weight));
  forward.work = plan::product_work(forward.flops, width, words);
  forward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::gemm<T, Compute>(exec, Transpose::no, Transpose::yes, 1, a.read<T>(0),
                           a.weight<T>(0).matrix(words, width), 0, a.written<Compute>(0));
  });
  append({{forward}});
  return y;
}

template <class T>
int Operations<T>::tied_weight(const Parameter& parameter) {
  graph_.weights.push_back({parameter.full_name(), parameter.offset, parameter.piece_elements(),
                            !parameter.frozen, true, parameter.piece_stride});
  return static_cast<int>(graph_.weights.size()) - 1;
}

namespace {

/// The weight of the unit that this one is tied to is its first; the rest of that unit's parameters
/// has no part in a loss.
template <class T>
void clear_rest(const Exec& exec, const Arguments& a, const Weight& weight, std::int64_t written) {
  using C = compute_t<T>;
  if (weight.tied && weight.trained)
    math::fill<C>(exec, a.all_tied_gradients<C>(weight.stride).range(written, weight.stride), C(0));
}

}  // namespace

template <class T>
int Operations<T>::cross_entropy(int x, int weight, std::int64_t words) {
  graph_.setting.is_loss = true;
  return graph_.setting.pieces == 1
             ? losses_of_whole_words(x, weight, words)
             : losses_of_some_words(over_tensor(x, Over::whole), weight, words);
}

template <class T>
int Operations<T>::losses_of_whole_words(int x, int weight, std::int64_t words) {
  const std::int64_t width = columns_of(x), rows_here = value(x).rows;
  const LeafShape leaf = leaf_;
  const bool by_leaf = leaf.sums_by_leaf();
  const int losses = add_for(x, "losses", 1, Keep::always, Element::sum);
  const double product = product_flops(x, width, words);
  const Weight of = graph_.weights[static_cast<std::size_t>(weight)];
  const double factors = of.trained ? 2.0 : 1.0;  // by both, unless the weight is frozen
  const double logits = by_leaf ? 2.0 : 1.0;      // how often backward computes them
  // Logits are read for the loss, and read and written for their gradients.
  const plan::KernelWork one = plan::product_work(product, width, words);
  const auto rows_of = [&](std::int64_t bytes) {
    return plan::row_work(static_cast<double>(rows_here * bytes));
  };
  const plan::KernelWork read = rows_of(bytes_of<Compute>(words));

  Call forward{"losses", {x}, {losses}};
  forward.weights = {weight};
  forward.scratch = {
      bytes_of<T>(math::linear_cross_entropy_workspace<T>(rows_here, words, leaf.kernels))};
  forward.flops = product;
  forward.work = one + read;
  forward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    const View<const T**> rows = a.read<T>(0);
    math::linear_cross_entropy_forward<T>(exec, rows, a.weight<T>(0).matrix(words, width),
                                          a.buffers().targets.range(0, rows.rows()),
                                          a.written<Compute>(0).flat(), a.scratch<T>(0));
  });

  Call backward{"d losses", {x}, {~x, losses}, {weight}};
  backward.gradients = backward.weights;
  backward.scratch = {by_leaf ? bytes_of<T>(math::linear_cross_entropy_by_piece_workspace<T>(
                                    rows_here, width, words, leaf.leaves(), leaf.kernels))
                              : forward.scratch.front()};
  backward.repeated_flops = logits * product;
  backward.flops = factors * product + backward.repeated_flops;
  backward.work = factors * one + logits * (one + read) +
                  rows_of(bytes_of<Compute>(words) + bytes_of<T>(words));
  backward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    const View<const T**> rows = a.read<T>(0), w = a.weight<T>(0).matrix(words, width);
    const auto targets = a.buffers().targets.range(0, rows.rows());
    const auto loss_scale = static_cast<Compute>(a.buffers().loss_scale);
    const View<Compute*> losses_here = a.written<Compute>(1).flat();
    const View<Compute**> dweight = a.gradient<Compute>(0).matrix(words, width);
    if (by_leaf)
      math::linear_cross_entropy_backward_by_piece<T>(exec, rows, w, targets, loss_scale,
                                                      losses_here, a.written<T>(0), dweight,
                                                      leaf.leaves(), a.scratch<T>(0));
    else
      math::linear_cross_entropy_backward<T>(exec, rows, w, targets, loss_scale, losses_here,
                                             a.written<T>(0), dweight, a.scratch<T>(0));
    clear_rest<T>(exec, a, of, words * width);
  });
  append({{forward}, {backward}});
  return losses;
}

/// Each piece has some words. Statistics of their logits are gathered, from which every rank finds
/// the losses of all rows.
template <class T>
int Operations<T>::losses_of_some_words(int x, int weight, std::int64_t words) {
  const LeafShape leaf = leaf_;
  const std::int64_t width = columns_of(x), rows = value(x).rows;
  const std::int64_t of_piece = elements_of(weight) / width, count = math::piece_statistics;
  const Weight of = graph_.weights[static_cast<std::size_t>(weight)];
  const double product = product_flops(x, width, of_piece), factors = of.trained ? 2.0 : 1.0;
  const plan::KernelWork one = plan::product_work(product, width, of_piece);
  const plan::KernelWork logits = one + row_work(x, bytes_of<Compute>(of_piece) / bytes_of<T>(1));
  const std::int64_t work = bytes_of<T>(
      math::cross_entropy_piece_workspace<T>(rows, width, of_piece, leaf.leaves(), leaf.kernels));

  const int own = add("statistics", rows, Over::columns, Keep::cheap, Element::sum);
  graph_.values.back().rows = count;
  Call statistics{"statistics", {x}, {own}, {weight}};
  statistics.scratch = {work};
  statistics.flops = product;
  statistics.work = logits;
  statistics.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::cross_entropy_statistics<T>(
        exec, a.read<T>(0), a.weight<T>(0).matrix(words_of(a.piece(), words, of_piece), width),
        a.piece() * of_piece, a.buffers().targets.range(0, rows), a.written<Compute>(0),
        a.scratch<T>(0));
  });
  append({{statistics}});
  const int all = division_.gather_pieces(graph_, own);

  const int losses = add("losses", 1, Over::rows, Keep::always, Element::sum);
  const int log_sums = add("log sums", 1, Over::whole, Keep::cheap, Element::sum);
  const std::int64_t own_rows = leaf.own_rows();
  const auto combine = [=](const Exec& exec, const Arguments& a, View<Compute*> log_sums_here) {
    math::combine_statistics<Compute>(exec, a.read<Compute>(0), of_piece,
                                      a.buffers().targets.range(0, rows), a.scratch<Compute>(0),
                                      log_sums_here);
    const std::int64_t first = a.buffers().tensor_rank * own_rows;
    const View<Compute*> to = a.written<Compute>(0).flat();
    if (to) math::copy<Compute>(exec, a.scratch<Compute>(0).range(first, first + own_rows), to);
  };
  Call forward{"losses", {all}, {losses}};
  forward.scratch = {bytes_of<Compute>(rows), bytes_of<Compute>(rows)};
  forward.kernel = make_kernel(
      [=](const Exec& exec, const Arguments& a) { combine(exec, a, a.scratch<Compute>(1)); });
  Call again{"log sums", {all}, {losses, log_sums}};
  again.scratch = {bytes_of<Compute>(rows)};
  again.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    combine(exec, a, a.written<Compute>(1).flat());
  });
  Call backward{"d losses", {x, log_sums}, {~x}, {weight}};
  backward.gradients = backward.weights;
  backward.scratch = {work};
  backward.repeated_flops = product;
  backward.flops = (1.0 + factors) * product;
  backward.work = logits + factors * one + row_work(x, of_piece);
  backward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    const std::int64_t here = words_of(a.piece(), words, of_piece);
    clear_rest<T>(exec, a, of, here * width);
    math::cross_entropy_gradients<T>(
        exec, a.read<T>(0), a.weight<T>(0).matrix(here, width), a.piece() * of_piece,
        a.buffers().targets.range(0, rows), a.read<Compute>(1).flat(),
        static_cast<Compute>(a.buffers().loss_scale), a.written<Compute>(0),
        a.gradient<Compute>(0).matrix(here, width), leaf.leaves(), a.scratch<T>(0));
  });
  append({{forward}, {again, backward}});
  return losses;
}

#define OSTRAKON_INSTANTIATE(T)                                            \
  template int Operations<T>::embedding(std::int64_t, std::int64_t, bool); \
  template int Operations<T>::last_row(int);                               \
  template int Operations<T>::logits(int, int);                            \
  template int Operations<T>::tied_weight(const Parameter&);               \
  template int Operations<T>::cross_entropy(int, int, std::int64_t);
OSTRAKON_INSTANTIATE(float)
OSTRAKON_INSTANTIATE(double)
OSTRAKON_INSTANTIATE(bf16)
OSTRAKON_INSTANTIATE(fp16)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::model::graph
