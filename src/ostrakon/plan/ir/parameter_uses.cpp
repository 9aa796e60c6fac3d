// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/ir/parameter_uses.hpp>

namespace ostrakon::plan {

std::vector<ParameterUse> parameter_uses(const ModelDescription& model, int unit) {
  const UnitDescription& description = model.units[unit];
  std::vector<ParameterUse> uses = {{unit, description.backward_reads_parameters}};
  if (description.tied_to < 0) return uses;
  ParameterUse tied;
  tied.unit = description.tied_to;
  tied.backward_reads = description.backward_reads_tied;
  tied.has_gradients = description.tied_gradients;
  tied.addend = description.sums_tied_apart ? 1 : 0;
  tied.completes_leaf = description.tied_gradients && description.sums_tied_apart;
  tied.parameters = Role::tied_parameters;
  tied.gradients = Role::tied_gradients;
  uses.push_back(tied);
  return uses;
}

int tied_unit(const ModelDescription& model, int unit) {
  for (int u = unit + 1; u < static_cast<int>(model.units.size()); ++u)
    if (model.units[u].tied_to == unit) return u;
  return -1;
}

int gradient_addends(const ModelDescription& model, int unit) {
  const int tied = tied_unit(model, unit);
  return tied >= 0 && model.units[tied].tied_gradients && model.units[tied].sums_tied_apart ? 2 : 1;
}

}  // namespace ostrakon::plan
