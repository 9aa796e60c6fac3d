// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace ostrakon {

/// What the system says of its last call that failed.
std::string system_error();

/// The folder that a path lies in; "." where the path names none.
std::string parent_folder(const std::string& path);

/// Makes sure that a file, or a folder's list of names, has reached the disk. Throws Error.
void sync_file(const std::string& path);
void sync_folder(const std::string& path);

/// Gives the file `from` the name `to`, for good: replaces what has that name, and syncs the
/// folder. Throws Error.
void rename_file(const std::string& from, const std::string& to);

}  // namespace ostrakon
