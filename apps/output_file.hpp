// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace ostrakon::apps {

/// Checks the output path of `option`, or of an argument of that name. Throws Error if a shell
/// should have expanded it, see require_expanded.
void require_output(const std::string& option, const std::string& path);

/// Throws Error where `path` is a pipe that nobody reads: opening it would wait for ever. A device
/// or a pipe with a reader, such as /dev/stdout, is fine.
void require_reader(const std::string& path);

/// For what a command is about to write as a whole. Throws Error where something has that name
/// already, but for a file where `overwrite` (the option --overwrite): that one is replaced when
/// the new one is good.
void require_free_name(const std::string& path, bool overwrite);

}  // namespace ostrakon::apps
