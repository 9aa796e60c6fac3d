// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

namespace ostrakon {

/// The text of a file, or of a pipe such as a shell's <(...) or /dev/stdin, until its writers close
/// it; its first `most` bytes, where it has more. Throws Error, naming the path, where it can't be
/// read, is a folder, a Git LFS pointer, or a pipe that gets no writer within ten seconds.
std::string read_text(const std::string& path, std::size_t most);

/// For what a program is about to write. Throws Error, naming the path, where a pipe is there:
/// opening it to write blocks until there is a reader.
void require_no_pipe(const std::string& path);

/// For a path that a user gave and a program is about to write. Throws Error, beginning with
/// `what`, where it begins with '~' or holds a '$': no program expands them, so that a folder of
/// that name would be made. A '$' in the name of a folder that `folder` is in, too, is meant.
void require_expanded(const std::string& what, const std::string& path,
                      const std::string& folder = "");

/// For text that ends up in a file whose texts are UTF-8. Throws Error, beginning with `what` ("key
/// = value"), that says which byte of it is not.
void require_utf8(const std::string& what, const std::string& text);

}  // namespace ostrakon
