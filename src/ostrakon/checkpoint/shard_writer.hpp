// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <ostrakon/checkpoint/file_layout.hpp>
#include <ostrakon/checkpoint/manifest.hpp>
#include <string>

namespace ostrakon::checkpoint {

struct WriteOptions {
  double bytes_per_second = 0.0;              ///< at most, of this rank; 0: as fast as it goes
  const std::atomic<bool>* urgent = nullptr;  ///< no limit while it is true
  bool verify = false;  ///< read back what was written, from the disk where that can be
};

/// The source of values: values(piece, first, bytes) points to `bytes` bytes of piece `piece` of
/// the file's layout, from its byte `first` on, at most block_bytes at a time, in order; they stay
/// there until the next call.
using Values =
    std::function<const void*(std::size_t piece, std::int64_t first, std::int64_t bytes)>;

/// Writes this rank's pieces of a file in `folder` and, on the rank that makes the file, its
/// structure; syncs it to disk. Returns what was written: name and bytes of the file, the rank's
/// pieces with their checksums, and that of the structure on the rank that makes the file. All
/// ranks of a file may write at once, in any order. Calls neither HDF5 nor MPI nor Kokkos: any
/// thread may call it. Throws Error where a write fails, naming the file, or where what is read
/// back is not what was written.
FileEntry write_shard(const std::string& folder, const FileLayout& file, int rank,
                      const Values& values, const WriteOptions& options);

}  // namespace ostrakon::checkpoint
