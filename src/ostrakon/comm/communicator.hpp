// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <array>
#include <cstdint>
#include <functional>
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

/// How a reduce-scatter adds up what the ranks sent.
struct LocalSum {
  /// Neighbouring ranks summed by one tree; the trees' sums are accumulated in order; 0: one tree
  /// over all.
  int tree = 0;
  bool continues = false;  ///< onto what the shard holds
};

/// A group of ranks that communicate through MPI. Owns a duplicate of the communicator that it was
/// made from. Every method is collective over the group, blocks until this rank's part is done,
/// checks every return code and throws Error. A group of one rank never calls MPI.
///
/// Two threads of a rank may be in collectives at the same time, but of different Communicators,
/// and only where threads_may_call(); bytes_sent() is read once they have been joined or
/// synchronized. Kokkos is called in builds with a device only, so that elsewhere the threads may
/// be any. There, arrays in device memory are moved by a Transport.
///
/// Traffic counts bytes that this rank sends to *other* ranks by the ring formulas that the plan
/// uses: all-gather and reduce-scatter of M bytes among W ranks move M (W - 1) / W.
class Communicator {
 public:
  /// Collective over `parent`: a duplicate of it.
  static Communicator duplicate(MPI_Comm parent);
  /// Collective over `parent`: ranks with equal `color` form a group, in the order of `key`, those
  /// with equal keys in the order of their ranks.
  static Communicator split(MPI_Comm parent, int color, int key = 0);
  /// Collective over `parent`: ranks that share memory form a group, in the order of their ranks.
  static Communicator split_shared_memory(MPI_Comm parent);

  Communicator(Communicator&& other) noexcept;
  Communicator& operator=(Communicator&& other) noexcept;
  ~Communicator();

  int rank() const { return rank_; }
  int size() const { return size_; }
  MPI_Comm mpi() const { return comm_; }

  /// Whether MPI was started so that more than one thread may call it: MPI_THREAD_MULTIPLE.
  static bool threads_may_call();

  /// Moves arrays in device memory from now on. Without one, there are collectives of such arrays
  /// in groups of one rank only.
  void carry(std::unique_ptr<Transport> transport) { transport_ = std::move(transport); }

  /// From now on all_gather, all_to_all and reduce_scatter of arrays in host memory read what is
  /// gathered, exchanged or reduced where other ranks have it, which has to be in the memory of the
  /// window. In groups of several ranks.
  void share(std::unique_ptr<Window> window) { window_ = std::move(window); }

  // In either memory space. Every rank's shard has as many elements; `full` has those of all. Throw
  // Error where sizes differ. What was submitted to `exec` before is done first; without a device
  // it is not used. Of arrays in host memory all is done when they return; of those on a device it
  // is in the order of `exec`, as what is submitted to it later.

  /// full = every rank's shard, in rank order. `shard` may be this rank's part of `full`, on all
  /// ranks or on none.
  /// T is float, bf16 or fp16.
  template <class T, class Space>
  void all_gather(const Exec& exec, View<const T*, Space> shard, View<T*, Space> full);

  /// shard = this rank's part of the sum of `full` of all ranks. All-to-all into `staging` (as
  /// large as full), then the fixed binary tree in rank order: the bits are those of adding the
  /// ranks' arrays by that tree, on any MPI and any number of ranks. `local` says if they are added
  /// by several trees, and to what `shard` holds: these additions, too, are the same on any MPI.
  /// `shard` may be where `staging` begins, or this rank's part of `full`, but where it holds
  /// something to add to; else `full` is left as it was. A group of one uses no `staging`, nor does
  /// one with a window, whose sums have the same bits.
  /// T is float; or bf16 or fp16, which are summed in float, and whose sum shares no bytes with
  /// them.
  template <class T, class Space>
  void reduce_scatter(const Exec& exec, View<const T*, Space> full, View<T*, Space> staging,
                      View<float*, Space> shard, LocalSum local = {});

  /// Sums as MPI, or the transport, adds up: in the dtype that is sent, in an order that depends on
  /// the library and the number of ranks. Without staging; of bf16 or fp16 `full` is overwritten.
  /// `shard` shares no bytes with it.
  template <class T, class Space>
  void library_reduce_scatter(const Exec& exec, View<T*, Space> full, View<float*, Space> shard);

  /// received = each rank's part for this one, in rank order; `full` has this rank's part for each.
  /// They have as many elements, and share none.
  /// T is float, bf16 or fp16.
  template <class T, class Space>
  void all_to_all(const Exec& exec, View<const T*, Space> full, View<T*, Space> received);

  /// Exact sums of integers, in place, modulo 2^64. Host memory.
  void sum(std::int64_t* values, int count);
  void sum(std::uint64_t* values, int count);
  /// Host memory, in place.
  void maximum(double* values, int count);
  void minimum(double* values, int count);

  /// From rank to rank: the two calls of a message, which block until it was received. Host memory.
  void send(const void* data, std::int64_t bytes, int to);
  void receive(void* data, std::int64_t bytes, int from);

  /// Host memory.
  void broadcast(void* data, std::int64_t bytes, int root);
  std::string broadcast(std::string text, int root);
  /// Every rank's text, in rank order, on every rank.
  std::vector<std::string> gather_texts(const std::string& text);
  /// Calls take(rank, text) on rank 0 for every rank's text, one after the other, in rank order:
  /// rank 0 never holds more than one. Collective.
  void show_first(const std::string& mine,
                  const std::function<void(int rank, const std::string& text)>& take);
  void barrier();

  /// Bytes sent to other ranks by all_gather, all_to_all and both kinds of reduce_scatter since the
  /// group was made.
  std::int64_t bytes_sent() const { return bytes_sent_; }

  /// From now on these three take longer, by this many seconds for each byte that
  /// bytes_sent() grows by: as if the network were slower, for tests and measurements. The thread
  /// sleeps, so that others can compute meanwhile, as with a network card that does the work.
  void slow_down(double seconds_per_byte);

  /// Runs `work` on every rank; where it throws on some, throws AgreedError on all, with the text
  /// of the lowest rank that failed; AgreedDamage where all that failed threw DamagedError. The way
  /// to do I/O that may fail on one rank only. `work` itself must not communicate: a rank that
  /// failed would leave the others waiting.
  void agree(const std::function<void()>& work);

 private:
  Communicator() = default;
  explicit Communicator(MPI_Comm owned);

  void count_sent(std::int64_t shard_bytes);

  template <class Call>
  void by_transport(const Call& call);

  MPI_Comm comm_ = MPI_COMM_NULL;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Window> window_;
  /// 64 floats, or 64 elements of 16 bits, so that counts up to 2^37 fit an int.
  std::array<MPI_Datatype, 2> blocks_{MPI_DATATYPE_NULL, MPI_DATATYPE_NULL};
  int rank_ = 0;
  int size_ = 1;
  std::int64_t bytes_sent_ = 0;
  double seconds_per_byte_ = 0.0;
};

}  // namespace ostrakon::comm
