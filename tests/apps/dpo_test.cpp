// SPDX-License-Identifier: Apache-2.0

// From pairs of answers as text to a model that prefers the chosen ones.

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "command.hpp"
#include "fixtures.hpp"

namespace ostrakon::testing {
namespace {

using Texts = std::vector<std::string>;
using Json = nlohmann::json;

const char* const deck = R"(ostrakon:
  model: {layers: 1, width: 32, heads: 4, vocabulary: 257}
  data: {path: pairs-train.h5, validation_path: pairs-validation.h5}
  training:
    objective: dpo
    dpo_beta: 0.5
    steps: 6
    global_batch_size: 8
    micro_batch_size: 2
    sequence_length: 64
    validate_every: 6
  optimizer: {learning_rate: 1e-2}
  schedule: {tail: constant}
  checkpoint: {every: 3}
  output: {directory: run, digest_every: 1}
  runtime: {peak_gflops: 1}
)";

class DpoProgram : public SharedFolder<DpoProgram> {
 protected:
  static void SetUpTestSuite() {
    std::string records;
    for (int i = 0; i < 40; ++i)
      records += Json({{"prompt", "What is " + std::to_string(i) + "? "},
                       {"chosen", std::string(static_cast<std::size_t>(3 + i % 5), 'a')},
                       {"rejected", std::string(static_cast<std::size_t>(3 + i % 7), 'b')}})
                     .dump() +
                 "\n";
    write_bytes(path("pairs.jsonl"), records);
    write_bytes(path("deck.yaml"), deck);
    must("ostrakon-data",
         {"build", "--output", "pairs", "--validation-fraction", "0.2", "--pairs", "pairs.jsonl"});
  }

  static Outcome train(int ranks, const std::string& run, const Texts& settings = {}) {
    Texts all = {"deck.yaml", "--resume", "auto", "--set", "output.directory=" + run};
    for (const std::string& setting : settings) all.insert(all.end(), {"--set", setting});
    return start("ostrakon-train", all, ranks);
  }
  /// The rows of a run's metrics, without what is measured.
  static std::vector<Json> rows(const std::string& run) {
    std::vector<Json> all;
    std::istringstream lines(read_bytes(path(run + "/metrics.jsonl")));
    for (std::string line; std::getline(lines, line);) {
      Json row = Json::parse(line);
      for (const char* const measured :
           {"step_seconds", "tokens_per_second", "mfu", "peak_bytes", "planned_peak_bytes",
            "resident_bytes", "allocations", "rank_seconds", "mfu_uncertain"})
        row.erase(measured);
      all.push_back(row);
    }
    return all;
  }
};

TEST_F(DpoProgram, BeginsAsTheReferenceAndLearnsWhatIsPreferred) {
  const Outcome outcome = train(1, "one");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  expect_in(outcome.out, {" pairs of answers, each in a sample of 64 tokens",
                          "computing the reference's log-probabilities of ",
                          "one/reference-train.h5\n", "  reward margin 0.000  accuracy 0.0 %"});
  const std::vector<Json> all = rows("one");
  ASSERT_EQ(all.size(), 7u);
  EXPECT_NEAR(all[0]["loss"], std::log(2.0), 1e-7);
  for (const char* const what : {"reward_chosen", "reward_rejected", "reward_margin"})
    EXPECT_EQ(all[0][what], 0.0);
  EXPECT_LT(all[5]["loss"], 0.6);
  EXPECT_GT(all[5]["reward_margin"], 0.2);
  EXPECT_EQ(all[5]["reward_accuracy"], 1.0);
  EXPECT_FALSE(all[5].contains("counted_tokens"));
  EXPECT_LT(all[6]["validation_loss"], 0.6);
  EXPECT_EQ(all[6]["reward_accuracy"], 1.0);
}

TEST_F(DpoProgram, HasTheSameBitsOnOtherRanksAndThroughAResume) {
  ASSERT_EQ(train(1, "whole").status, 0);
  ASSERT_EQ(train(2, "parts", {"training.steps=3", "parallel.sharding=full"}).status, 0);
  ASSERT_EQ(train(4, "parts", {"parallel.sharding=full"}).status, 0);
  std::vector<Json> whole = rows("whole"), parts = rows("parts");
  // The run of three steps has validated at its end.
  parts.erase(parts.begin() + 3);
  EXPECT_EQ(parts, whole);
}

TEST_F(DpoProgram, RefusesReferencesOfOtherPairsOrWeights) {
  ASSERT_EQ(train(1, "first", {"training.steps=1", "data.reference=kept"}).status, 0);
  ASSERT_TRUE(std::filesystem::exists(path("kept-train.h5")));
  const Outcome again = train(1, "second", {"training.steps=1", "data.reference=kept"});
  EXPECT_EQ(again.status, 0) << again.err;
  expect_in(again.out, {"the reference's log-probabilities are those in "});
  const Outcome other_weights =
      train(2, "third", {"training.steps=1", "data.reference=kept", "training.seed=5"});
  EXPECT_EQ(other_weights.status, 1);
  expect_in(other_weights.err,
            {"data.reference", "kept-train.h5' is of another reference than this run's: the ",
             "hash of weights was ", "expected the file of this one, or another data.reference"});
  must("ostrakon-data",
       {"build", "--output", "other", "--validation-fraction", "0", "--pairs", "pairs.jsonl"});
  const Outcome other_pairs =
      train(1, "fourth", {"training.steps=1", "data.reference=kept", "data.path=other-train.h5"});
  EXPECT_EQ(other_pairs.status, 1);
  expect_in(other_pairs.err, {"kept-train.h5' is of other pairs: the checksum was "});
}

TEST_F(DpoProgram, RefusesAFolderOfReferencesThatIsNotThereBeforeItComputes) {
  const Outcome outcome = train(2, "nowhere", {"training.steps=1", "data.reference=none/kept"});
  EXPECT_EQ(outcome.status, 1);
  expect_in(outcome.err, {"data.reference", "kept-train.h5' can't be written: there is no folder"});
  EXPECT_EQ(outcome.out.find("computing the reference"), std::string::npos);
}

TEST_F(DpoProgram, IsNotMeasuredOnSyntheticData) {
  for (const int ranks : {1, 2}) {
    const Outcome outcome =
        start("ostrakon-bench", {"step", "deck.yaml", "--set", "data.path=none.h5"}, ranks);
    EXPECT_EQ(outcome.status, 1);
    expect_in(outcome.err, {"none.h5' is not there, and training.objective = dpo takes pairs"});
  }
}

TEST_F(DpoProgram, RefusesPairsWithAnotherObjective) {
  must("ostrakon-data", {"build", "--output", "prompts", "--field", "prompt",
                         "--validation-fraction", "0", "pairs.jsonl"});
  const auto refuses = [](const std::string& data, const std::string& file) {
    const Outcome outcome = train(2, "bad", {"training.objective=next_token", "data.path=" + data});
    EXPECT_EQ(outcome.status, 1);
    expect_in(outcome.err, {file + "' has pairs of answers, and training.objective is next_token",
                            "expected training.objective = dpo, or a file without pairs"});
  };
  refuses("pairs-train.h5", "pairs-train.h5");
  refuses("prompts-train.h5; pairs-train.h5", "pairs-train.h5");
  refuses("prompts-train.h5", "pairs-validation.h5");
}

TEST_F(DpoProgram, RefusesDataThatAreNoPairsOrTooLong) {
  must("ostrakon-data", {"build", "--output", "text", "--field", "prompt", "--validation-fraction",
                         "0", "pairs.jsonl"});
  const Outcome no_pairs = train(1, "bad", {"data.path=text-train.h5"});
  EXPECT_EQ(no_pairs.status, 1);
  expect_in(no_pairs.err,
            {"text-train.h5' has no pairs of answers", "ostrakon-data build --pairs"});
  const Outcome too_long = train(2, "bad", {"training.sequence_length=35"});
  EXPECT_EQ(too_long.status, 1);
  expect_in(too_long.err, {"pairs have more tokens than training.sequence_length = 35", "expected ",
                           " or more, or a file without them"});
  const Outcome mixture = train(1, "bad", {"data.path=pairs-train.h5; pairs-validation.h5"});
  EXPECT_EQ(mixture.status, 1);
  expect_in(mixture.err, {"data.path names 2 files with training.objective = dpo; expected one"});
}

}  // namespace
}  // namespace ostrakon::testing
