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
  DecoderOf(DType dtype, const DecoderSettings& settings, LeafShape leaf, Recompute recompute,
            const Frozen& frozen)
      : dtype_(dtype), decoder_(settings, leaf, recompute, frozen) {}

  DType dtype() const override { return dtype_; }
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
  DType dtype_;
  Decoder<T> decoder_;
};

}  // namespace

std::unique_ptr<Model> make_decoder(DType dtype, const DecoderSettings& settings, LeafShape leaf,
                                    Recompute recompute, const Frozen& frozen) {
  switch (dtype) {
    case DType::fp32:
      return std::make_unique<DecoderOf<float>>(dtype, settings, leaf, recompute, frozen);
    case DType::bf16:
      return std::make_unique<DecoderOf<bf16>>(dtype, settings, leaf, recompute, frozen);
    case DType::fp16:
      return std::make_unique<DecoderOf<fp16>>(dtype, settings, leaf, recompute, frozen);
  }
  throw std::logic_error("a number of no type");
}

}  // namespace ostrakon::model
