// SPDX-License-Identifier: Apache-2.0
#pragma once

// What kernels of rotary positions take as arguments: where rows are in their sequences, and how
// far a pair turns from one position to the next.

#include <cmath>
#include <ostrakon/math/attention/rotary_frequencies.hpp>
#include <ostrakon/math/attention/sine_cosine.hpp>
#include <ostrakon/math/fast_divide.hpp>
#include <ostrakon/math/view.hpp>

namespace ostrakon::math {

/// Kernels take the frequencies of so many pairs as arguments, and more pairs by more kernels.
constexpr std::int64_t most_pairs = 128;

/// Pairs [first, first + count) of every head.
struct Pairs {
  std::int64_t first, count;
  std::int64_t all;  ///< of a head: elements from one of a pair to the other
};

/// The positions of rows, see rotate().
struct RowPositions {
  FastDivide by_tokens;
  std::int64_t first;
  View<const std::int32_t*> document_begins;

  KOKKOS_INLINE_FUNCTION std::int64_t of(std::int64_t row) const {
    return first + by_tokens.rest(row) - (document_begins ? std::int64_t{document_begins[row]} : 0);
  }
};

#if OSTRAKON_ON_DEVICE

// For 16-bit and float arrays a device computes angles as integers and sines in float, as it has
// little throughput in double.

/// Rotation per position of each pair, in 2^-64 turns: multiplied by a position, modulo 2^64, it is
/// the angle without whole turns, with an error of at most position * 2^-54 turns for frequencies
/// of up to 1 radian.
struct Turns {
  std::uint64_t of_pair[most_pairs] = {};
  float factor = 1, sine_factor = 1;

  Turns() = default;
  Turns(const RotaryFrequencies& frequencies, const Pairs& pairs, bool inverse)
      : factor(static_cast<float>(frequencies.factor)), sine_factor(inverse ? -factor : factor) {
    constexpr double turn = 6.283185307179586;
    for (std::int64_t i = 0; i < pairs.count; ++i) {
      const double turns = frequencies.radians[static_cast<std::size_t>(pairs.first + i)] / turn;
      of_pair[i] = static_cast<std::uint64_t>((turns - std::floor(turns)) * 0x1p64);
    }
  }

  /// Sine and cosine of a pair at a position, times the factors.
  KOKKOS_INLINE_FUNCTION SineCosineFloat at(std::uint64_t position, std::int64_t pair) const {
    const SineCosineFloat turned = sine_cosine_of_turns(position * of_pair[pair]);
    return {sine_factor * turned.sine, factor * turned.cosine};
  }
};

/// The rotation of rows by their positions.
struct RowRotation {
  Turns turns;
  RowPositions positions;

  /// Writes for each of `rows` rows from `begin` on the sines of its pairs, and then the cosines:
  /// (rows, 2 * pairs), in memory that the threads of a team share. They wait for each other.
  template <class Team>
  KOKKOS_FUNCTION void fill(const Team& team, std::int64_t begin, int rows, int pairs,
                            const FastDivide& by_pairs, float* table) const {
    for (int item = team.rank(); item < rows * pairs; item += team.size()) {
      const auto row = static_cast<int>(by_pairs.quotient(item));
      const int pair = item - row * pairs;
      const SineCosineFloat turn =
          turns.at(static_cast<std::uint64_t>(positions.of(begin + row)), pair);
      table[2 * row * pairs + pair] = turn.sine;
      table[(2 * row + 1) * pairs + pair] = turn.cosine;
    }
    team.barrier();
  }
};

/// Rotates a pair, and rounds.
template <class T>
KOKKOS_INLINE_FUNCTION void rotate_pair(T& a, T& b, float sine, float cosine) {
  const float from_a = a, from_b = b;
  a = static_cast<T>(from_a * cosine - from_b * sine);
  b = static_cast<T>(from_b * cosine + from_a * sine);
}

#endif

}  // namespace ostrakon::math
