// SPDX-License-Identifier: Apache-2.0
#pragma once

// Kernels on the made-up device of the tests: Kokkos' host backend runs them, on the thread of the
// stream that they are given to.

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <new>
#include <ostrakon/device/stream.hpp>
#include <type_traits>
#include <typeinfo>
#include <utility>

namespace ostrakon::device {

/// What an execution-space instance is elsewhere.
class MadeUpExec {
 public:
  using memory_space =
      Kokkos::HostSpace;  ///< of Kokkos' views of it, which only kernels may follow

  MadeUpExec() = default;
  explicit MadeUpExec(StreamHandle stream) : stream_(stream) {}
  StreamHandle stream() const { return stream_; }
  void fence() const { wait_for(stream_); }
  static int concurrency() { return Kokkos::DefaultExecutionSpace().concurrency(); }
  static const char* name() { return "made-up device"; }

 private:
  StreamHandle stream_ = nullptr;
};

/// Runs work() later, in the order of the stream; within a kernel, which may be a host function
/// that is made of smaller kernels, at once. The device loads code for each type of work and each
/// `variant`.
template <class Work>
void give(const MadeUpExec& exec, Work work, std::uint64_t variant = 0) {
  if (made_up_in_kernel() != 0) return work();
  const made_up_kernel kernel = {[](void* at) {
                                   auto* const it = static_cast<Work*>(at);
                                   (*it)();
                                   it->~Work();
                                 },
                                 variant, typeid(Work).name()};
  made_up_launch(
      exec.stream(), sizeof(Work),
      [](void* at, void* from) { new (at) Work(std::move(*static_cast<Work*>(from))); }, &work,
      &kernel);
}

}  // namespace ostrakon::device
