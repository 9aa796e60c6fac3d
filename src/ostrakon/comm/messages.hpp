// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/comm/transport.hpp>
#include <ostrakon/math/portability.hpp>
#include <ostrakon/math/view.hpp>
#include <utility>
#include <vector>
#if OSTRAKON_HAS_DEVICE
#include <ostrakon/device/memory.hpp>
#endif

namespace ostrakon::comm {

/// Messages from rank to rank of a group. They are begun without waiting, and finished later: the
/// k-th that one rank sends to another is the k-th that this one receives from it. One thread may
/// send while another receives, where Communicator::threads_may_call(). Throws Error where MPI
/// fails.
class Messages {
 public:
  /// Collective over `group`, which need not outlive it. `staged`: those of device memory go
  /// through pinned host memory, of which it keeps as much as was ever in flight.
  explicit Messages(const Communicator& group, bool staged = true)
      : group_(Communicator::duplicate(group.mpi())), staged_(staged) {}

  int rank() const { return group_.rank(); }

  /// Moves messages of device memory from now on, in the order of the streams that they are begun
  /// on: nothing is left to finish. Those of host memory are not to be sent then.
  void carry(std::unique_ptr<MessageTransport> transport) { transport_ = std::move(transport); }
  /// Whether what was begun has to be finished.
  bool has_to_be_finished() const { return transport_ == nullptr; }

  // What is sent must not change, and what is received not be looked at, until it is finished. In
  // either memory space. What was submitted to `exec` before is done first, and `exec` lives until
  // what it receives is finished. Nothing is begun in a math::WarmUp.

  template <class Space>
  void begin_send(const Exec& exec, View<const char*, Space> data, int to);
  template <class Space>
  void begin_receive(const Exec& exec, View<char*, Space> data, int from);

  /// Returns true when all that were begun are done, but the last `may_go_on`. Sends are, once the
  /// other rank receives. Returns false if they are not when `gives_up` is set: no more messages
  /// can be exchanged then.
  bool finish_sends(int may_go_on, const std::atomic<bool>& gives_up) {
    return finish(sends_, may_go_on, gives_up);
  }
  bool finish_receives(int may_go_on, const std::atomic<bool>& gives_up) {
    return finish(receives_, may_go_on, gives_up);
  }

  /// Bytes sent since the group was made.
  std::int64_t bytes_sent() const { return bytes_sent_; }
  /// From now on finish_sends(), or a send that is carried, takes longer, by this many seconds for
  /// each byte: see Communicator.
  void slow_down(double seconds_per_byte) { sends_.seconds_per_byte = seconds_per_byte; }

 private:
#if OSTRAKON_HAS_DEVICE
  /// Pinned memory of a message in flight.
  struct Stage {
    device::PinnedBytes memory;
    std::int64_t capacity = 0;
    std::int64_t bytes = 0;
    std::byte* target = nullptr;  ///< where what is received goes; null: nowhere
    device::StreamHandle stream = nullptr;
  };
  using Stages = std::vector<Stage>;
#else
  struct Stages {};
#endif
  struct Begun {
    std::vector<MPI_Request> requests;  ///< of messages that are not done
    std::vector<int> parts;             ///< requests of each of these messages
    std::vector<std::int64_t> bytes;    ///< of each
    Stages stages, spare;               ///< of each of them, where staged; and for later ones
    double seconds_per_byte = 0.0;
  };
  template <class Space>
  char* begin_stage(Begun& begun, const Exec& exec, const char* data, std::int64_t bytes,
                    char* target) const;
  static void finish_stages(Begun& begun, std::ptrdiff_t messages);
  template <class Call>
  static void begin(Begun& begun, std::int64_t bytes, const Call& call);
  static bool finish(Begun& begun, int may_go_on, const std::atomic<bool>& gives_up);

  void require_carried(bool on_device) const;

  Communicator group_;
  std::unique_ptr<MessageTransport> transport_;
  [[maybe_unused]] bool staged_;  // on devices
  Begun sends_, receives_;
  std::int64_t bytes_sent_ = 0;
};

}  // namespace ostrakon::comm
