// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

namespace ostrakon {

/// What a path leads to, links followed; not_found where nothing has that name. Throws Error, with
/// the reason, where the system does not say: an error of the disk or the network, no permission.
std::filesystem::file_type type_of(const std::string& path);

/// The type of the name itself: a link is a symlink.
std::filesystem::file_type type_of_name(const std::string& path);

/// Whether something has that name.
bool is_there(const std::string& path);
bool is_folder(const std::string& path);
bool is_plain_file(const std::string& path);

/// Where a path leads to nothing because of a link that does, itself or a folder around it: "'a/b'
/// is a link whose target does not exist, or is not mounted on this host". Else empty. Throws
/// Error.
std::string broken_link(const std::string& path);

/// Whether two paths lead to the same file or folder; false where one of them leads to none. Throws
/// Error as type_of does. (std::filesystem::equivalent takes what can't be known for missing.)
bool are_same(const std::string& a, const std::string& b);

/// Throws Error unless `path` is a plain file; `kind` ("token file") is for messages.
void require_plain_file(const std::string& path, const std::string& kind);

}  // namespace ostrakon
