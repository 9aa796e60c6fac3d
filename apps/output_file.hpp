// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace ostrakon::apps {

/// For the file or folder that `option`, or an argument of that name, says is to be written. Throws
/// Error where a shell would have expanded it, see require_expanded.
void require_output(const std::string& option, const std::string& path);

/// For what a command is about to write as a whole. Throws Error where something has that name
/// already, but for a file where `overwrite` (the option --overwrite): that one is replaced when
/// the new one is good.
void require_free_name(const std::string& path, bool overwrite);

}  // namespace ostrakon::apps
