// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/ir/axes.hpp>

#include <ostrakon/base/error.hpp>
#include <stdexcept>

namespace ostrakon::plan {

void refuse_spans() { throw std::logic_error("an array is divided over too many spans"); }

int neighbours_on_node(const Grid& grid, const Span& run, int ranks_per_node) {
  if (run.axis == Axis::micro_batch) return 1;
  const int apart = grid.stride(run);
  if (ranks_per_node <= 0 || ranks_per_node % apart != 0) return 1;
  const int neighbours = ranks_per_node / apart;
  return neighbours < run.ranks && run.ranks % neighbours == 0 ? neighbours : 1;
}

Spans without_first(const Spans& levels, int ranks) {
  Spans rest;
  int left = ranks;
  for (const Span& level : levels) {
    require(level.ranks % left == 0 || left % level.ranks == 0, ranks,
            " neighbours do not divide the levels of ", name(level.axis));
    if (level.ranks % left == 0) rest.push({level.axis, level.ranks / left, level.stride * left});
    left = level.ranks % left == 0 ? 1 : left / level.ranks;
  }
  require(left == 1, ranks, " neighbours are more than a group has");
  return rest;
}

Spans Grid::levels(const Span& run) const {
  const int inside = neighbours_on_node(*this, run, node);
  // Sums over a power of two of neighbours are nodes of the tree over all of them.
  if ((inside & (inside - 1)) != 0) return {run};
  return {{run.axis, inside, run.stride}, {run.axis, run.ranks / inside, run.stride * inside}};
}

}  // namespace ostrakon::plan
