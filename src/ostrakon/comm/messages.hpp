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

/// Point-to-point messages between the ranks of a group, begun without waiting and finished later.
/// The k-th message that one rank sends to another matches the k-th receive there. One thread may
/// send while another receives, if Communicator::threads_may_call(). Throws Error if MPI fails.
class Messages {
 public:
  /// Collective over `group`, which need not outlive it. `staged`: messages in device memory go
  /// through pinned host memory, which grows to the most that was ever in flight.
  explicit Messages(const Communicator& group, bool staged = true)
      : group_(Communicator::duplicate(group.mpi())), staged_(staged) {}

  int rank() const { return group_.rank(); }

  /// Sets a transport for messages in device memory. They are then in the order of the stream on
  /// which they are begun, and need not be finished. Messages in host memory may not be sent
  /// afterwards.
  void set_transport(std::unique_ptr<MessageTransport> transport) {
    transport_ = std::move(transport);
  }
  /// Whether begun messages have to be finished.
  bool has_to_be_finished() const { return transport_ == nullptr; }

  // Messages in host or device memory. Until a message is finished, its send buffer must not
  // change, and its receive buffer not be read. It waits for earlier work of `exec`, which must
  // live until a receive is finished. In a math::WarmUp nothing is begun.

  template <class Space>
  void begin_send(const Exec& exec, View<const char*, Space> data, int to);
  template <class Space>
  void begin_receive(const Exec& exec, View<char*, Space> data, int from);

  /// Waits until all begun sends are done, except the last `may_go_on`, and returns true. A send is
  /// done once the other rank receives it. Returns false if `gives_up` is set before: no more
  /// messages can be exchanged then.
  bool finish_sends(int may_go_on, const std::atomic<bool>& gives_up) {
    return finish(sends_, may_go_on, gives_up);
  }
  bool finish_receives(int may_go_on, const std::atomic<bool>& gives_up) {
    return finish(receives_, may_go_on, gives_up);
  }

  /// Bytes sent since construction.
  std::int64_t bytes_sent() const { return bytes_sent_; }

 private:
#if OSTRAKON_HAS_DEVICE
  /// Pinned memory of a message in flight.
  struct StagingBuffer {
    device::PinnedBytes memory;
    std::int64_t capacity = 0;
    std::int64_t bytes = 0;
    std::byte* target = nullptr;  ///< receive buffer; null for a send
    device::StreamHandle stream = nullptr;
  };
  using StagingBuffers = std::vector<StagingBuffer>;
#else
  struct StagingBuffers {};
#endif
  struct Begun {
    std::vector<MPI_Request> requests;  ///< of messages in flight, in order
    std::vector<int> parts;             ///< number of requests per message
    StagingBuffers stages, spare;       ///< stages: one per message if staged; spare: for reuse
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
  [[maybe_unused]] bool staged_;  // only used with a device
  Begun sends_, receives_;
  std::int64_t bytes_sent_ = 0;
};

}  // namespace ostrakon::comm
