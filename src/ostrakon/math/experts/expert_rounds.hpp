// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/view.hpp>

namespace ostrakon::math {

/// Divides the rows that one rank dispatches to the experts of another into rounds of at most
/// `capacity` rows. Rows are ordered in *runs*: those of an expert in a leaf. Each round continues
/// after the one before. It cuts a run only at a multiple of `granule` rows from the begin of the
/// run, so that sums over the rows of a run, which add their terms in chunks, have the same bits
/// for any number of rounds.
struct ExpertRounds {
  std::int64_t capacity = 1;  ///< rows per round; at least a granule
  std::int64_t granule = 1;   ///< rows; a run of at most so many is never cut

  struct Rows {
    std::int64_t begin, end;

    std::int64_t count() const { return end - begin; }
  };

  /// Returns the rows of round `round`, from 0 on; none after the last. `runs` (runs + 1): the
  /// first row of each run, and the end of the last. Host memory.
  Rows rows_of(HostView<const std::int64_t*> runs, std::int64_t round) const;

  /// Whether round `round` has any rows.
  bool has_rows(HostView<const std::int64_t*> runs, std::int64_t round) const {
    const std::int64_t rows = runs[runs.size() - 1] - runs[0];
    // Each earlier round has taken at most `capacity` rows, and left less than a granule free.
    if (rows > round * capacity) return true;
    if (rows <= round * (capacity - granule + 1)) return false;
    return rows_of(runs, round).count() > 0;
  }

  /// Returns the number of rounds that have rows; at least 1. `runs`: see rows_of.
  std::int64_t needed(HostView<const std::int64_t*> runs) const;

  /// Returns a number of rounds that is enough for `rows` rows, for any runs; at least 1.
  std::int64_t most(std::int64_t rows) const;
};

/// Returns rounds with a capacity of `share` of `rows` rows, rounded up, at least a granule and at
/// most `most_rows`.
ExpertRounds make_expert_rounds(std::int64_t rows, double share, std::int64_t granule,
                                std::int64_t most_rows);

}  // namespace ostrakon::math
