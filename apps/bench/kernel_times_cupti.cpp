// SPDX-License-Identifier: Apache-2.0
#if defined(OSTRAKON_HAVE_CUPTI)

#include <cupti.h>

#include <array>
#include <cstdlib>
#include <mutex>
#include <ostrakon/base/error.hpp>
#include <thread>
#include <utility>

#include "kernel_name.hpp"
#include "kernel_times.hpp"

namespace ostrakon::bench {
namespace {

void check_cupti(CUptiResult result, const char* call) {
  if (result == CUPTI_SUCCESS) return;
  const char* reason = nullptr;
  cuptiGetResultString(result, &reason);
  throw Error(text("--kernels: ", call, " failed: ", reason != nullptr ? reason : "unknown error",
                   "; kernels can be measured where the driver lets users profile "
                   "(NVreg_RestrictProfilingToAdminUsers=0) and no other profiler does"));
}

constexpr std::array activities = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                   CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET};

class CuptiKernelTimes final : public KernelTimes {
 public:
  CuptiKernelTimes() {
    check_cupti(cuptiActivityRegisterCallbacks(give_buffer, take_buffer),
                "cuptiActivityRegisterCallbacks");
    for (const CUpti_ActivityKind kind : activities)
      check_cupti(cuptiActivityEnable(kind), "cuptiActivityEnable");
    current = this;  // Where a call above failed, records that come are dropped.
  }
  ~CuptiKernelTimes() override {
    for (const CUpti_ActivityKind kind : activities) cuptiActivityDisable(kind);
    cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    current = nullptr;
  }

  std::map<std::string, KernelTime> take() override {
    // A thread that CUDA does not know hands the records over: on one with a context of its own the
    // driver may wait for work of that thread.
    CUptiResult result = CUPTI_SUCCESS;
    std::thread([&] { result = cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED); }).join();
    check_cupti(result, "cuptiActivityFlushAll");
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(times_, {});
  }

 private:
  static constexpr std::size_t buffer_bytes = std::size_t{8} << 20, alignment = 8;

  static void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* records) {
    *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(alignment, buffer_bytes));
    *size = *buffer != nullptr ? buffer_bytes : 0;
    *records = 0;  // as many as fit
  }

  static void CUPTIAPI take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t,
                                   std::size_t valid) {
    CUpti_Activity* record = nullptr;
    while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS)
      if (current != nullptr) current->add(*record);
    std::free(buffer);
  }

  /// Versions of a record begin with the members of those before, so one that CUDA 12 and 13 have
  /// serves for both.
  template <class Record>
  void add(const CUpti_Activity& record, std::string name) {
    const auto& own = reinterpret_cast<const Record&>(record);
    times_[std::move(name)].add(1e-9 * static_cast<double>(own.end - own.start));
  }
  void add(const CUpti_Activity& record) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (record.kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
      add<CUpti_ActivityMemcpy5>(record, "copy");
    } else if (record.kind == CUPTI_ACTIVITY_KIND_MEMSET) {
      add<CUpti_ActivityMemset4>(record, "clear");
    } else {
      const char* const symbol = reinterpret_cast<const CUpti_ActivityKernel9&>(record).name;
      add<CUpti_ActivityKernel9>(
          record, symbol != nullptr ? readable_kernel_name(symbol) : std::string("unnamed"));
    }
  }

  static inline CuptiKernelTimes* current = nullptr;

  std::mutex mutex_;
  std::map<std::string, KernelTime> times_;
};

}  // namespace

std::unique_ptr<KernelTimes> measure_kernels_by_cupti() {
  return std::make_unique<CuptiKernelTimes>();
}

}  // namespace ostrakon::bench

#endif
