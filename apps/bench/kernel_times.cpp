// SPDX-License-Identifier: Apache-2.0
#include "kernel_times.hpp"

#include <mutex>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/portability.hpp>
#include <utility>

namespace ostrakon::bench {
namespace {

/// Kernels of a host end before their launch does, on the thread of their stream.
class HostKernelTimes final : public KernelTimes, private math::KernelObserver {
 public:
  std::map<std::string, KernelTime> take() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(times_, {});
  }

 private:
  void took(const char* name, double seconds) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    times_[name].add(seconds);
  }

  std::mutex mutex_;
  std::map<std::string, KernelTime> times_;
};

}  // namespace

std::unique_ptr<KernelTimes> measure_kernels() {
#if defined(OSTRAKON_HAVE_CUPTI)
  return measure_kernels_by_cupti();
#else
  require(!has_device,
          "--kernels: this build measures no kernels of its device; it takes one for CUDA, with "
          "CUPTI where CMake finds the CUDA toolkit");
  return std::make_unique<HostKernelTimes>();
#endif
}

}  // namespace ostrakon::bench
