// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/decoder_model.hpp>

#include <ostrakon/model/typed_buffers.hpp>
#include <stdexcept>

namespace ostrakon::model {
namespace {

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
  int context_ranks() const override { return static_cast<int>(decoder_.leaf().context_ranks); }
  int tensor_ranks() const override { return static_cast<int>(decoder_.leaf().tensor_ranks); }
  int pieces() const override { return static_cast<int>(decoder_.leaf().pieces()); }
  std::int64_t leaves() const override { return decoder_.leaf().leaves(); }
  bool is_known_by_sizes() const override { return true; }
  LossTerms loss_terms() const override {
    const LeafShape leaf = decoder_.leaf();
    const bool predicts_further = decoder_.settings().multi_token_depth > 0;
    if (leaf.has_pairs()) return LossTerms::of_pairs(leaf.batch);
    LossTerms terms = {leaf.batch, rows(), "tokens",
                       predicts_further ? leaf.batch * (leaf.tokens - 1) : 0, rows()};
    terms.tells_margins = leaf.tells_margins;
    if (predicts_further)
      terms.needs_all =
          "model.multi_token_depth is 1, whose module reads each target as the next token";
    else if (has_balance_loss())
      terms.needs_all =
          "model.router_balance is loss, which is a mean over all tokens, and would be weighted "
          "by how few count";
    return terms;
  }

  void forward(int unit, const Exec& exec, const UnitBuffers<void>& buffers) const override {
    decoder_.unit(unit).forward(exec, with_tokens(typed<T>(buffers), rows(), has_documents()));
  }
  void backward(int unit, const Exec& exec, const UnitBuffers<void>& buffers, float loss_scale,
                bool adds_gradients) const override {
    decoder_.unit(unit).backward(exec, with_tokens(typed<T>(buffers), rows(), has_documents()),
                                 loss_scale, adds_gradients);
  }

  void copy_sequence(int unit, const Exec& exec, const UnitBuffers<void>& buffers,
                     std::int64_t from, std::int64_t to) const override {
    decoder_.unit(unit).copy_sequence(exec, typed<T>(buffers), from, to);
  }

 private:
  std::int64_t rows() const { return decoder_.leaf().rows(); }
  bool has_balance_loss() const {
    const ExpertSettings& experts = decoder_.settings().experts;
    return experts.count > 0 && experts.balance == RouterBalance::loss &&
           experts.balance_rate != 0.0;
  }
  bool has_documents() const { return decoder_.leaf().has_documents; }

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
  throw std::logic_error("unknown dtype");
}

}  // namespace ostrakon::model
