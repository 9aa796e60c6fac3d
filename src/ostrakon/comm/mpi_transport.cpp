// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/comm/mpi_transport.hpp>

#if OSTRAKON_HAS_DEVICE

#include <dlfcn.h>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/comm/mpi_sum.hpp>
#include <ostrakon/device/stream.hpp>

namespace ostrakon::comm {
namespace {

/// Returns the count of bytes in device memory that MPI moves in one call.
int count_of(std::int64_t bytes, const char* what) {
  require(bytes <= std::int64_t{1} << 30, "a ", what, " of ", bytes,
          " bytes, expected at most 1 GiB for MPI on device memory");
  return static_cast<int>(bytes);
}

}  // namespace

bool mpi_is_device_aware() {
  // Open MPI and MPICH have this function; other MPI libraries may not.
#if defined(KOKKOS_ENABLE_DEFAULT_DEVICE_TYPE_HIP)
  constexpr const char* query = "MPIX_Query_rocm_support";
#else
  constexpr const char* query = "MPIX_Query_cuda_support";
#endif
  void* const found = dlsym(RTLD_DEFAULT, query);
  return found != nullptr && reinterpret_cast<int (*)()>(found)() == 1;
}

MpiTransport::MpiTransport(MPI_Comm group, bool staged) : group_(group) {
  check_mpi(MPI_Comm_rank(group_, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(group_, &size_), "MPI_Comm_size");
  if (staged) staging_ = device::PinnedBytes(staging_bytes);
}

/// Calls move(first, count) for parts of `bytes` bytes, so small that `arrays` of them fit the
/// staging memory together.
template <class Move>
void MpiTransport::in_parts(std::int64_t bytes, int arrays, const Move& move) const {
  const std::int64_t most = staging_bytes / arrays / 4 * 4;  // whole elements
  require(most > 0, "a group of ", size_, " ranks is too large for ", staging_bytes,
          " bytes of staging memory");
  for (std::int64_t first = 0; first < bytes; first += most)
    move(first, std::min(most, bytes - first));
}

void MpiTransport::all_gather(const Exec& exec, const std::byte* shard, std::byte* full,
                              std::int64_t shard_bytes) {
  const auto stream = stream_of(exec);
  if (staging_.data() == nullptr) {
    device::wait_for(stream);
    const int count = count_of(shard_bytes, "shard");
    const bool has_place = shard == full + rank_ * shard_bytes;
    check_mpi(MPI_Allgather(has_place ? MPI_IN_PLACE : static_cast<const void*>(shard), count,
                            MPI_BYTE, full, count, MPI_BYTE, group_),
              "MPI_Allgather");
    return;
  }
  in_parts(shard_bytes, size_ + 1, [&](std::int64_t first, std::int64_t count) {
    const auto bytes = static_cast<std::size_t>(count);
    std::byte* const mine = staging_.data();
    std::byte* const all = mine + count;
    device::copy_to_host(stream, shard + first, mine, bytes);
    device::wait_for(stream);
    check_mpi(MPI_Allgather(mine, static_cast<int>(count), MPI_BYTE, all, static_cast<int>(count),
                            MPI_BYTE, group_),
              "MPI_Allgather");
    for (int rank = 0; rank < size_; ++rank)
      device::copy_to_device(stream, all + rank * count, full + rank * shard_bytes + first, bytes);
    device::wait_for(stream);
  });
}

void MpiTransport::all_to_all(const Exec& exec, const std::byte* full, std::byte* received,
                              std::int64_t part_bytes) {
  const auto stream = stream_of(exec);
  if (staging_.data() == nullptr) {
    device::wait_for(stream);
    const int count = count_of(part_bytes, "part");
    check_mpi(MPI_Alltoall(full, count, MPI_BYTE, received, count, MPI_BYTE, group_),
              "MPI_Alltoall");
    return;
  }
  in_parts(part_bytes, 2 * size_, [&](std::int64_t first, std::int64_t count) {
    const auto bytes = static_cast<std::size_t>(count);
    std::byte* const out = staging_.data();
    std::byte* const in = out + size_ * count;
    for (int rank = 0; rank < size_; ++rank)
      device::copy_to_host(stream, full + rank * part_bytes + first, out + rank * count, bytes);
    device::wait_for(stream);
    check_mpi(MPI_Alltoall(out, static_cast<int>(count), MPI_BYTE, in, static_cast<int>(count),
                           MPI_BYTE, group_),
              "MPI_Alltoall");
    for (int rank = 0; rank < size_; ++rank)
      device::copy_to_device(stream, in + rank * count, received + rank * part_bytes + first,
                             bytes);
    device::wait_for(stream);
  });
}

void MpiTransport::reduce_scatter(const Exec& exec, const std::byte* full, std::byte* sum,
                                  std::int64_t elements, DType dtype) {
  const auto stream = stream_of(exec);
  const std::int64_t element = bytes_of(dtype), sum_bytes = elements * element;
  const MpiSum adds = mpi_sum(dtype);
  if (staging_.data() == nullptr) {
    require(dtype == DType::fp32, "MPI on device memory adds fp32; these are ", name(dtype));
    device::wait_for(stream);
    count_of(sum_bytes, "shard");
    check_mpi(
        MPI_Reduce_scatter_block(full, sum, static_cast<int>(elements), adds.type, adds.op, group_),
        "MPI_Reduce_scatter_block");
    return;
  }
  in_parts(sum_bytes, size_ + 1, [&](std::int64_t first, std::int64_t count) {
    const auto bytes = static_cast<std::size_t>(count);
    std::byte* const mine = staging_.data();
    std::byte* const all = mine + count;
    for (int rank = 0; rank < size_; ++rank)
      device::copy_to_host(stream, full + rank * sum_bytes + first, all + rank * count, bytes);
    device::wait_for(stream);
    check_mpi(MPI_Reduce_scatter_block(all, mine, static_cast<int>(count / element), adds.type,
                                       adds.op, group_),
              "MPI_Reduce_scatter_block");
    device::copy_to_device(stream, mine, sum + first, bytes);
    device::wait_for(stream);
  });
}

}  // namespace ostrakon::comm

#endif
