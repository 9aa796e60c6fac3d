// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <ostrakon/device/api.hpp>
#include <utility>

#if OSTRAKON_HAS_DEVICE

namespace ostrakon::device {

enum class Priority { normal, high };

/// A stream: its work is done in order, and concurrently with other streams. Functions throw Error
/// if the runtime fails.
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

/// A marker in a stream, as a CUDA event.
class Event {
 public:
  explicit Event(Timing timing = Timing::no);
  Event(Event&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Event();

  /// Marks the end of all work submitted to `stream` so far.
  void record(StreamHandle stream);
  /// Makes later work on `stream` wait for the marker that was recorded last, if any.
  void delay(StreamHandle stream) const;
  /// Blocks until the marker that was recorded last is reached.
  void wait() const;
  /// Whether the marker that was recorded last is reached.
  bool is_reached() const;
  /// Seconds from `earlier` to this event, to about a microsecond. Both need Timing::yes and must
  /// be reached.
  double seconds_since(const Event& earlier) const;

 private:
  EventHandle handle_ = nullptr;
};

/// Blocks until all work submitted to `stream` is done.
void wait_for(StreamHandle stream);

// Asynchronous copies, in the order of `stream`. Host memory should be pinned: otherwise the call
// may block.

void copy_to_device(StreamHandle stream, const void* host, void* device, std::size_t bytes);
void copy_to_host(StreamHandle stream, const void* device, void* host, std::size_t bytes);
void copy_on_device(StreamHandle stream, const void* from, void* to, std::size_t bytes);
void clear(StreamHandle stream, void* device, std::size_t bytes);

}  // namespace ostrakon::device

#endif
