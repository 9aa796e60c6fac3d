// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/unit.hpp>

#include <ostrakon/model/packing.hpp>

namespace ostrakon::model {

SegmentSizes lay_out_parameters(std::vector<Parameter>& parameters, const std::string& owner,
                                const Frozen& frozen) {
  Packing frozen_segment(parameter_alignment), trained_segment(parameter_alignment);
  for (Parameter& parameter : parameters) {
    parameter.owner = owner;
    parameter.frozen = parameter.frozen || (frozen && frozen(parameter.full_name()));
    Packing& segment = parameter.frozen ? frozen_segment : trained_segment;
    parameter.offset = segment.place(parameter.elements());
  }
  return {round_up(frozen_segment.size(), parameter_alignment),
          round_up(trained_segment.size(), parameter_alignment)};
}

}  // namespace ostrakon::model
