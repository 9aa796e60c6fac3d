// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/trainer/audit/audit.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format_ranks.hpp>

namespace ostrakon::train {

using plan::Axis;
using plan::StepPlan;
using What = AuditFinding::What;

int groups_of(const StepPlan& plan) {
  return plan.grid.shard() * plan.grid.replicas() / plan.layouts.sharing_ranks;
}

int group_of(const StepPlan& plan, int rank) {
  const plan::Grid& grid = plan.grid;
  return (grid.coordinate(rank, Axis::replicate) * grid.shard() +
          grid.coordinate(rank, Axis::shard)) /
         plan.layouts.sharing_ranks;
}

AuditRound audit_round(const StepPlan& plan, std::int64_t audit, int attempt) {
  const std::int64_t micro_batches = plan.grid.micro_batches();
  AuditRound round;
  round.micro_batch = audit % micro_batches;
  const int others = groups_of(plan) - 1;
  // The shift changes once all micro-batches were audited with it: if both changed each time, some
  // pairs of them would never occur.
  if (others > 0) round.shift = 1 + static_cast<int>((audit / micro_batches + attempt) % others);
  return round;
}

int audited_rank(const StepPlan& plan, int rank, int shift) {
  const plan::Grid& grid = plan.grid;
  const int sharing = plan.layouts.sharing_ranks, shard = grid.shard();
  const int own =
      grid.coordinate(rank, Axis::replicate) * shard + grid.coordinate(rank, Axis::shard);
  const int place = (group_of(plan, rank) + shift) % groups_of(plan) * sharing + own % sharing;
  return rank + (place % shard - own % shard) * grid.stride(Axis::shard) +
         (place / shard - own / shard) * grid.stride(Axis::replicate);
}

bool damages_state(const std::vector<AuditFinding>& findings) {
  return std::any_of(findings.begin(), findings.end(), [](const AuditFinding& finding) {
    return finding.what == What::changed || finding.what == What::replica;
  });
}

namespace {

/// Returns "rank 2 (n03)" or "one of ranks 4-7 (n03, n04)".
std::string describe_ranks(const std::vector<int>& in_plan, const std::vector<RankPlace>& places) {
  constexpr std::size_t most_hosts = 8;
  std::vector<int> ranks;
  std::vector<std::string> hosts;
  for (const int rank : in_plan) {
    const RankPlace& place = places.at(static_cast<std::size_t>(rank));
    ranks.push_back(place.rank);
    if (std::find(hosts.begin(), hosts.end(), place.host) == hosts.end())
      hosts.push_back(place.host);
  }
  std::sort(ranks.begin(), ranks.end());
  std::string all;
  for (std::size_t h = 0; h < std::min(hosts.size(), most_hosts); ++h)
    all += (h == 0 ? "" : ", ") + hosts[h];
  if (hosts.size() > most_hosts) all += ", ...";
  return text(ranks.size() > 1 ? "one of " : "", format_ranks(ranks), " (", all, ")");
}

std::string describe(const StepPlan& plan, const AuditFinding& finding,
                     const std::vector<RankPlace>& places) {
  if (finding.what == What::exchange) return "ranks have received different tables of digests";
  const std::string who = describe_ranks(finding.ranks, places);
  const std::string& unit = plan.units[static_cast<std::size_t>(finding.unit)].name;
  switch (finding.what) {
    case What::changed:
      return text("parameters of ", unit, " in the memory of ", who,
                  " have changed during the step");
    case What::replica:
      return text("parameters of ", unit, " in the memory of ", who,
                  " are not those of other replicas");
    case What::read:
      return text(who, " has read other parameters of ", unit, " than its owners have");
    case What::digest:
      return text(who, " has computed a wrong digest of parameters of ", unit, " in its memory");
    case What::sent:
      return text(who, ", or a link from it, has sent other parameters of ", unit, " than it has");
    case What::gradient:
    case What::exchange:
      break;
  }
  return text(who, " has computed a wrong gradient of ", unit);
}

}  // namespace

std::string describe(const StepPlan& plan, const std::vector<AuditFinding>& findings,
                     const std::vector<RankPlace>& places) {
  constexpr std::size_t most = 4;
  std::string all;
  for (std::size_t f = 0; f < std::min(findings.size(), most); ++f)
    all += (f == 0 ? "" : "; ") + describe(plan, findings[f], places);
  if (findings.size() > most) all += text("; and ", findings.size() - most, " more");
  return all;
}

}  // namespace ostrakon::train
