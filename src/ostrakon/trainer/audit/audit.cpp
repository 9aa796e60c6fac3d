// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/trainer/audit/audit.hpp>

#include <algorithm>
#include <map>
#include <ostrakon/base/error.hpp>
#include <set>

namespace ostrakon::train {
namespace {

using plan::Axis;
using plan::StepPlan;
using What = plan::Digest::What;

int places_of(const StepPlan& plan) {
  return plan.grid.shard() * plan.grid.replicas() / plan.layouts.sharing_ranks;
}

std::uint64_t digest_of(const AuditTable& table, int rank, std::size_t digest) {
  return table.digests.at(static_cast<std::size_t>(rank)).at(digest);
}

int ranks_of(const AuditTable& table) { return static_cast<int>(table.digests.size()); }

/// The digest of the same unit that another one is compared with.
std::size_t find(const StepPlan& plan, What what, int unit, bool again = false, int computed = -1) {
  const auto found =
      std::find_if(plan.digests.begin(), plan.digests.end(), [&](const plan::Digest& digest) {
        return digest.what == what && digest.unit == unit && digest.again == again &&
               (what != What::gradient || digest.computed == computed);
      });
  return static_cast<std::size_t>(found - plan.digests.begin());
}

/// Values that ranks have for what should be the same.
using Votes = std::vector<std::pair<int, std::uint64_t>>;

bool agree(const Votes& votes) {
  return std::all_of(votes.begin(), votes.end(),
                     [&](const auto& vote) { return vote.second == votes.front().second; });
}

/// The ranks that may be wrong: each of them is, or one of them is, not known which.
struct Outvoted {
  std::vector<int> ranks;
  bool is_known = false;
};

void add(const Outvoted& wrong, AuditFinding::What what, int unit,
         std::vector<AuditFinding>& findings) {
  if (!wrong.is_known) return findings.push_back({what, unit, wrong.ranks});
  for (const int rank : wrong.ranks) findings.push_back({what, unit, {rank}});
}

/// Returns the ranks that have another value than most ranks; all where as many have another one.
/// Where several values have equally many ranks, the one that was computed most often counts.
Outvoted outvoted(const Votes& votes) {
  std::map<std::uint64_t, std::pair<std::set<int>, int>> by_value;
  for (const auto& [rank, value] : votes) {
    by_value[value].first.insert(rank);
    ++by_value[value].second;
  }
  using Weight = std::pair<std::size_t, int>;
  Weight most{0, 0};
  std::uint64_t best = 0;
  bool is_known = false;
  for (const auto& [value, by] : by_value) {
    const Weight weight{by.first.size(), by.second};
    if (weight == most) is_known = false;
    if (weight <= most) continue;
    most = weight;
    best = value;
    is_known = true;
  }
  std::set<int> ranks;
  for (const auto& [rank, value] : votes)
    if (!is_known || value != best) ranks.insert(rank);
  return {{ranks.begin(), ranks.end()}, is_known};
}

/// The ranks that compute with the same part of a unit, by its first element.
std::map<std::int64_t, std::vector<int>> sharers(const StepPlan& plan, int unit) {
  const plan::PlannedUnit& planned = plan.units[static_cast<std::size_t>(unit)];
  std::map<std::int64_t, std::vector<int>> ranks;
  for (int r = 0; r < plan.grid.ranks(); ++r)
    ranks[plan.first_element(planned.flats.first, planned.layouts.gathered.divided, r)].push_back(
        r);
  return ranks;
}

/// Compares the parameters that ranks have read with those of their owners.
void judge_read(const StepPlan& plan, const AuditTable& table, std::size_t digest,
                std::vector<AuditFinding>& findings) {
  const int unit = plan.digests[digest].unit;
  const std::size_t owned = find(plan, What::owned, unit);
  for (const auto& [part, ranks] : sharers(plan, unit)) {
    std::uint64_t expected = 0;
    Votes votes;
    for (const int r : ranks) {
      expected += digest_of(table, r, owned);
      if (const std::uint64_t read = digest_of(table, r, digest); read != 0)
        votes.emplace_back(r, read);
    }
    if (votes.empty()) continue;
    if (agree(votes)) {
      if (votes.front().second != expected)
        findings.push_back({AuditFinding::What::parameters, unit, {}});
      continue;
    }
    Outvoted wrong = outvoted(votes);
    // The owners decide where what ranks read are copies of what they own.
    if (!wrong.is_known && plan.units[static_cast<std::size_t>(unit)].layouts.gathers()) {
      wrong.ranks.clear();
      for (const auto& [r, read] : votes)
        if (read != expected) wrong.ranks.push_back(r);
      wrong.is_known = wrong.ranks.size() < votes.size();
    }
    add(wrong, AuditFinding::What::parameters, unit, findings);
  }
}

void judge_owned(const StepPlan& plan, const AuditTable& table, std::size_t digest,
                 std::vector<AuditFinding>& findings) {
  const int unit = plan.digests[digest].unit;
  const std::size_t after = find(plan, What::owned_after, unit);
  for (int rank = 0; rank < ranks_of(table); ++rank)
    if (digest_of(table, rank, digest) != digest_of(table, rank, after))
      findings.push_back({AuditFinding::What::state, unit, {rank}});
}

/// Compares gradients of a leaf of each rank.
void judge_gradients(const StepPlan& plan, const std::vector<AuditTable>& tables,
                     std::size_t digest, std::vector<AuditFinding>& findings) {
  const plan::Digest& own = plan.digests[digest];
  const std::size_t again = find(plan, What::gradient, own.unit, true, own.computed);
  std::vector<Votes> votes(tables.front().digests.size());
  for (const AuditTable& table : tables)
    for (int rank = 0; rank < ranks_of(table); ++rank) {
      const int other = audited_rank(plan, rank, table.round.shift);
      votes[static_cast<std::size_t>(rank)].emplace_back(rank, digest_of(table, rank, digest));
      votes[static_cast<std::size_t>(other)].emplace_back(rank, digest_of(table, rank, again));
    }
  for (const Votes& of_leaf : votes)
    if (!agree(of_leaf)) add(outvoted(of_leaf), AuditFinding::What::gradient, own.unit, findings);
}

/// Whether `one` follows from a finding before it: a gradient from parameters that one of its ranks
/// has wrong, or from a gradient of a unit nearer to the loss.
bool follows(const AuditFinding& one, const AuditFinding& before) {
  if (one.what == before.what && one.ranks == before.ranks) return true;
  return one.what == AuditFinding::What::gradient && before.what != AuditFinding::What::gradient &&
         before.ranks.size() == 1 &&
         std::count(one.ranks.begin(), one.ranks.end(), before.ranks.front()) > 0;
}

std::vector<AuditFinding> without_consequences(const std::vector<AuditFinding>& all) {
  std::vector<AuditFinding> kept;
  for (const AuditFinding& one : all)
    if (std::none_of(kept.begin(), kept.end(),
                     [&](const AuditFinding& before) { return follows(one, before); }))
      kept.push_back(one);
  return kept;
}

}  // namespace

AuditRound audit_round(const StepPlan& plan, std::int64_t audit, int attempt) {
  AuditRound round;
  round.micro_batch = audit % plan.grid.micro_batches();
  const int others = places_of(plan) - 1;
  if (others > 0) round.shift = 1 + static_cast<int>((audit + attempt) % others);
  return round;
}

int audited_rank(const StepPlan& plan, int rank, int shift) {
  const plan::Grid& grid = plan.grid;
  const int sharing = plan.layouts.sharing_ranks, shard = grid.shard();
  const int own = grid.place(rank, Axis::replicate) * shard + grid.place(rank, Axis::shard);
  const int place = (own / sharing + shift) % places_of(plan) * sharing + own % sharing;
  return rank + (place % shard - own % shard) * grid.stride(Axis::shard) +
         (place / shard - own / shard) * grid.stride(Axis::replicate);
}

bool agrees(const StepPlan& plan, const AuditTable& table) { return judge(plan, {table}).empty(); }

std::vector<AuditFinding> judge(const StepPlan& plan, const std::vector<AuditTable>& tables) {
  std::vector<AuditFinding> all;
  const auto each = [&](What what, const auto& work) {
    for (std::size_t d = plan.digests.size(); d-- > 0;)
      if (plan.digests[d].what == what) work(d);
  };
  for (const AuditTable& table : tables)
    each(What::owned, [&](std::size_t d) { judge_owned(plan, table, d, all); });
  for (const AuditTable& table : tables)
    each(What::read, [&](std::size_t d) { judge_read(plan, table, d, all); });
  std::vector<std::pair<int, std::size_t>> gradients;
  each(What::gradient, [&](std::size_t d) {
    if (!plan.digests[d].again) gradients.emplace_back(-plan.digests[d].unit, d);
  });
  std::sort(gradients.begin(), gradients.end());  // those nearest to the loss first
  for (const auto& [unit, d] : gradients) judge_gradients(plan, tables, d, all);
  return without_consequences(all);
}

bool damages_state(const StepPlan& plan, const std::vector<AuditFinding>& findings) {
  return std::any_of(findings.begin(), findings.end(), [&](const AuditFinding& finding) {
    // Without gathers ranks read what they keep.
    const bool reads_state = !plan.units[static_cast<std::size_t>(finding.unit)].layouts.gathers();
    return finding.what == AuditFinding::What::state ||
           (finding.what == AuditFinding::What::parameters && reads_state);
  });
}

std::string describe(const StepPlan& plan, const std::vector<AuditFinding>& findings,
                     const std::vector<std::string>& names) {
  std::string all;
  for (const AuditFinding& finding : findings) {
    std::string who;
    for (const int rank : finding.ranks)
      who += (who.empty() ? "" : " or ") + names.at(static_cast<std::size_t>(rank));
    const std::string& unit = plan.units[static_cast<std::size_t>(finding.unit)].name;
    if (!all.empty()) all += "; ";
    switch (finding.what) {
      case AuditFinding::What::gradient:
        all += text(who, " has computed a wrong gradient of ", unit);
        break;
      case AuditFinding::What::parameters:
        all +=
            who.empty()
                ? text("all ranks have read other parameters of ", unit, " than their owners have")
                : text(who, " has read other parameters of ", unit, " than its owners have");
        break;
      case AuditFinding::What::state:
        all += text("parameters of ", unit, " in the memory of ", who,
                    " have changed during the step");
        break;
    }
  }
  return all;
}

}  // namespace ostrakon::train
