// SPDX-License-Identifier: Apache-2.0

// A plan as a picture.

#include <gtest/gtest.h>

#include <algorithm>
#include <ostrakon/plan/picture.hpp>
#include <ostrakon/plan/report_text.hpp>
#include <string>
#include <vector>

#include "report_fixture.hpp"

namespace {

using namespace ostrakon;
using namespace ostrakon::plan;
using namespace ostrakon::tests::reports;

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t times = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1))
    ++times;
  return times;
}

TEST(Picture, ShowsEveryActionOfAShortPlan) {
  ModelDescription model = make_model(2);
  model.units[1].name = "a<b & \"c\"";
  const Planned planned = make(model, 2, make_policy(Sharding::full, 4));
  const std::string svg = picture_svg(planned.plan, planned.memory, "small & short");
  std::size_t waits = 0;
  for (const Action& action : planned.plan.actions) waits += action.waits.size();
  EXPECT_GT(waits, 0u);
  EXPECT_EQ(count(svg, "class=\"wait\""), waits);
  EXPECT_EQ(svg.rfind("<svg ", 0), 0u);
  EXPECT_EQ(count(svg, "<g>"), planned.plan.actions.size());
  EXPECT_EQ(count(svg, "<g>"), count(svg, "</g>"));
  EXPECT_EQ(count(svg, "<text"), count(svg, "</text>"));
  EXPECT_EQ(count(svg, "left out"), 0u);
  EXPECT_NE(svg.find("small &amp; short"), std::string::npos);
  EXPECT_NE(svg.find("a&lt;b &amp; &quot;c&quot;"), std::string::npos);
  EXPECT_EQ(svg.find("a<b"), std::string::npos);
  EXPECT_NE(svg.find("at " + planned.report.device.peak_action), std::string::npos);
}

TEST(Picture, HasALaneForEachStreamInWhichSomethingHappens) {
  const auto lanes = [](int ranks, Offload offload) {
    const Planned planned = make(make_model(2), ranks, offloading_policy(offload, 2 * ranks));
    const std::string svg = picture_svg(planned.plan, planned.memory, "lanes");
    std::vector<std::string> shown;
    for (int stream = 0; stream < streams; ++stream) {
      const std::string lane = name(static_cast<Stream>(stream));
      if (count(svg, ">" + lane + "</text>\n<rect class=\"lane\"") == 1) shown.push_back(lane);
    }
    EXPECT_EQ(count(svg, "class=\"lane\""), shown.size());
    return shown;
  };
  using Lanes = std::vector<std::string>;
  EXPECT_EQ(lanes(1, Offload::none), Lanes({"compute", "host"}));
  EXPECT_EQ(lanes(2, Offload::none), Lanes({"compute", "gather", "reduce", "host"}));
  EXPECT_EQ(lanes(1, Offload::parameters), Lanes({"compute", "upload", "download", "host"}));
  EXPECT_EQ(lanes(2, Offload::all),
            Lanes({"compute", "gather", "reduce", "upload", "download", "host"}));
}

TEST(Picture, LeavesTheMiddleOfALongPlanOut) {
  const Planned planned = make(make_model(20), 2, make_policy(Sharding::full, 200));
  ASSERT_GT(planned.plan.actions.size(), 10000u);
  const std::string svg = picture_svg(planned.plan, planned.memory, "long");
  EXPECT_GT(count(svg, "left out"), 0u);
  EXPECT_LE(count(svg, "<g>"), static_cast<std::size_t>(most_drawn_actions));
  EXPECT_EQ(count(svg, "class=\"wait\""), 0u);
  EXPECT_NE(svg.find("(embedding, micro-batch 0)"), std::string::npos);
  EXPECT_NE(svg.find("(embedding, micro-batch 99)"), std::string::npos);
  EXPECT_NE(svg.find("at " + planned.report.device.peak_action), std::string::npos);
  EXPECT_LT(svg.size(), 2000000u);
}

TEST(Picture, NeverDrawsMoreThanItsMost) {
  std::size_t most = 0;
  for (int blocks : {30, 60, 100, 120, 140, 170, 230, 300, 500, 900})
    for (int leaves : {1, 3, 6, 8}) {
      const Planned planned = make(make_model(blocks), 2, make_policy(Sharding::full, 2 * leaves));
      const std::string svg = picture_svg(planned.plan, planned.memory, "long");
      const std::size_t drawn = count(svg, "<g>");
      EXPECT_LE(drawn, static_cast<std::size_t>(most_drawn_actions)) << blocks << ' ' << leaves;
      EXPECT_NE(svg.find("<circle class=\"back strong\""), std::string::npos)
          << "the peak with " << blocks << ' ' << leaves;
      most = std::max(most, drawn);
    }
  EXPECT_GT(most, static_cast<std::size_t>(most_drawn_actions) / 2);
}

TEST(Picture, ReplacesWhatIsNoCharacter) {
  const Planned planned = make(make_model(1), 1, make_policy(Sharding::full, 1));
  const auto title = [&](const std::string& text) {
    const std::string svg = picture_svg(planned.plan, planned.memory, text);
    const std::size_t begin = svg.find("class=\"title ink\"");
    const std::size_t end = svg.find("</text>", begin);
    return svg.substr(svg.find('>', begin) + 1, end - svg.find('>', begin) - 1);
  };
  const std::string no = "\xef\xbf\xbd";
  for (const char* good : {"deck", "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x8f\xba", "\xef\xbf\xbd"})
    EXPECT_EQ(title(good), good);
  EXPECT_EQ(title("<a>&\"b\""), "&lt;a&gt;&amp;&quot;b&quot;");
  for (const char* bad : {"\x01", "\n", "\x1f", "\x7f", "\x80", "\xff", "\xc3"})
    EXPECT_EQ(title("a" + std::string(bad) + "b"), "a" + no + "b");
  EXPECT_EQ(title(std::string("a\0b", 3)), "a" + no + "b");
  EXPECT_EQ(title("a\xe2\x82"), "a" + no + no);             // cut off
  EXPECT_EQ(title("\xc0\xaf"), no + no);                    // a longer form of '/'
  EXPECT_EQ(title("\xc2\x85"), no + no);                    // a control character
  EXPECT_EQ(title("\xed\xa0\x80"), no + no + no);           // half of a pair of UTF-16
  EXPECT_EQ(title("\xef\xbf\xbf"), no + no + no);           // never a character
  EXPECT_EQ(title("\xf4\x90\x80\x80"), no + no + no + no);  // above the last one
}

TEST(Picture, DrawsPlansOfAllPurposes) {
  for (Purpose purpose :
       {Purpose::train, Purpose::evaluate, Purpose::export_parameters, Purpose::decode}) {
    const Planned planned = make(make_model(1), 1, make_policy(Sharding::full, 1), 0, purpose);
    EXPECT_EQ(count(picture_svg(planned.plan, planned.memory, "plan"), "<g>"),
              planned.plan.actions.size());
    EXPECT_FALSE(report_text(planned.plan, planned.report).empty());
  }
}

}  // namespace
