// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <ostrakon/base/number.hpp>
#include <ostrakon/model/decoder.hpp>
#include <vector>

namespace ostrakon::model {

/// A Decoder<T> whose T is chosen at run time. Gradients of parameters and losses are float in all
/// of them.
class AnyDecoder {
 public:
  virtual ~AnyDecoder() = default;

  /// That of parameters and activations.
  virtual Number number() const = 0;
  virtual const DecoderSettings& settings() const = 0;
  virtual LeafShape leaf() const = 0;
  virtual int units() const = 0;
  virtual const std::vector<Parameter>& parameters(int unit) const = 0;
  virtual plan::ModelDescription description() const = 0;
  virtual std::int64_t parameter_count() const = 0;

  /// See Unit.
  virtual void forward(int unit, const Exec& exec, const UnitBuffers<void>& buffers,
                       RowRange rows) const = 0;
  virtual void backward(int unit, const Exec& exec, const UnitBuffers<void>& buffers,
                        float loss_scale, bool gradients_opened) const = 0;
};

/// Throws Error where Decoder does.
std::unique_ptr<AnyDecoder> make_decoder(Number number, const DecoderSettings& settings,
                                         LeafShape leaf, Recompute recompute = {},
                                         const Frozen& frozen = {});

}  // namespace ostrakon::model
