// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/model/arrays.hpp>
#include <ostrakon/model/tensor_pieces.hpp>

namespace ostrakon::model {

/// The embedding over tensor ranks: pieces are words of the token table and columns of the position
/// table. Forward: each rank looks up all tokens that its words have, and adds its columns of
/// positions; the sum over ranks, in which each element has one of either, gives each its rows.
/// Backward: the gradient of all rows is gathered.
template <class T>
class TensorEmbeddingUnit final : public Unit<T> {
 public:
  using typename Unit<T>::RowRange;

  TensorEmbeddingUnit(const DecoderSettings& settings, LeafShape leaf, const Frozen& frozen = {});

  const plan::UnitDescription& description() const override { return description_; }
  const std::vector<Parameter>& parameters() const override { return parameters_; }

  void forward(const Exec& exec, const UnitBuffers<T>& buffers, RowRange rows) const override;
  void backward(const Exec& exec, const UnitBuffers<T>& buffers, compute_t<T> loss_scale,
                bool gradients_opened) const override;

 private:
  using Compute = compute_t<T>;

  /// The first word of a rank's piece `piece`, and how many it has.
  std::int64_t first_word(std::int64_t tensor_rank, std::int64_t piece) const;
  std::int64_t words(std::int64_t tensor_rank, std::int64_t piece) const;
  std::int64_t first_column(std::int64_t tensor_rank, std::int64_t piece) const;
  std::int64_t lists_elements() const;

  void look_up(const Exec& exec, const UnitBuffers<T>& buffers) const;
  void add_gradients(const Exec& exec, const UnitBuffers<T>& buffers, bool gradients_opened) const;
  void add_token_gradients(const Exec& exec, const UnitBuffers<T>& buffers, std::int64_t piece,
                           View<const T**> dout) const;
  void add_position_gradients(const Exec& exec, const UnitBuffers<T>& buffers, std::int64_t piece,
                              View<const T**> dout) const;

  LeafShape leaf_;
  std::int64_t width_, vocabulary_;
  std::int64_t piece_words_, piece_columns_, position_rows_;
  std::vector<Parameter> parameters_;
  PieceSizes pieces_;
  ParameterLocation tokens_, positions_;
  plan::UnitDescription description_;
};

}  // namespace ostrakon::model
