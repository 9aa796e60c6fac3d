// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/digest.hpp>

#include <ostrakon/math/half.hpp>
#include <ostrakon/math/random.hpp>
#include <ostrakon/math/rows/row_kernel.hpp>

namespace ostrakon::math {
namespace {

KOKKOS_INLINE_FUNCTION std::uint32_t digested_bits(float x) { return half_bits::of_float(x); }
KOKKOS_INLINE_FUNCTION std::uint32_t digested_bits(bf16 x) { return x.bits; }
KOKKOS_INLINE_FUNCTION std::uint32_t digested_bits(fp16 x) { return x.bits; }

}  // namespace

template <class A, class B>
void add_digest_as(const Exec& exec, View<const A*> x, std::uint64_t key, std::int64_t first,
                   View<std::uint64_t*> digest) {
#if OSTRAKON_ON_DEVICE
  // Each row makes one sum, and rows are long, as all sums are added atomically to one place.
  constexpr std::int64_t elements_per_row = std::int64_t{1} << 15;
  for_each_row(
      exec, "add_digest", items_for(x.size(), elements_per_row), elements_per_row,
      KOKKOS_LAMBDA(const Row& row, std::int64_t r) {
        const std::int64_t begin = r * elements_per_row;
        const std::uint64_t start = mix_bits(key + 0x9E3779B97F4A7C15u);
        const auto sum = row.template sum_of<std::uint64_t>(
            [=](std::int64_t i, A value) {
              const std::uint64_t place =
                  mix_bits(start + static_cast<std::uint64_t>(first + begin + i));
              return mix_bits(place + digested_bits(static_cast<B>(value)));
            },
            x.range(begin, smaller(begin + elements_per_row, x.size())));
        row.once([&] { Kokkos::atomic_add(&digest(0), sum); });
      });
#else
  constexpr std::int64_t elements_per_item = 4096;
  for_each_item(
      exec, "add_digest", items_for(x.size(), elements_per_item), KOKKOS_LAMBDA(std::int64_t item) {
        const std::int64_t begin = item * elements_per_item;
        const std::int64_t end = smaller(begin + elements_per_item, x.size());
        const std::uint64_t start = mix_bits(key + 0x9E3779B97F4A7C15u);
        std::uint64_t sum = 0;
        for (std::int64_t i = begin; i < end; ++i) {
          const std::uint32_t bits = digested_bits(static_cast<B>(x(i)));
          // The hash is applied twice, so that equal values at two positions, or two exchanged
          // values, do not cancel in the sum.
          const std::uint64_t place = mix_bits(start + static_cast<std::uint64_t>(first + i));
          sum += mix_bits(place + bits);
        }
        Kokkos::atomic_add(&digest(0), sum);
      });
#endif
}

template void add_digest_as<float, float>(const Exec&, View<const float*>, std::uint64_t,
                                          std::int64_t, View<std::uint64_t*>);
template void add_digest_as<float, bf16>(const Exec&, View<const float*>, std::uint64_t,
                                         std::int64_t, View<std::uint64_t*>);
template void add_digest_as<float, fp16>(const Exec&, View<const float*>, std::uint64_t,
                                         std::int64_t, View<std::uint64_t*>);
template void add_digest_as<bf16, bf16>(const Exec&, View<const bf16*>, std::uint64_t, std::int64_t,
                                        View<std::uint64_t*>);
template void add_digest_as<fp16, fp16>(const Exec&, View<const fp16*>, std::uint64_t, std::int64_t,
                                        View<std::uint64_t*>);

void add_digest(const Exec& exec, View<const float*> x, std::uint64_t key, std::int64_t first,
                View<std::uint64_t*> digest) {
  add_digest_as<float, float>(exec, x, key, first, digest);
}

}  // namespace ostrakon::math
