// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/experts/expert_rounds.hpp>

#include <algorithm>
#include <cmath>
#include <ostrakon/base/error.hpp>

namespace ostrakon::math {

ExpertRounds::Rows ExpertRounds::rows_of(HostView<const std::int64_t*> runs,
                                         std::int64_t round) const {
  const std::int64_t count = runs.size() - 1;
  const std::int64_t* const first = runs.data();
  const std::int64_t last_row = first[count];
  Rows rows{first[0], first[0]};
  for (std::int64_t r = 0; r <= round; ++r) {
    rows.begin = rows.end;
    rows.end = std::min(rows.begin + capacity, last_row);
    // The run that the round would end in.
    const std::int64_t* const next = std::upper_bound(first, first + count + 1, rows.end);
    if (rows.end == last_row || rows.end == next[-1]) continue;
    rows.end = next[-1] + (rows.end - next[-1]) / granule * granule;
  }
  return rows;
}

std::int64_t ExpertRounds::needed(HostView<const std::int64_t*> runs) const {
  std::int64_t rounds = 1;
  while (has_rows(runs, rounds)) ++rounds;
  return rounds;
}

std::int64_t ExpertRounds::most(std::int64_t rows) const {
  if (rows <= capacity) return 1;
  // A round lacks less than a granule of its capacity; the rows that did not fit are in the next
  // round.
  const std::int64_t least = capacity - granule + 1;
  return std::min((rows + least - 1) / least, 2 * rows / capacity + 1);
}

ExpertRounds make_expert_rounds(std::int64_t rows, double share, std::int64_t granule,
                                std::int64_t most_rows) {
  require(granule >= 1 && most_rows >= 1 && share > 0.0, "rounds of ", share, " of ", rows,
          " rows, in granules of ", granule, ": expected more than none");
  const double wanted =
      std::min(std::ceil(share * static_cast<double>(rows)), static_cast<double>(most_rows));
  return {
      std::max({static_cast<std::int64_t>(wanted), std::min(granule, most_rows), std::int64_t{1}}),
      std::min(granule, most_rows)};
}

}  // namespace ostrakon::math
