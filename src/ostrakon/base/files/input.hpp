// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

namespace ostrakon {

/// Returns the text of a file, or of a pipe such as a shell's <(...) or /dev/stdin, until its
/// writers close it; at most its first `most` bytes. Throws Error, naming the path, if it can't be
/// read, is a folder, a Git LFS pointer, or a pipe that gets no writer within ten seconds.
std::string read_text(const std::string& path, std::size_t most);

/// Checks a path that a program is about to write. Throws Error, naming the path, if it is a pipe:
/// opening one for writing blocks until there is a reader.
void require_no_pipe(const std::string& path);

/// Checks a path from a user that a program is about to write. Throws Error, beginning with `what`,
/// if it begins with '~' or has a '$': these are not expanded here, so a folder of that literal
/// name would be created. A '$' that is also in the path of `folder` is allowed.
void require_expanded(const std::string& what, const std::string& path,
                      const std::string& folder = "");

/// Checks text for a file whose texts are UTF-8. Throws Error, beginning with `what` ("key =
/// value"), that names the first byte that is not UTF-8.
void require_utf8(const std::string& what, const std::string& text);

}  // namespace ostrakon
