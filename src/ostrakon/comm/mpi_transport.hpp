// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <ostrakon/comm/transport.hpp>

#if OSTRAKON_HAS_DEVICE
#include <ostrakon/device/memory.hpp>

namespace ostrakon::comm {

/// Whether this MPI library says that it reads and writes device memory.
bool mpi_is_device_aware();

/// A transport by MPI. If staged, data goes through a pinned buffer, allocated once, in parts that
/// fit it.
class MpiTransport : public Transport {
 public:
  /// Bytes of pinned host memory of a staged transport.
  static constexpr std::int64_t staging_bytes = std::int64_t{8} << 20;

  /// `group` must outlive it.
  MpiTransport(MPI_Comm group, bool staged);

  bool blocks() const override { return true; }
  void all_gather(const Exec& exec, const std::byte* shard, std::byte* full,
                  std::int64_t shard_bytes) override;
  void all_to_all(const Exec& exec, const std::byte* full, std::byte* received,
                  std::int64_t part_bytes) override;
  /// If not staged: only fp32, and `sum` must not overlap `full`, as MPI itself sums no 16-bit
  /// floats.
  void reduce_scatter(const Exec& exec, const std::byte* full, std::byte* sum,
                      std::int64_t elements, DType dtype) override;

 private:
  template <class Move>
  void in_parts(std::int64_t bytes, int arrays, const Move& move) const;

  MPI_Comm group_;
  int rank_ = 0, size_ = 1;
  device::PinnedBytes staging_;  ///< empty if not staged
};

}  // namespace ostrakon::comm

#endif
