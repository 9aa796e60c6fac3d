// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <ostrakon/base/error.hpp>
#include <string>
#include <string_view>

namespace ostrakon {

/// A file is a Git LFS pointer: the short text that a clone has in place of a large file which was
/// not fetched. No text of the expected kind, so another copy may do.
class LfsPointer : public DamagedError {
 public:
  using DamagedError::DamagedError;
};

/// Files that have more bytes are no pointers.
constexpr std::size_t most_lfs_pointer_bytes = 1023;

/// Throws LfsPointer, naming the path, where a file's first bytes are those of a Git LFS pointer.
void require_no_lfs_pointer(const std::string& path, std::string_view first_bytes);

}  // namespace ostrakon
