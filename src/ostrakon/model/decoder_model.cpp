// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/decoder_model.hpp>

#include <stdexcept>

namespace ostrakon::model {
namespace {

template <class T>
UnitBuffers<T> typed(const UnitBuffers<void>& buffers) {
  static_assert(std::is_same<compute_t<T>, float>::value, "gradients are float");
  UnitBuffers<T> result;
  result.tokens = buffers.tokens;
  result.targets = buffers.targets;
  result.parameters = static_cast<const T*>(buffers.parameters);
  result.frozen = static_cast<const T*>(buffers.frozen);
  result.tied_parameters = static_cast<const T*>(buffers.tied_parameters);
  result.tied_frozen = static_cast<const T*>(buffers.tied_frozen);
  result.input = static_cast<const T*>(buffers.input);
  result.output = static_cast<T*>(buffers.output);
  result.saved = static_cast<T*>(buffers.saved);
  result.workspace = static_cast<T*>(buffers.workspace);
  result.gradient = static_cast<T*>(buffers.gradient);
  result.parameter_gradients = static_cast<float*>(buffers.parameter_gradients);
  result.tied_gradients = static_cast<float*>(buffers.tied_gradients);
  return result;
}

template <class T>
class DecoderOf final : public Model {
 public:
  DecoderOf(Number number, const DecoderSettings& settings, LeafShape leaf, Recompute recompute,
            const Frozen& frozen)
      : number_(number), decoder_(settings, leaf, recompute, frozen) {}

  Number number() const override { return number_; }
  int units() const override { return decoder_.units(); }
  const std::vector<Parameter>& parameters(int unit) const override {
    return decoder_.unit(unit).parameters();
  }
  plan::ModelDescription description() const override { return decoder_.description(); }

  void forward(int unit, const Exec& exec, const UnitBuffers<void>& buffers,
               RowRange rows) const override {
    decoder_.unit(unit).forward(exec, typed<T>(buffers), rows);
  }
  void backward(int unit, const Exec& exec, const UnitBuffers<void>& buffers, float loss_scale,
                bool gradients_opened) const override {
    decoder_.unit(unit).backward(exec, typed<T>(buffers), loss_scale, gradients_opened);
  }

 private:
  Number number_;
  Decoder<T> decoder_;
};

}  // namespace

std::unique_ptr<Model> make_decoder(Number number, const DecoderSettings& settings, LeafShape leaf,
                                    Recompute recompute, const Frozen& frozen) {
  switch (number) {
    case Number::fp32:
      return std::make_unique<DecoderOf<float>>(number, settings, leaf, recompute, frozen);
    case Number::bf16:
      return std::make_unique<DecoderOf<bf16>>(number, settings, leaf, recompute, frozen);
    case Number::fp16:
      return std::make_unique<DecoderOf<fp16>>(number, settings, leaf, recompute, frozen);
  }
  throw std::logic_error("a number of no type");
}

}  // namespace ostrakon::model
