// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace ostrakon::math {

// Sums over pieces by one tree, so that a part of the pieces can be summed elsewhere with the same
// bits: a node over n pieces has the largest power of two below n on its left and the rest on its
// right (as plan/reduction_tree.hpp, of leaves). Each piece's own sum begins with +0.

/// Most sums that wait for others at a time, and the one that is written.
constexpr std::int64_t tree_slots(std::int64_t pieces) {
  std::int64_t slots = 1;
  while (pieces > 1) {
    pieces /= 2;
    ++slots;
  }
  return slots;
}

/// Takes piece `piece` of `pieces` into a sum, after those before it, in slots [0,
/// tree_slots(pieces)): write(slot, piece) writes the piece's sum into a slot, add(from, to) adds
/// slot `from` to slot `to` = from - 1. Behind the last piece the sum is in slot 0.
template <class Write, class Add>
void sum_piece(std::int64_t piece, std::int64_t pieces, const Write& write, const Add& add) {
  // Sums wait, as many as the number of the piece has binary ones.
  std::int64_t used = 0;
  for (std::int64_t rest = piece; rest > 0; rest /= 2) used += rest % 2;
  write(used++, piece);
  // Each 1 at the end of the number is a node that is complete with this piece.
  for (std::int64_t rest = piece; rest % 2 == 1; rest /= 2, --used) add(used - 1, used - 2);
  for (; piece + 1 == pieces && used > 1; --used) add(used - 1, used - 2);
}

/// Sums up `pieces` >= 1 pieces, the first one first.
template <class Write, class Add>
void sum_pieces(std::int64_t pieces, const Write& write, const Add& add) {
  for (std::int64_t piece = 0; piece < pieces; ++piece) sum_piece(piece, pieces, write, add);
}

}  // namespace ostrakon::math
