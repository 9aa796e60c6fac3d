// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/view.hpp>

namespace ostrakon::math {

/// How the rows that one rank has for the experts of another travel: in rounds of at most
/// `capacity` rows. Rows come in *runs*, one after the other: those of an expert in a leaf. Each
/// round has the rows that follow those of the round before. It cuts a run only at a multiple of
/// `granule` rows from where the run begins, so that sums over the rows of a run, which add their
/// terms in chunks, have the same bits however many rounds there are.
struct ExpertRounds {
  std::int64_t capacity = 1;  ///< at least a granule, so that each round gets on
  std::int64_t granule = 1;   ///< rows; a run that is never cut has no more

  struct Rows {
    std::int64_t begin, end;

    std::int64_t count() const { return end - begin; }
  };

  /// The rows of round `round`, from 0 on; none after the last. `runs` (runs + 1): the first row of
  /// each run, and the end of the last. Host memory.
  Rows rows_of(HostView<const std::int64_t*> runs, std::int64_t round) const;

  /// Whether round `round` has any rows.
  bool has_rows(HostView<const std::int64_t*> runs, std::int64_t round) const {
    const std::int64_t rows = runs[runs.size() - 1] - runs[0];
    // A round before it has taken no more than there is room for, and lacked less than a granule.
    if (rows > round * capacity) return true;
    if (rows <= round * (capacity - granule + 1)) return false;
    return rows_of(runs, round).count() > 0;
  }

  /// The rounds that have any; at least 1. `runs`: see rows_of.
  std::int64_t needed(HostView<const std::int64_t*> runs) const;

  /// Rounds that are enough for `rows` rows, whatever their runs; at least 1.
  std::int64_t most(std::int64_t rows) const;
};

/// Room for `share` of `rows` rows, rounded up, but for no fewer than a granule, nor more than
/// `most_rows`.
ExpertRounds make_expert_rounds(std::int64_t rows, double share, std::int64_t granule,
                                std::int64_t most_rows);

}  // namespace ostrakon::math
