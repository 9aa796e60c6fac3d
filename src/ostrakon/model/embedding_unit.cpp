// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/embedding_unit.hpp>

#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/embedding.hpp>
#include <ostrakon/model/layers.hpp>
#include <ostrakon/model/packing.hpp>

namespace ostrakon::model {
namespace {

// Positions of the two tables in the list of parameters.
constexpr int token_weight = 0;
constexpr int position_weight = 1;

/// Where `table` lies in the flat parameter: (rows, width).
template <class T>
View<const T**> table_in(const FlatParameter<T>& flat, const Parameter& table) {
  return flat.at(location_of(table)).matrix(table.shape[0], table.shape[1]);
}

/// Its gradient, if it is trained.
template <class C>
View<C**> gradient_in(View<C*> gradients, const Parameter& table) {
  return gradient_at(gradients, location_of(table)).matrix(table.shape[0], table.shape[1]);
}

}  // namespace

std::vector<Parameter> embedding_parameters(const DecoderSettings& settings, std::int64_t tokens) {
  const double deviation = settings.initializer_deviation;
  std::vector<Parameter> tables = {
      Parameter::normal("token.weight", {settings.vocabulary, settings.width}, deviation)};
  if (settings.positions == Positions::learned)
    tables.push_back(Parameter::normal(
        "position.weight", {settings.position_rows(tokens), settings.width}, deviation));
  for (Parameter& table : tables) table.orthogonalize = false;
  return tables;
}

template <class T>
EmbeddingUnit<T>::EmbeddingUnit(const DecoderSettings& settings, LeafShape leaf,
                                const Frozen& frozen)
    : leaf_(leaf),
      width_(settings.width),
      learned_positions_(settings.positions == Positions::learned) {
  parameters_ = embedding_parameters(settings, leaf.tokens);
  description_.name = "embedding";
  const SegmentSizes sizes = lay_out_parameters(parameters_, description_.name, frozen);
  description_.parameter_elements = sizes.frozen + sizes.trained;
  description_.frozen_elements = sizes.frozen;
  description_.output_bytes = bytes_of<T>(leaf.rows() * settings.width);
  description_.backward_reads_parameters = false;
  if (leaf.sums_by_leaf())
    description_.backward.front().workspace_bytes =
        round_up(bytes_of<std::int32_t>(math::embedding_by_piece_workspace(
                     leaf.rows(), settings.vocabulary, leaf.kernels)),
                 buffer_alignment<T>);
  const auto rows = static_cast<double>(bytes_of<T>(leaf.rows() * settings.width));
  const std::int64_t positions = learned_positions_ ? settings.position_rows(leaf.tokens) : 0;
  const auto table = static_cast<double>(
      bytes_of<compute_t<T>>((settings.vocabulary + positions) * settings.width));
  description_.forward.front().work = plan::row_work((learned_positions_ ? 3.0 : 2.0) * rows);
  // Gradients are cleared, then rows added.
  description_.backward.front().work = plan::row_work(table + 3.0 * rows, 2.0);
}

template <class T>
void EmbeddingUnit<T>::forward(const Exec& exec, const UnitBuffers<T>& buffers,
                               RowRange rows) const {
  leaf_.require_row_range(rows.begin, rows.end);
  if (!buffers.output) return;
  const FlatParameter<T> parameters = own_parameters(buffers);
  const View<T**> output = buffers.output.matrix(leaf_.rows(), width_);
  View<const T**> positions;
  if (learned_positions_) positions = table_in(parameters, parameters_[position_weight]);
  const View<const T**> tokens = table_in(parameters, parameters_[token_weight]);
  if (!leaf_.is_cut()) {
    const std::int64_t count = rows.end - rows.begin;
    math::embedding_forward<T>(exec, buffers.tokens.range(0, count), leaf_.tokens, rows.begin,
                               tokens, positions, output.row_range(0, count));
    return;
  }
  leaf_.for_each_run(buffers.part, [&](std::int64_t begin, const math::TokenRun& run) {
    math::embedding_forward<T>(exec, buffers.tokens.range(begin, begin + run.count), run.count,
                               run.position, tokens, positions,
                               output.row_range(begin, begin + run.count));
  });
}

template <class T>
void EmbeddingUnit<T>::backward(const Exec& exec, const UnitBuffers<T>& buffers,
                                compute_t<T> /*loss_scale*/, bool gradients_opened) const {
  using Compute = compute_t<T>;
  const View<Compute*> gradients = buffers.parameter_gradients;
  if (!gradients_opened)
    math::fill<Compute>(exec, gradients.range(0, description_.trained_elements()), Compute(0));
  View<Compute**> positions;
  if (learned_positions_) positions = gradient_in(gradients, parameters_[position_weight]);
  if (positions) positions = positions.row_range(0, leaf_.tokens);
  const View<const T**> dout = buffers.gradient.matrix(leaf_.rows(), width_);
  const View<Compute**> tokens = gradient_in(gradients, parameters_[token_weight]);
  if (leaf_.sums_by_leaf()) {
    backward_by_leaf(exec, buffers, tokens, positions);
    return;
  }
  if (!leaf_.is_cut()) {
    math::embedding_backward<T>(exec, buffers.tokens, leaf_.tokens, dout, tokens, positions);
    return;
  }
  math::embedding_backward<T>(exec, buffers.tokens, leaf_.tokens, dout, tokens, {});
  if (!positions) return;
  leaf_.for_each_run(buffers.part, [&](std::int64_t begin, const math::TokenRun& run) {
    math::embedding_backward<T>(exec, buffers.tokens.range(begin, begin + run.count), run.count,
                                dout.row_range(begin, begin + run.count), {},
                                positions.row_range(run.position, run.position + run.count));
  });
}

template <class T>
void EmbeddingUnit<T>::backward_by_leaf(const Exec& exec, const UnitBuffers<T>& buffers,
                                        View<compute_t<T>**> tokens,
                                        View<compute_t<T>**> positions) const {
  const View<const T**> dout = buffers.gradient.matrix(leaf_.rows(), width_);
  if (tokens)
    math::embedding_backward_by_piece<T>(exec, buffers.tokens, dout, tokens, leaf_.leaves(),
                                         view_as<std::int32_t>(buffers.workspace));
  if (!positions) return;
  // A position of a sequence is in one of its pieces: the tree is over sequences.
  const math::SequenceParts sequence = leaf_.sequence();
  for (std::int64_t r = 0; r < sequence.runs(); ++r) {
    const math::TokenRun run = sequence.run(buffers.part, r);
    math::embedding_positions_backward<T>(
        exec, dout, leaf_.batch, run.row,
        positions.row_range(run.position, run.position + run.count));
  }
}

template class EmbeddingUnit<float>;
template class EmbeddingUnit<double>;
template class EmbeddingUnit<bf16>;
template class EmbeddingUnit<fp16>;

}  // namespace ostrakon::model
