// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstring>
#include <ostrakon/base/error.hpp>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/comm/mpi_sum.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/nontemporal_stores.hpp>
#include <ostrakon/math/warm_up.hpp>
#include <thread>
#include <type_traits>

// Collectives of arrays in host or device memory.

namespace ostrakon::comm {
namespace {

/// One rank's part of a collective, as MPI type and count.
struct Message {
  MPI_Datatype type;
  int count;
};

/// 16-bit floats are sent as integers: MPI has no such types, and only moves their bits.
template <class T>
MPI_Datatype type_of() {
  return sizeof(T) == 2 ? MPI_UINT16_T : MPI_FLOAT;
}

template <class T>
Message message_of(std::int64_t elements, const std::array<MPI_Datatype, 2>& blocks) {
  require(elements >= 0, "a collective of ", elements, " elements per rank");
  const bool whole_blocks = elements % block_elements == 0;
  const std::int64_t count = whole_blocks ? elements / block_elements : elements;
  require(count <= largest_count, "a collective of ", elements,
          " elements per rank: MPI counts up to ", largest_count,
          " elements, or as many blocks of ", block_elements, " where the elements divide by ",
          block_elements);
  return {whole_blocks ? blocks[sizeof(T) == 2] : type_of<T>(), static_cast<int>(count)};
}

/// Whether arrays are in device memory, which the host can't access.
template <class Space>
constexpr bool is_apart = (has_device && std::is_same<Space, OnDevice>::value);

/// Returns type and count of an array for MPI.
template <class T, class Space>
Message mpi_message(std::int64_t elements, const std::array<MPI_Datatype, 2>& blocks) {
  return is_apart<Space> ? Message{MPI_DATATYPE_NULL, 0} : message_of<T>(elements, blocks);
}

template <class T>
auto bytes_at(T* data) {
  using Byte = std::conditional_t<std::is_const<T>::value, const std::byte, std::byte>;
  return reinterpret_cast<Byte*>(data);
}

template <class T>
constexpr DType dtype_of() {
  return std::is_same<T, float>::value  ? DType::fp32
         : std::is_same<T, bf16>::value ? DType::bf16
                                        : DType::fp16;
}

/// Returns a host view of an array in memory that the host can access.
template <class T, class Space>
HostView<T*> reached(View<T*, Space> array) {
  return {array.data(), array.size(), array.origin()};
}

void require_sizes(const char* function, std::int64_t full, int ranks, std::int64_t shard) {
  require(full == ranks * shard, function, ": a shard of ", shard, " elements and an array of ",
          full, " of all ranks, expected ", ranks, " times as many");
}

/// Whether two arrays share a byte.
template <class A, class B, class Space>
bool overlap(View<A*, Space> a, View<B*, Space> b) {
  const auto a_begin = reinterpret_cast<std::uintptr_t>(a.data());
  const auto b_begin = reinterpret_cast<std::uintptr_t>(b.data());
  return a_begin < b_begin + static_cast<std::uintptr_t>(b.size()) * sizeof(B) &&
         b_begin < a_begin + static_cast<std::uintptr_t>(a.size()) * sizeof(A);
}

/// Waits for copies to the host, before MPI or the host reads them.
void finish([[maybe_unused]] const Exec& exec) {
  if constexpr (has_device) exec.fence();
}

template <class A, class B, class Space>
void copy([[maybe_unused]] const Exec& exec, View<const A*, Space> from, View<B*, Space> to) {
  if constexpr (!is_apart<Space>) finish(exec);
  if (static_cast<const void*>(from.data()) == to.data() || to.size() == 0) return;
  if constexpr (is_apart<Space>) {
    if constexpr (std::is_same<A, B>::value)
      math::copy<A>(exec, from, to);
    else
      math::convert<A, B, Space>(exec, from, to);
  } else {
    if constexpr (std::is_same<A, B>::value)
      std::memcpy(to.data(), from.data(), static_cast<std::size_t>(to.size()) * sizeof(A));
    else
      math::convert<A, B, OnHost>(math::CallingThread(), reached(from), reached(to));
  }
}

/// Copies each rank's part, `offset` bytes into its source, to its place in `full`; this rank's own
/// part is skipped if it is already there. Each rank begins with its own part, and waits for
/// another rank's part only when it comes to it.
void copy_parts(const Window& window, std::int64_t offset, int rank, int ranks,
                std::int64_t part_bytes, std::byte* full) {
  for (int i = 0; i < ranks; ++i) {
    const int from = (rank + i) % ranks;
    std::byte* const to = full + from * part_bytes;
    const std::byte* const part = window.source(from) + offset;
    if (part == to) continue;
    if (math::use_nontemporal(part_bytes) && part_bytes % sizeof(float) == 0)
      math::add_nontemporal(reinterpret_cast<const float*>(part), nullptr,
                            reinterpret_cast<float*>(to),
                            part_bytes / static_cast<std::int64_t>(sizeof(float)));
    else
      std::memcpy(to, part, static_cast<std::size_t>(part_bytes));
  }
  math::fence_nontemporal();
}

}  // namespace

/// Calls call(transport), except in a WarmUp, where nothing is sent.
template <class Call>
void Communicator::by_transport(const Call& call) {
  require(transport_ != nullptr,
          "a collective of arrays in device memory in a group that has no transport");
  if (!math::WarmUp::runs()) call(*transport_);
}

template <class T, class Space>
void Communicator::all_gather(const Exec& exec, View<const T*, Space> shard, View<T*, Space> full) {
  require_sizes("all_gather", full.size(), size_, shard.size());
  if (size_ == 1) return copy(exec, shard, full);
  [[maybe_unused]] const Message message = mpi_message<T, Space>(shard.size(), blocks_);
  const bool in_place = shard.data() == full.data() + rank_ * shard.size();
  require(in_place || !overlap(shard, full), "all_gather: the shard of rank ", rank_,
          " lies inside the gathered array, but not at the place of rank ", rank_);
  if constexpr (is_apart<Space>) {
    by_transport([&](Transport& transport) {
      transport.all_gather(exec, bytes_at(shard.data()), bytes_at(full.data()),
                           shard.size() * static_cast<std::int64_t>(sizeof(T)));
    });
  } else if (window_ != nullptr && shard.size() > 0) {
    finish(exec);
    const std::int64_t bytes = shard.size() * static_cast<std::int64_t>(sizeof(T));
    window_->begin(shard.data(), bytes);
    copy_parts(*window_, 0, rank_, size_, bytes, bytes_at(full.data()));
    window_->end();
  } else {
    finish(exec);
    check_mpi(MPI_Allgather(in_place ? MPI_IN_PLACE : shard.data(), message.count, message.type,
                            full.data(), message.count, message.type, comm_),
              "MPI_Allgather");
  }
  count_sent(shard.size() * static_cast<std::int64_t>(sizeof(T)));
}

template <class T, class Space>
void Communicator::reduce_scatter(const Exec& exec, View<const T*, Space> full,
                                  View<T*, Space> staging, View<float*, Space> shard,
                                  ReductionOrder local) {
  require_sizes("reduce_scatter", full.size(), size_, shard.size());
  if (size_ == 1 && !local.continues) return copy(exec, full, shard);
  const int tree = local.tree > 0 ? local.tree : size_;
  if (size_ == 1) {
    if constexpr (is_apart<Space>)
      return math::chain_sum<T>(exec, full.matrix(1, full.size()), tree, true, shard);
    finish(exec);
    const HostView<float*> sum = reached(shard);
    const HostView<const T*> added = reached(full);
    for (std::int64_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<float>(added[i]);
    return;
  }
  [[maybe_unused]] const Message message = mpi_message<T, Space>(shard.size(), blocks_);
  const bool by_window = !is_apart<Space> && window_ != nullptr;
  const auto is_at = [&](const T* place) {
    return sizeof(T) == sizeof(float) && static_cast<const void*>(shard.data()) == place;
  };
  require(!local.continues || !(overlap(shard, full) || (!by_window && overlap(shard, staging))),
          "reduce_scatter: the shard, which is added to, lies inside another array");
  if (!by_window) {
    require(staging.size() == full.size(), "reduce_scatter: a staging array of ", staging.size(),
            " elements, expected ", full.size());
    require(!overlap(full, staging),
            "reduce_scatter: the staging array overlaps the array to reduce");
    require(is_at(staging.data()) || !overlap(shard, staging),
            "reduce_scatter: the shard lies inside the staging array, but not where it begins");
  }
  require(is_at(full.data() + rank_ * shard.size()) || !overlap(shard, full),
          "reduce_scatter: the shard of rank ", rank_,
          " lies inside the array to reduce, but not at the place of rank ", rank_);
  if constexpr (is_apart<Space>) {
    by_transport([&](Transport& transport) {
      transport.all_to_all(exec, bytes_at(full.data()), bytes_at(staging.data()),
                           shard.size() * static_cast<std::int64_t>(sizeof(T)));
    });
    math::chain_sum<T>(exec, View<const T**>(staging.matrix(size_, shard.size())), tree,
                       local.continues, shard);
  } else if (by_window) {
    finish(exec);
    if (shard.size() > 0) {
      window_->begin(full.data(), full.size() * static_cast<std::int64_t>(sizeof(T)));
      const std::int64_t offset = rank_ * shard.size() * static_cast<std::int64_t>(sizeof(T));
      math::host::chain_sum<T>(window_->sources(offset), tree, local.continues, reached(shard));
      window_->end();
    }
  } else {
    finish(exec);
    check_mpi(MPI_Alltoall(full.data(), message.count, message.type, staging.data(), message.count,
                           message.type, comm_),
              "MPI_Alltoall");
    math::host::chain_sum<T>(reached(staging).matrix(size_, shard.size()), tree, local.continues,
                             reached(shard));
  }
  count_sent(shard.size() * static_cast<std::int64_t>(sizeof(T)));
}

template <class T, class Space>
void Communicator::library_reduce_scatter(const Exec& exec, View<T*, Space> full,
                                          View<float*, Space> shard) {
  require_sizes("reduce_scatter", full.size(), size_, shard.size());
  require(!overlap(shard, full), "reduce_scatter: the shard lies inside the array to reduce");
  if (size_ == 1) return copy(exec, View<const T*, Space>(full), shard);
  const std::int64_t count = shard.size();
  constexpr bool is_float = std::is_same<T, float>::value;
  if constexpr (is_apart<Space>) {
    // For 16-bit types this rank's part of `full` receives the sum, and is then converted to float.
    const View<T*, Space> mine = full.range(rank_ * count, (rank_ + 1) * count);
    std::byte* const sum = is_float ? bytes_at(shard.data()) : bytes_at(mine.data());
    by_transport([&](Transport& transport) {
      transport.reduce_scatter(exec, bytes_at(full.data()), sum, count, dtype_of<T>());
    });
    if constexpr (!is_float) copy(exec, View<const T*, Space>(mine), shard);
  } else {
    finish(exec);
    MpiSum adds = mpi_sum(dtype_of<T>());
    Message message = {adds.type, static_cast<int>(count)};
    if (count > largest_count) {
      message = message_of<T>(count, blocks_);
      adds.op = mpi_sum_of_blocks(dtype_of<T>());
    }
    // With MPI_IN_PLACE the sum is at the beginning of the array.
    check_mpi(
        MPI_Reduce_scatter_block(is_float ? static_cast<const void*>(full.data()) : MPI_IN_PLACE,
                                 is_float ? static_cast<void*>(shard.data()) : full.data(),
                                 message.count, message.type, adds.op, comm_),
        "MPI_Reduce_scatter_block");
    if constexpr (!is_float) copy(exec, View<const T*, Space>(full.range(0, count)), shard);
  }
  count_sent(count * static_cast<std::int64_t>(sizeof(T)));
}

template <class T, class Space>
void Communicator::all_to_all(const Exec& exec, View<const T*, Space> full,
                              View<T*, Space> received) {
  require_sizes("all_to_all", full.size(), size_, received.size() / size_);
  require(received.size() == full.size(), "all_to_all: ", received.size(), " elements of ",
          full.size());
  if (size_ == 1) return copy(exec, full, received);
  [[maybe_unused]] const Message message = mpi_message<T, Space>(full.size() / size_, blocks_);
  require(!overlap(full, received), "all_to_all: what is received overlaps what is sent");
  if constexpr (is_apart<Space>) {
    by_transport([&](Transport& transport) {
      transport.all_to_all(exec, bytes_at(full.data()), bytes_at(received.data()),
                           full.size() / size_ * static_cast<std::int64_t>(sizeof(T)));
    });
  } else if (window_ != nullptr && full.size() > 0) {
    finish(exec);
    window_->begin(full.data(), full.size() * static_cast<std::int64_t>(sizeof(T)));
    const std::int64_t bytes = full.size() / size_ * static_cast<std::int64_t>(sizeof(T));
    copy_parts(*window_, rank_ * bytes, rank_, size_, bytes, bytes_at(received.data()));
    window_->end();
  } else {
    finish(exec);
    check_mpi(MPI_Alltoall(full.data(), message.count, message.type, received.data(), message.count,
                           message.type, comm_),
              "MPI_Alltoall");
  }
  count_sent(full.size() / size_ * static_cast<std::int64_t>(sizeof(T)));
}

/// Counts the bytes of a collective in which every rank sends `shard_bytes` to each other rank.
void Communicator::count_sent(std::int64_t shard_bytes) {
  if (math::WarmUp::runs()) return;
  const std::int64_t bytes = (size_ - 1) * shard_bytes;
  bytes_sent_ += bytes;
  if (seconds_per_byte_ > 0.0)
    std::this_thread::sleep_for(
        std::chrono::duration<double>(static_cast<double>(bytes) * seconds_per_byte_));
}

#define OSTRAKON_INSTANTIATE(T, Space)                                                            \
  template void Communicator::all_to_all(const Exec&, View<const T*, Space>, View<T*, Space>);    \
  template void Communicator::all_gather(const Exec&, View<const T*, Space>, View<T*, Space>);    \
  template void Communicator::library_reduce_scatter(const Exec&, View<T*, Space>,                \
                                                     View<float*, Space>);                        \
  template void Communicator::reduce_scatter(const Exec&, View<const T*, Space>, View<T*, Space>, \
                                             View<float*, Space>, ReductionOrder);
OSTRAKON_INSTANTIATE(float, OnDevice)
OSTRAKON_INSTANTIATE(bf16, OnDevice)
OSTRAKON_INSTANTIATE(fp16, OnDevice)
OSTRAKON_INSTANTIATE(float, OnHost)
OSTRAKON_INSTANTIATE(bf16, OnHost)
OSTRAKON_INSTANTIATE(fp16, OnHost)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::comm
