// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <ostrakon/base/dtype.hpp>
#include <ostrakon/base/names.hpp>
#include <ostrakon/math/portability.hpp>

namespace ostrakon::comm {

/// The library that moves data in device memory between ranks.
enum class TransportKind {
  nccl,        ///< NCCL or RCCL, on the stream: one device for each rank
  mpi_direct,  ///< MPI reads and writes device memory
  mpi_staged   ///< MPI, through pinned host memory
};
constexpr Named<TransportKind> transport_names[] = {{TransportKind::nccl, "nccl"},
                                                    {TransportKind::mpi_direct, "mpi_direct"},
                                                    {TransportKind::mpi_staged, "mpi_staged"}};

/// Moves bytes in device memory between the ranks of a group. All ranks make the same calls in the
/// same order, with the same sizes. Calls are in the order of `exec`: after earlier work, before
/// later work. Throws Error.
class Transport {
 public:
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  /// Whether calls return only after the data has moved, so that they need a thread of their own.
  virtual bool blocks() const = 0;

  /// full = every rank's shard, in rank order; `shard` may be this rank's part of `full`.
  virtual void all_gather(const Exec& exec, const std::byte* shard, std::byte* full,
                          std::int64_t shard_bytes) = 0;
  /// received = each rank's part for this rank, in rank order, of `part_bytes`; `full` has this
  /// rank's part for each rank. Both must not overlap.
  virtual void all_to_all(const Exec& exec, const std::byte* full, std::byte* received,
                          std::int64_t part_bytes) = 0;
  /// sum = this rank's part of the sum of `full` over all ranks: `elements` elements, which the
  /// library adds in `dtype` and in an order of its own. `sum` may be this rank's part of `full`.
  virtual void reduce_scatter(const Exec& exec, const std::byte* full, std::byte* sum,
                              std::int64_t elements, DType dtype) = 0;

 protected:
  Transport() = default;
};

/// Moves messages in device memory between the ranks of a group, in the order of two streams, one
/// for all sends of a rank and one for all receives. The k-th message that one rank sends to
/// another matches the k-th receive there, of the same size. A send may be done only when it is
/// received. One thread sends, one receives. Throws Error.
class MessageTransport {
 public:
  virtual ~MessageTransport() = default;
  MessageTransport(const MessageTransport&) = delete;
  MessageTransport& operator=(const MessageTransport&) = delete;

  virtual void send(const Exec& exec, const std::byte* data, std::int64_t bytes, int to) = 0;
  virtual void receive(const Exec& exec, std::byte* data, std::int64_t bytes, int from) = 0;

 protected:
  MessageTransport() = default;
};

}  // namespace ostrakon::comm
