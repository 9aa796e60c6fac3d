// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/runtime/queue.hpp>

#include <ostrakon/base/clock.hpp>
#include <ostrakon/math/warm_up.hpp>
#include <stdexcept>

namespace ostrakon::runtime {

HostQueue::HostQueue(const Exec& exec) : exec_(exec) { math::warm_up(exec_); }

void HostQueue::begin(const std::vector<char>&) {
  added_ = 0;
  done_ = 0;
}

bool HostQueue::add(const std::atomic<bool>& gives_up) {
  if (has_device) exec_.fence();
  ++added_;
  if (finish_ && !at_once_) return true;
  if (finish_ && !finish_(0, gives_up)) return false;
  done_ = added_;
  return true;
}

bool HostQueue::await(int count, const std::atomic<bool>& gives_up) {
  if (done_ >= count) return true;
  if (!finish_(added_ - count, gives_up)) return false;
  done_ = count;
  return true;
}

#if OSTRAKON_HAS_DEVICE

ThreadQueue::ThreadQueue(device::Priority priority)
    : HasStream(priority), HostQueue(Exec(stream_.handle())) {}

DeviceQueue::DeviceQueue(device::Priority priority) : stream_(priority), exec_(stream_.handle()) {
  math::warm_up(exec_);
}

void DeviceQueue::begin(const std::vector<char>& awaited) {
  added_ = 0;
  awaited_ = awaited;
  if (awaited.empty()) return;
  while (spans_.size() < awaited.size()) spans_.emplace_back();
  start_.record(stream_.handle());  // reached at once, as the stream has nothing to do
  start_seconds_ = seconds_now();
}

void DeviceQueue::mark_begin() {
  spans_[static_cast<std::size_t>(added_)].begin.record(stream_.handle());
}

bool DeviceQueue::add(const std::atomic<bool>&) {
  spans_[static_cast<std::size_t>(added_)].end.record(stream_.handle());
  ++added_;
  return true;
}

std::optional<ActionTime> DeviceQueue::time_of(int index) const {
  const Span& span = spans_.at(static_cast<std::size_t>(index));
  return ActionTime{start_seconds_ + span.begin.seconds_since(start_),
                    start_seconds_ + span.end.seconds_since(start_)};
}

const device::Event& DeviceQueue::event_of(int count) const {
  const auto work = static_cast<std::size_t>(count - 1);
  if (awaited_.at(work) == 0)
    throw std::logic_error("a queue waits for work that was not to be awaited");
  return spans_[work].end;
}

bool DeviceQueue::await(int count, const std::atomic<bool>&) {
  event_of(count).wait();
  return true;
}

bool DeviceQueue::wait(Queue& other, int count, const std::atomic<bool>& gives_up) {
  if (const auto* on_device = dynamic_cast<DeviceQueue*>(&other)) {
    on_device->event_of(count).delay(stream_.handle());
    return true;
  }
  return other.await(count, gives_up);
}

void DeviceQueue::finish(const std::atomic<bool>&) { device::wait_for(stream_.handle()); }

#endif

std::unique_ptr<Queue> make_queue([[maybe_unused]] bool on_device, [[maybe_unused]] bool on_thread,
                                  [[maybe_unused]] bool is_urgent) {
#if OSTRAKON_HAS_DEVICE
  if (on_device && on_thread) return std::make_unique<ThreadQueue>(device::Priority::high);
  if (on_device)
    return std::make_unique<DeviceQueue>(is_urgent ? device::Priority::high
                                                   : device::Priority::normal);
#endif
  return std::make_unique<HostQueue>(Exec());
}

}  // namespace ostrakon::runtime
