// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>
#include <ostrakon/train/choose_layout.hpp>

namespace ostrakon::apps {

/// What `ostrakon-plan --choose` shows. `tokens`: of a step on all ranks.
void show_choice(const train::ChosenLayouts& chosen, const train::ChooseRequest& request,
                 double tokens, bool json, std::ostream& out);

}  // namespace ostrakon::apps
