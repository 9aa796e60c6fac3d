// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/model/decoder.hpp>
#include <ostrakon/model/graph/kernel.hpp>

namespace ostrakon::model::graph {

/// Rows [begin, end) of a leaf: of one sequence or several, the `tokens` neighbouring tokens of
/// each from position `position` on.
struct RunOfRows {
  std::int64_t begin, end, tokens, position;
};

/// body(run) for the runs that `rows` rows of a leaf are made of.
template <class Body>
void for_each_run(const LeafShape& leaf, const Arguments& a, std::int64_t rows, const Body& body) {
  if (!leaf.is_cut()) return body(RunOfRows{0, rows, leaf.tokens, a.rows().begin});
  const math::SequenceParts sequence = leaf.sequence();
  for (std::int64_t s = 0; s < leaf.batch; ++s)
    for (std::int64_t r = 0; r < sequence.runs(); ++r) {
      const math::TokenRun run = sequence.run(a.context_rank(), r);
      const std::int64_t first = s * leaf.part_tokens() + run.row;
      body(RunOfRows{first, first + run.count, run.count, run.position});
    }
}

}  // namespace ostrakon::model::graph
