// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace ostrakon::apps {

/// For what a command is about to write as a whole. Throws Error where something has that name
/// already, but for a file where `overwrite` (the option --overwrite): that one is replaced when
/// the new one is good.
void require_free_name(const std::string& path, bool overwrite);

}  // namespace ostrakon::apps
