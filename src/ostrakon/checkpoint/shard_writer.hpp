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
  double bytes_per_second = 0.0;              ///< limit of this rank; 0: none
  const std::atomic<bool>* urgent = nullptr;  ///< while true, there is no limit
  bool verify = false;                        ///< read back from disk, if possible
};

/// Returns values to write: values(piece, first, bytes) points to `bytes` bytes of piece `piece` of
/// the file's layout, from its byte `first` on. It is called in order, for at most block_bytes at a
/// time; the bytes stay valid until the next call.
using Values =
    std::function<const void*(std::size_t piece, std::int64_t first, std::int64_t bytes)>;

/// Writes this rank's pieces of a file in `folder` and, on the rank that creates the file, its
/// structure; syncs it to disk. Returns the file's name and size, and checksums of the rank's
/// pieces and, on the rank that creates the file, of the structure. All ranks of a file may write
/// concurrently. Calls neither HDF5 nor MPI nor Kokkos, so any thread may call it. Throws Error,
/// naming the file, if a write fails or the bytes read back differ.
FileEntry write_shard(const std::string& folder, const FileLayout& file, int rank,
                      const Values& values, const WriteOptions& options);

}  // namespace ostrakon::checkpoint
