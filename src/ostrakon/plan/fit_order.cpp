// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/fit_order.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <tuple>

namespace ostrakon::plan {

bool is_better(const Fit& a, const Fit& b) {
  const auto key = [](const Fit& fit) {
    const double time = fit.seconds > 0.0 ? std::floor(std::log(fit.seconds) / std::log(same_time))
                                          : -std::numeric_limits<double>::infinity();
    return std::tuple(time, fit.arena_bytes, fit.seconds, fit.candidate);
  };
  return key(a) < key(b);
}

bool is_faster(double seconds, const Fit& than) {
  return seconds < (1.0 - small_difference) * than.seconds;
}

bool is_needless(const Fit& fit, const Fit& other) {
  if (fit.bits_of_one_rank && !other.bits_of_one_rank) return false;
  const auto little = [](std::int64_t bytes) {
    return static_cast<std::int64_t>(small_difference * static_cast<double>(bytes));
  };
  return fit.arena_bytes >= other.arena_bytes - little(other.arena_bytes) &&
         fit.host_arena_bytes >=
             other.host_arena_bytes - little(other.arena_bytes + other.host_arena_bytes);
}

}  // namespace ostrakon::plan
