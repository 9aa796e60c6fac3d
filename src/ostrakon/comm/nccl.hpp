// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/comm/transport.hpp>

#if defined(OSTRAKON_HAVE_NCCL)

#if defined(OSTRAKON_FAKE_DEVICE)
#include <fake_device/nccl.h>
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

/// Owns an NCCL communicator. It is created without blocking, within a time limit, and errors of
/// NCCL are thrown as Error with its name. The destructor destroys it, or aborts it if it has
/// failed.
class NcclCommunicator {
 public:
  /// Whose channels and buffers the communicators have that are split from this one. Communicators
  /// that share resources run one operation after the other on a device, in the order of
  /// submission, whatever their streams. NCCL takes this setting from the parent: the one given to
  /// a split applies to later splits of it.
  enum class Resources { of_parent, own };
  /// Collective over `group`. Throws Error if ranks share a device and this NCCL does not allow
  /// that (see docs/gpu.md). `seconds`: time limit of operations.
  NcclCommunicator(Communicator& group, std::string name, double seconds,
                   Resources of_parts = Resources::own);
  /// Collective over `parent`: ranks with equal `color` form a group, ordered by `key`; ranks with
  /// a negative color are in no group.
  NcclCommunicator(NcclCommunicator& parent, int color, int key, std::string name);
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  const std::string& name() const { return name_; }
  /// The NCCL handle. Throws Error if it was aborted.
  ncclComm_t handle() const;
  int size() const { return size_; }

  /// Throws Error unless a call succeeds; waits while it is in progress.
  void check(ncclResult_t result, const char* call) const;
  /// Returns an asynchronous error that NCCL has found, or "". May be called from any thread.
  std::string error() const;
  /// Aborts operations in progress, and makes the communicator unusable. May be called from any
  /// thread, once.
  void abort();

 private:
  std::string name_;
  double seconds_;
  ncclComm_t handle_ = nullptr;
  int size_ = 1;
  mutable std::mutex mutex_;  ///< held by abort() and error() while they use the handle
};

/// Watches communicators from a thread of its own: for errors that NCCL reports, and for operations
/// that take longer than allowed.
class NcclWatchdog {
 public:
  /// ended(text) is called once from the watching thread, at the first failure of a communicator.
  /// If it returns, all communicators are aborted.
  NcclWatchdog(double seconds, std::function<void(const std::string&)> ended);
  ~NcclWatchdog();
  NcclWatchdog(const NcclWatchdog&) = delete;
  NcclWatchdog& operator=(const NcclWatchdog&) = delete;

  /// The oldest unfinished operation, and for how long it has run; `what` is empty if there is
  /// none. Asked for from the watching thread.
  struct Oldest {
    std::string what;
    double seconds = 0.0;
  };
  /// Watches a communicator until forget(who). `oldest` is called from the watching thread.
  void add(const void* who, NcclCommunicator& communicator, std::function<Oldest()> oldest);
  void forget(const void* who);

  /// Tells that this rank has failed, for the reason `why`: other ranks may not make the calls that
  /// it waits for. Work that is not done within `seconds` counts as failed, and ended() receives
  /// `why`. Ends with clear_failure_deadline().
  void set_failure_deadline(const std::string& why, double seconds);
  void clear_failure_deadline();

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
  int device_ = 0;   ///< device of this process; new threads begin with device 0
  std::string why_;  ///< from set_failure_deadline(); empty if it is not in effect
  double until_ = 0.0;
  std::thread thread_;
};

/// Orders the operations that several streams submit to one communicator: each waits for the one
/// before, as a communicator must not be used in two streams at a time. One thread submits.
class NcclOrder {
 public:
  void begin(device::StreamHandle stream);
  void end(device::StreamHandle stream);

 private:
  device::Event last_;
  device::StreamHandle stream_ = nullptr;  ///< stream of the last operation
  bool has_begun_ = false;
};

/// A transport by NCCL, in the order of a stream. Errors name an operation by describe(), which is
/// called when it is submitted.
class NcclTransport : public Transport {
 public:
  /// `order` is shared by all transports that use the same communicator.
  NcclTransport(std::shared_ptr<NcclCommunicator> communicator, int rank, NcclWatchdog* watch,
                std::shared_ptr<NcclOrder> order = nullptr);
  ~NcclTransport() override;

  /// Makes NCCL connect the ranks, which allocates memory and blocks. Collective.
  void connect();

  bool blocks() const override { return false; }
  void all_gather(const Exec& exec, const std::byte* shard, std::byte* full,
                  std::int64_t shard_bytes) override;
  void all_to_all(const Exec& exec, const std::byte* full, std::byte* received,
                  std::int64_t part_bytes) override;
  void reduce_scatter(const Exec& exec, const std::byte* full, std::byte* sum,
                      std::int64_t elements, DType dtype) override;
  /// Point-to-point messages; both ranks make their call.
  void send(const Exec& exec, const std::byte* data, std::int64_t bytes, int to);
  void receive(const Exec& exec, std::byte* data, std::int64_t bytes, int from);

 private:
  /// An operation that may be unfinished.
  struct Pending {
    device::Event ready, done;
    double begun = 0.0;  ///< seconds_now() when it was seen to be ready; 0: not yet
    const char* what = "";
    std::int64_t bytes = 0;
    const char* way = "";  ///< text before the peer of a message: " to ", " from "
    int peer = -1;
  };
  void begin(const Exec& exec);
  void note(const Exec& exec, const char* what, std::int64_t bytes, const char* way = "",
            int peer = -1);
  NcclWatchdog::Oldest oldest();

  std::shared_ptr<NcclCommunicator> communicator_;
  std::shared_ptr<NcclOrder> order_;
  int rank_;
  NcclWatchdog* watch_;
  std::mutex mutex_;  ///< guards the members below
  std::vector<Pending> pending_;
  std::size_t first_ = 0, count_ = 0;  ///< of the ring buffer pending_
};

/// Messages by NCCL. A communicator must not be used in two streams at a time, so each rank uses a
/// communicator for sends only, or for receives only. Two ranks use the one that follows from the
/// direction and the lowest bit in which their numbers differ: ranks in a chain need two
/// communicators, however many ranks there are.
class NcclMessages : public MessageTransport {
 public:
  using Pair = std::pair<int, int>;  ///< from, to

  /// Collective over `group`, whose ranks have one device each. `pairs`: all pairs that will
  /// exchange messages, the same on all ranks; they are connected here, so that no message blocks
  /// later to connect. `name`: a name for messages of errors.
  NcclMessages(Communicator& group, const std::vector<Pair>& pairs, const std::string& name,
               double seconds, NcclWatchdog* watch);

  void send(const Exec& exec, const std::byte* data, std::int64_t bytes, int to) override;
  void receive(const Exec& exec, std::byte* data, std::int64_t bytes, int from) override;

  /// The index of a pair's communicator.
  static int lane_of(Pair pair);

 private:
  void connect(const std::vector<Pair>& pairs);

  int rank_;
  std::unique_ptr<NcclCommunicator> all_;  ///< the communicator that the lanes are split from
  std::map<int, std::unique_ptr<NcclTransport>> lanes_;
};

/// Whether this NCCL lets ranks share a device: 2.30 and later do if NCCL_MULTI_RANK_GPU_ENABLE is
/// 1 in the environment.
bool nccl_shares_devices();

/// The version of the library: "2.28.9".
std::string nccl_version();

}  // namespace ostrakon::comm

#endif
