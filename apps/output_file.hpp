// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace ostrakon::apps {

/// Checks the output path of `option`, or of an argument of that name. Throws Error if a shell
/// should have expanded it, see require_expanded.
void require_output(const std::string& option, const std::string& path);

/// Checks the path that a command is about to write as a whole. Throws Error if something has that
/// name, except a file with `overwrite` (the option --overwrite), which is replaced once the new
/// one is complete.
void require_free_name(const std::string& path, bool overwrite);

}  // namespace ostrakon::apps
