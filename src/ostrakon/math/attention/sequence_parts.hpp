// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/half.hpp>
#include <ostrakon/math/view.hpp>

namespace ostrakon::math {

/// Consecutive tokens of a sequence: rows [row, row + count) of a part, at positions [position,
/// position + count).
struct TokenRun {
  std::int64_t row = 0;
  std::int64_t position = 0;
  std::int64_t count = 0;
};

/// Sequences of `tokens` tokens, each divided into `parts` * `pieces` pieces of equal work for
/// causal attention: of 2 * cuts() runs of consecutive tokens, piece i has run i, from the head,
/// and then run 2 * cuts() - 1 - i, from the tail. Each of `parts` parts has `pieces` adjacent
/// pieces. If a sequence is not divided, its only piece has all tokens in order.
struct SequenceParts {
  std::int64_t tokens = 1;
  std::int64_t parts = 1;
  std::int64_t pieces = 1;

  KOKKOS_INLINE_FUNCTION std::int64_t cuts() const { return parts * pieces; }
  /// Tokens per sequence in each part, and in each piece.
  KOKKOS_INLINE_FUNCTION std::int64_t part_tokens() const { return tokens / parts; }
  KOKKOS_INLINE_FUNCTION std::int64_t piece_tokens() const { return tokens / cuts(); }
  /// Number of runs of a part, and of a piece, in the order of its rows.
  KOKKOS_INLINE_FUNCTION std::int64_t piece_runs() const { return cuts() == 1 ? 1 : 2; }
  KOKKOS_INLINE_FUNCTION std::int64_t runs() const { return pieces * piece_runs(); }
  /// Returns run `index` of a part.
  KOKKOS_INLINE_FUNCTION TokenRun run(std::int64_t part, std::int64_t index) const {
    if (cuts() == 1) return {0, 0, tokens};
    const std::int64_t length = piece_tokens() / 2;
    const std::int64_t piece = part * pieces + index / 2;
    return {index * length, (index % 2 == 0 ? piece : 2 * cuts() - 1 - piece) * length, length};
  }
  /// Returns the position of row `row` of a part.
  KOKKOS_INLINE_FUNCTION std::int64_t position(std::int64_t part, std::int64_t row) const {
    if (cuts() == 1) return row;
    const std::int64_t length = piece_tokens() / 2;
    return run(part, row / length).position + row % length;
  }
};

/// in_order(sequence * tokens + position, :) = by_part(..., :), which has the rows of part 0, then
/// of part 1, and so on, as an all-gather delivers them: (parts, batch, part_tokens). Both have
/// batch * tokens rows.
template <class T>
void put_in_order(const Exec& exec, const SequenceParts& sequence, View<const T**> by_part,
                  View<T**> in_order);

/// The inverse of put_in_order, as a reduce-scatter needs it; may convert to another type.
template <class A, class B>
void put_by_part(const Exec& exec, const SequenceParts& sequence, View<const A**> in_order,
                 View<B**> by_part);

/// y(i, j) = x(i, j), converted, for matrices with gaps between their rows.
template <class A, class B>
void copy_rows(const Exec& exec, View<const A**> x, View<B**> y);

}  // namespace ostrakon::math
