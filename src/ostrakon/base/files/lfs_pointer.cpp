// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/base/files/lfs_pointer.hpp>

namespace ostrakon {

void require_no_lfs_pointer(const std::string& path, std::string_view first_bytes) {
  constexpr std::string_view begin = "version https://git-lfs.github.com/spec/v1\n";
  if (first_bytes.substr(0, begin.size()) != begin) return;
  throw LfsPointer(text("'", path,
                        "' is a Git LFS pointer, a short text in place of the file, which was not "
                        "fetched with its repository; expected the file itself: `git lfs pull` "
                        "there fetches it"));
}

}  // namespace ostrakon
