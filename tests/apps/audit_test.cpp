// SPDX-License-Identifier: Apache-2.0

// Runs whose ranks have a bit flipped on purpose: the rank is named, and the run goes on with the
// bits of one without, or ends.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "resume_fixture.hpp"
#include "support/table.hpp"

namespace ostrakon::testing {
namespace {

class AuditedRun : public Resume {};

TEST_F(AuditedRun, NamesTheRankAndGoesOn) {
  ASSERT_EQ(train(2, {"training.steps=6", "output.digest_every=1"}).status, 0);
  const Json clean = rows().at(6).at("state_digest");
  fs::remove_all(output(""));
  const Outcome outcome =
      train(2, {"training.steps=6", "output.digest_every=1", "runtime.audit=2",
                "runtime.inject=rank 1, step 4, backward(block.0, micro-batch 2): "
                "flip gradient 3"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_TRUE(says(outcome.out, "audits..one step in 2: it computes .. more")) << outcome.out;
  EXPECT_TRUE(says(outcome.out,
                   "audit of step 4: rank 1 (..) has computed a wrong gradient of block.0; the "
                   "step was repeated"))
      << outcome.out;
  EXPECT_FALSE(rows().at(3).contains("audited"));
  EXPECT_EQ(rows().at(4).at("audited"), true);
  EXPECT_TRUE(says(rows().at(4).at("audit_finding"), "rank 1 (..block.0"));
  EXPECT_FALSE(rows().at(2).contains("audit_finding"));
  EXPECT_EQ(rows().at(6).at("state_digest"), clean);
}

TEST_F(AuditedRun, EndsWhereARankIsWrongAgain) {
  const Outcome outcome =
      train(4, {"training.steps=6", "runtime.audit=1", "checkpoint.every=2",
                "runtime.inject=rank 2, step 5, backward(block.0): flip gradient 3 always"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(says(outcome.err,
                   "step 5: an audit has found wrong numbers, also when the step was repeated: "
                   "rank 2 (..) has computed a wrong gradient of block.0. No parameter has changed "
                   "in this step; the last step whose audit has passed is 4. Resume without that "
                   "host, from a checkpoint of step 3 or before"))
      << outcome.err;
  // The parameters may be wrong since a step that was not audited.
  EXPECT_FALSE(fs::exists(output("weights.h5")));
  EXPECT_EQ(checkpoints().count("step-00000002"), 1U);
}

TEST_F(AuditedRun, KeepsACheckpointBeforeTheLastAuditedStep) {
  const Outcome outcome =
      train(2, {"training.steps=9", "runtime.audit=4", "checkpoint.every=1", "checkpoint.keep=1"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(checkpoints(), (std::set<std::string>{"latest", "step-00000007", "step-00000009"}));
}

TEST_F(AuditedRun, RefusesFaultsThatNeverStrike) {
  const auto refusal = [&](const std::string& audit, const std::string& fault) {
    const Outcome outcome =
        train(2, {"training.steps=6", "runtime.audit=" + audit, "runtime.inject=rank 1, " + fault});
    EXPECT_EQ(outcome.status, 1) << fault;
    return outcome.err;
  };
  const std::string why =
      "runtime.inject: step 4 is audited (runtime.audit = 2), where only flips strike; expected a "
      "step that is not, or runtime.audit = 0";
  EXPECT_TRUE(says(refusal("2", "step 4, load: exit"), why));
  EXPECT_TRUE(says(refusal("1", "step 4: slow_data 0.1"), "step 4 is audited (runtime.audit = 1)"));
  EXPECT_TRUE(says(refusal("2", "step 3, backward(block.0, again): flip gradient"),
                   "rank 1 has no action \"backward(block.0, again)\" in step 3"));
}

TEST_F(AuditedRun, OfOneRankFindsOnlyWhatDoesNotRecur) {
  const Outcome outcome = train(1, {"training.steps=1", "runtime.audit=1"}, {"--dry-run"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_TRUE(says(outcome.out, "each rank computes its own leaves again")) << outcome.out;
  const Outcome two = train(2, {"training.steps=1", "runtime.audit=1"}, {"--dry-run"});
  ASSERT_EQ(two.status, 0) << two.err;
  EXPECT_FALSE(says(two.out, "each rank computes its own leaves again")) << two.out;
}

TEST_F(AuditedRun, HasTheCheckpointsOfOneWithoutAudits) {
  const auto checkpoint_of = [&](const std::string& folder, const std::string& audit) {
    const Outcome outcome = train(
        2, {"training.steps=2", "checkpoint.every=2", audit, "output.directory=" + path(folder)});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return path(folder + "/checkpoints/step-00000002");
  };
  const Outcome diff = run_command(program("ostrakon-checkpoint", 1,
                                           {"diff", checkpoint_of("with", "runtime.audit=1"),
                                            checkpoint_of("without", "runtime.audit=0")},
                                           path("")));
  EXPECT_EQ(diff.status, 0) << diff.err;
  EXPECT_TRUE(says(diff.out, "\nequal\n")) << diff.out;
}

}  // namespace
}  // namespace ostrakon::testing
