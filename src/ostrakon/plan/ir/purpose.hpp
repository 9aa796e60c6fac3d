// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/base/names.hpp>

namespace ostrakon::plan {

/// What a plan is for. All plans of a run share one arena and its persistent buffers.
enum class Purpose {
  train,              ///< one optimizer step
  evaluate,           ///< losses of one global batch, nothing else
  export_parameters,  ///< every unit's parameters, whole, one unit after the other
  decode              ///< forward of one sequence, keeping what later rows need (one rank)
};
constexpr Named<Purpose> purpose_names[] = {{Purpose::train, "train"},
                                            {Purpose::evaluate, "evaluate"},
                                            {Purpose::export_parameters, "export_parameters"},
                                            {Purpose::decode, "decode"}};
constexpr const char* name(Purpose purpose) { return name_in(purpose_names, purpose); }

}  // namespace ostrakon::plan
