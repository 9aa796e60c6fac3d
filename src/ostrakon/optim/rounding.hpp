// SPDX-License-Identifier: Apache-2.0
#pragma once

// 16-bit moments are rounded stochastically: in bf16 a moving average whose change is below 2^-9 of
// it would otherwise not change. The random bits of an element do not depend on the rank that owns
// it.

#include <ostrakon/math/random.hpp>

namespace ostrakon::optim {

/// Random words are generated in blocks of this many elements, aligned to multiples of it;
/// parameters and their shards begin at such multiples.
constexpr std::int64_t rounding_block = 64;

/// Distance of the elements that use the four words of one counter, so that the loop over a block
/// vectorises.
constexpr std::int64_t rounding_counters = rounding_block / 4;

/// The source of random bits: a function of (key, element, step).
struct Rounding {
  std::uint64_t key;
  std::int64_t step;

  /// 32 random bits for `element`; two moments take half of them each.
  KOKKOS_INLINE_FUNCTION std::uint32_t bits(std::int64_t element) const {
    const std::int64_t place = element % rounding_block;
    const math::RandomBits random = words(element / rounding_block, place % rounding_counters);
    // The words are selected without an index, which would put them into local memory of a device.
    const std::int64_t word = place / rounding_counters;
    const std::uint32_t even = word < 2 ? random.word[0] : random.word[2];
    const std::uint32_t odd = word < 2 ? random.word[1] : random.word[3];
    return word % 2 == 0 ? even : odd;
  }

  /// Writes the random bits of a whole block: to[i] is for element block * rounding_block + i.
  KOKKOS_INLINE_FUNCTION void bits_of_block(std::int64_t block, std::uint32_t* to) const {
    for (std::int64_t i = 0; i < rounding_counters; ++i) {
      const math::RandomBits random = words(block, i);
      for (std::int64_t word = 0; word < 4; ++word)
        to[word * rounding_counters + i] = random.word[word];
    }
  }

 private:
  KOKKOS_INLINE_FUNCTION math::RandomBits words(std::int64_t block, std::int64_t counter) const {
    return math::philox(key, static_cast<std::uint64_t>(block * rounding_counters + counter),
                        static_cast<std::uint64_t>(step));
  }
};

}  // namespace ostrakon::optim
