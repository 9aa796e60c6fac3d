// SPDX-License-Identifier: Apache-2.0

// Runs on mixtures that stop and resume, on other ranks and with other weights.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <ostrakon/checkpoint/manifest.hpp>
#include <ostrakon/data/dataset.hpp>
#include <ostrakon/data/mixture_order.hpp>
#include <ostrakon/data/token_file.hpp>
#include <random>
#include <sstream>
#include <string>
#include <support/scratch_folder.hpp>
#include <utility>
#include <vector>

#include "command.hpp"
#include "fixtures.hpp"

namespace ostrakon::testing {
namespace {

using Texts = std::vector<std::string>;
using Json = nlohmann::json;

const char* const deck = R"(ostrakon:
  model: {layers: 1, width: 32, heads: 4, vocabulary: 61}
  data:
    path:
      - 3 a.h5
      - 1 b.h5
  training: {steps: 6, global_batch_size: 4, micro_batch_size: 1, sequence_length: 24}
  schedule: {tail: constant}
  checkpoint: {every: 3}
  output: {directory: run}
  runtime: {peak_gflops: 1}
)";

class MixtureRuns : public ::testing::Test {
 protected:
  MixtureRuns() {
    write_bytes(path("deck.yaml"), deck);
    write("a.h5", 700, 1);
    write("b.h5", 900, 2);
    write("c.h5", 800, 3);
  }

  std::string path(const std::string& name) const { return folder_.file(name); }

  void write(const std::string& name, std::size_t count, unsigned seed) const {
    std::mt19937 generator(seed);
    std::vector<std::int32_t> tokens(count);
    std::vector<std::uint8_t> counts(count);
    data::TokenFileWriter writer(path(name), "test", 61, {});
    for (std::size_t i = 0; i < count; ++i) {
      tokens[i] = static_cast<std::int32_t>(generator() % 61);
      counts[i] = generator() % 4 == 0 ? 0 : 1;
    }
    for (std::size_t at = 0; at < count; at += 20) {
      writer.append(tokens.data() + at, 20, counts.data() + at);
      writer.end_document();
    }
    writer.finish();
  }

  Outcome train(int ranks, const Texts& settings) const {
    Texts all = {"deck.yaml", "--resume", "auto"};
    for (const std::string& setting : settings) {
      all.emplace_back("--set");
      all.push_back(setting);
    }
    return run_command(program("ostrakon-train", ranks, all, path("")));
  }
  Outcome expect_done(int ranks, const Texts& settings) const {
    const Outcome outcome = train(ranks, settings);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome;
  }

  /// source_samples of each step.
  std::vector<std::vector<std::uint64_t>> taken(const std::string& run) const {
    std::vector<std::vector<std::uint64_t>> all;
    std::istringstream rows(read_bytes(path(run + "/metrics.jsonl")));
    for (std::string row; std::getline(rows, row);) {
      const Json one = Json::parse(row);
      if (one.contains("source_samples")) all.push_back(one["source_samples"]);
    }
    return all;
  }

  ScratchFolder folder_;
};

/// Six steps on two ranks, three with other weights and another file on one rank, three with others
/// still on four, of another global batch size.
TEST_F(MixtureRuns, LoseAndRepeatNoSampleWhenTheyResumeWithOtherWeights) {
  Outcome outcome = expect_done(2, {});
  expect_in(outcome.out, {"a.h5\n", "75 % of samples", "25 % of samples",
                          "sources of the data after 24 samples"});
  outcome = expect_done(1, {"training.steps=9", "data.path=0 a.h5; 1 b.h5; 1 c.h5"});
  expect_in(outcome.out, {"taken so far: 0 samples", "0 % of samples", "50 % of samples"});
  expect_done(
      4, {"training.steps=12", "training.global_batch_size=8", "data.path=2 a.h5; 1 b.h5; 5 c.h5"});

  // What each step took is what the order says that the last checkpoint keeps; and that draws from
  // each file one sample after the other.
  const std::string manifest_file =
      checkpoint::manifest_path(path("run/checkpoints/step-00000012"));
  const checkpoint::Manifest manifest =
      checkpoint::read_manifest(read_bytes(manifest_file), manifest_file);
  ASSERT_EQ(manifest.progress.samples, 9 * 4 + 3 * 8);
  data::MixtureOrder order(manifest.progress.seed, {2, 1, 5});
  order.continue_from(60, data::kept_choices(manifest.data));
  const std::vector<std::vector<std::uint64_t>> found = taken("run");
  ASSERT_EQ(found.size(), 12u);
  std::vector<std::uint64_t> next(3, 0);
  std::uint64_t sample = 0;
  for (std::size_t step = 0; step < 12; ++step) {
    for (const std::uint64_t end = sample + (step < 9 ? 4 : 8); sample < end; ++sample) {
      const data::MixtureOrder::Drawn drawn = order.draw(sample);
      ASSERT_EQ(drawn.index, next[drawn.source]++);
    }
    std::vector<std::uint64_t> expected = next;
    if (step < 6) expected.pop_back();
    EXPECT_EQ(found[step], expected) << "step " << step + 1;
  }
  EXPECT_EQ(found[8][0], found[5][0]) << "a file of weight 0";
}

TEST_F(MixtureRuns, HaveTheSameBitsOnAnyRanksAndWithAnEnd) {
  const Texts last = {"training.steps=9", "data.path=1 a.h5; 2 b.h5"};
  const auto with_folder = [](Texts settings, const std::string& folder) {
    settings.push_back("output.directory=" + folder);
    return settings;
  };
  for (const auto& [folder, ranks] : {std::pair<const char*, int>{"one", 1}, {"two", 2}}) {
    expect_done(ranks, with_folder({"training.steps=3"}, folder));
    expect_done(3 - ranks, with_folder({}, folder));  // with the same weights
    expect_done(ranks, with_folder(last, folder));
  }
  expect_done(2, with_folder({}, "whole"));
  expect_done(1, with_folder(last, "whole"));
  const auto losses = [&](const std::string& run) {
    std::vector<double> all;
    std::istringstream rows(read_bytes(path(run + "/metrics.jsonl")));
    for (std::string row; std::getline(rows, row);) all.push_back(Json::parse(row)["loss"]);
    return all;
  };
  EXPECT_EQ(losses("one").size(), 9u);
  EXPECT_EQ(losses("one"), losses("two"));
  EXPECT_EQ(losses("one"), losses("whole"));
}

TEST_F(MixtureRuns, RefuseToResumeWithoutAFile) {
  expect_done(1, {"training.steps=3"});
  for (const auto& [files, reason] :
       {std::pair<const char*, const char*>{"a.h5",
                                            "the checksum of source 2 of its training data"},
        {"1 a.h5; 1 c.h5", "the checksum of source 2 of its training data was"},
        {"1 b.h5; 1 a.h5", "the checksum of its training data was"}}) {
    const Outcome outcome = train(1, {"training.steps=4", std::string("data.path=") + files});
    EXPECT_EQ(outcome.status, 1) << files;
    expect_in(outcome.err, {reason, "expected the same data, or --allow-changes data"});
  }
}

TEST_F(MixtureRuns, ContinueARunOnTheirFirstFile) {
  expect_done(1, {"training.steps=3", "data.path=a.h5"});
  const Outcome outcome = expect_done(2, {"training.steps=6"});
  expect_in(outcome.out, {"sources of the data after 12 samples", "taken so far: 12 samples",
                          "taken so far: 0 samples"});
  const auto found = taken("run");
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[2][0] + found[2][1], 24u);
  EXPECT_GE(found[2][0], 12u);
}

TEST_F(MixtureRuns, TrainOnWholeDocuments) {
  const Texts settings = {"data.documents=separate", "training.validate_every=6",
                          "data.validation_path=c.h5"};
  const Outcome outcome = expect_done(2, settings);
  expect_in(outcome.out, {"of their places are padding", "counted"});
  const Outcome refused =
      train(1, {"data.validation_path=c.h5; a.h5", "training.validate_every=1"});
  EXPECT_EQ(refused.status, 1);
  expect_in(refused.err, {"data.validation_path", "names 2 files; expected one"});
}

}  // namespace
}  // namespace ostrakon::testing
