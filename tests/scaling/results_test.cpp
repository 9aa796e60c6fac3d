// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <ostrakon/scaling/results_files.hpp>

#include "small_study.hpp"

namespace ostrakon::scaling {
namespace {

using testing::contains;

/// One run on each of 1, 2 and 4 ranks.
Collected runs_of(const std::vector<double>& step_seconds) {
  Collected collected;
  collected.study.repeat = 1;
  int ranks = 1;
  for (const double seconds : step_seconds) {
    StudySize size;
    size.ranks = ranks;
    size.folder = text("ranks-", ranks);
    size.tokens_per_step = 1000;
    collected.study.sizes.push_back(size);
    CollectedRun run;
    run.folder = size.folder + "/run-1";
    run.ranks = ranks;
    run.steps = 20;
    run.step_seconds = {seconds, 0.01 * seconds, true};
    run.shares = {0.7, 0.05 * (ranks - 1), 0.1, 0.0, 0.0, 0.2 - 0.05 * (ranks - 1)};
    collected.runs.push_back(run);
    ranks *= 2;
  }
  return collected;
}

TEST(Results, SpeedupAndEfficiencyAreRelativeToTheFewestRanks) {
  const std::vector<ScalingPoint> points = scaling_points(runs_of({1.0, 0.55, 0.4}));
  ASSERT_EQ(points.size(), 3u);
  EXPECT_EQ(points[0].speedup.mean, 1.0);
  EXPECT_NEAR(points[2].speedup.mean, 2.5, 1e-12);
  EXPECT_EQ(points[2].ideal, 4.0);
  EXPECT_NEAR(points[2].efficiency.mean, 0.625, 1e-12);
  EXPECT_NEAR(points[2].efficiency.half_width, 0.625 * std::sqrt(2e-4), 1e-12);
  for (const ScalingPoint& point : points)
    EXPECT_NEAR(product(point.relative), point.efficiency.mean, 1e-12);
}

TEST(Results, FilesHaveARowForEachSize) {
  Collected collected = runs_of({1.0, 0.55, 0.4});
  for (StudySize& size : collected.study.sizes)
    if (size.ranks > 1)
      size.prediction = PredictedStep{0.9, 0.8, 0.1, 0.0, 0.0, 0.0, "made-up rates"};
  const std::vector<ScalingPoint> points = scaling_points(collected);
  const std::string csv = points_csv(points);
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 4);
  EXPECT_EQ(std::count(csv.begin(), csv.end(), ','),
            4 * std::count(csv.begin(), csv.begin() + static_cast<long>(csv.find('\n')), ','));
  const nlohmann::json json = points_json(points);
  ASSERT_EQ(json.size(), 3u);
  EXPECT_TRUE(json[0]["prediction"].is_null());
  EXPECT_EQ(json[2]["efficiency"]["mean"], points[2].efficiency.mean);
  EXPECT_EQ(json[2]["efficiency"]["half_width"], points[2].efficiency.half_width);
  for (const nlohmann::json& shares : {json[2]["shares"], json[2]["prediction"]["shares"]}) {
    double sum = 0.0;
    for (const nlohmann::json& share : shares) sum += share.get<double>();
    EXPECT_NEAR(sum, 1.0, 1e-12) << shares;
  }
  EXPECT_EQ(json[2]["prediction"]["shares"]["exposed_communication"], 0.1 / 0.9);
  EXPECT_EQ(json[2]["relative_factors"]["compute_rate"], points[2].relative.compute_rate);
}

TEST(Results, RepeatsAreComparedByTheirMeans) {
  Collected collected = runs_of({1.0, 0.5});
  collected.runs.push_back(collected.runs[1]);
  collected.runs.push_back(collected.runs[1]);
  collected.runs[2].step_seconds.mean = 0.6;
  collected.runs[3].step_seconds.mean = 0.7;
  const ScalingPoint point = scaling_points(collected)[1];
  EXPECT_EQ(point.runs, 3);
  EXPECT_NEAR(point.step_seconds.mean, 0.6, 1e-12);
  EXPECT_NEAR(point.step_seconds.half_width, 4.302653 * 0.1 / std::sqrt(3.0), 1e-6);
  EXPECT_NEAR(product(point.relative), point.efficiency.mean, 1e-12);
}

TEST(Results, SuperlinearPointsAreFlagged) {
  Collected collected = runs_of({1.0, 0.4});
  const std::vector<ScalingPoint> points = scaling_points(collected);
  EXPECT_TRUE(points[1].is_superlinear);
  EXPECT_EQ(points[1].superlinear_factor, "compute rate");
  const std::vector<std::string> remarks = describe_remarks(collected, points);
  ASSERT_FALSE(remarks.empty());
  EXPECT_TRUE(contains(remarks[0], "superlinear: on 2 ranks")) << remarks[0];
  // Within its interval.
  EXPECT_FALSE(scaling_points(runs_of({1.0, 0.497}))[1].is_superlinear);
}

TEST(Results, PredictionsAreComparedWithWhatWasMeasured) {
  Collected collected = runs_of({1.0, 0.5, 0.4});
  collected.study.sizes[0].prediction = PredictedStep{0.9, 0.9, 0, 0, 0, 0, "rates"};
  collected.study.sizes[1].prediction = PredictedStep{0.6, 0.5, 0.1, 0, 0, 0, "rates"};
  const std::vector<ScalingPoint> points = scaling_points(collected);
  ASSERT_TRUE(points[1].prediction_error.has_value());
  EXPECT_NEAR(*points[0].prediction_error, -0.1, 1e-12);
  EXPECT_NEAR(*points[1].prediction_error, 0.2, 1e-12);
  EXPECT_NEAR(points[1].predicted_speedup, 1.5, 1e-12);
  EXPECT_FALSE(points[2].prediction_error.has_value());
  EXPECT_EQ(points[2].predicted_speedup, 0.0);
}

TEST(Results, FiguresAreLinesWithNameValueAndUnit) {
  const std::string lines = figures(scaling_points(runs_of({1.0, 0.625})));
  for (const char* line :
       {"figure: ranks_1.efficiency 100 %\n", "figure: ranks_2.step_seconds 0.625 s\n",
        "figure: ranks_2.tokens_per_second 1600 tokens/s\n", "figure: ranks_2.speedup 1.6 x\n",
        "figure: ranks_2.efficiency 80 %\n", "figure: ranks_2.factor_compute_rate "})
    EXPECT_TRUE(contains(lines, line)) << line << lines;
  EXPECT_FALSE(contains(lines, "prediction")) << lines;
}

TEST(Results, OutliersAreNamed) {
  Collected collected = runs_of({1.0, 0.5});
  collected.runs[1].outliers.push_back({17, 1.25, 0.5, true, "gather", 1, 0.75});
  collected.runs[1].outliers.push_back({18, 1.0, 0.5, false, "", 0, 0.0});
  EXPECT_EQ(describe_outliers(collected),
            (std::vector<std::string>{
                "step 17 of ranks-2/run-1: 1.25 s, usually 0.5 s (2.5 times as long); +0.75 s on "
                "rank 1, on the stream gather",
                "step 18 of ranks-2/run-1: 1 s, usually 0.5 s (2 times as long); not in the "
                "trace"}));
}

TEST(Results, OfRunsOnDisk) {
  const testing::ScratchFolder folder;
  testing::write_small_study(folder.file("study"));
  const std::vector<ScalingPoint> points = scaling_points(collect(folder.file("study"), false));
  ASSERT_EQ(points.size(), 2u);
  // 1 s and 0.625 s, with one step in twenty that takes a second more.
  EXPECT_NEAR(points[1].step_seconds.mean, 0.675, 1e-4);
  EXPECT_NEAR(points[1].efficiency.mean, 1.0 / 1.35, 1e-4);
  EXPECT_NEAR(product(points[1].relative), points[1].efficiency.mean, 1e-9);
}

}  // namespace
}  // namespace ostrakon::scaling
