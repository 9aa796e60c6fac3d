// SPDX-License-Identifier: Apache-2.0

// ostrakon-plan as a user runs it: alone, for any number of ranks, without data.

#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <support/scratch_folder.hpp>
#include <vector>

#include "command.hpp"

namespace ostrakon::testing {
namespace {

using Json = nlohmann::json;

const char* const deck = R"(ostrakon:
  model: {layers: 2, width: 32, heads: 4, kv_heads: 2, vocabulary: 257}
  data: {path: nowhere/text-train.h5}
  training: {steps: 1, global_batch_size: 64, micro_batch_size: 1, sequence_length: 24}
)";

class Plan : public ::testing::Test {
 protected:
  Plan() { write_bytes(path("deck.yaml"), deck); }

  std::string path(const std::string& name) const { return folder_.file(name); }

  /// Without mpiexec.
  Outcome run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), OSTRAKON_APPS_DIR "/ostrakon-plan");
    Command command;
    command.arguments = std::move(arguments);
    command.folder = path(".");
    return run_command(command);
  }

  void expect_refused(std::vector<std::string> arguments, const std::string& words) const {
    const Outcome outcome = run(std::move(arguments));
    EXPECT_EQ(outcome.status, 1);
    EXPECT_EQ(outcome.err.rfind("ostrakon-plan: error: ", 0), 0u) << outcome.err;
    EXPECT_EQ(outcome.err.find('\n'), outcome.err.size() - 1) << outcome.err;
    EXPECT_NE(outcome.err.find(words), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }

  ScratchFolder folder_;
};

TEST_F(Plan, ShowsADeckForAnyNumberOfRanksWithoutItsData) {
  for (const char* ranks : {"1", "8", "64"}) {
    const Outcome outcome = run({"deck.yaml", "--ranks", ranks});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    for (const char* words : {"parameters, moments and summed gradients", "by unit",
                              "overlap that the waits allow", "GFLOP"})
      EXPECT_NE(outcome.out.find(words), std::string::npos) << outcome.out;
    const bool sends = ranks != std::string("1");
    for (const char* words : {"messages, one rank's part", "sent while nothing computes"})
      EXPECT_EQ(outcome.out.find(words) != std::string::npos, sends) << outcome.out;
  }
}

TEST_F(Plan, WritesJsonAndAPicture) {
  const Outcome outcome = run({"deck.yaml", "--ranks=8", "--ranks-per-node", "4", "--json", "--svg",
                               "plan.svg", "--kokkos-num-threads=1"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const Json json = Json::parse(outcome.out);
  EXPECT_EQ(json["ranks"], 8);
  EXPECT_EQ(json["nodes"], 2);
  // Of seven partners three are on the same node.
  const std::int64_t message = json["traffic"]["shard_group"]["bytes_sent"].get<std::int64_t>() / 7;
  EXPECT_GT(message, 0);
  EXPECT_EQ(json["traffic"]["bytes_inside_nodes"], 3 * message);
  EXPECT_EQ(json["traffic"]["bytes_across_nodes"], 4 * message);
  EXPECT_GT(json["host_memory"]["arena_bytes"], 0);
  const std::string svg = read_bytes(path("plan.svg"));
  EXPECT_EQ(svg.rfind("<svg ", 0), 0u);
  EXPECT_NE(svg.find("</svg>"), std::string::npos);
}

TEST_F(Plan, ShowsWhatTheDeckSaysOfGathers) {
  const auto plan = [&](const std::vector<std::string>& settings) {
    std::vector<std::string> arguments = {"deck.yaml", "--ranks", "8", "--json"};
    for (const std::string& setting : settings) {
      arguments.push_back("--set");
      arguments.push_back(setting);
    }
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return Json::parse(outcome.out);
  };
  // Tied, the head is gathered together with the embedding.
  const std::vector<std::string> alone = {
      "model.tie_embeddings=false", "parallel.forward_prefetch=0", "parallel.backward_prefetch=0",
      "parallel.in_flight_reductions=0", "parallel.reshard_after_forward=always"};
  const Json nothing = plan(alone);
  EXPECT_EQ(nothing["overlap"]["bytes_sent_while_computing"], 0);
  EXPECT_EQ(nothing["overlap"]["most_units_in_flight"], 1);
  EXPECT_EQ(nothing["traffic"]["kept_groups"]["collectives"], 0);

  const Json ahead = plan({"parallel.forward_prefetch=3"});
  EXPECT_GT(ahead["overlap"]["bytes_sent_while_computing"], 0);
  EXPECT_GT(ahead["overlap"]["most_units_in_flight"], 2);
  const Json limited = plan({"parallel.forward_prefetch=3", "parallel.in_flight_gathers=2"});
  EXPECT_EQ(limited["overlap"]["most_units_in_flight"], 2);

  const Json kept = plan({"parallel.units=block.*: reshard_after_forward 4"});
  EXPECT_EQ(kept["traffic"]["kept_groups"]["ranks"], 4);
  EXPECT_EQ(kept["traffic"]["kept_groups"]["collectives"], 2 * 8);
}

TEST_F(Plan, ShowsTheStrategy) {
  const std::vector<std::string> common = {"deck.yaml",
                                           "--ranks",
                                           "8",
                                           "--set",
                                           "parallel.shard_group=4",
                                           "--set",
                                           "parallel.reshard_after_forward=never",
                                           "--set",
                                           "parallel.units=head: backward_prefetch 2"};
  const Outcome full = run(common);
  ASSERT_EQ(full.status, 0) << full.err;
  for (const char* words :
       {"strategy\n  sharding                     full\n  shard_group                  4\n",
        "\n  shard_optimizer_over         shard_group\n",
        "\n  accumulation                 shard_each\n", "\n  reshard_after_forward        never\n",
        "\n  forward_prefetch             1\n", "\n  backward_prefetch            1\n",
        "\n  in_flight_gathers            unlimited\n", "\n  in_flight_reductions         1\n",
        "\n  units                        head: backward_prefetch 2\n",
        "\n  blocks_per_unit              1\n", " elements of padding, ",
        "\n  sums over leaves             bit for bit those of one rank\n", " % of the bytes"})
    EXPECT_NE(full.out.find(words), std::string::npos) << words << full.out;
  EXPECT_EQ(full.out.find("no effect"), std::string::npos) << full.out;

  // One key less or more, and the same deck is for another strategy.
  std::vector<std::string> arguments = common;
  arguments.insert(arguments.end(), {"--set", "parallel.sharding=none"});
  const Outcome none = run(arguments);
  EXPECT_NE(none.out.find("\n  accumulation                 reduce_last\n"), std::string::npos);
  EXPECT_NE(none.out.find("\n  no effect with this sharding reshard_after_forward, units\n"),
            std::string::npos)
      << none.out;
  arguments.push_back("--json");
  const Json json = Json::parse(run(arguments).out);
  EXPECT_EQ(json["strategy"]["sharding"], "none");
  EXPECT_EQ(json["strategy"]["accumulation"], "reduce_last");
  EXPECT_EQ(json["without_effect"], Json({"reshard_after_forward", "units"}));

  const Outcome training = run_command(
      program("ostrakon-train", 1,
              {"deck.yaml", "--set", "data.dataset=synthetic", "--dry-run", "--set",
               "parallel.sharding=none", "--set", "parallel.reshard_after_forward=never"},
              path(".")));
  EXPECT_EQ(training.status, 0) << training.err;
  EXPECT_NE(training.out.find("without effect with sharding none: reshard_after_forward\n"),
            std::string::npos)
      << training.out;
}

TEST_F(Plan, RefusesWhatCanNotBePlanned) {
  expect_refused({}, "no deck given");
  expect_refused({"missing.yaml"}, "missing.yaml");
  expect_refused({"deck.yaml", "--ranks", "7"}, "64 leaves");
  expect_refused({"deck.yaml", "--ranks", "0"}, "expected an integer >= 1");
  expect_refused({"deck.yaml", "--ranks"}, "needs a value");
  expect_refused({"deck.yaml", "--rank", "8"}, "unknown option --rank");
  expect_refused({"deck.yaml", "--ranks", "8", "--ranks-per-node", "3"}, "does not divide");
  expect_refused({"deck.yaml", "--ranks", "4", "--ranks=8"}, "--ranks is given twice");
  expect_refused({"deck.yaml", "--svg", "a.svg", "--svg", "b.svg"}, "--svg is given twice");
  expect_refused({"deck.yaml", "--ranks", "4", "--set", "parallel.ranks_per_node=8"},
                 "parallel.ranks_per_node = 8 does not divide the 4 ranks, and training refuses "
                 "that; set parallel.ranks_per_node=0 to take nodes as they are, or plan for "
                 "another machine with --ranks-per-node");
  const Outcome as_given = run({"deck.yaml", "--ranks", "4", "--set", "parallel.ranks_per_node=8",
                                "--ranks-per-node", "8", "--set", "model.layers=1"});
  EXPECT_EQ(as_given.status, 0) << as_given.err;
  expect_refused({"deck.yaml", "--set", "parallel.prefetch=1"},
                 "did you mean parallel.forward_prefetch or parallel.backward_prefetch?");
  expect_refused({"deck.yaml", "--set", "training.step=1"}, "training.steps");
  expect_refused({"deck.yaml", "--svg", "nowhere/plan.svg"}, "nowhere/plan.svg");
}

TEST_F(Plan, IsThePlanThatTrainingWrites) {
  const std::vector<std::string> synthetic = {"deck.yaml", "--set", "data.dataset=synthetic"};
  std::vector<std::string> arguments = synthetic;
  arguments.insert(arguments.end(), {"--set", "output.directory=out"});
  const Outcome training = run_command(program("ostrakon-train", 2, arguments, path(".")));
  ASSERT_EQ(training.status, 0) << training.err;
  arguments = synthetic;
  arguments.insert(arguments.end(), {"--ranks", "2", "--json"});
  const std::string written = read_bytes(path("out/plan.json"));
  ASSERT_FALSE(written.empty());
  EXPECT_TRUE(written == run(arguments).out);
}

}  // namespace
}  // namespace ostrakon::testing
