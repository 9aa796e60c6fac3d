// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/description.hpp>

#include <algorithm>

namespace ostrakon::plan {

std::vector<Chunk> chunks_of(const ModelDescription& model) {
  if (!model.chunks.empty()) return model.chunks;
  Chunk all;
  all.units.end = static_cast<int>(model.units.size());
  return {all};
}

bool has_backward(const ModelDescription& model, int unit) {
  for (const Chunk& chunk : chunks_of(model)) {
    if (!chunk.units.has(unit)) continue;
    const auto first = model.units.begin() + chunk.units.first;
    return chunk.input_has_gradient ||
           std::any_of(first, model.units.begin() + unit + 1,
                       [](const UnitDescription& one) { return one.trained_elements() > 0; });
  }
  return false;
}

}  // namespace ostrakon::plan
