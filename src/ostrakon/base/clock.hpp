// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ostrakon {

/// Seconds of a clock that only goes forward, from some moment that all of this process' threads
/// have in common. The system's date, which administrators and time servers set, is not in it.
/// Kokkos::Timer and Teuchos' timers may go with the date: they are not used.
double seconds_now();

/// Measures seconds from its construction on.
class Stopwatch {
 public:
  double seconds() const { return seconds_now() - begin_; }

 private:
  double begin_ = seconds_now();
};

}  // namespace ostrakon
