// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/layout.hpp>
#include <ostrakon/model/unit.hpp>

namespace ostrakon::model {

std::int64_t lay_out_parameters(std::vector<Parameter>& parameters, const std::string& owner) {
  Layout layout(parameter_alignment);
  for (Parameter& parameter : parameters) {
    parameter.owner = owner;
    parameter.offset = layout.place(parameter.elements());
  }
  return round_up(layout.size(), parameter_alignment);
}

}  // namespace ostrakon::model
