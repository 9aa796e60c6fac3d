// SPDX-License-Identifier: Apache-2.0
#pragma once

// Moments of 16 bits are rounded stochastically: in bf16 a moving average whose change is below
// 2^-9 of it would else not change. The random bits of an element do not depend on the rank that
// has it.

#include <ostrakon/math/random.hpp>

namespace ostrakon::optim {

/// Random words come in blocks of that many elements, which start at its multiples, as parameters
/// and their shards do.
constexpr std::int64_t rounding_block = 64;

/// The four words of a counter go to elements that far apart: so the loop over a block vectorises.
constexpr std::int64_t rounding_counters = rounding_block / 4;

/// Where the random bits come from: a function of (key, element, step).
struct Rounding {
  std::uint64_t key;
  std::int64_t step;

  /// 32 random bits for element `element`; two moments take half of them each.
  KOKKOS_INLINE_FUNCTION std::uint32_t bits(std::int64_t element) const {
    const std::int64_t place = element % rounding_block;
    const math::RandomBits random = words(element / rounding_block, place % rounding_counters);
    // Not by an index, which would put the words into a device's memory.
    const std::int64_t word = place / rounding_counters;
    const std::uint32_t even = word < 2 ? random.word[0] : random.word[2];
    const std::uint32_t odd = word < 2 ? random.word[1] : random.word[3];
    return word % 2 == 0 ? even : odd;
  }

  /// Writes those of a whole block: to[i] is the one of element block * rounding_block + i.
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
