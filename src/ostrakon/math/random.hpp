// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/view.hpp>
#include <string>

namespace ostrakon::math {

/// Counter-based random numbers: every number is a function of a key and a counter (Philox4x32-10,
/// Salmon et al. 2011), so any rank can generate any part of any sequence.
struct RandomBits {
  std::uint32_t word[4];
};
KOKKOS_INLINE_FUNCTION RandomBits philox(std::uint64_t key, std::uint64_t counter_low,
                                         std::uint64_t counter_high) {
  std::uint32_t key0 = static_cast<std::uint32_t>(key);
  std::uint32_t key1 = static_cast<std::uint32_t>(key >> 32);
  std::uint32_t x0 = static_cast<std::uint32_t>(counter_low);
  std::uint32_t x1 = static_cast<std::uint32_t>(counter_low >> 32);
  std::uint32_t x2 = static_cast<std::uint32_t>(counter_high);
  std::uint32_t x3 = static_cast<std::uint32_t>(counter_high >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53u} * x0;
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57u} * x2;
    x0 = static_cast<std::uint32_t>(product1 >> 32) ^ x1 ^ key0;
    x1 = static_cast<std::uint32_t>(product1);
    x2 = static_cast<std::uint32_t>(product0 >> 32) ^ x3 ^ key1;
    x3 = static_cast<std::uint32_t>(product0);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return {{x0, x1, x2, x3}};
}

/// Returns a key from the run's seed and a name, e.g. of a parameter.
std::uint64_t random_key(std::uint64_t seed, const std::string& name);

/// Fills x[i] with element first + i of the sequence `key` of normal numbers with mean 0 and
/// standard deviation `deviation`.
template <class T>
void fill_normal(const Exec& exec, View<T*> x, std::uint64_t key, std::int64_t first,
                 double deviation);

/// Fills x[i] with element first + i of the sequence `key` of numbers with mean 0 and standard
/// deviation `deviation` that are spread evenly.
template <class T>
void fill_uniform(const Exec& exec, View<T*> x, std::uint64_t key, std::int64_t first,
                  double deviation);

/// Fills x[i] with the logarithm of element first + i of the sequence `key` of numbers that are
/// spread evenly over [least, most).
template <class T>
void fill_log_uniform(const Exec& exec, View<T*> x, std::uint64_t key, std::int64_t first,
                      double least, double most);

/// A bijection of 64-bit integers in which every bit of the input changes about half the bits of
/// the output: the finalizer of splitmix64 (Steele et al. 2014, in Stafford's variant 13).
KOKKOS_INLINE_FUNCTION std::uint64_t mix_bits(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace ostrakon::math
