// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <ostrakon/math/half.hpp>
#include <ostrakon/math/view.hpp>

namespace ostrakon::math {

/// Neighbouring tokens of each sequence that a part has: rows [row, row + count) of its rows of a
/// sequence, at positions [position, position + count).
struct TokenRun {
  std::int64_t row = 0;
  std::int64_t position = 0;
  std::int64_t count = 0;
};

/// Sequences of `tokens` tokens that are divided into `parts` parts of equal work for causal
/// attention: each is cut into 2 * parts pieces, and part i has piece i, from the head, then piece
/// 2 * parts - 1 - i, from the tail. One part has all tokens in order.
struct SequenceParts {
  std::int64_t tokens = 1;
  std::int64_t parts = 1;

  /// Of a sequence, in each part.
  KOKKOS_INLINE_FUNCTION std::int64_t part_tokens() const { return tokens / parts; }
  /// Of a part: one run, or the two pieces, the first tokens first.
  std::array<TokenRun, 2> runs(std::int64_t part) const {
    if (parts == 1) return {TokenRun{0, 0, tokens}, TokenRun{tokens, tokens, 0}};
    const std::int64_t piece = part_tokens() / 2;
    return {TokenRun{0, part * piece, piece},
            TokenRun{piece, (2 * parts - 1 - part) * piece, piece}};
  }
  /// The position of row `row` of a part.
  KOKKOS_INLINE_FUNCTION std::int64_t position(std::int64_t part, std::int64_t row) const {
    if (parts == 1) return row;
    const std::int64_t piece = part_tokens() / 2;
    return row < piece ? part * piece + row : (2 * parts - 1 - part) * piece + (row - piece);
  }
};

/// in_order(sequence * tokens + position, :) = by_part(..., :), which has the rows of part 0, then
/// of part 1, and so on, as a gather over ranks brings them: (parts, batch, part_tokens). Both have
/// batch * tokens rows.
template <class T>
void put_in_order(const Exec& exec, const SequenceParts& sequence, View<const T**> by_part,
                  View<T**> in_order);

/// The inverse, as a sum over ranks takes them.
template <class T>
void put_by_part(const Exec& exec, const SequenceParts& sequence, View<const T**> in_order,
                 View<T**> by_part);

/// y(i, j) = x(i, j) in another type, for matrices with gaps between their rows.
template <class A, class B>
void copy_rows(const Exec& exec, View<const A**> x, View<B**> y);

}  // namespace ostrakon::math
