// SPDX-License-Identifier: Apache-2.0

// ostrakon-plan --time and --sweep, as a user runs them.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "command.hpp"
#include "plan_fixture.hpp"
#include "support/messages.hpp"

namespace ostrakon::testing {
namespace {

using Json = nlohmann::json;

const std::string machines = OSTRAKON_SOURCE_DIR "/machines/";
const std::string machine = machines + "h100-infiniband.yaml";

TEST_F(Plan, PredictsAStepOnAMachine) {
  const std::vector<std::string> arguments = {"deck.yaml", "--ranks", "16", "--time", machine};
  std::vector<std::string> as_json = arguments;
  as_json.insert(as_json.end(), {"--json", "--svg", "time.svg", "--html", "time.html", "--trace",
                                 "run/trace.json"});
  const Outcome shown = run(arguments), outcome = run(as_json);
  ASSERT_EQ(shown.status, 0) << shown.err;
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  for (const char* words : {"16 ranks on 2 nodes", "tokens/s", "factors of MFU", "product",
                            "the chain of actions", "what would help"})
    EXPECT_HAS(shown.out, words);
  const Json json = Json::parse(outcome.out);
  const double step = json["step_seconds"];
  EXPECT_GT(step, 0.0);
  EXPECT_LE(json["fastest_step_seconds"], step);
  EXPECT_LE(step, json["slowest_step_seconds"]);
  double product = 1.0;
  for (const auto& factor : json["factors"].items()) product *= factor.value().get<double>();
  EXPECT_NEAR(product, json["mfu"].get<double>(), 1e-9);
  EXPECT_EQ(read_bytes(path("time.svg.json")), outcome.out) << "what is drawn is what is shown";
  EXPECT_EQ(read_bytes(path("time.html.json")), outcome.out);
  const std::string title = "--title deck.yaml on 16 ranks, " + json["machine"].get<std::string>();
  EXPECT_EQ(read_bytes(path("drawn")),
            "-m ostrakon_report step time.svg.json run/trace.json -o time.svg " + title +
                "\n-m ostrakon_report step time.html.json run/trace.json -o time.html " + title +
                "\n");
  EXPECT_EQ(run(as_json).out, outcome.out) << "the same every time";
}

TEST_F(Plan, PredictsInBrief) {
  const std::vector<std::string> step = {"deck.yaml", "--ranks", "16", "--time", machine};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), step.begin(), step.end());
    const Outcome outcome = run(more);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.out;
  };
  const std::string whole_text = with({}), brief_text = with({"--brief"});
  EXPECT_EQ(whole_text.rfind(brief_text, 0), 0u) << "the beginning of what is shown otherwise";
  EXPECT_HAS(brief_text, "tokens/s");
  EXPECT_LACKS(brief_text, "streams");
  Json whole = Json::parse(with({"--json"}));
  for (const char* key : {"critical_path", "twice_as_good", "timelines"})
    EXPECT_EQ(whole.erase(key), 1u) << key;
  EXPECT_EQ(Json::parse(with({"--json", "--brief"})), whole);
  const Json own = Json::parse(
      with({"--json", "--brief", "--stack", OSTRAKON_SOURCE_DIR "/machines/stacks/ostrakon.yaml"}));
  EXPECT_EQ(own, whole) << "the shipped stack of Ostrakon changes nothing";
}

TEST_F(Plan, SweepsOverRanks) {
  const std::vector<std::string> sweep = {"deck.yaml", "--time", machine, "--sweep", "ranks=8,2,4"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = sweep;
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.out;
  };
  const Json weak = Json::parse(with({"--json"}));
  ASSERT_EQ(weak["rows"].size(), 3u);
  EXPECT_EQ(weak["rows"][0]["ranks"], 2);
  EXPECT_EQ(weak["rows"][0]["efficiency"], 1.0);
  const std::int64_t batch = weak["rows"][0]["global_batch_size"];
  EXPECT_EQ(weak["rows"][2]["global_batch_size"], 4 * batch);
  const Json strong = Json::parse(with({"--json", "--scaling", "strong", "--svg", "sweep.svg"}));
  EXPECT_EQ(strong["rows"][2]["global_batch_size"], batch);
  EXPECT_LT(strong["rows"][2]["step_seconds"], strong["rows"][0]["step_seconds"]);
  EXPECT_EQ(Json::parse(read_bytes(path("sweep.svg.json"))), strong);
  EXPECT_EQ(read_bytes(path("drawn")),
            "-m ostrakon_report study sweep.svg.json -o sweep.svg --title deck.yaml\n");
  const std::string csv = with({"--csv"});
  EXPECT_EQ(csv.rfind("ranks,global_batch_size,step_seconds,", 0), 0u) << csv;
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 4);
  EXPECT_HAS(with({}), "weak scaling");
  const std::string theirs = machines + "stacks/megatron-core.yaml";
  EXPECT_HAS(with({"--stack", theirs}), ", Megatron-Core, weak scaling");
  EXPECT_EQ(Json::parse(with({"--stack", theirs, "--json"}))["stack"], "Megatron-Core");
}

// Products in 8 bits take less time; a key that changes none, and an MFU above 1, are told.
TEST_F(Plan, TellsWhatAMachineFileDoes) {
  write_bytes(path("odd.yaml"), R"(ostrakon:
  machine: {name: "odd", ll128_between_nodes: 1}
  fp32: {product_teraflops: 1, peak_teraflops: 1}
  bits16: {product_teraflops: 1, peak_teraflops: 1}
  bits8: {product_teraflops: 1000}
  kernels: {row_gigabytes_per_second: 1000000}
  host: {gigabytes_per_second: 10, upload_gigabytes_per_second: 8, download_gigabytes_per_second: 6}
)");
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"deck.yaml", "--time", "odd.yaml", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome;
  };
  const std::string idle =
      "ostrakon-plan: warning: odd.yaml: machine.ll128_between_nodes = 1 has no "
      "effect without machine.nccl_protocols = 1\n";
  const Outcome plain = with({"--set", "precision.gather=bf16"});
  EXPECT_EQ(plain.err, idle);
  const Outcome wide = run({"deck.yaml", "--time", machines + "h100-infiniband.yaml", "--ranks",
                            "16", "--ranks-per-node", "16", "--set", "precision.gather=bf16"});
  EXPECT_EQ(wide.status, 0) << wide.err;
  EXPECT_HAS(wide.err, "machine.ranks_per_node = 8, and this step has 16 ranks on a node");
  const Outcome fp8 =
      with({"--set", "precision.gather=bf16", "--set", "precision.products=fp8", "--set",
            "precision.fp8_layers=all", "--set", "training.sequence_length=32"});
  EXPECT_HAS(fp8.err, idle);
  EXPECT_HAS(fp8.err, "odd.yaml: MFU is ");
  EXPECT_HAS(fp8.err, ": bits8.product_teraflops = 1000 is of products in 8 bits");
  const auto number = [](const Outcome& outcome, const char* key) {
    return Json::parse(outcome.out)[key].get<double>();
  };
  EXPECT_LT(number(plain, "mfu"), 1.0);
  EXPECT_GT(number(fp8, "mfu"), 1.0);
  EXPECT_NEAR(number(fp8, "flops_per_second_of_rank"), 1e12 * number(fp8, "mfu"), 1e6);
}

TEST_F(Plan, RefusesWhatItCanNotPredict) {
  const auto refuses = [&](const std::vector<std::string>& more, const std::string& words) {
    std::vector<std::string> arguments = {"deck.yaml"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    expect_refused(arguments, words);
  };
  refuses({"--time", "none.yaml"}, "none.yaml: can't be read");
  refuses({"--time", "deck.yaml"}, "unknown section");
  refuses({"--sweep", "ranks=2"}, "--sweep goes with --time only");
  std::vector<std::string> fp8 = {"--time", machines + "a100-80gb-selene.yaml",
                                  "--set",  "precision.products=fp8",
                                  "--set",  "precision.fp8_layers=all"};
  for (int choose = 0; choose < 2; ++choose, fp8.push_back("--choose"))
    refuses(fp8, "has no bits8.product_teraflops, the rate of products in 8 bits");
  refuses({"--time", machine, "--sweep", "2,4"}, "expected ranks=");
  refuses({"--time", machine, "--sweep", "ranks=2,x"},
          "--sweep ranks=2,x: expected ranks=, then integers >= 1");
  refuses({"--time", machine, "--sweep", "ranks=2", "--scaling", "fast"},
          "--scaling fast: expected strong or weak");
  refuses({"--time", machine, "--gflops", "7"}, "--time and --gflops are both given");
  refuses({"--html", "page.html"}, "--html goes with --time");
}

}  // namespace
}  // namespace ostrakon::testing
