// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../common/options.hpp"

namespace ostrakon::apps::scale_program {

/// Returns the command `plan` of ostrakon-scale.
Command plan_command();

}  // namespace ostrakon::apps::scale_program
