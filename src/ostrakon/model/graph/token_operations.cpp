// SPDX-License-Identifier: Apache-2.0
// Operations that read the tokens of a leaf, or predict them.
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

/// dwords (words, width) and dpositions (positions of a sequence, width), each if it is trained.
template <class T>
void embedding_gradients(const Exec& exec, const Arguments& a, const LeafShape& leaf,
                         View<compute_t<T>**> dwords, View<compute_t<T>**> dpositions) {
  const View<const T**> dy = a.read<T>(0);
  const auto tokens = a.buffers().tokens;
  if (leaf.sums_by_leaf()) {
    if (dwords)
      math::embedding_backward_by_piece<T>(exec, tokens, dy, dwords, leaf.leaves(),
                                           a.scratch<std::int32_t>(0));
    if (!dpositions) return;
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
  if (!leaf.is_cut()) {
    math::embedding_backward<T>(exec, tokens, leaf.tokens, dy, dwords, dpositions);
    return;
  }
  math::embedding_backward<T>(exec, tokens, leaf.tokens, dy, dwords, {});
  if (!dpositions) return;
  leaf.for_each_run(a.part(), [&](std::int64_t begin, const math::TokenRun& run) {
    math::embedding_backward<T>(exec, tokens.range(begin, begin + run.count), run.count,
                                dy.row_range(begin, begin + run.count), {},
                                dpositions.row_range(run.position, run.position + run.count));
  });
}

}  // namespace

template <class T>
int Operations<T>::embedding(std::int64_t width, bool has_positions) {
  const int y = add("embedding", width);
  const int words = weight("token.weight"), positions = weight("position.weight");
  const std::vector<int> weights =
      has_positions ? std::vector<int>{words, positions} : std::vector<int>{words};
  const LeafShape leaf = leaf_;
  Call forward{"embedding", {}, {y}};
  forward.weights = weights;
  forward.work = row_work((has_positions ? 3 : 2) * width);
  forward.kernel =
      make_kernel([leaf](const Exec& exec, const Arguments& a) { embed<T>(exec, a, leaf); });

  Call backward{"d embedding", {~y}, {}};
  backward.gradients = weights;
  std::int64_t elements = 0;
  for (int w : weights) elements += elements_of(w);
  const std::int64_t words_here = elements_of(words) / width;
  if (leaf.sums_by_leaf())
    backward.scratch = {round_up(
        bytes_of<std::int32_t>(math::embedding_by_piece_workspace(rows_, words_here, leaf.kernels)),
        buffer_alignment<T>)};
  // Gradients are cleared, then rows added.
  backward.work =
      row_work(3 * width) + plan::row_work(static_cast<double>(bytes_of<Compute>(elements)));
  backward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    if (!a.buffers().gradients_opened)
      math::fill<Compute>(exec, view_as<Compute>(a.buffers().gradients), Compute(0));
    const View<Compute*> dwords = a.gradient<Compute>(0), dpositions = a.gradient<Compute>(1);
    embedding_gradients<T>(exec, a, leaf, dwords.matrix(words_here, width),
                           dpositions.matrix(leaf.tokens, width));
  });
  graph_.operations.push_back({{forward}, {backward}});
  return y;
}

template <class T>
int Operations<T>::last_row(int x) {
  const int y = add("last row", columns_of(x));
  graph_.values.back().rows = 1;
  Call forward{"last row", {x}, {y}};
  forward.kernel = make_kernel([](const Exec& exec, const Arguments& a) {
    const View<const T**> rows = a.read<T>(0);
    math::copy_rows<T, T>(exec, rows.row_range(rows.rows() - 1, rows.rows()), a.written<T>(0));
  });
  graph_.operations.push_back({{forward}});
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
  graph_.operations.push_back({{forward}});
  return y;
}

template <class T>
int Operations<T>::tied_weight(const Parameter& parameter) {
  graph_.weights.push_back(
      {parameter.full_name(), parameter.offset, parameter.elements(), !parameter.frozen, true});
  return static_cast<int>(graph_.weights.size()) - 1;
}

template <class T>
int Operations<T>::cross_entropy(int x, int weight, std::int64_t tied_elements) {
  graph_.setting.is_loss = true;
  const std::int64_t width = columns_of(x), written = elements_of(weight), words = written / width;
  const LeafShape leaf = leaf_;
  const bool by_leaf = leaf.sums_by_leaf();
  const int losses = add("losses", 1, Keep::always, Element::sum);
  const double product = product_flops(width, words);
  const Weight& of = graph_.weights[static_cast<std::size_t>(weight)];
  const double factors = of.trained ? 2.0 : 1.0;  // by both, unless the weight is frozen
  const double logits = by_leaf ? 2.0 : 1.0;      // how often backward computes them
  const bool is_tied = of.tied && of.trained;
  // Logits are read for the loss, and read and written for their gradients.
  const plan::KernelWork one = plan::product_work(product, width, words);
  const auto rows_of = [&](std::int64_t bytes) {
    return plan::row_work(static_cast<double>(rows_ * bytes));
  };
  const plan::KernelWork read = rows_of(bytes_of<Compute>(words));

  Call forward{"losses", {x}, {losses}};
  forward.weights = {weight};
  forward.scratch = {
      bytes_of<T>(math::linear_cross_entropy_workspace<T>(rows_, words, leaf.kernels))};
  forward.flops = product;
  forward.work = one + read;
  forward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    const View<const T**> rows = a.read<T>(0);
    math::linear_cross_entropy_forward<T>(exec, rows, a.weight<T>(0).matrix(words, width),
                                          a.buffers().targets.range(0, rows.rows()),
                                          a.written<Compute>(0).flat(), a.scratch<T>(0));
  });

  Call backward{"d losses", {x}, {~x, losses}};
  backward.weights = backward.gradients = {weight};
  backward.scratch = {by_leaf ? bytes_of<T>(math::linear_cross_entropy_by_piece_workspace<T>(
                                    rows_, width, words, leaf.leaves(), leaf.kernels))
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
    if (is_tied)  // the rest of that unit's parameters has no part in this
      math::fill<Compute>(
          exec, view_as<Compute>(a.buffers().tied_gradients).range(written, tied_elements),
          Compute(0));
  });
  graph_.operations.push_back({{forward}, {backward}});
  return losses;
}

#define OSTRAKON_INSTANTIATE(T)                              \
  template int Operations<T>::embedding(std::int64_t, bool); \
  template int Operations<T>::last_row(int);                 \
  template int Operations<T>::logits(int, int);              \
  template int Operations<T>::tied_weight(const Parameter&); \
  template int Operations<T>::cross_entropy(int, int, std::int64_t);
OSTRAKON_INSTANTIATE(float)
OSTRAKON_INSTANTIATE(double)
OSTRAKON_INSTANTIATE(bf16)
OSTRAKON_INSTANTIATE(fp16)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::model::graph
