// SPDX-License-Identifier: Apache-2.0
// Operations that read the tokens of a leaf, or predict them.
#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/cross_entropy/linear_cross_entropy.hpp>
#include <ostrakon/math/cross_entropy/multi_token_targets.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/embedding.hpp>
#include <ostrakon/math/products/gemm.hpp>
#include <ostrakon/model/array_packer.hpp>
#include <ostrakon/model/graph/head_weights.hpp>
#include <ostrakon/model/graph/kernel.hpp>
#include <ostrakon/model/graph/operations.hpp>
#include <type_traits>

namespace ostrakon::model::graph {
namespace {

using math::Transpose;

/// The words by which rows are looked up.
View<const std::int32_t*> words_of(const Arguments& a, const Lookup& lookup) {
  return lookup.by_targets ? a.buffers().targets : a.buffers().tokens;
}

/// Rows of the sums of both tables.
template <class T>
void embed(const Exec& exec, const Arguments& a, const LeafShape& leaf, const Lookup& lookup) {
  const View<T**> y = a.written<T>(0);
  const auto table = [&](int i) {
    const View<const T*> weight = a.weight<T>(i);
    return weight.matrix(weight.size() / y.columns(), y.columns());
  };
  for_each_run(leaf, a, y.rows(), [&](const RunOfRows& run) {
    math::embedding_forward<T>(exec, words_of(a, lookup).range(run.begin, run.end), run.tokens,
                               run.position, table(0), table(1), y.row_range(run.begin, run.end),
                               run.document_begins);
  });
}

/// Rows that a piece of a table of `words` rows has: as all others, unless it is the last one.
std::int64_t words_in(std::int64_t piece, std::int64_t words, std::int64_t words_of_piece) {
  return std::min(words_of_piece, words - piece * words_of_piece);
}

/// The rows of a rank's words and the columns of its positions, as addends of those of all ranks.
template <class T>
void embed_some(const Exec& exec, const Arguments& a, const LeafShape& leaf, const Lookup& lookup,
                std::int64_t words_of_piece) {
  using C = compute_t<T>;
  const View<C**> sum = a.written<C>(0);
  // This zero changes no number that is added to it, not even the sign of a zero.
  math::fill<C>(exec, sum.flat(), -C(0));
  const View<const T**> table = a.weight_pieces<T>(0);
  for (std::int64_t own = 0; own < table.rows(); ++own) {
    const std::int64_t piece = a.piece() + own,
                       count = words_in(piece, lookup.words, words_of_piece);
    math::embedding_forward_some<T>(exec, words_of(a, lookup), piece * words_of_piece,
                                    table.row(own).matrix(count, sum.columns()), sum);
  }
  if (a.weights() == 1) return;
  const View<const T**> positions = a.weight_pieces<T>(1);
  const std::int64_t width = sum.columns() / leaf.tensor_pieces();
  for (std::int64_t own = 0; own < positions.rows(); ++own) {
    const std::int64_t first = (a.piece() + own) * width;
    for_each_run(leaf, a, sum.rows(), [&](const RunOfRows& run) {
      math::add_positions<T>(exec, run.tokens, run.position,
                             positions.row(own).matrix(positions.columns() / width, width),
                             sum.row_range(run.begin, run.end).column_range(first, first + width),
                             run.document_begins);
    });
  }
}

/// The gradients of a piece's words, and of the columns of its positions, each if it is trained.
template <class T>
void embedding_gradients(const Exec& exec, const Arguments& a, const LeafShape& leaf,
                         const Lookup& lookup, std::int64_t words_of_piece) {
  using C = compute_t<T>;
  const View<const T**> dy = a.read<T>(0);
  const View<const std::int32_t*> tokens = words_of(a, lookup);
  if (const View<C*> dwords = a.gradient<C>(0)) {
    const std::int64_t count = words_in(a.piece(), lookup.words, words_of_piece);
    const View<C**> table = dwords.matrix(count, dy.columns());
    const View<std::int32_t*> found = a.scratch<std::int32_t>(1);
    const bool in_pieces = leaf.tensor_pieces() > 1;
    if (in_pieces) math::find_own_words(exec, tokens, a.piece() * words_of_piece, count, found);
    const View<const std::int32_t*> own = in_pieces ? View<const std::int32_t*>(found) : tokens;
    if (leaf.sums_by_leaf())
      math::embedding_backward_by_piece<T>(exec, own, dy, table, leaf.leaves(),
                                           a.scratch<std::int32_t>(0));
    else
      math::embedding_backward<T>(exec, own, leaf.tokens, dy, table, {});
  }
  const View<C*> dpositions = a.gradient<C>(1);
  if (!dpositions) return;
  const std::int64_t width = dy.columns() / leaf.tensor_pieces(), first = a.piece() * width;
  const View<const T**> columns = dy.column_range(first, first + width);
  const View<C**> table = dpositions.matrix(leaf.tokens, width);
  if (leaf.restarts_positions) {
    // A position has rows of several documents, as a word has: it is looked up as one.
    const View<std::int32_t*> found = a.scratch<std::int32_t>(1).range(0, dy.rows());
    for_each_run(leaf, a, dy.rows(), [&](const RunOfRows& run) {
      math::find_positions(exec, run.tokens, run.position, run.document_begins,
                           found.range(run.begin, run.end));
    });
    if (leaf.sums_by_leaf())
      math::embedding_backward_by_piece<T>(exec, found, columns, table, leaf.leaves(),
                                           a.scratch<std::int32_t>(0));
    else
      math::embedding_backward<T>(exec, found, leaf.tokens, columns, table, {});
    return;
  }
  if (leaf.sums_by_leaf()) {
    // A position of a sequence is in one of its pieces: the tree is over sequences.
    const math::SequenceParts sequence = leaf.sequence();
    for (std::int64_t r = 0; r < sequence.runs(); ++r) {
      const math::TokenRun run = sequence.run(a.context_rank(), r);
      math::embedding_positions_backward<T>(
          exec, columns, leaf.batch, run.row,
          table.row_range(run.position, run.position + run.count));
    }
    return;
  }
  for_each_run(leaf, a, dy.rows(), [&](const RunOfRows& run) {
    math::embedding_backward<T>(exec, tokens.range(run.begin, run.end), run.tokens,
                                columns.row_range(run.begin, run.end), {},
                                table.row_range(run.position, run.position + run.tokens));
  });
}

}  // namespace

template <class T>
int Operations<T>::embedding(const Lookup& lookup, std::int64_t width) {
  const bool has_positions = lookup.positions >= 0;
  const int table = lookup.table;
  const std::vector<int> weights =
      has_positions ? std::vector<int>{table, lookup.positions} : std::vector<int>{table};
  const Weight of = graph_.weights[static_cast<std::size_t>(table)];
  const LeafShape leaf = leaf_;
  const bool in_pieces = graph_.setting.pieces > 1;
  const int y = in_pieces
                    ? add("embedding", width, Distribution::partial, Keep::never, Element::sum)
                    : add("embedding", width, Distribution::rows);
  const std::int64_t rows = value(y).rows, words_of_piece = elements_of(table) / width;
  // Rows are added up where the table's piece is.
  Call forward =
      pass({"embedding", {}, {y}, weights}, y, (has_positions && !in_pieces ? 3 : 2) * width);
  forward.takes_all_pieces = true;
  forward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    if (in_pieces)
      embed_some<T>(exec, a, leaf, lookup, words_of_piece);
    else
      embed<T>(exec, a, leaf, lookup);
  });
  // Gradients are cleared, then rows added.
  Call backward = pass({"d embedding", {~y}, {}, {}, weights}, y, 3 * width);
  std::int64_t elements = 0;
  for (int w : weights) elements += elements_of(w);
  backward.work += plan::row_work(static_cast<double>(bytes_of<Compute>(elements)));
  const bool restarts = has_positions && leaf.restarts_positions;
  const std::int64_t looked_up = restarts ? std::max(words_of_piece, leaf.tokens) : words_of_piece;
  const std::int64_t lists =
      leaf.sums_by_leaf() ? round_up(bytes_of<std::int32_t>(math::embedding_by_piece_workspace(
                                         rows, looked_up, leaf.kernels)),
                                     buffer_alignment<T>)
                          : 0;
  backward.scratch = {lists, in_pieces || restarts ? bytes_of<std::int32_t>(rows) : 0};
  backward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    for (int i = 0; i < a.gradients() && !a.buffers().adds_gradients; ++i)
      if (const View<Compute*> gradient = a.gradient<Compute>(i))
        math::fill<Compute>(exec, gradient, Compute(0));
    clear_rest<T>(exec, a, of, of.elements);
    embedding_gradients<T>(exec, a, leaf, lookup, words_of_piece);
  });
  append({{forward}, {backward}});
  return y;
}

template <class T>
int Operations<T>::last_rows(int x) {
  const int y = add("last rows", columns_of(x), Distribution::rows);
  graph_.values.back().rows = leaf_.batch;
  graph_.values.back().is_per_run = true;
  Call forward{"last rows", {x}, {y}};
  forward.kernel = make_kernel([](const Exec& exec, const Arguments& a) {
    const View<const T**> rows = a.read<T>(0);
    const View<T**> last = a.written<T>(0);
    std::int64_t to = 0;
    for_each_decoded(a, [&](const DecodedRun& run, std::int64_t row) {
      const std::int64_t end = row + run.count;
      math::copy_rows<T, T>(exec, rows.row_range(end - 1, end), last.row_range(to, to + 1));
      ++to;
    });
  });
  append({{forward}});
  return y;
}

template <class T>
int Operations<T>::logits(int x, const Head& head) {
  const std::int64_t width = columns_of(x), words = head.words;
  const int y = add_for(x, "logits", words, Keep::always, Element::sum);
  Call forward = product({"logits", {x}, {y}, head.weights()}, x, width, words);
  forward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    math::gemm<T, Compute>(exec, Transpose::no, Transpose::yes, 1, a.read<T>(0),
                           a.weight<T>(0).matrix(words, width), 0, a.written<Compute>(0));
    math::make_logits<T>(exec, logits_of<T>(a, head, words), a.written<Compute>(0));
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

template <class T>
int Operations<T>::stack_leaves(const std::vector<int>& of) {
  std::vector<int> x;
  for (int v : of) x.push_back(redistribute(v, Distribution::replicated));
  const auto depths = static_cast<std::int64_t>(x.size());
  const std::int64_t width = columns_of(x.front()), leaves = leaf_.leaves();
  const int y = add_for(x.front(), "stacked", width, Keep::never);
  graph_.values.back().rows *= depths;
  Call forward = pass({"stack", x, {y}}, y, 2 * width), backward{"d stack", {~y}, {}};
  for (int v : x) backward.writes.push_back(~v);
  backward.work = forward.work;
  struct Rows {
    std::int64_t begin, end;
  };
  // body(depth, rows of a leaf, the same rows stacked)
  const auto for_each_depth = [=](std::int64_t stacked, const auto& body) {
    const std::int64_t run = stacked / (leaves * depths);
    for (std::int64_t leaf = 0; leaf < leaves; ++leaf)
      for (std::int64_t depth = 0; depth < depths; ++depth) {
        const std::int64_t at = (leaf * depths + depth) * run;
        body(static_cast<int>(depth), Rows{leaf * run, (leaf + 1) * run}, Rows{at, at + run});
      }
  };
  forward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    const View<T**> to = a.written<T>(0);
    for_each_depth(to.rows(), [&](int depth, Rows rows, Rows stacked) {
      math::copy_rows<T, T>(exec, a.read<T>(depth).row_range(rows.begin, rows.end),
                            to.row_range(stacked.begin, stacked.end));
    });
  });
  backward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    const auto copy = [&](auto element) {
      using A = decltype(element);
      const View<const A**> from = a.read<A>(0);
      for_each_depth(from.rows(), [&](int depth, Rows rows, Rows stacked) {
        math::copy_rows<A, A>(exec, from.row_range(stacked.begin, stacked.end),
                              a.written<A>(depth).row_range(rows.begin, rows.end));
      });
    };
    // In fp32 and double, sums are in the dtype of values.
    if constexpr (std::is_same_v<T, Compute>)
      copy(T());
    else
      a.place_read(0).element == Element::sum ? copy(Compute()) : copy(T());
  });
  append({{forward}, {backward}});
  return y;
}

namespace {

/// What rows of losses predict, and room for their losses before they are unstacked: in scratch
/// arrays of a call, from one on. Rows that predict the next token alone need none of it.
template <class T>
class Predictions {
 public:
  using C = compute_t<T>;

  Predictions(const LeafShape& leaf, const Head& head, std::int64_t rows)
      : further_{leaf.tokens, rows / (leaf.leaves() * head.depths), head.depths,
                 head.multi_token_factor},
        rows_(rows),
        loss_(leaf.loss) {
    loss_.words = head.words;
  }

  /// Bytes of the scratch arrays of a call, behind others.
  std::vector<std::int64_t> scratch(std::vector<std::int64_t> others) const {
    const std::int64_t rows = is_stacked() ? rows_ : 0;
    for (std::int64_t bytes : {bytes_of<std::int32_t>(rows), bytes_of<C>(rows), bytes_of<C>(rows)})
      others.push_back(bytes);
    return others;
  }
  /// Returns the targets of backward, in scratch arrays from `first` on.
  math::Targets<C> targets(const Exec& exec, const Arguments& a, int first) const {
    if (!is_stacked()) return {a.buffers().targets.range(0, rows_), {}, loss_};
    const auto words = a.scratch<std::int32_t>(first);
    const auto factors = a.scratch<C>(first + 1);
    math::stack_targets<C>(exec, further_, a.buffers().targets.range(0, rows_ / further_.depths),
                           words, factors);
    return {words, factors, loss_};
  }
  /// Where losses are written before they are given to `to`, in which they may lie.
  View<C*> room(const Arguments& a, int first, View<C*> to) const {
    return is_stacked() ? a.scratch<C>(first + 2) : to;
  }
  /// Those of rows from `begin` on, as many as `to` has.
  void give(const Exec& exec, View<const C*> made, std::int64_t begin, View<C*> to) const {
    if (made.data() != to.data()) math::unstack_losses<C>(exec, further_, made, begin, to);
  }

 private:
  bool is_stacked() const { return further_.depths > 1; }

  math::MultiTokenTargets further_;
  std::int64_t rows_;
  math::LossForm loss_;
};

/// What the unit of the losses hands over: losses and, behind them, margins if the leaf has any.
template <class C>
struct Outputs {
  Outputs(const LeafShape& leaf, View<C*> all)
      : losses(leaf.tells_margins ? all.range(0, all.size() / 2) : all),
        margins(leaf.tells_margins ? all.range(all.size() / 2, all.size()) : View<C*>()) {}

  View<C*> losses, margins;
};

}  // namespace

template <class T>
int Operations<T>::cross_entropy(int x, const Head& head) {
  graph_.setting.is_loss = true;
  require(!leaf_.tells_margins || head.depths == 1, "margins of ", head.depths,
          " tokens that a row predicts; expected those of one");
  if (leaf_.has_pairs()) return losses_of_pairs(x, head);
  return graph_.setting.pieces == 1
             ? losses_of_whole_words(x, head)
             : losses_of_some_words(redistribute(x, Distribution::replicated), head);
}

template <class T>
int Operations<T>::losses_of_whole_words(int x, const Head& head) {
  const std::int64_t width = columns_of(x), rows_here = value(x).rows, words = head.words;
  const LeafShape leaf = leaf_;
  const bool by_leaf = leaf.sums_by_leaf();
  const int losses = add_for(x, "losses", 1, Keep::always, Element::sum);
  if (leaf.tells_margins) graph_.values.back().rows *= 2;
  const Weight of = graph_.weights[static_cast<std::size_t>(head.weight)];
  const double factors = of.trained ? 2.0 : 1.0;  // by both, unless the weight is frozen
  const double logits = by_leaf ? 2.0 : 1.0;      // how often backward computes them

  Call forward = product({"losses", {x}, {losses}, head.weights()}, x, width, words);
  const plan::KernelWork one = forward.work;
  forward.work += plan::row_work(static_cast<double>(rows_here * bytes_of<Compute>(words)));
  const Predictions<T> predictions(leaf, head, rows_here);
  const std::int64_t workspace = bytes_of<T>(
      math::linear_cross_entropy_workspace<T>(rows_here, words, leaf.kernels, head.bias >= 0));
  forward.scratch = predictions.scratch({workspace});
  forward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    const Outputs<Compute> all(leaf, a.written<Compute>(0).flat());
    const View<Compute*> to = all.losses, made = predictions.room(a, 1, to);
    math::linear_cross_entropy_forward<T>(exec, a.read<T>(0), a.weight<T>(0).matrix(words, width),
                                          predictions.targets(exec, a, 1).words, made,
                                          a.scratch<T>(0), logits_of<T>(a, head, words),
                                          all.margins);
    predictions.give(exec, made, 0, to);
  });

  Call backward{"d losses", {x}, {~x, losses}, head.weights(), head.weights()};
  backward.can_add_gradients = leaf.can_add_gradients() && !by_leaf && head.bias < 0 &&
                               math::takes_rows_at_once<T>(rows_here, words, leaf.kernels);
  backward.scratch =
      predictions.scratch({by_leaf ? bytes_of<T>(math::linear_cross_entropy_by_piece_workspace<T>(
                                         rows_here, width, words, leaf.leaves(), leaf.kernels))
                                   : workspace});
  backward.repeated_flops = logits * forward.flops;
  backward.flops = factors * forward.flops + backward.repeated_flops;
  // Logits are read each time that they are computed, and some of them once more.
  const bool is_read_once = by_leaf && math::is_of_device(leaf.kernels);
  const std::int64_t again = is_read_once ? 0 : math::logits_read_again<T>(words, leaf.kernels);
  const std::int64_t summed = leaf.loss.smooths() ? words : 0;
  const std::int64_t bytes =
      bytes_of<Compute>((by_leaf ? 2 : 1) * words + again + summed) + bytes_of<T>(words);
  backward.work =
      (factors + logits) * one + plan::row_work(static_cast<double>(rows_here * bytes),
                                                leaf.loss.smooths() ? logits + 1.0 : logits);
  backward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    const View<const T**> rows = a.read<T>(0), w = a.weight<T>(0).matrix(words, width);
    const auto targets = predictions.targets(exec, a, 1);
    const auto loss_scale = static_cast<Compute>(a.buffers().loss_scale);
    const View<Compute*> to = Outputs<Compute>(leaf, a.written<Compute>(1).flat()).losses,
                         losses_here = predictions.room(a, 1, to);
    const View<Compute**> dweight = a.gradient<Compute>(0).matrix(words, width);
    const auto made = logits_of<T>(a, head, words);
    const View<Compute*> dbias = a.gradient<Compute>(1);
    if (by_leaf)
      math::linear_cross_entropy_backward_by_piece<T>(exec, rows, w, targets, loss_scale,
                                                      losses_here, a.written<T>(0), dweight,
                                                      leaf.leaves(), a.scratch<T>(0), made, dbias);
    else
      math::linear_cross_entropy_backward<T>(exec, rows, w, targets, loss_scale, losses_here,
                                             a.written<T>(0), dweight, a.scratch<T>(0), made, dbias,
                                             a.adds_gradients());
    predictions.give(exec, losses_here, 0, to);
    clear_rest<T>(exec, a, of, words * width);
  });
  append({{forward}, {backward}});
  return losses;
}

/// Each piece has some words. Statistics of their logits are gathered, from which every rank finds
/// the losses of all rows.
template <class T>
int Operations<T>::losses_of_some_words(int x, const Head& head) {
  const LeafShape leaf = leaf_;
  const std::int64_t width = columns_of(x), rows = value(x).rows, words = head.words;
  const std::int64_t of_piece = elements_of(head.weight) / width;
  const Weight of = graph_.weights[static_cast<std::size_t>(head.weight)];
  const double factors = of.trained ? 2.0 : 1.0;
  const std::int64_t workspace = bytes_of<T>(
      math::cross_entropy_piece_workspace<T>(rows, width, of_piece, leaf.leaves(), leaf.kernels));

  const int own = add("statistics", rows, Distribution::columns, Keep::never, Element::sum);
  graph_.values.back().rows = math::piece_statistics(leaf.loss);
  Call statistics = product({"statistics", {x}, {own}, head.weights()}, x, width, of_piece);
  const plan::KernelWork one = statistics.work;
  const double passes = leaf.loss.smooths() ? 2.0 : 1.0;
  statistics.work += passes * row_work(x, bytes_of<Compute>(of_piece) / bytes_of<T>(1));
  const Predictions<T> predictions(leaf, head, rows);
  statistics.scratch = predictions.scratch({workspace});
  statistics.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    const std::int64_t here = words_in(a.piece(), words, of_piece);
    math::cross_entropy_statistics<T>(exec, a.read<T>(0), a.weight<T>(0).matrix(here, width),
                                      a.piece() * of_piece, predictions.targets(exec, a, 1),
                                      a.written<Compute>(0), a.scratch<T>(0),
                                      logits_of<T>(a, head, here));
  });
  const Call gather = division_.gather_pieces(graph_, own);
  const int all = gather.writes.front();
  append({{statistics, gather}});

  const int losses = add("losses", 1, Distribution::rows, Keep::always, Element::sum);
  graph_.values.back().rows *= head.depths * (leaf.tells_margins ? 2 : 1);
  const int log_sums = add_for(x, "log sums", 1, Keep::never, Element::sum);
  // This call computes all rows; the rank keeps the losses of its own.
  Call again{"log sums", {all}, {losses, log_sums}};
  // The scratch array has the losses of all rows and, where they are told, their margins.
  again.scratch = predictions.scratch({bytes_of<Compute>(leaf.tells_margins ? 2 * rows : rows)});
  again.kernel = make_kernel([=, own_rows = leaf.own_rows(), pieces = graph_.setting.pieces](
                                 const Exec& exec, const Arguments& a) {
    const Outputs<Compute> all_rows(leaf, a.scratch<Compute>(0)),
        kept(leaf, a.written<Compute>(0).flat());
    math::Targets<Compute> targets = predictions.targets(exec, a, 1);
    if (a.writes() == 1) targets.form = {};  // in forward
    math::combine_statistics<Compute>(
        exec, a.read<Compute>(0), pieces, of_piece, targets, all_rows.losses,
        a.writes() > 1 ? a.written<Compute>(1).flat() : a.scratch<Compute>(4), all_rows.margins);
    const std::int64_t first = a.buffers().tensor_rank * own_rows;
    if (kept.losses) predictions.give(exec, all_rows.losses, first, kept.losses);
    if (kept.margins) predictions.give(exec, all_rows.margins, first, kept.margins);
  });
  Call forward{"losses", {all}, {losses}};
  forward.scratch = again.scratch;
  forward.scratch.push_back(bytes_of<Compute>(rows));
  forward.kernel = again.kernel;
  Call backward{"d losses", {x, log_sums}, {~x}, head.weights(), head.weights()};
  backward.scratch = predictions.scratch({workspace});
  backward.repeated_flops = statistics.flops;
  backward.flops = (1.0 + factors) * statistics.flops;
  backward.work = statistics.work + factors * one + row_work(x, of_piece);
  backward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    const std::int64_t here = words_in(a.piece(), words, of_piece);
    const View<Compute*> dbias = a.gradient<Compute>(1);
    clear_rest<T>(exec, a, of, here * width);
    math::cross_entropy_gradients<T>(
        exec, a.read<T>(0), a.weight<T>(0).matrix(here, width), a.piece() * of_piece,
        predictions.targets(exec, a, 1), a.read<Compute>(1).flat(),
        static_cast<Compute>(a.buffers().loss_scale), a.written<Compute>(0),
        a.gradient<Compute>(0).matrix(here, width), leaf.leaves(), a.scratch<T>(0),
        logits_of<T>(a, head, here), dbias ? dbias.range(0, here) : dbias);
  });
  append({{forward}, {again, backward}});
  return losses;
}

#define OSTRAKON_INSTANTIATE(T)                                       \
  template int Operations<T>::embedding(const Lookup&, std::int64_t); \
  template int Operations<T>::stack_leaves(const std::vector<int>&);  \
  template int Operations<T>::last_rows(int);                         \
  template int Operations<T>::logits(int, const Head&);               \
  template int Operations<T>::tied_weight(const Parameter&);          \
  template int Operations<T>::cross_entropy(int, const Head&);
OSTRAKON_FOR_ALL_NUMBERS(OSTRAKON_INSTANTIATE)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::model::graph
