// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/view.hpp>

namespace ostrakon::math {

/// Rows that predict several tokens each: the next one, then the one behind that, and so on (a
/// depth each). They are stacked by runs of rows: of each run the rows of all depths, one depth
/// after the other, so that what is summed over a run has all of them. Row r of a depth d predicts
/// targets[r + d], if that is of the same sequence; else, or where that target is -1, it counts for
/// nothing.
struct MultiTokenTargets {
  std::int64_t tokens = 1;  ///< of a sequence; rows are whole sequences
  std::int64_t run = 1;     ///< rows of a run
  std::int64_t depths = 1;
  double factor = 0.0;  ///< of the mean of further depths' means, relative to the first one's mean
};

/// Writes the stacked words (depths * rows) that rows predict, and the factors of their gradients,
/// relative to those of a mean over rows: -1 and 0 for rows that predict none.
template <class C>
void stack_targets(const Exec& exec, const MultiTokenTargets& further,
                   View<const std::int32_t*> targets, View<std::int32_t*> words, View<C*> factors);

/// losses (depths * count) = the stacked losses of rows [first, first + count), depth by depth; 0
/// for rows that predict none.
template <class C>
void unstack_losses(const Exec& exec, const MultiTokenTargets& further, View<const C*> stacked,
                    std::int64_t first, View<C*> losses);

}  // namespace ostrakon::math
