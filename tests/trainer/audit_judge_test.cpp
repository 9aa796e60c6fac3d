// SPDX-License-Identifier: Apache-2.0
// What audits make of digests, without ranks: who computes what again, and who is wrong.
#include <gtest/gtest.h>

#include <ostrakon/math/random.hpp>
#include <ostrakon/plan/ir/step_plan.hpp>
#include <ostrakon/trainer/audit/audit.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "plan/checks.hpp"

namespace ostrakon::tests {
namespace {

using train::audited_rank;
using train::AuditFinding;
using train::AuditTable;
using train::judge;
using Found = AuditFinding::What;
using What = plan::Digest::What;

/// How the ranks of a plan divide their work.
struct Division {
  int ranks = 1;
  int sharing = 1;      ///< context ranks
  int tensor = 1;       ///< tensor ranks
  int shard_group = 0;  ///< ranks that share one copy of the model; 0: all
};

plan::StepPlan audit_plan(const Division& division, int micro_batches = 2) {
  plan::ModelDescription model;
  for (const char* name : {"embedding", "block", "head"}) {
    plan::UnitDescription unit;
    unit.name = name;
    unit.parameter_elements = 6400;
    unit.forward = unit.backward = {plan::Phase()};
    unit.output_bytes = 64;
    model.units.push_back(unit);
  }
  model.gradient_bytes = model.batch_bytes = 64;
  model.units.front().reads_batch = true;
  model.has_loss = true;
  model.tensor_ranks = division.tensor;
  plan::Policy policy;
  policy.leaves = micro_batches * division.ranks / division.tensor;
  policy.context_ranks = division.sharing;
  policy.tensor_ranks = division.tensor;
  policy.shard_group = division.shard_group;
  return build_step_plan(model, division.ranks, policy, plan::Purpose::audit);
}

std::uint64_t hash_of(std::int64_t a, std::int64_t b, std::int64_t c) {
  std::uint64_t hash = 1;
  for (const std::int64_t part : {a, b, c})
    hash = math::mix_bits(hash + static_cast<std::uint64_t>(part));
  return hash;
}

/// What ranks compute that are all right. Ranks are numbered along tensor, then the shard group,
/// then replicas, and parameters are divided over the first two.
AuditTable right_table(const plan::StepPlan& plan, const train::AuditRound& round) {
  const int ranks = plan.grid.ranks(), tensor = plan.grid.tensor();
  const int replica = tensor * plan.grid.shard();
  AuditTable table{round, {}};
  table.digests.assign(static_cast<std::size_t>(ranks),
                       std::vector<std::uint64_t>(plan.digests.size()));
  for (int r = 0; r < ranks; ++r)
    for (std::size_t d = 0; d < plan.digests.size(); ++d) {
      const plan::Digest& digest = plan.digests[d];
      std::uint64_t& value = table.digests[static_cast<std::size_t>(r)][d];
      switch (digest.what) {
        case What::stored:
        case What::stored_after:
          value = hash_of(r % replica, digest.unit, 1);
          break;
        case What::read:
          for (int other = r % tensor; other < replica; other += tensor)
            value += hash_of(other, digest.unit, 1);
          break;
        case What::gradient: {
          const int whose = digest.again ? audited_rank(plan, r, round.shift) : r;
          value = hash_of(plan.leaf(whose, round.micro_batch) * tensor + whose % tensor,
                          digest.unit, digest.computed + 2);
          break;
        }
      }
    }
  return table;
}

/// What ranks compute in two runs of a step.
std::vector<AuditTable> two_tables(const plan::StepPlan& plan) {
  std::vector<AuditTable> tables;
  for (const int attempt : {0, 1})
    tables.push_back(right_table(plan, train::audit_round(plan, 1, attempt)));
  EXPECT_TRUE(judge(plan, tables).empty());
  return tables;
}

std::size_t find(const plan::StepPlan& plan, What what, int unit, bool again) {
  for (std::size_t d = 0; d < plan.digests.size(); ++d)
    if (plan.digests[d].what == what && plan.digests[d].unit == unit &&
        plan.digests[d].again == again)
      return d;
  ADD_FAILURE() << "no such digest";
  return 0;
}

/// Changes a digest of a rank.
void spoil(AuditTable& table, int rank, std::size_t digest, std::uint64_t bits = 4) {
  table.digests[static_cast<std::size_t>(rank)][digest] ^= bits;
}

TEST(AuditRounds, EveryLeafIsComputedByOneOtherRank) {
  for (const int ranks : {1, 2, 4, 8})
    for (const int sharing : {1, 2})
      for (const int tensor : {1, 2}) {
        if (ranks % (sharing * tensor) != 0) continue;
        const plan::StepPlan plan = audit_plan({ranks, sharing, tensor});
        const int groups = ranks / sharing / tensor;
        EXPECT_EQ(train::groups_of(plan), groups);
        for (int audit = 1; audit < 20; ++audit)
          for (const int attempt : {0, 1}) {
            const train::AuditRound round = train::audit_round(plan, audit, attempt);
            EXPECT_EQ(round.shift == 0, groups == 1);
            if (groups > 2 && attempt == 1) {
              EXPECT_NE(round.shift, train::audit_round(plan, audit, 0).shift);
            }
            std::set<int> audited;
            for (int r = 0; r < ranks; ++r) {
              const int other = audited_rank(plan, r, round.shift);
              audited.insert(other);
              EXPECT_EQ(train::group_of(plan, other) == train::group_of(plan, r), groups == 1);
              EXPECT_EQ(plan.grid.coordinate(other, plan::Axis::tensor),
                        plan.grid.coordinate(r, plan::Axis::tensor));
              EXPECT_EQ(plan.leaf(other, 0) % sharing, plan.leaf(r, 0) % sharing);
            }
            EXPECT_EQ(audited.size(), static_cast<std::size_t>(ranks));
          }
      }
}

TEST(AuditRounds, EveryMicroBatchIsAuditedWithEveryShift) {
  for (const int ranks : {2, 3, 5})
    for (const int micro_batches : {1, 2, 4}) {
      const plan::StepPlan plan = audit_plan({ranks}, micro_batches);
      std::set<std::pair<std::int64_t, int>> rounds;
      for (int audit = 1; audit <= micro_batches * (ranks - 1); ++audit) {
        const train::AuditRound round = train::audit_round(plan, audit, 0);
        rounds.emplace(round.micro_batch, round.shift);
      }
      EXPECT_EQ(rounds.size(), static_cast<std::size_t>(micro_batches * (ranks - 1)));
    }
}

/// Two runs of a step, in the first of which one number is wrong.
std::vector<AuditFinding> with_one_wrong(const plan::StepPlan& plan, int rank, std::size_t digest,
                                         bool again_in_second = false) {
  std::vector<AuditTable> tables = two_tables(plan);
  spoil(tables[0], rank, digest);
  EXPECT_FALSE(judge(plan, {tables[0]}).empty());
  if (again_in_second) spoil(tables[1], rank, digest, 8);
  return judge(plan, tables);
}

void expect_one(const std::vector<AuditFinding>& findings, Found what, int unit,
                const std::vector<int>& ranks) {
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].what, what);
  EXPECT_EQ(findings[0].unit, unit);
  EXPECT_EQ(findings[0].ranks, ranks);
}

TEST(AuditJudge, NamesTheRankOfEachWrongNumber) {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    const plan::StepPlan plan = audit_plan({ranks});
    for (int rank = 0; rank < ranks; ++rank)
      for (int unit = 0; unit < 3; ++unit)
        for (const bool again : {false, true}) {
          SCOPED_TRACE(text(ranks, " ranks, rank ", rank, ", unit ", unit, ", again ", again));
          expect_one(with_one_wrong(plan, rank, find(plan, What::gradient, unit, again)),
                     Found::gradient, unit, {rank});
          expect_one(with_one_wrong(plan, rank, find(plan, What::read, unit, again)), Found::read,
                     unit, {rank});
          for (const What what : {What::stored_after, What::stored}) {
            const std::size_t digest = find(plan, what, unit, false);
            AuditTable table = right_table(plan, train::audit_round(plan, 1, 0));
            spoil(table, rank, digest);
            expect_one(judge(plan, {table}), Found::changed, unit, {rank});
            if (what == What::stored_after)
              expect_one(with_one_wrong(plan, rank, digest), Found::digest, unit, {rank});
          }
        }
  }
}

TEST(AuditJudge, ALastingErrorIsPinnedToARankOnlyByThree) {
  for (const int ranks : {3, 4}) {
    const plan::StepPlan plan = audit_plan({ranks});
    expect_one(with_one_wrong(plan, 1, find(plan, What::gradient, 2, false), true), Found::gradient,
               2, {1});
  }
  const plan::StepPlan plan = audit_plan({2});
  std::vector<AuditTable> tables(2, right_table(plan, train::audit_round(plan, 1, 0)));
  for (AuditTable& table : tables) spoil(table, 1, find(plan, What::gradient, 0, false));
  const std::vector<AuditFinding> found = judge(plan, tables);
  expect_one(found, Found::gradient, 0, {0, 1});
  EXPECT_EQ(describe(plan, found, {{0, "a"}, {1, "b"}}),
            "one of ranks 0-1 (a, b) has computed a wrong gradient of embedding");
}

TEST(AuditJudge, NamesTheUnitNearestToTheLoss) {
  const plan::StepPlan plan = audit_plan({4});
  std::vector<AuditTable> tables = two_tables(plan);
  for (const int unit : {0, 1}) spoil(tables[0], 2, find(plan, What::gradient, unit, false));
  expect_one(judge(plan, tables), Found::gradient, 1, {2});
}

/// An error of a rank reaches those that it exchanges activations with. They are judged as one, so
/// no others are named.
TEST(AuditJudge, NamesRanksThatComputeTogetherAsOne) {
  for (const Division& division : {Division{8, 2, 1}, Division{8, 1, 2}, Division{8, 2, 2},
                                   Division{12, 1, 2, 6}, Division{2, 1, 2}}) {
    const plan::StepPlan plan = audit_plan(division);
    const int together = division.sharing * division.tensor;
    for (int first = 0; first < division.ranks; first += together)
      for (const bool again : {false, true}) {
        SCOPED_TRACE(text(division.ranks, " ranks, from rank ", first, ", again ", again));
        std::vector<AuditTable> tables = two_tables(plan);
        std::vector<int> group;
        for (int rank = first; rank < first + together; ++rank) group.push_back(rank);
        for (const int unit : {0, 1})
          for (const int rank : group)
            spoil(tables[0], rank, find(plan, What::gradient, unit, again),
                  std::uint64_t{1} << static_cast<unsigned>(rank));
        const std::vector<AuditFinding> found = judge(plan, tables);
        expect_one(found, Found::gradient, 1, group);
        if (found.empty()) continue;
        std::vector<train::RankPlace> places;
        for (int rank = 0; rank < division.ranks; ++rank) places.push_back({rank, "n"});
        EXPECT_EQ(describe(plan, found, places),
                  text("one of ranks ", first, "-", first + together - 1,
                       " (n) has computed a wrong gradient of block"));
      }
  }
}

/// What is stored decides what ranks should have read, however many have read something else.
TEST(AuditJudge, IsNotOutvotedByRanksThatHaveReadWrongParameters) {
  const plan::StepPlan plan = audit_plan({4});
  const std::size_t read = find(plan, What::read, 1, false);
  std::vector<AuditTable> tables = two_tables(plan);
  for (const int rank : {0, 1, 2}) {
    spoil(tables[0], rank, read, std::uint64_t{1} << static_cast<unsigned>(rank));
    for (const int unit : {0, 1, 2})
      spoil(tables[0], rank, find(plan, What::gradient, unit, false));
  }
  std::vector<AuditFinding> found = judge(plan, tables);
  ASSERT_EQ(found.size(), 3U);
  for (const int rank : {0, 1, 2}) {
    EXPECT_EQ(found[static_cast<std::size_t>(rank)].what, Found::read);
    EXPECT_EQ(found[static_cast<std::size_t>(rank)].ranks, std::vector<int>{rank});
  }
  EXPECT_FALSE(damages_state(found));
}

/// Ranks that have read the same wrong parameters were sent them: the sender reads what it has.
TEST(AuditJudge, NamesWhoHasSentWhatSeveralRanksHaveReadAlike) {
  const plan::StepPlan plan = audit_plan({4});
  std::vector<AuditTable> tables = two_tables(plan);
  const auto expect_sent = [&](int reader, const std::vector<int>& senders) {
    spoil(tables[0], reader, find(plan, What::read, 1, false));
    const std::vector<AuditFinding> found = judge(plan, tables);
    expect_one(found, Found::sent, 1, senders);
    EXPECT_FALSE(damages_state(found));
    return describe(plan, found, {{0, "a"}, {1, "b"}, {2, "c"}, {3, "d"}});
  };
  spoil(tables[0], 0, find(plan, What::read, 1, false));
  expect_sent(1, {2, 3});
  EXPECT_EQ(expect_sent(2, {3}),
            "rank 3 (d), or a link from it, has sent other parameters of block than it has");
  expect_sent(3, {0, 1, 2, 3});
}

/// The plan has digests of a repeated backward last, from the loss to the begin.
TEST(AuditJudge, NamesTheUnitNearestToTheLossThatWasReadWrongly) {
  const plan::StepPlan plan = audit_plan({4});
  for (const bool again : {false, true})
    for (const int table : {0, 1}) {
      std::vector<AuditTable> tables = two_tables(plan);
      spoil(tables[0], 2, find(plan, What::read, 0, again));
      spoil(tables[static_cast<std::size_t>(table)], 2, find(plan, What::read, 2, again));
      expect_one(judge(plan, tables), Found::read, 2, {2});
    }
  AuditTable all = right_table(plan, train::audit_round(plan, 1, 0));
  for (std::size_t d = 0; d < plan.digests.size(); ++d)
    if (plan.digests[d].what == What::read) spoil(all, 2, d);
  expect_one(judge(plan, {all}), Found::read, 2, {2});
}

/// What ranks store has to be the same in both runs of a step, or equal to other replicas at last.
TEST(AuditJudge, TellsChangedParametersFromAWrongDigest) {
  const plan::StepPlan alone = audit_plan({2}), replicated = audit_plan({4, 1, 1, 2});
  const auto with_wrong = [](const plan::StepPlan& plan, const std::vector<int>& places) {
    std::vector<AuditTable> tables = two_tables(plan);
    for (const int place : places) {  // in the order in which they are computed
      AuditTable& table = tables[place < 2 ? 0 : 1];
      table.digests[1][find(plan, place % 2 == 0 ? What::stored : What::stored_after, 1, false)] +=
          17;
    }
    // What is damaged when the second run begins is read as it is.
    if (places.size() > 1)
      for (const std::size_t rank : {0, 1})
        for (std::size_t d = 0; d < plan.digests.size(); ++d)
          if (plan.digests[d].what == What::read && plan.digests[d].unit == 1)
            tables[1].digests[rank][d] += 17;
    return judge(plan, tables);
  };
  for (const plan::StepPlan& plan : {alone, replicated}) {
    for (const auto& lasting : {std::vector<int>{1, 2, 3}, {2, 3}, {3}}) {
      const std::vector<AuditFinding> found = with_wrong(plan, lasting);
      expect_one(found, Found::changed, 1, {1});
      EXPECT_TRUE(damages_state(found));
    }
    for (const int once : {1, 2}) {
      const std::vector<AuditFinding> found = with_wrong(plan, {once});
      expect_one(found, Found::digest, 1, {1});
      EXPECT_FALSE(damages_state(found));
    }
  }
  // A change after the first digest looks like a first digest that is wrong, but for replicas.
  expect_one(with_wrong(alone, {0}), Found::changed, 1, {1});
  const std::vector<AuditFinding> found = with_wrong(replicated, {0});
  expect_one(found, Found::digest, 1, {1});
  EXPECT_EQ(describe(replicated, found, {{0, "a"}, {1, "b"}, {2, "c"}, {3, "d"}}),
            "rank 1 (b) has computed a wrong digest of parameters of block in its memory");
}

/// A shard that was damaged between two steps: all ranks of its group read it as it is, and compute
/// other gradients than other groups do.
TEST(AuditJudge, NamesTheReplicaWhoseShardIsDamaged) {
  for (const int ranks : {4, 6}) {
    const plan::StepPlan plan = audit_plan({ranks, 1, 1, 2});
    AuditTable table = right_table(plan, train::audit_round(plan, 1, 0));
    for (const What what : {What::stored, What::stored_after})
      table.digests[3][find(plan, what, 1, false)] += 17;
    for (const int rank : {2, 3})
      for (std::size_t d = 0; d < plan.digests.size(); ++d) {
        std::uint64_t& value = table.digests[static_cast<std::size_t>(rank)][d];
        if (plan.digests[d].what == What::read && plan.digests[d].unit == 1) value += 17;
        if (plan.digests[d].what == What::gradient) value += 1;
      }
    const std::vector<AuditFinding> found = judge(plan, {table});
    // Of two replicas it is not known which is right.
    expect_one(found, Found::replica, 1, ranks == 4 ? std::vector<int>{1, 3} : std::vector<int>{3});
    EXPECT_TRUE(damages_state(found));
  }
}

TEST(AuditJudge, FindsMemoryThatChangesDuringAStepOnce) {
  const plan::StepPlan plan = audit_plan({4});
  AuditTable table = right_table(plan, train::audit_round(plan, 1, 0));
  table.digests[2][find(plan, What::stored_after, 0, false)] += 17;
  for (std::size_t rank = 0; rank < 4; ++rank) {
    table.digests[rank][find(plan, What::read, 0, true)] += 17;
    table.digests[rank][find(plan, What::gradient, 1, true)] += 1;
  }
  const std::vector<AuditFinding> found = judge(plan, {table});
  expect_one(found, Found::changed, 0, {2});
  EXPECT_TRUE(damages_state(found));
}

TEST(AuditJudge, TakesATableThatRanksDoNotAgreeOnForAFinding) {
  const plan::StepPlan plan = audit_plan({2});
  std::vector<AuditTable> tables = two_tables(plan);
  tables[0].digests.clear();
  const std::vector<AuditFinding> found = judge(plan, tables);
  expect_one(found, Found::exchange, -1, {});
  EXPECT_FALSE(damages_state(found));
  EXPECT_EQ(describe(plan, found, {}), "ranks have received different tables of digests");
}

TEST(AuditJudge, DescribesAtMostFourFindings) {
  const plan::StepPlan plan = audit_plan({7});
  std::vector<train::RankPlace> places;
  std::vector<AuditFinding> findings;
  for (int rank = 0; rank < 7; ++rank) {
    places.push_back({rank, "n"});
    findings.push_back({Found::read, 1, {rank}});
  }
  const std::string all = describe(plan, findings, places);
  EXPECT_NE(all.find("; rank 3 (n) has read other"), std::string::npos) << all;
  EXPECT_EQ(all.find("rank 4"), std::string::npos) << all;
  EXPECT_EQ(all.substr(all.size() - 12), "; and 3 more") << all;
  findings.resize(4);
  EXPECT_EQ(describe(plan, findings, places).find("more"), std::string::npos);
}

TEST(AuditJudge, NamesAtMostEightHosts) {
  const plan::StepPlan plan = audit_plan({10});
  std::vector<train::RankPlace> places;
  std::vector<int> all;
  for (int rank = 0; rank < 10; ++rank) {
    places.push_back({9 - rank, text("h", rank)});
    all.push_back(rank);
  }
  EXPECT_EQ(describe(plan, {{Found::replica, 1, all}}, places),
            "parameters of block in the memory of one of ranks 0-9 (h0, h1, h2, h3, h4, h5, h6, "
            "h7, ...) are not those of other replicas");
}

}  // namespace
}  // namespace ostrakon::tests
