// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace ostrakon::bench {

/// How often a kernel ran, and for how long.
struct KernelTime {
  std::int64_t calls = 0;
  double seconds = 0.0;

  void add(double more) {
    ++calls;
    seconds += more;
  }
};

/// Measures each kernel of this process, by name, while it exists: on a host those that the library
/// launches, with matrix products; on a device also those of libraries, and copies. One at a time
/// exists.
class KernelTimes {
 public:
  virtual ~KernelTimes() = default;
  /// Returns what ran since the last time. All work of the device must have ended.
  virtual std::map<std::string, KernelTime> take() = 0;
};

/// Throws Error where this build can't tell kernels of its device apart.
std::unique_ptr<KernelTimes> measure_kernels();

#if defined(OSTRAKON_HAVE_CUPTI)
/// By activity records of CUPTI. Throws Error, with CUPTI's reason, where they can't be had: as
/// where the driver allows them to administrators alone, or another profiler has them.
std::unique_ptr<KernelTimes> measure_kernels_by_cupti();
#endif

}  // namespace ostrakon::bench
