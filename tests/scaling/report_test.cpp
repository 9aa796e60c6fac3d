// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <ostrakon/scaling/plot.hpp>
#include <ostrakon/scaling/report.hpp>

#include "small_study.hpp"

namespace ostrakon::scaling {
namespace {

using testing::contains;

Collected collected_study(bool with_prediction) {
  const testing::ScratchFolder folder;
  testing::write_small_study(folder.file("study"));
  Collected collected = collect(folder.file("study"), false);
  collected.study.deck = "decks/a<b>&c.yaml";
  if (with_prediction)
    for (StudySize& size : collected.study.sizes)
      size.prediction = PredictedStep{0.9 / size.ranks, 0.8 / size.ranks, 0.1 / size.ranks, 0, 0, 0,
                                      "made-up rates"};
  return collected;
}

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

TEST(Report, MarkdownHasTheTables) {
  const Collected collected = collected_study(true);
  const std::string report = report_markdown(collected, scaling_points(collected));
  for (const char* words :
       {"# Strong scaling of a<b>&c.yaml\n", "| 2 | 1 | 2 |", "| predicted step |", "| 0.45 s |",
        "Predicted with made-up rates.", "| 2, predicted | 88.9 % |", "## Outlier steps\n",
        "step 7 of ranks-2/run-2", "on the stream gather", "with two runs of a size they are wide"})
    EXPECT_TRUE(contains(report, words)) << words << "\n" << report;
}

TEST(Report, SaysWhereThereIsNoPrediction) {
  const Collected collected = collected_study(false);
  const std::string report = report_markdown(collected, scaling_points(collected));
  EXPECT_TRUE(contains(report, "No prediction")) << report;
  EXPECT_FALSE(contains(report, "predicted step")) << report;
  EXPECT_FALSE(contains(report_html(collected, scaling_points(collected)), ">predicted<"));
}

TEST(Report, HtmlIsOneFileWithItsPlots) {
  const Collected collected = collected_study(true);
  const std::string page = report_html(collected, scaling_points(collected));
  EXPECT_EQ(page.rfind("<!doctype html>", 0), 0u);
  EXPECT_EQ(count_of(page, "<svg "), 5);
  EXPECT_EQ(count_of(page, "</svg>"), 5);
  EXPECT_TRUE(contains(page, "a&lt;b&gt;&amp;c.yaml"));
  for (const char* outside : {"<script", "src=", "href=", "url(", "@import"})
    EXPECT_FALSE(contains(page, outside)) << outside;
  EXPECT_FALSE(contains(page, "nan"));
  EXPECT_FALSE(contains(page, "inf\""));
}

TEST(Report, CsvHasARowForEachSize) {
  const Collected collected = collected_study(true);
  const std::string csv = report_csv(scaling_points(collected));
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 3);
  const std::size_t line_end = csv.find('\n');
  const auto columns = std::count(csv.begin(), csv.begin() + static_cast<long>(line_end), ',');
  EXPECT_EQ(std::count(csv.begin(), csv.end(), ','), 3 * columns);
}

TEST(Plot, LinesGoThroughTheirPoints) {
  Plot plot;
  plot.title = "Speedup";
  plot.ticks = {1, 2, 4};
  plot.logarithmic_y = true;
  plot.lines.push_back({"ideal", "#000000", false, true, {{1, 1, 0}, {2, 2, 0}, {4, 4, 0}}});
  const std::string svg = plot_svg(plot);
  // Both axes are logarithmic: the points are on a straight line, from corner to corner.
  EXPECT_TRUE(contains(svg, "M84.0 290.0 L282.0 167.0 L480.0 44.0")) << svg;
  EXPECT_EQ(count_of(svg, "<circle"), 3);
}

TEST(Plot, ASingleSizeIsDrawn) {
  Plot plot;
  plot.ticks = {8};
  plot.lines.push_back({"one", "#000000", false, true, {{8, 100, 0}}});
  EXPECT_TRUE(contains(plot_svg(plot), "cx=\"282.0\" cy=\"44.0\""));
}

TEST(Plot, BarsAddUpToTheirHeight) {
  const std::string svg =
      bars_svg("Parts", {"a", "b"}, {"#111111", "#222222"}, {{"1", "", {0.25, 0.75}}});
  EXPECT_TRUE(contains(svg, "y=\"228.50\" width=\"64.0\" height=\"61.50\"")) << svg;
  EXPECT_TRUE(contains(svg, "y=\"44.00\" width=\"64.0\" height=\"184.50\"")) << svg;
}

}  // namespace
}  // namespace ostrakon::scaling
