// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/feed_forward.hpp>

#include <ostrakon/model/dense_feed_forward.hpp>
#include <ostrakon/model/expert_feed_forward.hpp>

namespace ostrakon::model {

/// A product of (m, k) and (k, n) takes 2 m n k, and each of forward's has two in backward, by
/// either factor, unless that is frozen.
template <class T>
void FeedForward<T>::count(const Linear& layer, std::int64_t rows, bool saved,
                           bool computed_again) {
  const double product =
      2.0 * static_cast<double>(rows) * static_cast<double>(layer.inputs * layer.outputs);
  const auto all_rows = static_cast<double>(rows);
  const plan::KernelWork forward = linear_forward_work<T>(layer, all_rows),
                         of_parameters = linear_parameters_work<T>(layer, all_rows);
  const bool trained = layer.weight.trained();
  flops_.forward += product;
  work_.forward += forward;
  if (saved && !computed_again) {
    flops_.recompute += product;
    work_.recompute += forward;
  }
  flops_.gradient += trained ? 2.0 * product : product;
  work_.backward += linear_input_work(layer, all_rows) + of_parameters;
  if (trained) flops_.parameters += product;
  work_.parameters += of_parameters;
  if (computed_again) {
    flops_.again += product;
    work_.backward += forward;
  }
}

template <class T>
std::unique_ptr<const FeedForward<T>> make_feed_forward(const DecoderSettings& settings,
                                                        const LeafShape& leaf,
                                                        const Recompute& recompute,
                                                        const std::vector<Parameter>& parameters) {
  if (settings.experts.exist())
    return std::make_unique<ExpertFeedForward<T>>(settings, leaf, recompute, parameters);
  return std::make_unique<DenseFeedForward<T>>(settings, leaf, recompute, parameters);
}

#define OSTRAKON_INSTANTIATE(T)                                        \
  template class FeedForward<T>;                                       \
  template std::unique_ptr<const FeedForward<T>> make_feed_forward<T>( \
      const DecoderSettings&, const LeafShape&, const Recompute&, const std::vector<Parameter>&);
OSTRAKON_INSTANTIATE(float)
OSTRAKON_INSTANTIATE(double)
OSTRAKON_INSTANTIATE(bf16)
OSTRAKON_INSTANTIATE(fp16)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::model
