// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <ostrakon/math/portability.hpp>
#include <utility>
#include <vector>
#if OSTRAKON_HAS_DEVICE
#include <ostrakon/device/stream.hpp>
#endif

namespace ostrakon::runtime {

/// When an action ran, by seconds_now(): while its handler did, or on a stream of a device, from
/// begin to end of the submitted work.
struct ActionTime {
  double begin = 0.0;
  double end = 0.0;
};

/// The queue of a stream of plans, whose work is done in order.
///
/// A piece of work is what the handler of an action does. When the handler has returned, the work
/// is *added*; it is *done* then, too, or later. Other queues wait for the first `count` pieces of
/// work of this one in either of two ways: by `wait`, which only delays work that their own
/// handlers submit, or by `await`, which blocks the calling thread. The two queues alone decide
/// which of them is used.
class Queue {
 public:
  virtual ~Queue() = default;
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  /// Execution space for kernels and copies of its work.
  virtual const Exec& exec() const = 0;

  /// Begins a run, when all work is done. `awaited`: for each piece of work of this run, whether
  /// others may wait for it. Allocates nothing if an earlier run was as long.
  virtual void begin(const std::vector<char>& awaited) = 0;
  /// Marks the begin of the next piece of work, just before its handler is called.
  virtual void mark_begin() {}
  /// Adds a piece of work. Returns false if it will never be done, as `gives_up` was set.
  virtual bool add(const std::atomic<bool>& gives_up) = 0;
  /// Waits until the first `count` pieces of work, which have been added, are done; returns as
  /// add().
  virtual bool await(int count, const std::atomic<bool>& gives_up) = 0;
  /// Makes work that is added to this queue later begin after the first `count` pieces of `other`,
  /// which have been added; returns as add().
  virtual bool wait(Queue& other, int count, const std::atomic<bool>& gives_up) {
    return other.await(count, gives_up);
  }
  /// Waits until all work that has been added is done.
  virtual void finish(const std::atomic<bool>& gives_up) = 0;
  /// When piece `index` of a finished run was worked on; nullopt: while its handler ran.
  virtual std::optional<ActionTime> time_of(int /*index*/) const { return std::nullopt; }

 protected:
  Queue() = default;
};

/// For handlers that begin operations which continue after they return: finish(n, gives_up) returns
/// true when all of these are done but those of the last n handlers; false, soon after gives_up is
/// set, if they are not.
using Finish = std::function<bool(int may_go_on, const std::atomic<bool>& gives_up)>;

/// A queue on a host thread: work is done when its handler has returned and the work that it
/// submitted to exec() is done; with a Finish, when that returns true.
class HostQueue : public Queue {
 public:
  explicit HostQueue(const Exec& exec);

  /// `at_once`: add() calls `finish`; otherwise the first call that waits does.
  void finish_with(Finish finish, bool at_once) {
    finish_ = std::move(finish);
    at_once_ = at_once;
  }
  /// The number of pieces of work that are done.
  int done() const { return done_; }

  const Exec& exec() const override { return exec_; }
  void begin(const std::vector<char>& awaited) override;
  bool add(const std::atomic<bool>& gives_up) override;
  bool await(int count, const std::atomic<bool>& gives_up) override;
  void finish(const std::atomic<bool>& gives_up) override { await(added_, gives_up); }

 private:
  Exec exec_;
  Finish finish_;
  bool at_once_ = false;
  int added_ = 0;
  std::atomic<int> done_{0};  // read by threads of other queues
};

#if OSTRAKON_HAS_DEVICE

/// A device stream, as a base class that outlives the base classes after it.
class HasStream {
 protected:
  explicit HasStream(device::Priority priority) : stream_(priority) {}

  device::Stream stream_;
};

/// A HostQueue with a device stream for copies and kernels of its handlers.
class ThreadQueue : private HasStream, public HostQueue {
 public:
  explicit ThreadQueue(device::Priority priority);
};

/// A stream of a device, to which handlers submit their work. Queues of this kind wait for each
/// other by events. One thread adds to each queue; another waits only for work that it knows to be
/// added.
class DeviceQueue : public Queue {
 public:
  explicit DeviceQueue(device::Priority priority);

  const Exec& exec() const override { return exec_; }
  void begin(const std::vector<char>& awaited) override;
  void mark_begin() override;
  bool add(const std::atomic<bool>& gives_up) override;
  bool await(int count, const std::atomic<bool>& gives_up) override;
  bool wait(Queue& other, int count, const std::atomic<bool>& gives_up) override;
  void finish(const std::atomic<bool>& gives_up) override;
  std::optional<ActionTime> time_of(int index) const override;

 private:
  /// Events before and behind a piece of work.
  struct Span {
    device::Event begin{device::Timing::yes}, end{device::Timing::yes};
  };

  const device::Event& event_of(int count) const;

  device::Stream stream_;
  Exec exec_;
  std::vector<char> awaited_;  ///< per piece of work in a run: whether others may wait for it
  std::vector<Span> spans_;
  device::Event start_{device::Timing::yes};  ///< event at the begin of the run
  double start_seconds_ = 0.0;                ///< time of that event, by seconds_now()
  int added_ = 0;
};

#endif

/// Makes the queue of a stream that runs on the device, or else on the host, whose handlers are
/// called on a thread of its own or on the calling one. `is_urgent`: whether its work precedes that
/// of other streams on the device.
std::unique_ptr<Queue> make_queue(bool on_device, bool on_thread, bool is_urgent);

}  // namespace ostrakon::runtime
