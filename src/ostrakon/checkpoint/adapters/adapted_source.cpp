// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/adapters/adapted_source.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>

namespace ostrakon::checkpoint {

bool AdaptedSource::contains(const std::string& owner, const std::string& parameter) const {
  return model::is_of_adapter(parameter) ? adapters_ != nullptr : base_->contains(owner, parameter);
}

void AdaptedSource::read(const std::string& owner, const std::string& parameter,
                         const std::vector<std::int64_t>& shape, std::int64_t first,
                         std::int64_t count, float* values) {
  if (!model::is_of_adapter(parameter))
    return base_->read(owner, parameter, shape, first, count, values);
  require(adapters_ != nullptr, "no adapters: parameter '", parameter, "' of '", owner,
          "' is in no file");
  const std::vector<float> all = adapters_->read(owner, parameter);
  std::copy_n(all.begin() + first, count, values);
}

const MergedSource::Adapter& MergedSource::adapter(const std::string& owner,
                                                   const AdaptedRows& layer) {
  if (kept_.owner == owner && kept_.layer == layer.layer) return kept_;
  const std::int64_t rank = lora_.rank, inputs = layer.inputs(), rows = layer.rows;
  kept_ = {owner, "", std::vector<float>(static_cast<std::size_t>(rank * inputs)),
           std::vector<float>(static_cast<std::size_t>(rows * rank))};
  adapted_.read(owner, layer.lora_a(), {rank, inputs}, 0, rank * inputs, kept_.a.data());
  adapted_.read(owner, layer.lora_b(), {rows, rank}, 0, rows * rank, kept_.b.data());
  kept_.layer = layer.layer;
  return kept_;
}

void MergedSource::read(const std::string& owner, const std::string& parameter,
                        const std::vector<std::int64_t>& shape, std::int64_t first,
                        std::int64_t count, float* values) {
  adapted_.read(owner, parameter, shape, first, count, values);
  if (owner.rfind("block.", 0) != 0) return;
  for (const AdaptedRows& layer : layers_) {
    if (layer.parameter != parameter) continue;
    const std::int64_t columns = layer.inputs(), offset = layer.first * columns;
    const std::int64_t begin = std::max(first, offset);
    const std::int64_t end = std::min(first + count, offset + layer.rows * columns);
    if (begin >= end) continue;
    const Adapter& one = adapter(owner, layer);
    std::vector<double> change(static_cast<std::size_t>(columns));
    for (std::int64_t at = begin; at < end;) {
      const std::int64_t row = (at - offset) / columns, column = (at - offset) % columns;
      const std::int64_t last = std::min(columns, column + end - at);
      std::fill(change.begin(), change.end(), 0.0);
      for (std::int64_t r = 0; r < lora_.rank; ++r) {
        const auto b = static_cast<double>(one.b[static_cast<std::size_t>(row * lora_.rank + r)]);
        const float* const a = one.a.data() + r * columns;
        for (std::int64_t c = column; c < last; ++c)
          change[static_cast<std::size_t>(c)] += b * static_cast<double>(a[c]);
      }
      float* const to = values + (at - first) - column;
      for (std::int64_t c = column; c < last; ++c)
        to[c] = static_cast<float>(static_cast<double>(to[c]) +
                                   lora_.scale() * change[static_cast<std::size_t>(c)]);
      at += last - column;
    }
  }
}

}  // namespace ostrakon::checkpoint
