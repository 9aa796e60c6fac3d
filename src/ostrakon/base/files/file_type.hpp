// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

namespace ostrakon {

/// Returns the type of the file at `path`, following links; not_found if there is none. Throws
/// Error, with the reason, if the system can't tell: an I/O or network error, no permission.
std::filesystem::file_type type_of(const std::string& path);

/// Returns the type of the name itself, without following links: a link is a symlink.
std::filesystem::file_type type_of_name(const std::string& path);

/// Whether a file, folder or link has that name.
bool is_there(const std::string& path);
bool is_folder(const std::string& path);
bool is_plain_file(const std::string& path);

/// Returns why a path that does not exist is a broken link, itself or through a folder above it:
/// "'a/b' is a link whose target does not exist, or is not mounted on this host"; empty if no link
/// is broken. Throws Error.
std::string broken_link(const std::string& path);

/// Whether two paths lead to the same file or folder; false if one of them does not exist. Throws
/// Error as type_of does. std::filesystem::equivalent is not used: it takes a path that can't be
/// examined for a missing one.
bool are_same(const std::string& a, const std::string& b);

/// Throws Error unless `path` is a plain file; `kind` ("token file") is used in messages.
void require_plain_file(const std::string& path, const std::string& kind);

}  // namespace ostrakon
