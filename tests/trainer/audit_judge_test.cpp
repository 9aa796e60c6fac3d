// SPDX-License-Identifier: Apache-2.0
// What audits make of digests, without ranks: who computes what again, and who is wrong.
#include <gtest/gtest.h>

#include <ostrakon/math/random.hpp>
#include <ostrakon/plan/ir/step_plan.hpp>
#include <ostrakon/trainer/audit/audit.hpp>
#include <set>
#include <string>
#include <vector>

#include "plan/checks.hpp"

namespace ostrakon::tests {
namespace {

using train::audited_rank;
using train::AuditFinding;
using train::AuditTable;
using Found = AuditFinding::What;
using What = plan::Digest::What;

plan::StepPlan audit_plan(int ranks, int sharing = 1, int tensor = 1) {
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
  model.tensor_ranks = tensor;
  plan::Policy policy;
  policy.leaves = 2 * ranks / tensor;
  policy.context_ranks = sharing;
  policy.tensor_ranks = tensor;
  return build_step_plan(model, ranks, policy, plan::Purpose::audit);
}

std::uint64_t hash_of(std::int64_t a, std::int64_t b, std::int64_t c) {
  std::uint64_t hash = 1;
  for (const std::int64_t part : {a, b, c})
    hash = math::mix_bits(hash + static_cast<std::uint64_t>(part));
  return hash;
}

/// What ranks compute that are all right.
AuditTable right_table(const plan::StepPlan& plan, const train::AuditRound& round) {
  const int ranks = plan.grid.ranks();
  AuditTable table{round, {}};
  table.digests.assign(static_cast<std::size_t>(ranks),
                       std::vector<std::uint64_t>(plan.digests.size()));
  for (int r = 0; r < ranks; ++r)
    for (std::size_t d = 0; d < plan.digests.size(); ++d) {
      const plan::Digest& digest = plan.digests[d];
      std::uint64_t& value = table.digests[static_cast<std::size_t>(r)][d];
      const auto unit = static_cast<std::size_t>(digest.unit);
      const auto part = [&](int rank) {
        return plan.first_element(plan.units[unit].flats.first,
                                  plan.units[unit].layouts.gathered.divided, rank);
      };
      switch (digest.what) {
        case What::owned:
        case What::owned_after:
          value = hash_of(r, digest.unit, 1);
          break;
        case What::read:
          for (int other = 0; other < ranks; ++other)
            if (part(other) == part(r)) value += hash_of(other, digest.unit, 1);
          break;
        case What::gradient: {
          const int whose = digest.again ? audited_rank(plan, r, round.shift) : r;
          value = hash_of(plan.leaf(whose, round.micro_batch) * plan.grid.tensor() +
                              plan.grid.place(whose, plan::Axis::tensor),
                          digest.unit, digest.computed + 2);
          break;
        }
      }
    }
  return table;
}

std::size_t find(const plan::StepPlan& plan, What what, int unit, bool again) {
  for (std::size_t d = 0; d < plan.digests.size(); ++d)
    if (plan.digests[d].what == what && plan.digests[d].unit == unit &&
        plan.digests[d].again == again)
      return d;
  ADD_FAILURE() << "no such digest";
  return 0;
}

TEST(AuditRounds, EveryLeafIsComputedByOneOtherRank) {
  for (const int ranks : {1, 2, 3, 4, 8})
    for (const int sharing : {1, 2}) {
      if (ranks % sharing != 0 || ranks == 3) continue;
      for (const int tensor : {1, 2}) {
        if (ranks % (sharing * tensor) != 0) continue;
        const plan::StepPlan plan = audit_plan(ranks, sharing, tensor);
        std::set<std::int64_t> micro_batches;
        for (int audit = 1; audit < 20; ++audit)
          for (const int attempt : {0, 1}) {
            const train::AuditRound round = train::audit_round(plan, audit, attempt);
            micro_batches.insert(round.micro_batch);
            const int places = ranks / sharing / tensor;
            EXPECT_EQ(round.shift == 0, places == 1);
            if (places > 2 && attempt == 1) {
              EXPECT_NE(round.shift, train::audit_round(plan, audit, 0).shift);
            }
            std::set<int> audited;
            for (int r = 0; r < ranks; ++r) {
              const int other = audited_rank(plan, r, round.shift);
              audited.insert(other);
              EXPECT_EQ(other == r, places == 1);
              EXPECT_EQ(plan.grid.place(other, plan::Axis::tensor),
                        plan.grid.place(r, plan::Axis::tensor));
              EXPECT_EQ(plan.leaf(other, 0) % sharing, plan.leaf(r, 0) % sharing);
            }
            EXPECT_EQ(audited.size(), static_cast<std::size_t>(ranks));
          }
        EXPECT_EQ(micro_batches.size(), 2U);
      }
    }
}

/// Two runs of a step, in the first of which one number is wrong.
std::vector<AuditFinding> with_one_wrong(const plan::StepPlan& plan, int rank, std::size_t digest,
                                         bool again_in_second = false) {
  std::vector<AuditTable> tables;
  for (const int attempt : {0, 1})
    tables.push_back(right_table(plan, train::audit_round(plan, 1, attempt)));
  for (const AuditTable& table : tables) EXPECT_TRUE(train::agrees(plan, table));
  tables[0].digests[static_cast<std::size_t>(rank)][digest] ^= 4;
  EXPECT_FALSE(train::agrees(plan, tables[0]));
  if (again_in_second) tables[1].digests[static_cast<std::size_t>(rank)][digest] ^= 8;
  return judge(plan, tables);
}

void expect_one(const std::vector<AuditFinding>& findings, Found what, int unit, int rank) {
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].what, what);
  EXPECT_EQ(findings[0].unit, unit);
  EXPECT_EQ(findings[0].ranks, std::vector<int>{rank});
}

TEST(AuditJudge, NamesTheRankOfEachWrongNumber) {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    const plan::StepPlan plan = audit_plan(ranks);
    for (int rank = 0; rank < ranks; ++rank)
      for (int unit = 0; unit < 3; ++unit)
        for (const bool again : {false, true}) {
          SCOPED_TRACE(text(ranks, " ranks, rank ", rank, ", unit ", unit, ", again ", again));
          expect_one(with_one_wrong(plan, rank, find(plan, What::gradient, unit, again)),
                     Found::gradient, unit, rank);
          if (ranks == 1) continue;
          expect_one(with_one_wrong(plan, rank, find(plan, What::read, unit, again)),
                     Found::parameters, unit, rank);
          expect_one(with_one_wrong(plan, rank, find(plan, What::owned_after, unit, false)),
                     Found::state, unit, rank);
        }
  }
}

TEST(AuditJudge, ALastingErrorIsPinnedToARankOnlyByThree) {
  for (const int ranks : {2, 3, 4}) {
    const plan::StepPlan plan = audit_plan(ranks);
    const std::vector<AuditFinding> found =
        with_one_wrong(plan, 1, find(plan, What::gradient, 2, false), true);
    // Ranks 0 and 1 of two have as many different values.
    if (ranks > 2) expect_one(found, Found::gradient, 2, 1);
  }
  const plan::StepPlan plan = audit_plan(2);
  std::vector<AuditTable> tables(2, right_table(plan, train::audit_round(plan, 1, 0)));
  for (AuditTable& table : tables) table.digests[1][find(plan, What::gradient, 0, false)] ^= 4;
  const std::vector<AuditFinding> found = judge(plan, tables);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].ranks, (std::vector<int>{0, 1}));
  EXPECT_EQ(describe(plan, found, {"rank 0 (a)", "rank 1 (b)"}),
            "rank 0 (a) or rank 1 (b) has computed a wrong gradient of embedding");
}

TEST(AuditJudge, NamesTheUnitNearestToTheLoss) {
  const plan::StepPlan plan = audit_plan(4);
  std::vector<AuditTable> tables;
  for (const int attempt : {0, 1})
    tables.push_back(right_table(plan, train::audit_round(plan, 1, attempt)));
  for (const int unit : {0, 1}) tables[0].digests[2][find(plan, What::gradient, unit, false)] ^= 4;
  expect_one(judge(plan, tables), Found::gradient, 1, 2);
}

}  // namespace
}  // namespace ostrakon::tests
