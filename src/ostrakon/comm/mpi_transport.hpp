// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <ostrakon/comm/transport.hpp>

#if OSTRAKON_HAS_DEVICE
#include <ostrakon/device/memory.hpp>

namespace ostrakon::comm {

/// Whether this MPI reads and writes device memory, as far as it says.
bool mpi_is_device_aware();

/// By MPI. Staged: in parts that fit a pinned buffer, which it allocates once.
class MpiTransport : public Transport {
 public:
  /// Pinned host memory of a staged transport, in bytes.
  static constexpr std::int64_t staging_bytes = std::int64_t{8} << 20;

  /// `group` must outlive it.
  MpiTransport(MPI_Comm group, bool staged);

  bool blocks() const override { return true; }
  void all_gather(const Exec& exec, const std::byte* shard, std::byte* full,
                  std::int64_t shard_bytes) override;
  void all_to_all(const Exec& exec, const std::byte* full, std::byte* received,
                  std::int64_t part_bytes) override;
  /// Not staged: of fp32, and `sum` lies elsewhere, as MPI itself adds no other floats.
  void reduce_scatter(const Exec& exec, const std::byte* full, std::byte* sum,
                      std::int64_t elements, DType dtype) override;

 private:
  template <class Move>
  void in_parts(std::int64_t bytes, int arrays, const Move& move) const;

  MPI_Comm group_;
  int rank_ = 0, size_ = 1;
  device::PinnedBytes staging_;  ///< none: not staged
};

}  // namespace ostrakon::comm

#endif
