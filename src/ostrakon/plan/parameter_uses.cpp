// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/parameter_uses.hpp>

namespace ostrakon::plan {

std::vector<ParameterUse> parameter_uses(const ModelDescription& model, int unit) {
  const UnitDescription& description = model.units[unit];
  std::vector<ParameterUse> uses = {{unit, description.backward_reads_parameters}};
  if (description.tied_to >= 0)
    uses.push_back({description.tied_to, true, description.tied_gradients, Role::tied_parameters,
                    Role::tied_gradients});
  return uses;
}

int tied_unit(const ModelDescription& model, int unit) {
  for (int u = unit + 1; u < static_cast<int>(model.units.size()); ++u)
    if (model.units[u].tied_to == unit) return u;
  return -1;
}

}  // namespace ostrakon::plan
