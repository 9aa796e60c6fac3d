// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/device/graph.hpp>

#if OSTRAKON_HAS_DEVICE

// NOLINTNEXTLINE(cppcoreguidelines-macro-usage): names the call in messages
#define OSTRAKON_CALL(name, ...) check(OSTRAKON_GPU(name)(__VA_ARGS__), OSTRAKON_GPU_NAME(name))

namespace ostrakon::device {
namespace {

/// The runtime keeps an error for whoever asks next, such as Kokkos.
void forget_error() { static_cast<void>(OSTRAKON_GPU(GetLastError)()); }

}  // namespace

Graph::~Graph() {
  if (handle_ != nullptr) static_cast<void>(OSTRAKON_GPU(GraphExecDestroy)(handle_));
}

// Only the calling thread is kept from calls that a capture does not allow: others go on.
void Graph::begin_capture(StreamHandle stream) {
  OSTRAKON_CALL(StreamBeginCapture, stream, OSTRAKON_GPU(StreamCaptureModeThreadLocal));
}

Graph Graph::end_capture(StreamHandle stream) {
  OSTRAKON_GPU(Graph_t) captured = nullptr;
  const Status ended = OSTRAKON_GPU(StreamEndCapture)(stream, &captured);
  if (ended != OSTRAKON_GPU(Success)) forget_error();
  check(ended, OSTRAKON_GPU_NAME(StreamEndCapture));
  Handle executable = nullptr;
  const Status status = OSTRAKON_GPU(GraphInstantiateWithFlags)(&executable, captured, 0);
  static_cast<void>(OSTRAKON_GPU(GraphDestroy)(captured));
  if (status != OSTRAKON_GPU(Success)) forget_error();
  check(status, OSTRAKON_GPU_NAME(GraphInstantiateWithFlags));
  return Graph(executable);
}

void Graph::cancel_capture(StreamHandle stream) noexcept {
  OSTRAKON_GPU(Graph_t) captured = nullptr;
  static_cast<void>(OSTRAKON_GPU(StreamEndCapture)(stream, &captured));
  if (captured != nullptr) static_cast<void>(OSTRAKON_GPU(GraphDestroy)(captured));
  forget_error();
}

void Graph::launch(StreamHandle stream) const { OSTRAKON_CALL(GraphLaunch, handle_, stream); }

}  // namespace ostrakon::device

#endif
