// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <ostrakon/device/api.hpp>
#include <utility>

#if OSTRAKON_HAS_DEVICE

namespace ostrakon::device {

/// Work of a stream that the device keeps and can be given again as a whole, as a CUDA graph. Its
/// kernels have the arguments with which they were captured. Functions throw Error if the runtime
/// fails.
class Graph {
 public:
  /// Calls submit(), which submits work to `stream` and to no other stream, and captures that work
  /// instead of having it done. submit() must neither wait for the stream nor use events, and what
  /// it launches must have been launched before: see math::WarmUp. If it throws, nothing of it
  /// runs, and the stream can be used as before.
  template <class Submit>
  static Graph capture(StreamHandle stream, const Submit& submit) {
    begin_capture(stream);
    try {
      submit();
    } catch (...) {
      cancel_capture(stream);
      throw;
    }
    return end_capture(stream);
  }
  Graph(Graph&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Graph& operator=(Graph&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Graph();

  /// Submits all of the work to `stream`, in its order.
  void launch(StreamHandle stream) const;

 private:
  using Handle = OSTRAKON_GPU(GraphExec_t);

  explicit Graph(Handle handle) : handle_(handle) {}
  static void begin_capture(StreamHandle stream);
  static Graph end_capture(StreamHandle stream);
  static void cancel_capture(StreamHandle stream) noexcept;

  Handle handle_ = nullptr;
};

}  // namespace ostrakon::device

#endif
