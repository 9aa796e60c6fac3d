// SPDX-License-Identifier: Apache-2.0
#pragma once

// Runs kernels on the fake device of the tests: Kokkos' host backend executes them, on the
// thread of their stream.

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <memory>
#include <new>
#include <ostrakon/device/stream.hpp>
#include <type_traits>
#include <typeinfo>
#include <utility>

namespace ostrakon::device {

/// An execution-space instance, as Kokkos::Cuda is for CUDA.
class FakeExec {
 public:
  using memory_space =
      Kokkos::HostSpace;  ///< memory space of Kokkos views; only kernels may dereference them

  FakeExec() : instance_(of_standard_stream()) {}
  explicit FakeExec(StreamHandle stream) : instance_(std::make_shared<Instance>(stream)) {}
  StreamHandle stream() const { return instance_->stream; }
  void fence() const { wait_for(stream()); }

  // Like Kokkos' CUDA instances, these report scratch allocations to Kokkos tools: some at
  // creation, and more for teams. A launch reports none if its scratch memory was taken before.

  void take_team_scratch() const { instance_->team_scratch.take(team_scratch_label, 67584); }
  void note_launch() const {
    if (!instance_->team_scratch.is_taken()) Scratch::tell(team_scratch_label, nullptr, 0);
  }

  static int concurrency() { return Kokkos::DefaultExecutionSpace().concurrency(); }
  static const char* name() { return "fake device"; }

 private:
  static constexpr const char* team_scratch_label = "Kokkos::CudaSpace::TeamScratchMemory";

  /// Scratch memory that is reported to tools, but not allocated.
  class Scratch {
   public:
    Scratch() = default;
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    ~Scratch() {
      if (bytes_ > 0)
        Kokkos::Profiling::deallocateData(Kokkos::Profiling::make_space_handle(name()),
                                          "[unlabeled]", this, bytes_);
    }
    void take(const char* label, std::uint64_t bytes) {
      if (bytes_ > 0) return;
      bytes_ = bytes;
      tell(label, this, bytes);
    }
    bool is_taken() const { return bytes_ > 0; }
    static void tell(const char* label, const void* pointer, std::uint64_t bytes) {
      Kokkos::Profiling::allocateData(Kokkos::Profiling::make_space_handle(name()), label, pointer,
                                      bytes);
    }

   private:
    std::uint64_t bytes_ = 0;
  };

  struct Instance {
    explicit Instance(StreamHandle handle) : stream(handle) {
      scratch.take("Kokkos::InternalScratchSpace", 65536);
    }
    StreamHandle stream;
    Scratch scratch, team_scratch;
  };

  static const std::shared_ptr<Instance>& of_standard_stream() {
    // The instance is never destroyed, as kernels may run until the program ends.
    static const auto& one = *new std::shared_ptr<Instance>(std::make_shared<Instance>(nullptr));
    return one;
  }

  std::shared_ptr<Instance> instance_;
};

/// Runs work() later, in the order of the stream; inside a kernel, which may be a host function
/// made of smaller kernels, at once. The device loads code for each type of work and each
/// `variant`.
template <class Work>
void give(const FakeExec& exec, Work work, std::uint64_t variant = 0) {
  if (fake_in_kernel() != 0) return work();
  exec.note_launch();
  const fake_kernel kernel = {[](void* at) { (*static_cast<Work*>(at))(); },
                              [](void* at) { static_cast<Work*>(at)->~Work(); }, variant,
                              typeid(Work).name()};
  fake_launch(
      exec.stream(), sizeof(Work),
      [](void* at, void* from) { new (at) Work(std::move(*static_cast<Work*>(from))); }, &work,
      &kernel);
}

}  // namespace ostrakon::device
