// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <ostrakon/comm/transport.hpp>
#include <ostrakon/comm/window.hpp>
#include <ostrakon/math/half.hpp>
#include <ostrakon/math/view.hpp>
#include <string>
#include <vector>

namespace ostrakon::comm {

/// Throws Error with MPI's own text unless `code` is MPI_SUCCESS.
void check_mpi(int code, const char* call);

/// What an int counts in MPI's calls: elements, or blocks of so many.
constexpr std::int64_t largest_count = std::numeric_limits<int>::max(), block_elements = 64;

/// The order in which a reduce-scatter sums the ranks' contributions.
struct ReductionOrder {
  /// Number of neighbouring ranks summed by one tree; the trees' sums are accumulated in order. 0:
  /// one tree over all ranks.
  int tree = 0;
  bool continues = false;  ///< add to the shard's content
};

/// A group of ranks that communicate through MPI. Owns a duplicate of the communicator that it was
/// made from. Every method is collective over the group, blocks until this rank's part is done,
/// checks every return code and throws Error. A group of one rank never calls MPI.
///
/// Two threads of a rank may be in collectives at the same time only of different Communicators,
/// and only if threads_may_call(). bytes_sent() may be read after they have been joined or
/// synchronized. Only builds with a device call Kokkos, so in other builds any thread may call.
/// With a device, a Transport moves arrays in device memory.
///
/// bytes_sent() counts the bytes that this rank sends to *other* ranks by the ring formulas that
/// the plan uses: all-gather and reduce-scatter of M bytes among W ranks move M (W - 1) / W.
class Communicator {
 public:
  /// Duplicates `parent`. Collective over it.
  static Communicator duplicate(MPI_Comm parent);
  /// Collective over `parent`: ranks with equal `color` form a group, ordered by `key`, then by
  /// rank.
  static Communicator split(MPI_Comm parent, int color, int key = 0);
  /// Collective over `parent`: ranks that share memory form a group, ordered by rank.
  static Communicator split_shared_memory(MPI_Comm parent);

  Communicator(Communicator&& other) noexcept;
  Communicator& operator=(Communicator&& other) noexcept;
  ~Communicator();

  int rank() const { return rank_; }
  int size() const { return size_; }
  MPI_Comm mpi() const { return comm_; }

  /// Whether several threads may call MPI: it was initialised with MPI_THREAD_MULTIPLE.
  static bool threads_may_call();

  /// Sets the transport for arrays in device memory. Without one, collectives of such arrays are
  /// only possible in groups of one rank.
  void set_transport(std::unique_ptr<Transport> transport) { transport_ = std::move(transport); }

  /// Sets a window of shared memory. From now on all_gather, all_to_all and reduce_scatter of
  /// arrays in host memory read the other ranks' send buffers directly, which must be in the
  /// window's memory. Only for groups of several ranks.
  void set_window(std::unique_ptr<Window> window) { window_ = std::move(window); }

  // Collectives of arrays in host or device memory. Every rank's shard has the same number of
  // elements; `full` has all shards. They throw Error if sizes differ. They wait for earlier work
  // of `exec`, which builds without a device ignore. For host memory the result is ready when they
  // return; for device memory it is ready for later work of `exec`.

  /// full = every rank's shard, in rank order. `shard` may be this rank's part of `full`, on all
  /// ranks or on none. T is float, bf16 or fp16.
  template <class T, class Space>
  void all_gather(const Exec& exec, View<const T*, Space> shard, View<T*, Space> full);

  /// shard = this rank's part of the sum of `full` over all ranks. An all-to-all into `staging`
  /// (the size of `full`) is followed by a fixed binary tree in rank order, so the bits do not
  /// depend on the MPI library. `local` selects several trees, or adding to the content of `shard`;
  /// these sums have fixed bits, too. Unless it is added to, `shard` may be the beginning of
  /// `staging` or this rank's part of `full`; apart from that `full` is unchanged. A group of one
  /// rank uses no `staging`, nor does a group with a window, which gives the same bits. T is float,
  /// or bf16 or fp16; these are summed in float, and then `shard` may not overlap `full` or
  /// `staging`.
  template <class T, class Space>
  void reduce_scatter(const Exec& exec, View<const T*, Space> full, View<T*, Space> staging,
                      View<float*, Space> shard, ReductionOrder local = {});

  /// A reduce-scatter whose sum is left to MPI or the transport: in the dtype that is sent, in an
  /// order that depends on the library and the number of ranks. It needs no staging. A `full` of
  /// bf16 or fp16 is overwritten. `shard` must not overlap `full`.
  template <class T, class Space>
  void library_reduce_scatter(const Exec& exec, View<T*, Space> full, View<float*, Space> shard);

  /// received = each rank's part for this rank, in rank order; `full` has this rank's part for each
  /// rank. Both have the same size, and must not overlap. T is float, bf16 or fp16.
  template <class T, class Space>
  void all_to_all(const Exec& exec, View<const T*, Space> full, View<T*, Space> received);

  /// Exact all-reduce sums of integers, in place, modulo 2^64. Host memory.
  void all_reduce_sum(std::int64_t* values, int count);
  void all_reduce_sum(std::uint64_t* values, int count);
  /// All-reduce maximum and minimum, in place. Host memory.
  void all_reduce_max(double* values, int count);
  void all_reduce_min(double* values, int count);

  /// Point-to-point messages in host memory. Both calls block until the message was received.
  void send(const void* data, std::int64_t bytes, int to);
  void receive(void* data, std::int64_t bytes, int from);

  /// Broadcasts from rank `root`, in host memory.
  void broadcast(void* data, std::int64_t bytes, int root);
  std::string broadcast(std::string text, int root);
  /// Returns every rank's text, in rank order, on every rank.
  std::vector<std::string> gather_texts(const std::string& text);
  /// Calls take(rank, text) on rank 0 for every rank's text, in rank order; rank 0 holds only one
  /// text at a time. Collective.
  void gather_texts_on_root(const std::string& mine,
                            const std::function<void(int rank, const std::string& text)>& take);
  void barrier();

  /// Bytes sent to other ranks by all_gather, all_to_all, reduce_scatter and library_reduce_scatter
  /// since the group was made.
  std::int64_t bytes_sent() const { return bytes_sent_; }

  /// Imitates a slower network, for tests and measurements: those collectives take this many
  /// seconds longer for each byte that bytes_sent() grows by. The thread sleeps, so that others can
  /// compute meanwhile, as with a network card that does the work.
  void slow_down(double seconds_per_byte);

  /// Runs `work` on every rank. If it throws on some, throws CollectiveError on all, with the text
  /// of the lowest rank that failed; CollectiveDamagedError if all failures were DamagedErrors. Use
  /// it for I/O that may fail on one rank only. `work` itself must not communicate: a rank that
  /// failed would leave the others waiting.
  void run_collectively(const std::function<void()>& work);
  /// Runs `work` on rank 0 alone; if it throws, all ranks throw as above.
  void run_on_root(const std::function<void()>& work);

 private:
  Communicator() = default;
  explicit Communicator(MPI_Comm owned);

  void count_sent(std::int64_t shard_bytes);

  template <class Call>
  void by_transport(const Call& call);

  MPI_Comm comm_ = MPI_COMM_NULL;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Window> window_;
  /// Types of 64 floats, and of 64 elements of 16 bits, so that counts up to 2^37 elements fit an
  /// int.
  std::array<MPI_Datatype, 2> blocks_{MPI_DATATYPE_NULL, MPI_DATATYPE_NULL};
  int rank_ = 0;
  int size_ = 1;
  std::int64_t bytes_sent_ = 0;
  double seconds_per_byte_ = 0.0;
};

}  // namespace ostrakon::comm
