// SPDX-License-Identifier: Apache-2.0

// ostrakon-plan as a user runs it: alone, for any number of ranks, without data.

#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "command.hpp"
#include "plan_fixture.hpp"
#include "support/messages.hpp"

namespace ostrakon::testing {
namespace {

using Json = nlohmann::json;

TEST_F(Plan, ShowsADeckForAnyNumberOfRanksWithoutItsData) {
  for (const char* ranks : {"1", "8", "64"}) {
    const Outcome outcome = run({"deck.yaml", "--ranks", ranks});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    for (const char* words : {"parameters, moments and summed gradients", "by unit",
                              "overlap that the waits allow", "GFLOP"})
      EXPECT_HAS(outcome.out, words);
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
  // Three of seven partners are on the same node.
  const std::int64_t message = json["traffic"]["shard_group"]["bytes_sent"].get<std::int64_t>() / 7;
  EXPECT_GT(message, 0);
  EXPECT_EQ(json["traffic"]["bytes_inside_nodes"], 3 * message);
  EXPECT_EQ(json["traffic"]["bytes_across_nodes"], 4 * message);
  EXPECT_GT(json["host_memory"]["arena_bytes"], 0);
  EXPECT_FALSE(json.contains("timelines")) << "as the plan.json of a run";
  const Json drawn = Json::parse(read_bytes(path("plan.svg.json")));
  EXPECT_EQ(drawn["actions"], json["actions"]);
  EXPECT_GT(drawn["timelines"][0]["actions"].size(), 0u);
  EXPECT_EQ(
      read_bytes(path("drawn")),
      "-m ostrakon_report plan plan.svg.json -o plan.svg --title deck.yaml, each of 8 ranks\n");
}

TEST_F(Plan, SaysHowToDrawWhereThePackageIsMissing) {
  python_status_ = 1;
  const Outcome outcome = run({"deck.yaml", "--svg", "my plan"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.err,
            "ostrakon-plan: error: can't draw \"my plan\": python3: No module named "
            "ostrakon_report; the Python package ostrakon_report draws it (docs/pictures.md): "
            "ostrakon-report plan 'my plan.json' -o 'my plan' --format svg --title "
            "'deck.yaml, each of 1 rank'\n");
  EXPECT_HAS(outcome.out, "GFLOP");
  EXPECT_EQ(Json::parse(read_bytes(path("my plan.json")))["ranks"], 1);
}

TEST_F(Plan, SaysWhereAPictureCanNotBeWritten) {
  const Outcome outcome = run({"deck.yaml", "--svg", "nowhere/plan.svg"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_HAS(outcome.err, "nowhere/plan.svg");
  EXPECT_EQ(outcome.err.find('\n'), outcome.err.size() - 1) << outcome.err;
}

TEST_F(Plan, LeavesNoFileBesideADevice) {
  const Outcome outcome = run({"deck.yaml", "--svg", "/dev/null"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_HAS(read_bytes(path("drawn")), "-o /dev/null --format svg");
  const std::string drawn = read_bytes(path("drawn"));
  const std::size_t begin = drawn.find("plan ") + 5;
  const std::string json = drawn.substr(begin, drawn.find(" -o") - begin);
  EXPECT_EQ(json.substr(json.rfind('/')), "/plan.json");
  EXPECT_FALSE(std::filesystem::exists(json));
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
        "\n  sums over leaves             bitwise equal to 1 rank\n", " % of the bytes"})
    EXPECT_HAS(full.out, words);
  EXPECT_LACKS(full.out, "no effect");

  // One key less or more, and the same deck is for another strategy.
  std::vector<std::string> arguments = common;
  arguments.insert(arguments.end(), {"--set", "parallel.sharding=none"});
  const Outcome none = run(arguments);
  EXPECT_HAS(none.out, "\n  accumulation                 reduce_last\n");
  EXPECT_HAS(none.out, "\n  no effect with this sharding reshard_after_forward, units\n");
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
  EXPECT_HAS(training.out, "without effect with sharding none: reshard_after_forward\n");
}

TEST_F(Plan, WhatRanksMeanForSettingsIsSaidHereAndInTraining) {
  const std::vector<std::string> settings = {"deck.yaml",
                                             "--set",
                                             "data.dataset=synthetic",
                                             "--set",
                                             "training.global_batch_size=8",
                                             "--set",
                                             "precision.reduce=bf16",
                                             "--set",
                                             "memory.offload=optimizer",
                                             "--set",
                                             "optimizer.clip_norm=0",
                                             "--set",
                                             "optimizer.parameters=*norm*: frozen"};
  for (const int ranks : {1, 2}) {
    std::vector<std::string> planning = settings, training = settings;
    planning.insert(planning.end(), {"--ranks", std::to_string(ranks)});
    training.emplace_back("--dry-run");
    const Outcome plan = run(planning);
    const Outcome dry = run_command(program("ostrakon-train", ranks, training, path(".")));
    ASSERT_EQ(plan.status, 0) << plan.err;
    ASSERT_EQ(dry.status, 0) << dry.err;
    const auto has = [](const Outcome& outcome, const std::string& words) {
      return outcome.out.find(words) != std::string::npos;
    };
    EXPECT_EQ(has(plan, "  no effect with this sharding reduce\n"), ranks == 1) << plan.out;
    EXPECT_EQ(has(dry, "without effect in shard groups of one rank: reduce\n"), ranks == 1)
        << dry.out;
    for (const Outcome* outcome : {&plan, &dry})
      EXPECT_TRUE(has(*outcome, " begin overlapped with backward: a failed step has changed "))
          << outcome->out;
    // The number is the same, without padding.
    const std::size_t at = plan.out.find("\n  frozen ");
    ASSERT_NE(at, std::string::npos) << plan.out;
    const std::size_t begin = plan.out.find_first_not_of(' ', at + 10);
    const std::string frozen = plan.out.substr(begin, plan.out.find(' ', begin) - begin);
    EXPECT_TRUE(has(dry, " (" + frozen + " frozen) in ")) << frozen << dry.out;
  }
}

TEST_F(Plan, EstimatesTimeTokensAndMfu) {
  // On one rank nothing is sent, so that a step is its operations over the rate, and copies of the
  // first batch and of the sums.
  const Outcome outcome = run({"deck.yaml", "--json", "--gflops", "2"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const Json json = Json::parse(outcome.out);
  const Json& estimate = json.at("estimate");
  const double seconds = json["flops"].get<double>() / 2e9;
  constexpr double copies = 1e-5;
  EXPECT_NEAR(estimate["step_seconds"].get<double>(), seconds, copies * seconds);
  EXPECT_EQ(estimate["exposed_communication_seconds"], 0.0);
  const double tokens = 64 * 24;
  EXPECT_NEAR(estimate["tokens_per_second"].get<double>(), tokens / seconds,
              copies * tokens / seconds);
  // Three forwards: for a token two operations for each element of the matrices that it is
  // multiplied with, and two products of its attention with, on average, half of 24 keys.
  const double block = 32 * (32 + 16 + 16) + 32 * 32 + 3 * 32 * 128, head = 257 * 32;
  const double attention = 2 * 2 * (24 / 2) * 32;
  const double model_flops = 3 * tokens * (2 * (2 * block + head) + 2 * attention);
  EXPECT_NEAR(estimate["mfu"].get<double>(), model_flops / seconds / 2e9, copies);
  EXPECT_LT(estimate["mfu"], 1.0);  // something is computed twice
  const Outcome text = run({"deck.yaml", "--gflops", "2"});
  for (const char* words : {"\nestimate, from streams and waits, at 2 GFLOP/s", " tokens/s, MFU "})
    EXPECT_HAS(text.out, words);
  // plan.json has no rates.
  EXPECT_EQ(Json::parse(run({"deck.yaml", "--json"}).out).count("estimate"), 0u);
}

// Kernels of GPUs take larger workspaces; what ranks compute on is said, or a machine's file says
// it.
TEST_F(Plan, IsForWhatRanksComputeOn) {
  const auto plan = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"deck.yaml", "--ranks",
                                          "8",         "--json",
                                          "--set",     "model.width=256",
                                          "--set",     "precision.gather=bf16",
                                          "--set",     "training.sequence_length=512"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return Json::parse(outcome.out);
  };
  const auto arena = [&](const char* device) {
    const Json json = plan({"--device", device});
    EXPECT_EQ(json["computed_on"], device);
    EXPECT_EQ(json["node_windows"], device == std::string("cpu"));
    return json["memory"]["arena_bytes"].get<std::int64_t>();
  };
  const std::int64_t cpu = arena("cpu"), nvidia = arena("nvidia"), gpu = arena("gpu");
  EXPECT_LT(cpu, nvidia);
  constexpr std::int64_t of_cublaslt = std::int64_t{32} << 20;
  EXPECT_LT(nvidia - of_cublaslt, gpu);
  const Json unsaid = plan({});
  const Json said = plan({"--device", unsaid["computed_on"].get<std::string>()});
  EXPECT_EQ(unsaid["memory"]["arena_bytes"], said["memory"]["arena_bytes"]);
  const auto on_machine = [&](const char* name, const char* gather = "bf16") {
    return plan({"--time", std::string(OSTRAKON_SOURCE_DIR "/machines/") + name, "--set",
                 std::string("precision.gather=") + gather})["arena_bytes"];
  };
  const Json in_float = plan({"--device", "cpu", "--set", "precision.gather=fp32"});
  EXPECT_EQ(on_machine("cpu-cluster.yaml", "fp32"), in_float["memory"]["arena_bytes"]);
  EXPECT_EQ(on_machine("h100-infiniband.yaml"), nvidia);
  EXPECT_EQ(on_machine("mi300x.yaml"), gpu);

  expect_refused({"deck.yaml", "--device", "tpu"}, "--device tpu: expected cpu, nvidia or gpu");
  expect_refused({"deck.yaml", "--device", "cpu", "--time",
                  OSTRAKON_SOURCE_DIR "/machines/h100-infiniband.yaml"},
                 "--time and --device are both given");
}

TEST_F(Plan, RefusesWhatCanNotBePlanned) {
  expect_refused({}, "no DECK given");
  expect_refused({"missing.yaml"}, "missing.yaml");
  expect_refused({"deck.yaml", "--ranks", "7"}, "64 leaves");
  expect_refused({"deck.yaml", "--ranks", "0"}, "expected an integer >= 1");
  expect_refused({"deck.yaml", "--ranks"}, "--ranks needs N after it");
  expect_refused({"deck.yaml", "--rank", "8"}, "unknown option --rank; did you mean --ranks?");
  expect_refused({"deck.yaml", "--ranks", "8", "--ranks-per-node", "3"}, "does not divide");
  expect_refused({"deck.yaml", "--ranks", "4", "--ranks=8"}, "--ranks is given twice");
  expect_refused({"deck.yaml", "--svg", "a.svg", "--svg", "b.svg"}, "--svg is given twice");
  expect_refused({"deck.yaml", "--svg", "--json"}, "--svg needs FILE after it, found --json");
  expect_refused({"deck.yaml", "--json=yes"}, "--json takes no value");
  expect_refused({"--", "deck.yaml", "--json"}, "takes DECK, found also \"--json\"");
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
}

TEST_F(Plan, IsThePlanThatTrainingWrites) {
  const std::vector<std::vector<std::string>> settings = {
      {},
      // Updates on the host would be early on one stage.
      {"--set", "parallel.pipeline=2", "--set", "memory.offload=optimizer", "--set",
       "optimizer.clip_norm=0"}};
  for (const std::vector<std::string>& more : settings) {
    std::vector<std::string> line = {"deck.yaml", "--set", "data.dataset=synthetic"};
    line.insert(line.end(), more.begin(), more.end());
    std::vector<std::string> arguments = line;
    arguments.insert(arguments.end(), {"--set", "output.directory=out"});
    const Outcome training = run_command(program("ostrakon-train", 2, arguments, path(".")));
    ASSERT_EQ(training.status, 0) << training.err;
    arguments = line;
    arguments.insert(arguments.end(), {"--ranks", "2", "--json"});
    const std::string written = read_bytes(path("out/plan.json"));
    ASSERT_FALSE(written.empty());
    EXPECT_TRUE(written == run(arguments).out);
  }
}

}  // namespace
}  // namespace ostrakon::testing
