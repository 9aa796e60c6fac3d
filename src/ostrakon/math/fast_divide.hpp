// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/base/error.hpp>
#include <ostrakon/math/portability.hpp>

namespace ostrakon::math {

/// Quotients and remainders of indices below 2^31, as in row kernels, by a fixed divisor >= 1. On a
/// device, whose processors lack division, by a multiplication (Granlund & Montgomery 1994).
class FastDivide {
 public:
  explicit FastDivide(std::int64_t divisor) : divisor_(divisor) {
    require(divisor >= 1, "division by ", divisor, ", expected at least 1");
    if (divisor > most_indices) return;  // every quotient is 0
    int bits = 0;
    while (std::int64_t{1} << bits < divisor) ++bits;
    shift_ = index_bits + bits;
    const std::uint64_t power = std::uint64_t{1} << shift_;
    const auto by = static_cast<std::uint64_t>(divisor);
    multiplier_ = static_cast<std::uint32_t>((power + by - 1) / by);
  }

  KOKKOS_INLINE_FUNCTION std::int64_t quotient(std::int64_t index) const {
    if constexpr (on_device)
      return static_cast<std::int64_t>(
          std::uint64_t{static_cast<std::uint32_t>(index)} * multiplier_ >> shift_);
    else
      return index / divisor_;
  }
  KOKKOS_INLINE_FUNCTION std::int64_t rest(std::int64_t index) const {
    return on_device ? index - quotient(index) * divisor_ : index % divisor_;
  }

 private:
  static constexpr int index_bits = 31;
  static constexpr std::int64_t most_indices = std::int64_t{1} << index_bits;

  std::int64_t divisor_;
  std::uint32_t multiplier_ = 0;
  int shift_ = 0;
};

}  // namespace ostrakon::math
