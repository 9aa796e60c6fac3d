// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/device/stream.hpp>

#if OSTRAKON_HAS_DEVICE

#include <ostrakon/base/error.hpp>

// NOLINTNEXTLINE(cppcoreguidelines-macro-usage): names the call in messages
#define OSTRAKON_CALL(name, ...) check(OSTRAKON_GPU(name)(__VA_ARGS__), OSTRAKON_GPU_NAME(name))

namespace ostrakon::device {

void check(Status status, const char* call) {
  if (status == OSTRAKON_GPU(Success)) return;
  throw Error(text(call, " failed: ", OSTRAKON_GPU(GetErrorString)(status), " (",
                   static_cast<int>(status), ")"));
}

Stream::Stream(Priority priority) {
  int lowest = 0, highest = 0;
  OSTRAKON_CALL(DeviceGetStreamPriorityRange, &lowest, &highest);
  // A non-blocking stream is not delayed by work on the default stream.
  OSTRAKON_CALL(StreamCreateWithPriority, &handle_, OSTRAKON_GPU(StreamNonBlocking),
                priority == Priority::high ? highest : lowest);
}

Stream::~Stream() {
  if (handle_ != nullptr) static_cast<void>(OSTRAKON_GPU(StreamDestroy)(handle_));
}

Event::Event(Timing timing) {
  // A waiting thread sleeps, so that others can compute on its core.
  const unsigned int untimed = timing == Timing::no ? OSTRAKON_GPU(EventDisableTiming) : 0;
  OSTRAKON_CALL(EventCreateWithFlags, &handle_, untimed | OSTRAKON_GPU(EventBlockingSync));
}

Event::~Event() {
  if (handle_ != nullptr) static_cast<void>(OSTRAKON_GPU(EventDestroy)(handle_));
}

void Event::record(StreamHandle stream) { OSTRAKON_CALL(EventRecord, handle_, stream); }
void Event::delay(StreamHandle stream) const { OSTRAKON_CALL(StreamWaitEvent, stream, handle_, 0); }
void Event::wait() const { OSTRAKON_CALL(EventSynchronize, handle_); }

bool Event::is_reached() const {
  const Status status = OSTRAKON_GPU(EventQuery)(handle_);
  if (status == OSTRAKON_GPU(ErrorNotReady)) return false;
  check(status, OSTRAKON_GPU_NAME(EventQuery));
  return true;
}

double Event::seconds_since(const Event& earlier) const {
  float milliseconds = 0.0F;
  OSTRAKON_CALL(EventElapsedTime, &milliseconds, earlier.handle_, handle_);
  return 1e-3 * static_cast<double>(milliseconds);
}

void wait_for(StreamHandle stream) { OSTRAKON_CALL(StreamSynchronize, stream); }

void copy_to_device(StreamHandle stream, const void* host, void* device, std::size_t bytes) {
  OSTRAKON_CALL(MemcpyAsync, device, host, bytes, OSTRAKON_GPU(MemcpyHostToDevice), stream);
}
void copy_to_host(StreamHandle stream, const void* device, void* host, std::size_t bytes) {
  OSTRAKON_CALL(MemcpyAsync, host, device, bytes, OSTRAKON_GPU(MemcpyDeviceToHost), stream);
}
void copy_on_device(StreamHandle stream, const void* from, void* to, std::size_t bytes) {
  OSTRAKON_CALL(MemcpyAsync, to, from, bytes, OSTRAKON_GPU(MemcpyDeviceToDevice), stream);
}
void clear(StreamHandle stream, void* device, std::size_t bytes) {
  OSTRAKON_CALL(MemsetAsync, device, 0, bytes, stream);
}

}  // namespace ostrakon::device

#endif
