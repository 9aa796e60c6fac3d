// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/digest.hpp>

#include <cstring>
#include <ostrakon/math/hash.hpp>
#include <ostrakon/math/work_items.hpp>

namespace ostrakon::math {

void add_digest(const Exec& exec, View<const float*> x, std::uint64_t key, std::int64_t first,
                View<std::uint64_t*> digest) {
  constexpr std::int64_t elements_per_item = per_item(4096, 64);
  for_each_item(
      exec, "add_digest", items_for(x.size(), elements_per_item), KOKKOS_LAMBDA(std::int64_t item) {
        const std::int64_t begin = item * elements_per_item;
        const std::int64_t end = smaller(begin + elements_per_item, x.size());
        const std::uint64_t start = mix_bits(key + 0x9E3779B97F4A7C15u);
        std::uint64_t sum = 0;
        for (std::int64_t i = begin; i < end; ++i) {
          std::uint32_t bits;
          std::memcpy(&bits, &x(i), sizeof bits);
          // Mixed twice, so that equal values at two places, or two values that change places, do
          // not cancel in the sum.
          const std::uint64_t place = mix_bits(start + static_cast<std::uint64_t>(first + i));
          sum += mix_bits(place + bits);
        }
        Kokkos::atomic_add(&digest(0), sum);
      });
}

}  // namespace ostrakon::math
