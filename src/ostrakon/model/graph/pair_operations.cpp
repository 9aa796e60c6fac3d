// SPDX-License-Identifier: Apache-2.0
// Losses of pairs of answers.
#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/cross_entropy/linear_cross_entropy.hpp>
#include <ostrakon/math/cross_entropy/pair_losses.hpp>
#include <ostrakon/model/array_packer.hpp>
#include <ostrakon/model/graph/head_weights.hpp>
#include <ostrakon/model/graph/kernel.hpp>
#include <ostrakon/model/graph/operations.hpp>

namespace ostrakon::model::graph {
namespace {

/// Losses of pairs, from those of their tokens.
template <class T>
class PairLosses {
 public:
  using C = compute_t<T>;

  PairLosses(const LeafShape& leaf, const Head& head, std::int64_t width)
      : leaf_(leaf), head_(head), width_(width) {}

  View<const T**> weight(const Arguments& a) const {
    return a.weight<T>(0).matrix(head_.words, width_);
  }
  View<const std::int32_t*> targets(const Arguments& a) const {
    return a.buffers().targets.range(0, leaf_.rows());
  }
  /// Scratch arrays of the call: a workspace, and losses of tokens. outputs: of math::PairOutput,
  /// one after the other.
  void compute(const Exec& exec, const Arguments& a, View<C*> outputs,
               View<C*> factors = {}) const {
    const View<C*> token_losses = a.scratch<C>(1);
    const std::int64_t rows = leaf_.rows(), before = 3 * rows, pairs = leaf_.batch;
    math::linear_cross_entropy_forward<T>(exec, a.read<T>(0), weight(a), targets(a), token_losses,
                                          a.scratch<T>(0), logits_of<T>(a, head_, head_.words));
    math::pair_losses<C>(exec, leaf_.pair_beta, token_losses,
                         a.buffers().document_begins.range(0, rows),
                         view_as<float>(a.buffers().batch).range(before, before + 2 * pairs),
                         outputs.matrix(math::pair_outputs, pairs), factors);
  }

 private:
  LeafShape leaf_;
  Head head_;
  std::int64_t width_;
};

}  // namespace

/// A token's loss has a factor in gradients that follows from all losses of its pair: backward
/// computes these first, and then logits again.
template <class T>
int Operations<T>::losses_of_pairs(int x, const Head& head) {
  const std::int64_t width = columns_of(x), rows = value(x).rows, words = head.words;
  const LeafShape leaf = leaf_;
  require(rows == leaf.rows() && graph_.setting.pieces == 1 && head.depths == 1, "losses of pairs ",
          "of ", rows, " rows, ", graph_.setting.pieces, " pieces of words and ", head.depths,
          " tokens for each row; expected ", leaf.rows(), ", 1 and 1");
  const bool by_leaf = leaf.sums_by_leaf();
  const int losses = add_for(x, "losses", 1, Keep::always, Element::sum);
  graph_.values.back().rows = math::pair_outputs * leaf.batch;
  const Weight of = graph_.weights[static_cast<std::size_t>(head.weight)];
  const PairLosses<T> pairs(leaf, head, width);

  Call forward = product({"losses", {x}, {losses}, head.weights()}, x, width, words);
  const plan::KernelWork one = forward.work;
  const plan::KernelWork logits_read =
      plan::row_work(static_cast<double>(rows * bytes_of<Compute>(words)));
  forward.work += logits_read;
  const std::int64_t of_forward =
      math::linear_cross_entropy_workspace<T>(rows, words, leaf.kernels, head.bias >= 0);
  forward.scratch = {bytes_of<T>(of_forward), bytes_of<Compute>(rows)};
  forward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    pairs.compute(exec, a, a.written<Compute>(0).flat());
  });

  Call backward{"d losses", {x}, {~x, losses}, head.weights(), head.weights()};
  const std::int64_t by_piece = math::linear_cross_entropy_by_piece_workspace<T>(
      rows, width, words, leaf.leaves(), leaf.kernels);
  backward.scratch = {bytes_of<T>(by_leaf ? std::max(of_forward, by_piece) : of_forward),
                      bytes_of<Compute>(rows), bytes_of<Compute>(rows)};
  const double products = of.trained ? 2.0 : 1.0;  // with gradients of logits
  const double logits = by_leaf ? 3.0 : 2.0;       // how often logits are computed
  backward.repeated_flops = logits * forward.flops;
  backward.flops = products * forward.flops + backward.repeated_flops;
  backward.work = (products + logits) * one + (logits + 1.0) * logits_read;
  backward.kernel = make_kernel([=](const Exec& exec, const Arguments& a) {
    const View<Compute*> factors = a.scratch<Compute>(2), token_losses = a.scratch<Compute>(1);
    pairs.compute(exec, a, a.written<Compute>(1).flat(), factors);
    const math::Targets<Compute> targets(pairs.targets(a), factors);
    const auto loss_scale = static_cast<Compute>(a.buffers().loss_scale);
    const View<Compute**> dweight = a.gradient<Compute>(0).matrix(words, width);
    const View<Compute*> dbias = a.gradient<Compute>(1);
    const auto made = logits_of<T>(a, head, words);
    if (by_leaf)
      math::linear_cross_entropy_backward_by_piece<T>(
          exec, a.read<T>(0), pairs.weight(a), targets, loss_scale, token_losses, a.written<T>(0),
          dweight, leaf.leaves(), a.scratch<T>(0), made, dbias);
    else
      math::linear_cross_entropy_backward<T>(exec, a.read<T>(0), pairs.weight(a), targets,
                                             loss_scale, token_losses, a.written<T>(0), dweight,
                                             a.scratch<T>(0), made, dbias);
    clear_rest<T>(exec, a, of, words * width);
  });
  append({{forward}, {backward}});
  return losses;
}

#define OSTRAKON_INSTANTIATE(T) template int Operations<T>::losses_of_pairs(int, const Head&);
OSTRAKON_FOR_ALL_NUMBERS(OSTRAKON_INSTANTIATE)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::model::graph
