// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

namespace ostrakon {

/// The text of a file, or of a pipe such as a shell's <(...) or /dev/stdin, as long as somebody
/// writes to it; its first `most` bytes, where it has more. Throws Error, naming the path, where it
/// can't be read, is a folder, or a pipe that nobody opens to write within ten seconds.
std::string read_text(const std::string& path, std::size_t most);

/// For what a program is about to write. Throws Error, naming the path, where something else than a
/// plain file is there: a pipe or a device would make the writer wait, or take nothing back.
void require_plain_or_missing(const std::string& path);

/// For text that ends up in a file whose texts are UTF-8. Throws Error, beginning with `what` ("key
/// = value"), that says which byte of it is not.
void require_utf8(const std::string& what, const std::string& text);

}  // namespace ostrakon
