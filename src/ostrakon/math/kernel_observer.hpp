// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <ostrakon/base/clock.hpp>

namespace ostrakon::math {

/// Is told of each kernel and matrix product that this process has run, on any thread, while it
/// exists. For kernels of a host: those of a device run later than they are launched.
class KernelObserver {
 public:
  KernelObserver() { current = this; }
  virtual ~KernelObserver() { current = nullptr; }
  KernelObserver(const KernelObserver&) = delete;
  KernelObserver& operator=(const KernelObserver&) = delete;

  virtual void took(const char* name, double seconds) = 0;

 private:
  friend class ObservedKernel;
  static inline std::atomic<KernelObserver*> current{nullptr};
};

/// Exists while a kernel runs. Of kernels inside another one only the outer one counts.
class ObservedKernel {
 public:
  explicit ObservedKernel(const char* name)
      : observer_(KernelObserver::current.load(std::memory_order_relaxed)), name_(name) {
    if (observer_ != nullptr && ++depth == 1) begin_ = seconds_now();
  }
  ~ObservedKernel() {
    if (observer_ != nullptr && --depth == 0) observer_->took(name_, seconds_now() - begin_);
  }
  ObservedKernel(const ObservedKernel&) = delete;
  ObservedKernel& operator=(const ObservedKernel&) = delete;

 private:
  static inline thread_local int depth = 0;

  KernelObserver* observer_;
  const char* name_;
  double begin_ = 0.0;
};

}  // namespace ostrakon::math
