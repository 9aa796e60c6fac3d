// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/tensor_embedding_unit.hpp>

#include <algorithm>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/embedding.hpp>
#include <ostrakon/model/embedding.hpp>

namespace ostrakon::model {

template <class T>
TensorEmbeddingUnit<T>::TensorEmbeddingUnit(const DecoderSettings& settings, LeafShape leaf,
                                            const Frozen& frozen)
    : leaf_(leaf),
      width_(settings.width),
      vocabulary_(settings.vocabulary),
      piece_columns_(settings.width / leaf.tensor_pieces()),
      position_rows_(settings.position_rows(leaf.tokens)) {
  parameters_ = embedding_parameters(settings, leaf.tokens);
  if (parameters_.size() > 1) parameters_[1].cut.by_columns = true;
  description_.name = "embedding";
  const SegmentSizes sizes =
      lay_out_parameters(parameters_, description_.name, frozen, leaf.tensor_pieces());
  description_.parameter_elements = sizes.frozen + sizes.trained;
  description_.frozen_elements = sizes.frozen;
  pieces_ = piece_sizes(parameters_);
  tokens_ = piece_location(parameters_[0]);
  piece_words_ = parameters_[0].piece_rows(leaf.tensor_pieces());
  if (parameters_.size() > 1) positions_ = piece_location(parameters_[1]);

  description_.output_bytes = bytes_of<T>(leaf.own_rows() * width_);
  description_.backward_reads_parameters = false;
  description_.forward = description_.backward = {{}, {}};
  description_.forward[0].then = sum_rows(leaf, width_, bytes_of<Compute>(1));
  description_.forward[1].reads = description_.backward[1].reads = {0};
  description_.backward[0].then = gather_rows(leaf, width_, bytes_of<T>(1));
  Arrays<T> arrays;
  arrays.template take<std::int32_t>(leaf_.rows());
  arrays.template take<std::int32_t>(lists_elements());
  const auto rows = static_cast<double>(bytes_of<T>(leaf.rows() * width_));
  description_.forward[0].work = plan::row_work(2.0 * rows);
  description_.backward[1].work =
      plan::row_work(static_cast<double>(bytes_of<Compute>(description_.parameter_elements)) /
                             static_cast<double>(leaf.tensor_ranks) +
                         3.0 * rows,
                     2.0);
  description_.backward[1].workspace_bytes = arrays.size();
}

template <class T>
std::int64_t TensorEmbeddingUnit<T>::lists_elements() const {
  return leaf_.sums_by_leaf()
             ? math::embedding_by_piece_workspace(leaf_.rows(), piece_words_, leaf_.kernels)
             : 0;
}

template <class T>
std::int64_t TensorEmbeddingUnit<T>::first_word(std::int64_t tensor_rank,
                                                std::int64_t piece) const {
  return leaf_.piece_of(tensor_rank, piece) * piece_words_;
}

template <class T>
std::int64_t TensorEmbeddingUnit<T>::words(std::int64_t tensor_rank, std::int64_t piece) const {
  return std::min(piece_words_, vocabulary_ - first_word(tensor_rank, piece));
}

template <class T>
std::int64_t TensorEmbeddingUnit<T>::first_column(std::int64_t tensor_rank,
                                                  std::int64_t piece) const {
  return leaf_.piece_of(tensor_rank, piece) * piece_columns_;
}

template <class T>
void TensorEmbeddingUnit<T>::forward(const Exec& exec, const UnitBuffers<T>& buffers,
                                     RowRange rows) const {
  leaf_.require_row_range(rows.begin, rows.end);
  if (buffers.phase == 0) return look_up(exec, buffers);
  if (!buffers.output) return;
  math::copy_rows<Compute, T>(
      exec, view_as<const Compute>(buffers.exchanged).matrix(leaf_.own_rows(), width_),
      buffers.output.matrix(leaf_.own_rows(), width_));
}

template <class T>
void TensorEmbeddingUnit<T>::look_up(const Exec& exec, const UnitBuffers<T>& buffers) const {
  const View<Compute**> all = view_as<Compute>(buffers.handed).matrix(leaf_.rows(), width_);
  const std::int64_t rank = buffers.tensor_rank;
  // Which changes no number that is added to it, not even the sign of a zero.
  math::fill<Compute>(exec, all.flat(), -Compute(0));
  for (std::int64_t piece = 0; piece < leaf_.own_pieces(); ++piece)
    math::embedding_forward_some<T>(
        exec, buffers.tokens, first_word(rank, piece),
        own_piece<T>(buffers, pieces_, piece).at(tokens_).matrix(words(rank, piece), width_), all);
  if (!positions_.exists()) return;
  for (std::int64_t piece = 0; piece < leaf_.own_pieces(); ++piece) {
    const View<const T**> table =
        own_piece<T>(buffers, pieces_, piece).at(positions_).matrix(position_rows_, piece_columns_);
    const std::int64_t first = first_column(rank, piece);
    const View<Compute**> columns = all.column_range(first, first + piece_columns_);
    if (!leaf_.is_cut()) {
      math::add_positions<T>(exec, leaf_.tokens, 0, table, columns);
      continue;
    }
    leaf_.for_each_run(buffers.part, [&](std::int64_t begin, const math::TokenRun& run) {
      math::add_positions<T>(exec, run.count, run.position, table,
                             columns.row_range(begin, begin + run.count));
    });
  }
}

template <class T>
void TensorEmbeddingUnit<T>::backward(const Exec& exec, const UnitBuffers<T>& buffers,
                                      compute_t<T> /*loss_scale*/, bool gradients_opened) const {
  if (buffers.phase == 1) return add_gradients(exec, buffers, gradients_opened);
  math::copy<T>(exec, buffers.gradient.range(0, leaf_.own_rows() * width_),
                view_as<T>(buffers.handed));
}

template <class T>
void TensorEmbeddingUnit<T>::add_gradients(const Exec& exec, const UnitBuffers<T>& buffers,
                                           bool gradients_opened) const {
  const auto dout = view_as<const T>(buffers.exchanged).matrix(leaf_.rows(), width_);
  for (std::int64_t piece = 0; piece < leaf_.own_pieces(); ++piece) {
    if (!gradients_opened)
      math::fill<Compute>(exec, own_piece_gradients<T>(buffers, pieces_, piece), Compute(0));
    if (tokens_.trained()) add_token_gradients(exec, buffers, piece, dout);
    if (positions_.trained()) add_position_gradients(exec, buffers, piece, dout);
  }
}

template <class T>
void TensorEmbeddingUnit<T>::add_token_gradients(const Exec& exec, const UnitBuffers<T>& buffers,
                                                 std::int64_t piece, View<const T**> dout) const {
  Arrays<T> arrays(buffers.workspace);
  const View<std::int32_t*> own = arrays.template take<std::int32_t>(leaf_.rows());
  const View<std::int32_t*> lists = arrays.template take<std::int32_t>(lists_elements());
  const std::int64_t rank = buffers.tensor_rank, count = words(rank, piece);
  const View<Compute**> table =
      gradient_at(own_piece_gradients<T>(buffers, pieces_, piece), tokens_).matrix(count, width_);
  math::find_own_words(exec, buffers.tokens, first_word(rank, piece), count, own);
  if (leaf_.sums_by_leaf())
    math::embedding_backward_by_piece<T>(exec, own, dout, table, leaf_.leaves(), lists);
  else
    math::embedding_backward<T>(exec, own, leaf_.tokens, dout, table, {});
}

template <class T>
void TensorEmbeddingUnit<T>::add_position_gradients(const Exec& exec, const UnitBuffers<T>& buffers,
                                                    std::int64_t piece,
                                                    View<const T**> dout) const {
  const View<Compute**> table =
      gradient_at(own_piece_gradients<T>(buffers, pieces_, piece), positions_)
          .matrix(position_rows_, piece_columns_)
          .row_range(0, leaf_.tokens);
  const std::int64_t first = first_column(buffers.tensor_rank, piece);
  const View<const T**> columns = dout.column_range(first, first + piece_columns_);
  if (leaf_.sums_by_leaf()) {
    // A position of a sequence is in one of its pieces: the tree is over sequences.
    const math::SequenceParts sequence = leaf_.sequence();
    for (std::int64_t r = 0; r < sequence.runs(); ++r) {
      const math::TokenRun run = sequence.run(buffers.part, r);
      math::embedding_positions_backward<T>(
          exec, columns, leaf_.batch, run.row,
          table.row_range(run.position, run.position + run.count));
    }
    return;
  }
  if (!leaf_.is_cut()) {
    math::embedding_backward<T>(exec, buffers.tokens, leaf_.tokens, columns, {}, table);
    return;
  }
  leaf_.for_each_run(buffers.part, [&](std::int64_t begin, const math::TokenRun& run) {
    math::embedding_backward<T>(exec, buffers.tokens.range(begin, begin + run.count), run.count,
                                columns.row_range(begin, begin + run.count), {},
                                table.row_range(run.position, run.position + run.count));
  });
}

template class TensorEmbeddingUnit<float>;
template class TensorEmbeddingUnit<double>;
template class TensorEmbeddingUnit<bf16>;
template class TensorEmbeddingUnit<fp16>;

}  // namespace ostrakon::model
