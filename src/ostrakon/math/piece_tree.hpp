// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace ostrakon::math {

// Sums over pieces by a fixed tree, so that a part of the pieces can be summed elsewhere with the
// same bits: a node over n pieces has the largest power of two below n on its left and the rest on
// its right (as plan/ir/reduction_tree.hpp does for leaves). The sum of each piece begins with +0.

/// Returns the number of slots for `pieces` pieces: the pending sums and the current one.
constexpr std::int64_t tree_slots(std::int64_t pieces) {
  std::int64_t slots = 1;
  while (pieces > 1) {
    pieces /= 2;
    ++slots;
  }
  return slots;
}

/// Adds piece `piece` of `pieces` to a sum in slots [0, tree_slots(pieces)), in the order of
/// pieces: write(slot, piece) writes the piece's sum into a slot, add(from, to) adds slot `from` to
/// slot `to` = from - 1. After the last piece the sum is in slot 0.
template <class Write, class Add>
void sum_piece(std::int64_t piece, std::int64_t pieces, const Write& write, const Add& add) {
  // The number of pending sums is the number of ones in the binary piece number.
  std::int64_t used = 0;
  for (std::int64_t rest = piece; rest > 0; rest /= 2) used += rest % 2;
  write(used++, piece);
  // Each trailing 1 of the number is a node that this piece completes.
  for (std::int64_t rest = piece; rest % 2 == 1; rest /= 2, --used) add(used - 1, used - 2);
  for (; piece + 1 == pieces && used > 1; --used) add(used - 1, used - 2);
}

/// Sums `pieces` >= 1 pieces in order.
template <class Write, class Add>
void sum_pieces(std::int64_t pieces, const Write& write, const Add& add) {
  for (std::int64_t piece = 0; piece < pieces; ++piece) sum_piece(piece, pieces, write, add);
}

}  // namespace ostrakon::math
