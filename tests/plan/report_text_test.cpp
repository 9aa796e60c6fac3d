// SPDX-License-Identifier: Apache-2.0

// A report as text, and the words in it.

#include <set>
#include <utility>

#include "plan/report_fixture.hpp"

namespace ostrakon::tests::reports {
namespace {

using Json = nlohmann::json;

std::string text_of(const Policy& policy) { return make(make_model(3), 4, policy).text(); }

TEST(Report, ShowsTheHostWhereUnitsHaveSomethingThere) {
  const std::string none = text_of(offloading_policy(Offload::none, 8));
  for (const char* words : {"host memory of a rank", "updated on the host", "frozen"})
    EXPECT_LACKS(none, words) << words;
  // Batches and the step's sums alone.
  for (const char* words :
       {"  copied to the device             1.00 KiB  2 copies\n",
        "  copied to the host               1.25 KiB  1 copy\n", "arena on the host"})
    EXPECT_HAS(none, words);
  const std::string all = text_of(offloading_policy(Offload::all, 8));
  for (const char* words :
       {"\nhost memory of a rank, most at ", "\nbetween host and device in a step\n",
        "  copied to the device ", "  copied to the host ", "  updated on the host ",
        "  copied while computing ", "  copied while nothing computes ", " copies, "})
    EXPECT_HAS(all, words);
  EXPECT_LACKS(all, "arena on the host");
}

TEST(Report, SaysWhereUpdatesBeginEarly) {
  for (const Offload offload :
       {Offload::none, Offload::optimizer, Offload::parameters, Offload::all})
    for (const bool early : {false, true}) {
      Policy policy = offloading_policy(offload, 8);
      policy.early_updates = early;
      const bool expected = early && (offload == Offload::optimizer || offload == Offload::all);
      const Planned planned = make(make_model(3), 4, policy);
      EXPECT_EQ(updates_early(planned.plan), expected);
      const std::string line = std::string("\n  updates                      ") + early_updates;
      EXPECT_EQ(planned.text().find(line) != std::string::npos, expected);
    }
}

TEST(Report, TheCallersRowsOfTheModelAreShown) {
  Planned planned = make(make_model(2), 8, make_policy(Sharding::full, 8));
  planned.report.model = {{"layers", "2: of a kind"}};
  EXPECT_HAS(planned.text(), "\n  layers                       2: of a kind\n");
}

TEST(Report, ElementsForAlignmentAreNoParameters) {
  ModelDescription model = make_model(2);
  const std::int64_t all =
      make(model, 8, make_policy(Sharding::full, 8)).json()["parameter_elements"];
  model.units[1].alignment_elements = 60;
  const Planned planned = make(model, 8, make_policy(Sharding::full, 8));
  EXPECT_EQ(planned.json()["parameter_elements"], all - 60);
  EXPECT_EQ(planned.json()["padded_elements"], all);
}

TEST(Report, FrozenElementsArePadded) {
  ModelDescription model = make_model(2);
  model.units[1].frozen_elements = 64;
  model.units[1].frozen_count = 60;
  const Planned planned = make(model, 4, make_policy(Sharding::full, 8));
  const std::string text = planned.text();
  // 64 and 1,472 are padded to 256 and 1,536.
  EXPECT_NE(text.find("  padded                              9,472  256 elements of padding"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("  frozen                                 60  of them, never updated\n"),
            std::string::npos)
      << text;
  const Json json = planned.json();
  EXPECT_EQ(json["padded_elements"], 9472);
  EXPECT_EQ(json["frozen_parameters"], 60);
  EXPECT_EQ(json["padded_frozen_elements"], 256);
  EXPECT_EQ(json["units"][1]["padded_elements"], 1792);
  EXPECT_EQ(json["units"][1]["padded_frozen_elements"], 256);
  EXPECT_EQ(json["layouts"]["update"]["space"], "device");
  // Each flat parameter is gathered by itself, and both are told apart.
  int frozen = 0;
  for (const Json& action : json["actions"]) frozen += action["name"] == "gather(block.0, frozen)";
  EXPECT_GT(frozen, 0);
}

TEST(Report, NamesOfActionsSayWhen) {
  const Planned planned = make(make_model(3), 4, make_policy(Sharding::full, 8));
  const StepPlan& plan = planned.plan;
  std::set<std::string> names;
  int gathers = 0;
  for (int a = 0; a < static_cast<int>(plan.actions.size()); ++a) {
    const std::string name = describe_at(plan, a);
    const Kind kind = plan.actions[a].kind;
    if (kind == Kind::gather) {
      EXPECT_TRUE(names.insert(name).second) << name;
      ++gathers;
    }
    if (kind == Kind::backward || kind == Kind::clip || kind == Kind::optimize) {
      EXPECT_EQ(name, plan.describe(plan.actions[a]));
    }
    if (kind == Kind::reduce_scatter && a + 1 < static_cast<int>(plan.actions.size())) {
      EXPECT_HAS(name, ") after ");
      EXPECT_HAS(name, "micro-batch ");
    }
  }
  EXPECT_EQ(gathers, static_cast<int>(names.size()));
  EXPECT_EQ(names.count("gather(embedding) after begin"), 1u);
  EXPECT_EQ(names.count("gather(block.0) after backward(block.2, micro-batch 1)"), 1u);
}

TEST(Report, PaddingIsShown) {
  ModelDescription model = make_model(2);
  model.units[0].parameter_elements = 1000;
  model.units[1].parameter_elements = 513;
  const Planned planned = make(model, 8, make_policy(Sharding::full, 8));
  const std::int64_t true_elements = 1000 + 513 + 512 * (3 + 5);
  const std::int64_t padded = 1024 + 1024 + 512 * (3 + 5);
  const std::string text = planned.text();
  EXPECT_HAS(text, "  parameters                          5,609  in 4 units\n");
  EXPECT_HAS(text,
             "  padded                              6,144  535 elements of padding, "
             "9.54 %\n");
  const Json json = planned.json();
  EXPECT_EQ(json["parameter_elements"], true_elements);
  EXPECT_EQ(json["padded_elements"], padded);
  EXPECT_EQ(json["units"][1]["parameter_elements"], 513);
  EXPECT_EQ(json["units"][1]["padded_elements"], 1024);
}

TEST(Report, SaysWhetherTheBitsAreThoseOfOneRank) {
  for (int ranks : {2, 3, 4, 6}) {
    // Micro-batches, then ranks: 3 ranks come last, 6 after 3 micro-batches.
    const Planned planned =
        make(make_model(1), ranks, make_policy(Sharding::none, ranks == 6 ? 18 : 2 * ranks));
    const bool same = ranks != 6;
    EXPECT_EQ(planned.plan.has_the_bits_of_one_rank(), same);
    const std::string text = planned.text();
    EXPECT_EQ(testing::contains(text, "  sums over leaves             bitwise equal to 1 rank\n"),
              same);
    EXPECT_EQ(
        testing::contains(text, "  sums over leaves             equal to 1 rank up to rounding\n"),
        !same);
    EXPECT_EQ(planned.json()["has_the_bits_of_one_rank"], same);
  }
}

TEST(Report, SaysInWhichOrderAGrainSums) {
  Policy policy = make_policy(Sharding::full, 64);
  policy.sum_grain = 4;
  const auto text = [&] { return make(make_model(1), 8, policy).text(); };
  const std::string order =
      "  order of sums                trees over 4 leaves, accumulated in "
      "order\n";
  EXPECT_HAS(text(), "  sums over leaves             bitwise equal to 1 rank\n" + order);
  policy.accumulation = Accumulation::reduce_last;
  const std::string why =
      "  sums over leaves             equal to 1 rank up to rounding\n"
      "                               training.sum_grain = 4: ranks of a shard "
      "group add sums of 8 leaves each by a tree, not in order; "
      "parallel.accumulation = shard_each sums as one rank does\n";
  EXPECT_HAS(text(), why + order);
  policy.shard_group = 4;
  policy.accumulation = Accumulation::shard_each;
  EXPECT_HAS(text(),
             "training.sum_grain = 4: replicas add sums of 32 leaves each by a "
             "tree, not in order; parallel.accumulation = reduce_each "
             "sums as one rank does\n");
  policy.sum_grain = 64;
  EXPECT_LACKS(text(), "order of sums");
}

TEST(Report, ShowsTheStrategyThatTheCallerNames) {
  Planned planned = make(make_model(2), 2, make_policy(Sharding::none, 4));
  EXPECT_LACKS(planned.text(), "strategy\n");
  const std::string rules(400, 'x');
  planned.report.strategy = {{"sharding", "none"}, {"units", rules}, {"reshard", ""}};
  std::string text = planned.text();
  EXPECT_HAS(text, "strategy\n  sharding                     none\n");
  EXPECT_HAS(text, "  units                        " + rules + "\n");
  EXPECT_HAS(text, "  reshard                      none\n");
  EXPECT_LACKS(text, "no effect");
  planned.report.strategy[1].has_effect = planned.report.strategy[2].has_effect = false;
  text = planned.text();
  EXPECT_HAS(text, "  no effect with this sharding units, reshard\n");
  const Json json = planned.json();
  EXPECT_EQ(json["strategy"]["sharding"], "none");
  EXPECT_EQ(json["strategy"]["units"], rules);
  EXPECT_EQ(json["strategy"]["reshard"], "");
  EXPECT_EQ(json["without_effect"], Json({"units", "reshard"}));
}

TEST(Report, FlopsAreInTheUnitThatKeepsThemShort) {
  for (const auto& [flops, words] :
       std::vector<std::pair<double, const char*>>{{0.0, "0 GFLOP"},
                                                   {1.25e7, "0.0125 GFLOP"},
                                                   {9.9999e13, "99999 GFLOP"},
                                                   {1e14, "100 TFLOP"},
                                                   {3.44353e15, "3443.53 TFLOP"},
                                                   {2.5e17, "250 PFLOP"},
                                                   {1e20, "100 EFLOP"},
                                                   {1e40, "1e+19 ZFLOP"}})
    EXPECT_EQ(format_flops(flops), words);
  ModelDescription model = make_model(1);
  for (UnitDescription& unit : model.units) unit.forward.front().flops = 0.0;
  model.units[1].forward.front().flops = 6e13;
  model.units[1].backward.front().flops = 1.2e14;
  const Planned planned = make(model, 1, make_policy(Sharding::full, 1));
  const std::string text = planned.text();
  EXPECT_HAS(text, "        number        TFLOP\n");
  EXPECT_HAS(text, "  forward                                 2           60\n");
  EXPECT_HAS(text, "          180\n");
  EXPECT_LACKS(text, "GFLOP");
}

TEST(Report, TextNamesThePeakAndFoldsEqualUnits) {
  const Planned planned = make(make_model(12), 2, make_policy(Sharding::full, 4));
  const std::string text = planned.text();
  EXPECT_HAS(text, "most at " + planned.report.device.peak_action);
  EXPECT_HAS(text, "block.0 ... block.10, each of 11");
  const GradientBytes& gradients = planned.report.device.peak_gradients;
  EXPECT_GT(gradients.in_flight, 0);
  EXPECT_HAS(text, "\n    of units in flight");
  EXPECT_EQ(text.find("\n    partial sums") != std::string::npos, gradients.partial_sums > 0)
      << text;
  EXPECT_EQ(text.find("\n    sums") != std::string::npos, gradients.sums > 0);
  EXPECT_HAS(text, "inside a node");
}

}  // namespace
}  // namespace ostrakon::tests::reports
