// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <ostrakon/math/portability.hpp>
#include <utility>
#include <vector>
#if OSTRAKON_HAS_DEVICE
#include <ostrakon/device/stream.hpp>
#endif

namespace ostrakon::runtime {

/// When an action ran, as seconds_now() counts: when its handler did, or on a stream of a device,
/// when what the handler submitted was done.
struct ActionTime {
  double begin = 0.0;
  double end = 0.0;
};

/// Where the work of a stream of plans is done, in order.
///
/// Work is what the handler of an action does. When the handler has returned, the work is *added*;
/// it is *done* then, too, or later. Other queues wait for the first `count` pieces of work of this
/// one in either of two ways: by `wait`, which only delays what their own handlers submit, or by
/// `await`, which blocks the thread that calls. Which of them it has to be depends on the two
/// queues, and nobody else knows.
class Queue {
 public:
  virtual ~Queue() = default;
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  /// For kernels and copies of its work.
  virtual const Exec& exec() const = 0;

  /// A run begins, when all work is done. `awaited`: for each piece of work of this run, whether
  /// others may wait for it. Allocates nothing where a run was as long before.
  virtual void begin(const std::vector<char>& awaited) = 0;
  /// The work that is added next begins: its handler is called now.
  virtual void mark_begin() {}
  /// One more piece of work is added. False if it will never be done: `gives_up` was set.
  virtual bool add(const std::atomic<bool>& gives_up) = 0;
  /// Returns when the first `count` pieces of work are done, which have been added; or as add().
  virtual bool await(int count, const std::atomic<bool>& gives_up) = 0;
  /// What is added to this queue from now on begins when the first `count` of `other` are done,
  /// which have been added; or as add().
  virtual bool wait(Queue& other, int count, const std::atomic<bool>& gives_up) {
    return other.await(count, gives_up);
  }
  /// Returns when all work is done that has been added.
  virtual void finish(const std::atomic<bool>& gives_up) = 0;
  /// When piece `index` of a finished run was worked on; nothing: while its handler ran.
  virtual std::optional<ActionTime> time_of(int /*index*/) const { return std::nullopt; }

 protected:
  Queue() = default;
};

/// For handlers that begin what goes on when they return: finish(n, gives_up) returns true when all
/// of it is done but what the last n have begun; false, soon after gives_up is set, if it is not.
using Finish = std::function<bool(int may_go_on, const std::atomic<bool>& gives_up)>;

/// On a host thread: work is done when its handler returns and what that submitted to exec() is
/// done; with a Finish, when that says so.
class HostQueue : public Queue {
 public:
  explicit HostQueue(const Exec& exec);

  /// `at_once`: add() finishes, rather than the first that waits.
  void finish_with(Finish finish, bool at_once) {
    finish_ = std::move(finish);
    at_once_ = at_once;
  }
  /// Work that is done.
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

/// A stream that lasts longer than what is derived from this and uses it.
class HasStream {
 protected:
  explicit HasStream(device::Priority priority) : stream_(priority) {}

  device::Stream stream_;
};

/// A HostQueue with a stream of the device for what its handlers copy or compute there.
class ThreadQueue : private HasStream, public HostQueue {
 public:
  explicit ThreadQueue(device::Priority priority);
};

/// A stream of a device, to which handlers submit their work. Queues of this kind wait for each
/// other by events. One thread adds to each; another waits for what it knows to be added.
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
  /// Points before and behind a piece of work.
  struct Span {
    device::Event begin{device::Timing::yes}, end{device::Timing::yes};
  };

  const device::Event& event_of(int count) const;

  device::Stream stream_;
  Exec exec_;
  std::vector<char> awaited_;  ///< of each piece of work in a run
  std::vector<Span> spans_;
  device::Event start_{device::Timing::yes};  ///< of the run
  double start_seconds_ = 0.0;                ///< when that was, as seconds_now() counts
  int added_ = 0;
};

#endif

}  // namespace ostrakon::runtime
