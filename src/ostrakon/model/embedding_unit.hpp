// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/model/decoder.hpp>

namespace ostrakon::model {

/// token.weight and, if learned, position.weight, not laid out.
std::vector<Parameter> embedding_parameters(const DecoderSettings& settings, std::int64_t tokens);

/// The first unit: output (rows, width) = token.weight[token] (+ position.weight[position]).
///
/// One segment of its flat parameter begins with token.weight (vocabulary, width), which a head
/// with tied embeddings reads, too.
template <class T>
class EmbeddingUnit final : public Unit<T> {
 public:
  using typename Unit<T>::RowRange;

  EmbeddingUnit(const DecoderSettings& settings, LeafShape leaf, const Frozen& frozen = {});

  const plan::UnitDescription& description() const override { return description_; }
  const std::vector<Parameter>& parameters() const override { return parameters_; }

  void forward(const Exec& exec, const UnitBuffers<T>& buffers, RowRange rows) const override;

  /// Reads tokens and gradient. Writes all of parameter_gradients, or adds to it where a tied head
  /// was there before (gradients_opened). Nothing to do where both tables are frozen.
  void backward(const Exec& exec, const UnitBuffers<T>& buffers, compute_t<T> loss_scale,
                bool gradients_opened) const override;

 private:
  void backward_by_leaf(const Exec& exec, const UnitBuffers<T>& buffers,
                        View<compute_t<T>**> tokens, View<compute_t<T>**> positions) const;

  LeafShape leaf_;
  std::int64_t width_;
  bool learned_positions_;
  std::vector<Parameter> parameters_;
  plan::UnitDescription description_;
};

}  // namespace ostrakon::model
