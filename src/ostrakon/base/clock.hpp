// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ostrakon {

/// Returns seconds of a monotonic clock that all threads of this process share. It does not follow
/// the system's date, which administrators and time servers set; Kokkos::Timer and Teuchos' timers
/// may follow it and are not used.
double seconds_now();

/// Measures the seconds since its construction.
class Stopwatch {
 public:
  double seconds() const { return seconds_now() - begin_; }

 private:
  double begin_ = seconds_now();
};

}  // namespace ostrakon
