// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/model/arrays.hpp>
#include <ostrakon/model/tensor_pieces.hpp>

namespace ostrakon::model {

/// The head over tensor ranks: pieces are words. Each rank computes the logits of its words for all
/// rows, some at a time; what is exchanged of them are a maximum, a sum of exponentials and the
/// target's logit for each row and piece. Backward computes the logits a second time, once the
/// losses are known. Each rank outputs the losses of its own rows.
///
/// Phases, and what is exchanged between them:
///
///   vectors     hands its parts of the norm's weights                       gather
///   norm        norm(x) of its rows                                         gather
///   statistics  of its pieces of logits                                     gather
///   gradients   losses; in backward the gradient of its words, and its part of dL/dnorm(x)   sum
///   input       dL/dx; its rows' sums for the norm's weights                sum
///   weights     gradients of its parts of those
template <class T>
class TensorHeadUnit final : public Unit<T> {
 public:
  using typename Unit<T>::RowRange;

  /// As for HeadUnit.
  TensorHeadUnit(const DecoderSettings& settings, LeafShape leaf, const Unit<T>* tied_to,
                 const Frozen& frozen = {});

  const plan::UnitDescription& description() const override { return description_; }
  const std::vector<Parameter>& parameters() const override { return parameters_; }

  void forward(const Exec& exec, const UnitBuffers<T>& buffers, RowRange rows) const override;
  void backward(const Exec& exec, const UnitBuffers<T>& buffers, compute_t<T> loss_scale,
                bool gradients_opened) const override;

 private:
  using Compute = compute_t<T>;
  static constexpr int vectors = 0, norm = 1, statistics = 2, gradients = 3, input = 4;

  struct Saved {
    View<T*> vectors;
    NormStatistics<T> norm;  // (own rows)
    View<T**> normed;        // (rows, width), of all
    View<Compute*> norms;    // gradients of the norm's weights, of its rows
  };
  struct Work {
    View<Compute*> losses, log_sums;  // (rows)
    View<T*> logits;
    View<Compute*> tree, sums;
    View<T**> dnormed;  // (own rows, width), in T where sums are not
  };
  Saved saved_in(Arrays<T>& arrays) const;
  Work work_in(Arrays<T>& arrays, int phase) const;

  void normalize(const Exec& exec, const UnitBuffers<T>& buffers) const;
  void find_statistics(const Exec& exec, const UnitBuffers<T>& buffers,
                       View<const T**> normed) const;
  Work find_losses(const Exec& exec, const UnitBuffers<T>& buffers) const;
  void find_gradients(const Exec& exec, const UnitBuffers<T>& buffers, Compute loss_scale) const;
  void input_backward(const Exec& exec, const UnitBuffers<T>& buffers) const;

  std::int64_t first_word(std::int64_t tensor_rank, std::int64_t piece) const;
  View<const T**> weight(const UnitBuffers<T>& buffers, std::int64_t piece) const;
  View<Compute**> weight_gradient(const Exec& exec, const UnitBuffers<T>& buffers,
                                  std::int64_t piece) const;

  LeafShape leaf_;
  std::int64_t width_, vocabulary_, piece_words_;
  std::vector<Parameter> parameters_;
  PieceSizes pieces_, tied_pieces_;
  Vectors vectors_;
  Norm norm_;
  bool tied_;
  ParameterLocation weight_;  // in a piece of this unit, or of the one that it is tied to
  plan::UnitDescription description_;
};

}  // namespace ostrakon::model
