// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/model/decoder.hpp>
#include <ostrakon/model/layers.hpp>
#include <ostrakon/model/packing.hpp>

namespace ostrakon::model {

/// Its norm and, unless embeddings are tied, output.weight last; not laid out.
std::vector<Parameter> head_parameters(const DecoderSettings& settings);

/// Throws Error unless the head's weight can be this parameter: where token.weight is trained, its
/// gradients are written as [token.weight, zeros].
void require_table(const Parameter& table, std::int64_t vocabulary, std::int64_t width);

/// The last unit: output (rows of compute_t<T>) = cross-entropy of norm(x) W^T with the targets, in
/// nats, x being its input (rows, width). W (vocabulary, width) is output.weight, or the first
/// parameter of the unit that it is tied to, if embeddings are tied. Saves nothing: backward
/// computes the losses itself.
template <class T>
class HeadUnit final : public Unit<T> {
 public:
  using typename Unit<T>::RowRange;

  /// `tied_to`: the unit whose first parameter is its weight, too; null for one of its
  /// own. Throws Error unless a segment of its flat parameter begins with token.weight (vocabulary,
  /// width).
  HeadUnit(const DecoderSettings& settings, LeafShape leaf, const Unit<T>* tied_to,
           const Frozen& frozen = {});

  const plan::UnitDescription& description() const override { return description_; }
  const std::vector<Parameter>& parameters() const override { return parameters_; }

  /// output = losses.
  void forward(const Exec& exec, const UnitBuffers<T>& buffers, RowRange rows) const override;

  /// Reads parameters, input, targets. Writes the losses to output, and to gradient and the
  /// parameters' gradients those of loss_scale * sum(losses). Where the weight is the other unit's
  /// and trained, all of tied_gradients is written.
  void backward(const Exec& exec, const UnitBuffers<T>& buffers, compute_t<T> loss_scale,
                bool gradients_opened) const override;

  /// See Decoder::logits.
  void logits(const Exec& exec, View<const T**> x, const UnitBuffers<T>& buffers,
              View<compute_t<T>**> out) const;
  /// Bytes of workspace for the logits of that many rows.
  std::int64_t logits_workspace_bytes(std::int64_t rows) const;

 private:
  using Compute = compute_t<T>;

  /// Offsets in the workspace, in bytes, all in use to the end. Forward: normed; backward: dnormed,
  /// since normed then lies in `gradient`, which is written last. sums: by leaf only.
  struct WorkspaceLayout {
    std::int64_t normed, mean, rstd, logits, sums;
  };

  void lay_out_sums(Packing& workspace);
  /// Of T, in place of the logits; of compute_t<T>.
  std::int64_t by_leaf_elements() const;
  std::int64_t sum_elements() const;

  std::int64_t logits_normed_bytes(std::int64_t rows) const;
  View<const T**> weight(const UnitBuffers<T>& buffers) const;
  /// Does not exist where the weight is frozen.
  View<Compute**> weight_gradient(const UnitBuffers<T>& buffers) const;
  NormStatistics<T> statistics_in(View<std::byte*> workspace) const;
  View<T*> logits_in(View<std::byte*> workspace) const;

  LeafShape leaf_;
  std::int64_t rows_;
  std::int64_t width_;
  std::int64_t vocabulary_;
  std::vector<Parameter> parameters_;
  Norm norm_;
  bool tied_;
  ParameterLocation weight_;  // in this unit's flat parameter, or in that of the unit it is tied to
  std::int64_t tied_elements_ = 0;  // of that unit's trained segment
  WorkspaceLayout workspace_;
  plan::UnitDescription description_;
};

}  // namespace ostrakon::model
