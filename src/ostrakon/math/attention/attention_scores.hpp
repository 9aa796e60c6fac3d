// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <ostrakon/math/elementary.hpp>
#include <ostrakon/math/portability.hpp>

namespace ostrakon::math {

/// How products of queries and keys become scores, in this order: times `scale`; capped to
/// soft_cap * tanh(score / soft_cap) (Gemma Team 2024, section 2); less a slope of the head times
/// the distance of query and key (ALiBi: Press et al. 2022). Keys outside of the window have none.
struct AttentionScores {
  double scale = 0.0;           ///< 0: 1 / sqrt(head width); at least 0
  double soft_cap = 0.0;        ///< 0: none
  std::int64_t window = 0;      ///< above 0: a query sees its own key and the window - 1 before
  std::int64_t slopes = 0;      ///< above 0: ALiBi's slopes for that many heads
  std::int64_t first_head = 0;  ///< number, among these, of the first head

  /// Whether scores are more than scaled products.
  bool change() const { return soft_cap > 0.0 || slopes > 0; }
};

/// Returns ALiBi's slope of head `head` of `heads`. With n the power of two that is `heads` or the
/// next one, slopes are 2^(-8 k / n) for k = 1 .. n. Fewer heads than n take those of even k
/// first, which are the slopes of n / 2 heads, then those of odd k, both in order: so do BLOOM and
/// MPT.
KOKKOS_INLINE_FUNCTION double alibi_slope(std::int64_t heads, std::int64_t head) {
  std::int64_t n = 1;
  while (n < heads) n *= 2;
  const std::int64_t k = n == heads     ? head + 1
                         : head < n / 2 ? 2 * (head + 1)
                                        : 2 * (head - n / 2) + 1;
  return pow(2.0, -8.0 * static_cast<double>(k) / static_cast<double>(n));
}

/// Returns the first key that queries from position `query` on see, in a document that begins at
/// `document`.
KOKKOS_INLINE_FUNCTION std::int64_t first_key_of(std::int64_t query, std::int64_t window,
                                                 std::int64_t document = 0) {
  const std::int64_t first = window > 0 && query >= window ? query - window + 1 : 0;
  return first > document ? first : document;
}

/// Returns first_key_of, rounded down to a multiple of `tile`.
KOKKOS_INLINE_FUNCTION std::int64_t first_key_tile(std::int64_t query, std::int64_t window,
                                                   std::int64_t tile) {
  return first_key_of(query, window) / tile * tile;
}

/// Scores of one head that are more than scaled products. C: float or double.
template <class C>
struct ChangedScores {
  C cap = 0;    ///< 0: none
  C slope = 0;  ///< 0: none

  /// Returns tanh(score / cap) of a scaled product.
  KOKKOS_INLINE_FUNCTION C capped(C score) const { return fast_tanh(score / cap); }
  /// Returns the score of a scaled product, of which `capped` is that, if there is a cap.
  KOKKOS_INLINE_FUNCTION C operator()(C score, C capped, std::int64_t distance) const {
    return multiply_add(-slope, static_cast<C>(distance), cap > C(0) ? cap * capped : score);
  }
};

}  // namespace ostrakon::math
