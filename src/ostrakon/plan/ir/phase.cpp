// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/ir/phase.hpp>

#include <algorithm>
#include <numeric>
#include <ostrakon/base/error.hpp>

namespace ostrakon::plan {

std::vector<int> all_of(const Phases& phases) {
  std::vector<int> all(phases.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

int first_reader(const Phases& phases, int phase, const std::vector<int>& among) {
  for (const int p : among) {
    const std::vector<int>& reads = phases[static_cast<std::size_t>(p)].reads;
    if (std::find(reads.begin(), reads.end(), phase) != reads.end()) return p;
  }
  return -1;
}

std::vector<int> recomputed_phases(const Phases& forward) {
  std::vector<int> phases;  // the last one first
  std::vector<bool> is_read(forward.size(), false);
  for (auto p = static_cast<int>(forward.size()) - 1; p >= 0; --p) {
    const Phase& phase = forward[static_cast<std::size_t>(p)];
    if (!phase.recomputes && !is_read[static_cast<std::size_t>(p)]) continue;
    phases.push_back(p);
    for (const int read : phase.reads) is_read[static_cast<std::size_t>(read)] = true;
    if (p > 0 && forward[static_cast<std::size_t>(p) - 1].keeps_workspace)
      is_read[static_cast<std::size_t>(p) - 1] = true;
  }
  if (phases.empty()) phases.push_back(0);
  std::reverse(phases.begin(), phases.end());
  return phases;
}

std::int64_t workspace_bytes(const Phases& phases, int phase) {
  auto first = static_cast<std::size_t>(phase), last = first;
  while (first > 0 && phases[first - 1].keeps_workspace) --first;
  while (last + 1 < phases.size() && phases[last].keeps_workspace) ++last;
  std::int64_t most = 0;
  for (std::size_t p = first; p <= last; ++p) most = std::max(most, phases[p].workspace_bytes);
  return most;
}

void check_reads(const Phases& phases, const std::string& unit, const std::string& what) {
  require(!phases.empty(), "unit ", unit, ": ", what, " has no phase");
  const auto count = static_cast<int>(phases.size());
  for (int p = 0; p < count; ++p) {
    const Phase& phase = phases[static_cast<std::size_t>(p)];
    require(phase.reads.size() <= most_reads, "unit ", unit, ": phase ", p, " of ", what, " reads ",
            phase.reads.size(), " exchanges; expected at most ", most_reads);
    for (const int read : phase.reads)
      require(read >= 0 && read < p && phases[static_cast<std::size_t>(read)].then, "unit ", unit,
              ": phase ", p, " of ", what, " reads an exchange of phase ", read,
              "; expected an earlier phase that has one");
    require(!phase.then || first_reader(phases, p, all_of(phases)) >= 0, "unit ", unit, ": phase ",
            p, " of ", what, " hands over an exchange that no later phase reads (Phase::reads)");
    require(!phase.keeps_workspace || p + 1 < count, "unit ", unit, ": phase ", p, " of ", what,
            " is the last, but keeps its workspace for a next one");
  }
}

}  // namespace ostrakon::plan
