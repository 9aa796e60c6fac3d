// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/comm/transport.hpp>

#if defined(OSTRAKON_HAVE_NCCL)

#if defined(OSTRAKON_MADE_UP_DEVICE)
#include <made_up_device/nccl.h>
#elif defined(KOKKOS_ENABLE_DEFAULT_DEVICE_TYPE_HIP)
#include <rccl/rccl.h>
#else
#include <nccl.h>
#endif

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <ostrakon/device/stream.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace ostrakon::comm {

/// A communicator of NCCL. It is made without blocking, within a limit of time, and what NCCL
/// reports is thrown as Error with its name. Owned: destroyed with it, aborted where it has failed.
class NcclCommunicator {
 public:
  /// Says whose channels and buffers communicators have that are split from one. On a device what
  /// communicators submit that share theirs is done one after the other, in the order of
  /// submission, whatever their streams. NCCL takes it from the parent's configuration: what a
  /// split is given counts for those that are split from the part.
  enum class Resources { of_parent, own };
  /// Collective over all of `group`. Ranks that share a device take an NCCL that allows it (see
  /// docs/gpu.md), else this throws. `seconds`: how long they may take.
  NcclCommunicator(Communicator& group, std::string name, double seconds,
                   Resources of_parts = Resources::own);
  /// Collective over `parent`: ranks with equal `color` form a group, in the order of `key`;
  /// those with a negative one are in none.
  NcclCommunicator(NcclCommunicator& parent, int color, int key, std::string name);
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  const std::string& name() const { return name_; }
  /// Throws Error where it was aborted.
  ncclComm_t handle() const;
  int size() const { return size_; }

  /// Throws Error unless a call has succeeded; waits while it goes on.
  void check(ncclResult_t result, const char* call) const;
  /// What NCCL has found wrong since, or an empty text. May be called from any thread.
  std::string error() const;
  /// Ends what it is in, and makes it unusable. May be called from any thread, once.
  void abort();

 private:
  std::string name_;
  double seconds_;
  ncclComm_t handle_ = nullptr;
  int size_ = 1;
  mutable std::mutex mutex_;  ///< abort() and error() hold it while they use the handle
};

/// Looks after communicators from a thread of its own: whether NCCL reports an error, and whether
/// what was submitted has taken longer than it may.
class NcclWatch {
 public:
  /// ended(text) is called, once, from the watching thread, when the first of them has failed; all
  /// are aborted if it returns.
  NcclWatch(double seconds, std::function<void(const std::string&)> ended);
  ~NcclWatch();
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

  /// Until forget(). `work` tells what the oldest work is that is not done, and for how long;
  /// empty: nothing is. Called from the watching thread.
  struct Oldest {
    std::string what;
    double seconds = 0.0;
  };
  /// `who` submits it, which is forgotten by that.
  void add(const void* who, NcclCommunicator& communicator, std::function<Oldest()> oldest);
  void forget(const void* who);

  /// This rank has failed, as `why` says, so that others may not make the calls that it waits for:
  /// what is not done in so many seconds never will be, and `why` is what ended() is told. Until
  /// calm().
  void hurry(const std::string& why, double seconds);
  void calm();

 private:
  struct Watched {
    const void* who;
    NcclCommunicator* communicator;
    std::function<Oldest()> oldest;
  };
  void serve();
  std::string look();

  double seconds_;
  std::function<void(const std::string&)> ended_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Watched> watched_;
  bool ends_ = false;
  int device_ = 0;   ///< that all of this process use: threads begin with the first
  std::string why_;  ///< of hurry(); empty: not
  double until_ = 0.0;
  std::thread thread_;
};

/// Keeps what several streams submit to one communicator in one order: each begins when the one
/// before it is done, as a communicator must not be in two streams at a time. One thread submits.
class NcclOrder {
 public:
  void begin(device::StreamHandle stream);
  void end(device::StreamHandle stream);

 private:
  device::Event last_;
  device::StreamHandle stream_ = nullptr;  ///< of the last one
  bool has_begun_ = false;
};

/// By NCCL, in the order of a stream. Work is named by describe(), which is called when it is
/// submitted.
class NcclTransport : public Transport {
 public:
  /// `order`: of a communicator that others of its kind have, too.
  NcclTransport(std::shared_ptr<NcclCommunicator> communicator, int rank, NcclWatch* watch,
                std::shared_ptr<NcclOrder> order = nullptr);
  ~NcclTransport() override;

  /// Collective. Makes NCCL connect the ranks, for which it takes memory and blocks, and waits.
  void connect();

  bool blocks() const override { return false; }
  void all_gather(const Exec& exec, const std::byte* shard, std::byte* full,
                  std::int64_t shard_bytes) override;
  void all_to_all(const Exec& exec, const std::byte* full, std::byte* received,
                  std::int64_t part_bytes) override;
  void reduce_scatter(const Exec& exec, const std::byte* full, std::byte* sum,
                      std::int64_t elements, DType dtype) override;
  /// From rank to rank: the two calls of a message.
  void send(const Exec& exec, const std::byte* data, std::int64_t bytes, int to);
  void receive(const Exec& exec, std::byte* data, std::int64_t bytes, int from);

 private:
  /// Work that may not be done.
  struct Pending {
    device::Event ready, done;
    double begun = 0.0;  ///< as seconds_now() counts, when it was seen to be ready; 0: not yet
    const char* what = "";
    std::int64_t bytes = 0;
    const char* way = "";  ///< of a message, before its peer
    int peer = -1;
  };
  void begin(const Exec& exec);
  void note(const Exec& exec, const char* what, std::int64_t bytes, const char* way = "",
            int peer = -1);
  NcclWatch::Oldest oldest();

  std::shared_ptr<NcclCommunicator> communicator_;
  std::shared_ptr<NcclOrder> order_;
  int rank_;
  NcclWatch* watch_;
  std::mutex mutex_;  ///< of what follows
  std::vector<Pending> pending_;
  std::size_t first_ = 0, count_ = 0;  ///< of a ring
};

/// By NCCL, in communicators of which each rank uses one for sends alone, or for receives alone: a
/// communicator must not be in two streams at a time. Two ranks communicate in the one that the
/// lowest bit in which their numbers differ tells, and the direction. So neighbours need two,
/// however many ranks there are.
class NcclMessages : public MessageTransport {
 public:
  using Pair = std::pair<int, int>;  ///< from, to

  /// Collective over `group`, the ranks of which have a device each. `pairs`: all that will send to
  /// each other, the same on all ranks; they are connected, so that no message has to wait for that
  /// on the thread that begins it. `name`: of what they are the messages.
  NcclMessages(Communicator& group, const std::vector<Pair>& pairs, const std::string& name,
               double seconds, NcclWatch* watch);

  void send(const Exec& exec, const std::byte* data, std::int64_t bytes, int to) override;
  void receive(const Exec& exec, std::byte* data, std::int64_t bytes, int from) override;

  /// The index of a pair's communicator.
  static int lane_of(Pair pair);

 private:
  void connect(const std::vector<Pair>& pairs);

  int rank_;
  std::unique_ptr<NcclCommunicator> all_;  ///< of which the lanes are split
  std::map<int, std::unique_ptr<NcclTransport>> lanes_;
};

/// Whether it takes ranks that share a device: 2.30 and later do where NCCL_MULTI_RANK_GPU_ENABLE
/// is 1 in the environment.
bool nccl_shares_devices();

/// The version of the library, such as 2.28.9.
std::string nccl_version();

}  // namespace ostrakon::comm

#endif
