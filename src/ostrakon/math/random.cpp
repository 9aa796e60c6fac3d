// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/random.hpp>

#include <ostrakon/math/attention/sine_cosine.hpp>
#include <ostrakon/math/half.hpp>
#include <ostrakon/math/work_items.hpp>

namespace ostrakon::math {
namespace {

/// Returns the upper 53 of 64 bits as a number in [0, 1), a multiple of 2^-53.
KOKKOS_INLINE_FUNCTION double uniform(std::uint32_t high, std::uint32_t low) {
  const std::uint64_t bits = (std::uint64_t{high} << 32) | low;
  return static_cast<double>(static_cast<std::int64_t>(bits >> 11)) * 0x1p-53;
}

/// Box & Muller (1958): two independent normal numbers from one counter.
KOKKOS_INLINE_FUNCTION void normal_pair(std::uint64_t key, std::uint64_t counter, double pair[2]) {
  const RandomBits bits = philox(key, counter, 0);
  // 1 - u is never 0.
  const double radius = sqrt(-2.0 * log(1.0 - uniform(bits.word[0], bits.word[1])));
  constexpr double pi = 3.141592653589793;
  const SineCosine turned = sine_cosine_of_twice(pi * (uniform(bits.word[2], bits.word[3]) - 0.5));
  pair[0] = radius * turned.cosine;
  pair[1] = radius * turned.sine;
}

}  // namespace

std::uint64_t random_key(std::uint64_t seed, const std::string& name) {
  // FNV-1a over the name, then a finalizer, as FNV-1a hardly spreads the last character.
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (const char character : name)
    hash = (hash ^ static_cast<unsigned char>(character)) * 0x100000001B3u;
  return mix_bits(mix_bits(seed + 0x9E3779B97F4A7C15u) + mix_bits(hash));
}

template <class T>
void fill_normal(const Exec& exec, View<T*> x, std::uint64_t key, std::int64_t first,
                 double deviation) {
  const std::int64_t count = x.size();
  if (count == 0) return;
  // Elements 2c and 2c + 1 of the sequence come from counter c; the range may begin or end inside a
  // pair.
  const std::int64_t first_pair = first / 2;
  const std::int64_t pairs = (first + count - 1) / 2 - first_pair + 1;
  for_each_item(
      exec, "fill_normal", pairs, KOKKOS_LAMBDA(std::int64_t item) {
        const std::int64_t counter = first_pair + item;
        double pair[2];
        normal_pair(key, static_cast<std::uint64_t>(counter), pair);
        for (int member = 0; member < 2; ++member) {
          const std::int64_t i = 2 * counter + member - first;
          if (i >= 0 && i < count) x[i] = T(static_cast<compute_t<T>>(deviation * pair[member]));
        }
      });
}

template <class T>
void fill_uniform(const Exec& exec, View<T*> x, std::uint64_t key, std::int64_t first,
                  double deviation) {
  const double width = 2.0 * sqrt(3.0) * deviation;  // of the interval
  for_each_item(
      exec, "fill_uniform", x.size(), KOKKOS_LAMBDA(std::int64_t item) {
        const RandomBits bits = philox(key, static_cast<std::uint64_t>(first + item), 0);
        x[item] = T(static_cast<compute_t<T>>(width * (uniform(bits.word[0], bits.word[1]) - 0.5)));
      });
}

template <class T>
void fill_log_uniform(const Exec& exec, View<T*> x, std::uint64_t key, std::int64_t first,
                      double least, double most) {
  for_each_item(
      exec, "fill_log_uniform", x.size(), KOKKOS_LAMBDA(std::int64_t item) {
        const double share =
            philox(key, static_cast<std::uint64_t>(first + item), 0).word[0] * 0x1p-32;
        x[item] = T(static_cast<compute_t<T>>(log(multiply_add(share, most - least, least))));
      });
}

template void fill_uniform<float>(const Exec&, View<float*>, std::uint64_t, std::int64_t, double);
template void fill_log_uniform<float>(const Exec&, View<float*>, std::uint64_t, std::int64_t,
                                      double, double);
template void fill_normal<float>(const Exec&, View<float*>, std::uint64_t, std::int64_t, double);
template void fill_normal<double>(const Exec&, View<double*>, std::uint64_t, std::int64_t, double);
template void fill_normal<bf16>(const Exec&, View<bf16*>, std::uint64_t, std::int64_t, double);
template void fill_normal<fp16>(const Exec&, View<fp16*>, std::uint64_t, std::int64_t, double);

}  // namespace ostrakon::math
