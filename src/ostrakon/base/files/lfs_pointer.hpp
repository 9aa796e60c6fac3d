// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <ostrakon/base/error.hpp>
#include <string>
#include <string_view>

namespace ostrakon {

/// The file is a Git LFS pointer: a short text that a clone has in place of a large file that was
/// not fetched. It derives from DamagedError, as another copy of the file may be the real one.
class LfsPointer : public DamagedError {
 public:
  using DamagedError::DamagedError;
};

/// Largest size of a Git LFS pointer file.
constexpr std::size_t most_lfs_pointer_bytes = 1023;

/// Throws LfsPointer, naming the path, if the first bytes of a file are those of a Git LFS pointer.
void require_no_lfs_pointer(const std::string& path, std::string_view first_bytes);

}  // namespace ostrakon
