// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <map>
#include <ostrakon/base/hash.hpp>
#include <ostrakon/trainer/audit/audit.hpp>
#include <set>
#include <tuple>

namespace ostrakon::train {
namespace {

using plan::StepPlan;
using What = plan::Digest::What;
using Found = AuditFinding::What;
using Ranks = std::vector<int>;

/// The digest of the same unit that another one is compared with.
std::size_t find(const StepPlan& plan, What what, int unit, bool again = false, int computed = -1) {
  const auto found =
      std::find_if(plan.digests.begin(), plan.digests.end(), [&](const plan::Digest& digest) {
        return digest.what == what && digest.unit == unit && digest.again == again &&
               (what != What::gradient || digest.computed == computed);
      });
  return static_cast<std::size_t>(found - plan.digests.begin());
}

/// Numbers that have the same value for ranks with the same part of an array.
int part_of(const StepPlan& plan, const plan::Spans& divided, int rank) {
  int part = 0;
  for (const plan::Span& span : divided)
    part += plan.grid.coordinate(rank, span) * plan.grid.stride(span);
  return part;
}

/// Numbers that have the same value for ranks that gather a unit from each other.
int gathering_of(const StepPlan& plan, const plan::Layouts& layouts, int rank) {
  return rank - part_of(plan, layouts.compute.divided, rank) +
         part_of(plan, layouts.gathered.divided, rank);
}

/// The ranks for which `number_of` has the same value, by that.
template <class NumberOf>
std::map<int, Ranks> grouped(const StepPlan& plan, const NumberOf& number_of) {
  std::map<int, Ranks> groups;
  for (int rank = 0; rank < plan.grid.ranks(); ++rank) groups[number_of(rank)].push_back(rank);
  return groups;
}

/// Values that voters, ranks or groups of them, have for what should be the same.
using Votes = std::vector<std::pair<int, std::uint64_t>>;

bool agree(const Votes& votes) {
  return std::all_of(votes.begin(), votes.end(),
                     [&](const auto& vote) { return vote.second == votes.front().second; });
}

/// The voters that may be wrong: each of them is, or one of them is, not known which.
struct Outvoted {
  std::vector<int> voters;
  bool is_known = false;
};

/// Returns the voters that have another value than most; all where as many have another one. Where
/// several values have equally many voters, the one that was computed most often counts.
Outvoted outvoted(const Votes& votes) {
  std::map<std::uint64_t, std::pair<std::set<int>, int>> by_value;
  for (const auto& [voter, value] : votes) {
    by_value[value].first.insert(voter);
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
  std::set<int> wrong;
  for (const auto& [voter, value] : votes)
    if (!is_known || value != best) wrong.insert(voter);
  return {{wrong.begin(), wrong.end()}, is_known};
}

/// Judges what ranks store and gradients by all runs of a step, the rest run by run.
class Judge {
 public:
  explicit Judge(const StepPlan& plan)
      : plan_(plan),
        members_(grouped(plan, [&](int rank) { return group_of(plan, rank); })),
        votes_(plan.digests.size()) {}

  void hear(const AuditTable& table) {
    if (table.digests.empty()) return add({Found::exchange, -1, {}});
    computes_wrongly_.assign(members_.size(), false);
    heard_.push_back(&table);
    each(What::stored, [&](std::size_t d) { note_readers_of_wrong(table, d); });
    each(What::read, [&](std::size_t d) { judge_read(table, d); });
    each(What::gradient, [&](std::size_t d) {
      if (!plan_.digests[d].again) count_gradients(table, d);
    });
  }

  /// What all tables together show.
  std::vector<AuditFinding> findings() {
    if (!heard_.empty()) each(What::stored, [&](std::size_t d) { judge_stored(d); });
    each(What::gradient, [&](std::size_t d) {
      for (const auto& [leaf, votes] : votes_[d])
        if (!agree(votes)) judge_gradient(plan_.digests[d].unit, votes);
    });
    // What is stored comes first, and of each kind what is nearest to the loss.
    std::sort(findings_.begin(), findings_.end(), [](const auto& a, const auto& b) {
      return std::tie(a.what, b.unit, a.ranks) < std::tie(b.what, a.unit, b.ranks);
    });
    return findings_;
  }

 private:
  template <class Work>
  void each(What what, const Work& work) const {
    for (std::size_t d = plan_.digests.size(); d-- > 0;)
      if (plan_.digests[d].what == what) work(d);
  }

  static std::uint64_t digest_of(const AuditTable& table, int rank, std::size_t digest) {
    return table.digests.at(static_cast<std::size_t>(rank)).at(digest);
  }

  /// Adds a finding. If the same was found in other units, only the unit nearest to the loss stays.
  void add(AuditFinding found) {
    const auto before = std::find_if(findings_.begin(), findings_.end(), [&](const auto& one) {
      return one.what == found.what && one.ranks == found.ranks;
    });
    if (before == findings_.end())
      findings_.push_back(std::move(found));
    else
      before->unit = std::max(before->unit, found.unit);
  }

  /// The ranks that gather a unit from each other, by gathering_of.
  const std::map<int, Ranks>& gatherings(int unit) {
    std::map<int, Ranks>& known = gatherings_[unit];
    if (known.empty()) {
      const plan::Layouts& layouts = plan_.units[static_cast<std::size_t>(unit)].layouts;
      known = grouped(plan_, [&](int rank) { return gathering_of(plan_, layouts, rank); });
    }
    return known;
  }

  void note_wrong_parameters(const Ranks& readers) {
    for (const int rank : readers)
      computes_wrongly_[static_cast<std::size_t>(group_of(plan_, rank))] = true;
  }

  /// The ranks that store the same parameters of a unit, by what they are a part of.
  std::map<int, Ranks> replicas(int unit) const {
    const plan::Layouts& layouts = plan_.units[static_cast<std::size_t>(unit)].layouts;
    return grouped(plan_, [&](int rank) { return part_of(plan_, layouts.compute.divided, rank); });
  }

  /// Compares what ranks store after the last run with what they stored before the first one, and
  /// with what other replicas do. Where that is the same, nothing is damaged, and digests that
  /// differed in between were computed wrongly.
  void judge_stored(std::size_t digest) {
    const int unit = plan_.digests[digest].unit;
    const std::size_t after = find(plan_, What::stored_after, unit);
    const auto first = [&](int rank) { return digest_of(*heard_.front(), rank, digest); };
    const auto last = [&](int rank) { return digest_of(*heard_.back(), rank, after); };
    for (const auto& [part, ranks] : replicas(unit)) {
      Votes all, lasting;
      for (const int rank : ranks) all.emplace_back(rank, last(rank));
      const bool are_equal = ranks.size() > 1 && agree(all);
      for (const int rank : ranks) {
        if (!are_equal && first(rank) != last(rank)) {
          add({Found::changed, unit, {rank}});
          continue;
        }
        lasting.emplace_back(rank, last(rank));
        const bool has_other = std::any_of(heard_.begin(), heard_.end(), [&](const auto* table) {
          return digest_of(*table, rank, digest) != last(rank) ||
                 digest_of(*table, rank, after) != last(rank);
        });
        if (has_other) add({Found::digest, unit, {rank}});
      }
      if (lasting.empty() || agree(lasting)) continue;
      const Outvoted damaged = outvoted(lasting);
      if (!damaged.is_known) add({Found::replica, unit, damaged.voters});
      for (const int rank : damaged.voters)
        if (damaged.is_known) add({Found::replica, unit, {rank}});
    }
  }

  /// Notes who has read parameters in a run that were damaged where they are stored.
  void note_readers_of_wrong(const AuditTable& table, std::size_t digest) {
    const int unit = plan_.digests[digest].unit;
    const std::size_t after = find(plan_, What::stored_after, unit);
    std::set<int> wrong;
    for (const auto& [part, ranks] : replicas(unit)) {
      Votes votes;
      for (const int rank : ranks) {
        votes.emplace_back(rank, digest_of(table, rank, digest));
        if (votes.back().second != digest_of(table, rank, after)) wrong.insert(rank);
      }
      if (agree(votes)) continue;
      const Outvoted damaged = outvoted(votes);
      wrong.insert(damaged.voters.begin(), damaged.voters.end());
    }
    if (wrong.empty()) return;
    for (const auto& [gathering, ranks] : gatherings(unit))
      if (std::any_of(ranks.begin(), ranks.end(), [&](int rank) { return wrong.count(rank) > 0; }))
        note_wrong_parameters(ranks);
  }

  /// Compares the parameters that ranks have read with those that are stored where they gather
  /// from.
  void judge_read(const AuditTable& table, std::size_t digest) {
    const int unit = plan_.digests[digest].unit;
    const std::size_t stored = find(plan_, What::stored, unit);
    const std::size_t after = find(plan_, What::stored_after, unit);
    for (const auto& [gathering, ranks] : gatherings(unit)) {
      std::uint64_t expected = 0;
      bool is_same_after = true;
      for (const int rank : ranks) {
        expected += digest_of(table, rank, stored);
        is_same_after =
            is_same_after && digest_of(table, rank, stored) == digest_of(table, rank, after);
      }
      // Where what is stored has changed, judge_stored finds that.
      if (!is_same_after) continue;
      std::map<std::uint64_t, Ranks> wrong;  // by what they have read
      for (const int rank : ranks) {
        const std::uint64_t value = digest_of(table, rank, digest);
        if (value != 0 && value != expected) wrong[value].push_back(rank);
      }
      for (const auto& [value, readers] : wrong) {
        note_wrong_parameters(readers);
        if (readers.size() > 1)
          add({Found::sent, unit, senders(ranks, readers)});
        else
          add({Found::read, unit, readers});
      }
    }
  }

  /// Who may have sent what several ranks have read alike: one that has not read it, as a sender
  /// reads its own part where it is stored; any of them, if all have.
  static Ranks senders(const Ranks& ranks, const Ranks& readers) {
    Ranks others;
    std::set_difference(ranks.begin(), ranks.end(), readers.begin(), readers.end(),
                        std::back_inserter(others));
    return others.empty() ? ranks : others;
  }

  /// The digest of all ranks of a group together.
  std::uint64_t digest_of_group(const AuditTable& table, const Ranks& ranks, std::size_t digest) {
    Hasher all;
    for (const int rank : ranks) all.add(digest_of(table, rank, digest));
    return all.value();
  }

  /// Notes gradients of a leaf of each group, which the group and another one have computed.
  void count_gradients(const AuditTable& table, std::size_t digest) {
    const plan::Digest& own = plan_.digests[digest];
    const std::size_t again = find(plan_, What::gradient, own.unit, true, own.computed);
    for (const auto& [group, ranks] : members_) {
      if (computes_wrongly_[static_cast<std::size_t>(group)]) continue;
      Ranks audited;  // at the same positions
      for (const int rank : ranks) audited.push_back(audited_rank(plan_, rank, table.round.shift));
      const int other = group_of(plan_, audited.front());
      votes_[digest][group].emplace_back(group, digest_of_group(table, ranks, digest));
      votes_[digest][other].emplace_back(group, digest_of_group(table, ranks, again));
    }
  }

  void judge_gradient(int unit, const Votes& votes) {
    const Outvoted wrong = outvoted(votes);
    Ranks all;
    for (const int group : wrong.voters) {
      const Ranks& ranks = members_.at(group);
      if (wrong.is_known) add({Found::gradient, unit, ranks});
      all.insert(all.end(), ranks.begin(), ranks.end());
    }
    std::sort(all.begin(), all.end());
    if (!wrong.is_known) add({Found::gradient, unit, all});
  }

  const StepPlan& plan_;
  const std::map<int, Ranks> members_;              // by group
  std::map<int, std::map<int, Ranks>> gatherings_;  // by unit
  std::vector<bool> computes_wrongly_;              // by group, in the run that is judged
  std::vector<std::map<int, Votes>> votes_;         // by digest, and group whose leaf it is
  std::vector<const AuditTable*> heard_;            // those that are known
  std::vector<AuditFinding> findings_;
};

}  // namespace

std::vector<AuditFinding> judge(const StepPlan& plan, const std::vector<AuditTable>& tables) {
  Judge judge(plan);
  for (const AuditTable& table : tables) judge.hear(table);
  return judge.findings();
}

}  // namespace ostrakon::train
