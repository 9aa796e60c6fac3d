// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <ostrakon/device/api.hpp>
#include <utility>

#if OSTRAKON_HAS_DEVICE

namespace ostrakon::device {

enum class Priority { normal, high };

/// A stream: what is submitted to it is done in order, and concurrently with other streams. Where
/// the runtime fails, its functions throw Error.
class Stream {
 public:
  explicit Stream(Priority priority = Priority::normal);
  Stream(Stream&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Stream();

  StreamHandle handle() const { return handle_; }

 private:
  StreamHandle handle_ = nullptr;
};

enum class Timing { no, yes };

/// A point in a stream.
class Event {
 public:
  explicit Event(Timing timing = Timing::no);
  Event(Event&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Event();

  /// Is from now on the point behind all that was submitted to `stream`.
  void record(StreamHandle stream);
  /// What is submitted to `stream` from now on begins when the point is reached that was recorded
  /// last; at once if none was.
  void delay(StreamHandle stream) const;
  /// Returns when the point is reached that was recorded last.
  void wait() const;
  /// Whether it is.
  bool is_reached() const;
  /// Seconds from one point to this one, both with Timing and reached, to about a microsecond.
  double seconds_since(const Event& earlier) const;

 private:
  EventHandle handle_ = nullptr;
};

/// Returns when all that was submitted to `stream` is done.
void wait_for(StreamHandle stream);

// In the order of `stream`; done later. Host memory should be pinned: otherwise the call may block.

void copy_to_device(StreamHandle stream, const void* host, void* device, std::size_t bytes);
void copy_to_host(StreamHandle stream, const void* device, void* host, std::size_t bytes);
void copy_on_device(StreamHandle stream, const void* from, void* to, std::size_t bytes);
void clear(StreamHandle stream, void* device, std::size_t bytes);

}  // namespace ostrakon::device

#endif
