// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/ir/description.hpp>

#include <algorithm>
#include <utility>

namespace ostrakon::plan {

UnitDescription at_once(UnitDescription unit) {
  if (unit.deferral.phases == 0) return unit;
  unit.backward = std::move(unit.deferral.backward_at_once);
  unit.deferral = {};
  return unit;
}

std::vector<Chunk> chunks_of(const ModelDescription& model) {
  if (!model.chunks.empty()) return model.chunks;
  Chunk all;
  all.units.end = static_cast<int>(model.units.size());
  return {all};
}

bool computes_loss(const ModelDescription& model, int unit) {
  return model.has_loss && unit == static_cast<int>(model.units.size()) - 1;
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
