// SPDX-License-Identifier: Apache-2.0
// ostrakon-plan --choose, and runs of decks with parallel.choose.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <ostrakon/config/deck.hpp>
#include <string>

#include "fixtures.hpp"

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
  kernels: {row_gigabytes_per_second: 5}
  inside_nodes: {gigabytes_per_second: 2}
  across_nodes: {gigabytes_per_second: 0.01}
  host: {gigabytes_per_second: 5, upload_gigabytes_per_second: 5, download_gigabytes_per_second: 5}
)");
  }

  static void expect_refused(std::vector<std::string> arguments, const std::string& words) {
    arguments.insert(arguments.begin(), "deck.yaml");
    const Outcome outcome = start("ostrakon-plan", arguments);
    EXPECT_EQ(outcome.status, 1);
    expect_in(outcome.err, {words});
    EXPECT_EQ(outcome.out, "");
  }
};

TEST_F(Choose, IsRefusedWithoutAMachineAndWhereNothingFits) {
  expect_refused({"--choose"}, "--choose needs a machine: --time MACHINE.yaml");
  expect_refused({"--memory", "1GiB"}, "--memory goes with --choose only");
  expect_refused({"--output", "x.yaml"}, "--output goes with --choose only");
  expect_refused({"--exhaustive"}, "--exhaustive goes with --choose only");
  expect_refused({"--choose", "--time", "machine.yaml", "--sweep", "ranks=1,2"},
                 "--choose and --sweep don't go together");
  expect_refused({"--choose", "--time", "machine.yaml", "--ranks", "4", "--memory", "1000"},
                 "the smallest arena that was found takes");
  expect_refused({"--choose", "--time", "nowhere.yaml"}, "nowhere.yaml");
  expect_refused({"--set", "parallel.choose=nowhere.yaml"}, "nowhere.yaml");
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

TEST_F(Choose, IsTurnedOffByAnEmptyValue) {
  const std::string deck = digest_deck(1) + "  parallel: {choose: machine.yaml}\n";
  write_bytes(path("choosing.yaml"), deck);
  expect_in(must("ostrakon-train", {"choosing.yaml", "--dry-run"}, 2), {"chosen for"});
  EXPECT_EQ(must("ostrakon-train", {"choosing.yaml", "--dry-run", "--set", "parallel.choose="}, 2)
                .find("chosen for"),
            std::string::npos);
}

}  // namespace
}  // namespace ostrakon::testing
