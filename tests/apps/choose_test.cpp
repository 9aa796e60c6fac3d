// SPDX-License-Identifier: Apache-2.0
// ostrakon-plan --choose, and runs of decks with parallel.choose.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostrakon/config/deck.hpp>
#include <string>

#include "fixtures.hpp"
#include "support/messages.hpp"

namespace ostrakon::testing {
namespace {

using Json = nlohmann::json;

class Choose : public SharedFolder<Choose> {
 protected:
  Choose() {
    write_bytes(path("deck.yaml"), digest_deck(4));
    // A network across nodes that is much slower than that inside.
    write_bytes(path("machine.yaml"), R"(ostrakon:
  machine: {name: "slow network", ranks_per_node: 2}
  fp32: {product_teraflops: 0.01}
  bits16: {product_teraflops: 0.1}
  kernels: {row_gigabytes_per_second: 5}
  inside_nodes: {gigabytes_per_second: 2}
  across_nodes: {gigabytes_per_second: 0.01}
  host: {gigabytes_per_second: 5, upload_gigabytes_per_second: 5, download_gigabytes_per_second: 5}
)");
  }

  /// What a command that was shown prints, where it is pasted into a shell.
  static std::string pasted(const std::string& command) {
    Command shell;
    shell.arguments = {"sh", "-c", "PATH='" OSTRAKON_APPS_DIR "'; " + command};
    shell.folder = path("");
    const Outcome outcome = run_command(shell);
    EXPECT_EQ(outcome.status, 0) << command << "\n" << outcome.err;
    return outcome.out;
  }
};

TEST_F(Choose, IsRefusedInOneLineThatSaysWhatToWrite) {
  struct Row {
    std::vector<std::string> arguments;
    std::vector<std::string> words;
  };
  const Row rows[] = {
      {{"--fit", "72GiB"}, {"--fit", "--choose --memory 72GiB"}},
      {{"--fit=1GiB", "--host-bytes", "2GiB"}, {"--fit", "--choose --memory 1GiB"}},
      {{"--fit"}, {"--fit needs BYTES"}},
      {{"--memory", "1GiB"}, {"--memory goes with --choose"}},
      {{"--host-bytes", "1GiB"}, {"--host-bytes goes with --choose"}},
      {{"--any-precision"}, {"--any-precision goes with --choose"}},
      {{"--output", "x.yaml"}, {"--output goes with --choose"}},
      {{"--exhaustive"}, {"--exhaustive goes with --choose"}},
      {{"--choose", "--memory", "0"}, {"--memory 0", "bytes, such as 80GiB"}},
      {{"--choose", "--memory", "80parsec"}, {"--memory 80parsec", "bytes"}},
      {{"--choose", "--memory", "unlimited"}, {"--memory unlimited", "bytes"}},
      {{"--choose", "--host-bytes", "0"}, {"--host-bytes 0", "bytes"}},
      {{"--choose", "--gflops", "0"}, {"--gflops 0", "a number above 0"}},
      {{"--choose", "--svg", "a.svg"}, {"--svg", "--choose"}},
      {{"--choose", "--time", "machine.yaml", "--html", "a.html"}, {"--html", "--choose"}},
      {{"--choose", "--time", "machine.yaml", "--sweep", "ranks=1,2"}, {"--sweep", "--choose"}},
      {{"--choose", "--time", "machine.yaml", "--gflops", "1"}, {"--time", "--gflops"}},
      {{"--choose", "--time", "nowhere.yaml"}, {"nowhere.yaml"}},
      {{"--set", "parallel.choose=nowhere.yaml"}, {"nowhere.yaml"}},
      {{"--choose", "--time", "machine.yaml", "--ranks", "4", "--memory", "1000"},
       {"nothing fits 1000 B", "4 ranks, 2 on each node", "the smallest arena", "--set "}},
      {{"--choose", "--device", "nvidia", "--host-bytes", "1"},
       {"nothing fits 1 B of the host's memory", "the smallest arena"}},
      {{"--choose", "--ranks", "7"}, {"8 leaves"}},
      {{"--set", "memory.activation_checkpointing=auto"},
       {"memory.activation_checkpointing = auto", "--set memory.limit=BYTES", "--time"}},
      {{"--set", "memory.activation_checkpointing=auto", "--set", "memory.limit=1000 B"},
       {"auto: nothing fits 1000 B", "with full"}},
  };
  for (const Row& row : rows) {
    std::vector<std::string> arguments = row.arguments;
    arguments.insert(arguments.begin(), "deck.yaml");
    const Outcome outcome = start("ostrakon-plan", arguments);
    EXPECT_EQ(outcome.status, 1) << row.words[0];
    EXPECT_EQ(outcome.err.rfind("ostrakon-plan: error: ", 0), 0u) << outcome.err;
    EXPECT_EQ(outcome.err.find('\n'), outcome.err.size() - 1) << outcome.err;
    expect_in(outcome.err, row.words);
    EXPECT_EQ(outcome.out, "");
  }
}

// The commands that are shown take as long, and as much memory, as was said.
TEST_F(Choose, WhatIsShownIsTrue) {
  struct Row {
    const char* name;
    std::vector<std::string> arguments;
    const char* is_set;  ///< in what was chosen
  };
  // A device has a workspace of 32 MiB for products.
  constexpr std::int64_t little_kibibytes = 32 * 1024 + 230, little_bytes = little_kibibytes << 10;
  const std::string little_memory = std::to_string(little_kibibytes) + "KiB";
  const Row rows[] = {
      {"at default rates", {"--ranks", "8"}, ""},
      {"at rates", {"--ranks=8", "--ranks-per-node=4", "--gflops", "0.05", "--device=nvidia"}, ""},
      {"on a machine", {"--ranks", "4", "--time", "machine.yaml"}, ""},
      {"of a pipeline",
       {"--ranks", "4", "--set", "parallel.pipeline=2", "--time=machine.yaml"},
       ""},
      {"in little memory",
       {"--ranks", "2", "--time", "machine.yaml", "--memory", little_memory, "--host-bytes",
        "2MiB"},
       "memory.offload"},
      {"in any precision",
       {"--ranks", "4", "--any-precision", "--set", "training.seed=3", "--time", "machine.yaml"},
       "precision.gather=bf16"},
      {"with experts over ranks",
       {"--ranks", "4", "--ranks-per-node", "2", "--set", "model.experts=4", "--set",
        "model.experts_per_token=2", "--set", "parallel.expert=2"},
       ""},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    std::vector<std::string> arguments = {"deck.yaml", "--choose", "--json"};
    arguments.insert(arguments.end(), row.arguments.begin(), row.arguments.end());
    const std::string shown = must("ostrakon-plan", arguments);
    EXPECT_EQ(must("ostrakon-plan", arguments), shown);
    const Json chosen = Json::parse(shown);
    const Json& best = chosen["settings"][0];
    const bool is_on_machine = shown.find("slow network") != std::string::npos;
    expect_in(best["set"].dump(), {row.is_set});
    const auto expect_row = [&](const std::string& command, const Json& expected) {
      const Json step = Json::parse(
          pasted(command + " --json" + (is_on_machine ? "" : " --copy-gigabytes-per-second 25")));
      if (is_on_machine) {
        EXPECT_EQ(step["step_seconds"], expected["step_seconds"]) << command;
        return;
      }
      EXPECT_EQ(step["estimate"]["step_seconds"], expected["step_seconds"]) << command;
      EXPECT_EQ(step["has_the_bits_of_one_rank"], expected["bits_of_one_rank"]) << command;
      EXPECT_DOUBLE_EQ(step["estimate"]["mfu"].get<double>(), expected["mfu"].get<double>());
    };
    expect_row(chosen["plan_command"], best);
    for (const Json& other : chosen["settings"])
      EXPECT_GE(other["step_seconds"], best["step_seconds"]);
    if (chosen["deck"].value("fits", false)) {
      EXPECT_GE(chosen["times_as_fast_as_the_deck"].get<double>(), 1.0);
    }
    if (row.name == std::string("in little memory")) {
      EXPECT_LE(best["arena_bytes"], little_bytes);
      EXPECT_LE(best["host_arena_bytes"], 2 << 20);
    }
    // The choice as text has both commands.
    arguments.erase(std::find(arguments.begin(), arguments.end(), "--json"));
    expect_in(must("ostrakon-plan", arguments),
              {chosen["plan_command"], chosen["train_command"], "the deck as it stands"});
  }
}

TEST_F(Choose, TheDeckThatIsWrittenTakesAsLongAsWasSaid) {
  const std::vector<std::string> place = {"--time", "machine.yaml", "--ranks", "4", "--json"};
  std::vector<std::string> choose = {"deck.yaml", "--choose", "--output", "best.yaml"};
  choose.insert(choose.end(), place.begin(), place.end());
  const std::string shown = must("ostrakon-plan", choose);
  EXPECT_EQ(must("ostrakon-plan", choose), shown);
  const Json chosen = Json::parse(shown);
  std::vector<std::string> best = {"best.yaml"}, as_before = {"deck.yaml"};
  best.insert(best.end(), place.begin(), place.end());
  as_before.insert(as_before.end(), place.begin(), place.end());
  const double seconds = chosen["settings"][0]["step_seconds"];
  EXPECT_EQ(Json::parse(must("ostrakon-plan", best))["step_seconds"], seconds);
  EXPECT_GE(Json::parse(must("ostrakon-plan", as_before))["step_seconds"], seconds);
  for (const Json& other : chosen["settings"]) EXPECT_GE(other["step_seconds"], seconds);
}

// A folder may be moved: the deck names what is in it relative to it.
TEST_F(Choose, TheDeckThatIsWrittenNamesMachineRanksAndRelativePaths) {
  must("ostrakon-plan", {"deck.yaml", "--choose", "--ranks", "4", "--time", "machine.yaml",
                         "--output", "best.yaml"});
  const std::string deck = read_bytes(path("best.yaml"));
  expect_in(deck, {"slow network", "4 ranks, 2 on each node", "# ", "--time machine.yaml",
                   "mpiexec -n 4 ostrakon-train best.yaml", "directory: run "});
  EXPECT_LACKS(deck, path(""));
  must("ostrakon-train", {"best.yaml", "--dry-run"}, 4);
}

TEST_F(Choose, ARunHasTheSameBitsWithIt) {
  std::map<std::int64_t, Json> before;
  for (const int ranks : {1, 2, 4}) {
    const std::string as_said = "said" + std::to_string(ranks);
    const std::string chosen = "chosen" + std::to_string(ranks);
    must("ostrakon-train", {"deck.yaml", "--set", "output.directory=" + as_said}, ranks);
    const std::string shown =
        must("ostrakon-train",
             {"deck.yaml", "--set", "output.directory=" + chosen, "--set",
              "parallel.choose=" + path("machine.yaml"), "--set",
              "parallel.ranks_per_node=" + std::to_string(std::min(ranks, 2))},
             ranks);
    expect_in(shown, {"chosen for slow network: ", "a step takes"});
    const auto one = rows_of_steps(path(as_said + "/metrics.jsonl"));
    const auto other = rows_of_steps(path(chosen + "/metrics.jsonl"));
    ASSERT_EQ(one.size(), 4u);
    ASSERT_EQ(other.size(), 4u);
    for (const auto& [step, row] : one)
      EXPECT_EQ(row["state_digest"], other.at(step)["state_digest"]) << step;
    // The deck has what was chosen, and nothing left to choose.
    const std::string deck = read_bytes(path(chosen + "/deck.yaml"));
    EXPECT_EQ(config::read_settings(deck, chosen + "/deck.yaml", {}).choose, "");
  }
}

TEST_F(Choose, ARunResumesOnOtherRanks) {
  const std::string choose = "parallel.choose=" + path("machine.yaml");
  must("ostrakon-train", {"deck.yaml", "--set", "output.directory=whole"}, 1);
  must("ostrakon-train",
       {"deck.yaml", "--set", "output.directory=parts", "--set", choose, "--set",
        "training.steps=2", "--set", "checkpoint.every=2"},
       2);
  must("ostrakon-train",
       {"deck.yaml", "--set", "output.directory=parts", "--set", choose, "--resume", "auto"}, 4);
  const auto whole = rows_of_steps(path("whole/metrics.jsonl"));
  const auto parts = rows_of_steps(path("parts/metrics.jsonl"));
  ASSERT_EQ(parts.size(), 4u);
  EXPECT_EQ(parts.at(4)["state_digest"], whole.at(4)["state_digest"]);
}

TEST_F(Choose, WhatIsComputedAgainIsChosenByMemory) {
  const std::string key = "memory.activation_checkpointing";
  const std::vector<std::string> open = {"deck.yaml", "--set", key + "=auto", "--set"};
  const auto with = [&](const std::string& setting) {
    std::vector<std::string> arguments = open;
    arguments.push_back(setting);
    return arguments;
  };
  must("ostrakon-train", {"deck.yaml", "--set", "output.directory=given"}, 2);
  const auto given = rows_of_steps(path("given/metrics.jsonl"));
  for (const int ranks : {1, 2}) {
    const std::string folder = "kept" + std::to_string(ranks);
    expect_in(must("ostrakon-train", with("output.directory=" + folder), ranks),
              {"chosen for the memory of each rank: --set '" + key + "=keep norms activations'"});
    const auto rows = rows_of_steps(path(folder + "/metrics.jsonl"));
    ASSERT_EQ(rows.size(), given.size());
    for (const auto& [step, row] : given)
      EXPECT_EQ(row["state_digest"], rows.at(step)["state_digest"]) << step;
    const config::Settings chosen =
        config::read_settings(read_bytes(path(folder + "/deck.yaml")), "deck.yaml", {});
    EXPECT_FALSE(chosen.chooses_recompute);
    EXPECT_FALSE(chosen.recompute.norm_outputs);
  }
  // A plan for less memory computes more again, and is what a run of it would take.
  const auto arena = [&](const std::string& value) {
    const Json plan =
        Json::parse(must("ostrakon-plan", {"deck.yaml", "--json", "--set", key + "=" + value}));
    return plan["memory"]["arena_bytes"].get<std::int64_t>() +
           plan["host_memory"]["arena_bytes"].get<std::int64_t>();
  };
  const std::int64_t least = arena("full");
  ASSERT_LT(least, arena("none"));
  const std::string limit = "memory.limit=" + std::to_string(least) + " B";
  // The first of two blocks is computed again, which takes no more than both.
  ASSERT_LE(arena("every 16"), least);
  expect_in(must("ostrakon-plan", with(limit)), {"--set '" + key + "=every 16'"});
  expect_in(must("ostrakon-train", with(limit), 1), {"--set '" + key + "=every 16'"});
  const Outcome refused =
      start("ostrakon-train", {"deck.yaml", "--set", limit, "--set", key + "=none"});
  EXPECT_EQ(refused.status, 1);
  expect_in(refused.err, {"memory.limit = ", "the arena of a rank takes"});
  const Outcome planned =
      start("ostrakon-plan", {"deck.yaml", "--set", limit, "--set", key + "=none"});
  EXPECT_EQ(planned.status, 1);
  expect_in(planned.err, {"memory.limit = ", "the arenas of a rank, also on the host, take"});
  expect_in(must("ostrakon-bench",
                 {"step", "deck.yaml", "--json", "--seconds", "0.1", "--set", key + "=auto"}),
            {"{\"bench\":"});
}

TEST_F(Choose, IsTurnedOffByAnEmptyValue) {
  const std::string deck = digest_deck(1) + "  parallel: {choose: machine.yaml}\n";
  write_bytes(path("choosing.yaml"), deck);
  expect_in(must("ostrakon-train", {"choosing.yaml", "--dry-run"}, 2), {"chosen for"});
  EXPECT_LACKS(
      must("ostrakon-train", {"choosing.yaml", "--dry-run", "--set", "parallel.choose="}, 2),
      "chosen for");
}

}  // namespace
}  // namespace ostrakon::testing
