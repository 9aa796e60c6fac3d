// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostrakon/tune/search.hpp>
#include <set>

namespace ostrakon::tune {
namespace {

/// One dimension, whose values are kinds of their own.
class Line : public Candidates {
 public:
  Line(std::vector<double> estimates, std::vector<double> seconds)
      : estimates_(std::move(estimates)), seconds_(std::move(seconds)) {}
  std::vector<int> sizes() const override { return {static_cast<int>(seconds_.size())}; }
  std::vector<bool> are_starts() const override { return {true}; }
  std::string kind(const Point& point) const override { return std::to_string(point[0]); }
  std::optional<Cost> bound(const Point&) override { return Cost{0.5, {1, 0}}; }
  std::optional<Cost> estimate(const Point& point) override {
    return Cost{estimates_[static_cast<std::size_t>(point[0])], {1, 0}};
  }
  std::optional<double> seconds(const Point& point) override {
    return seconds_[static_cast<std::size_t>(point[0])];
  }
  Memory memory(const Point&) override { return {1, 0}; }

 private:
  std::vector<double> estimates_, seconds_;
};

TEST(Search, IsNoSlowerThanWhereItBegins) {
  Line line({10.0, 1.0, 1.01, 1.02, 1.03, 1.04, 1.05}, {1.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0});
  EXPECT_EQ(search(line, {100, 100}, 1).best.front().point, Point{0});
}

// The fastest has the third estimate.
TEST(Search, FindsTheSameHoweverManyAreAskedFor) {
  for (const std::size_t most : {1, 2, 5}) {
    Line line({9.0, 1.0, 1.2, 1.3}, {9.0, 5.0, 4.0, 3.0});
    const SearchResult found = search(line, {100, 100}, most);
    EXPECT_EQ(found.best.front().point, Point{3}) << most;
    EXPECT_LE(found.best.size(), most);
  }
}

/// What is fast has no room, but with one setting of another dimension; some save a little.
class Crowded : public Candidates {
 public:
  explicit Crowded(double effort) : effort_(effort) {}
  std::vector<int> sizes() const override { return {2, 10, 10}; }
  std::vector<bool> are_starts() const override { return {false, false, false}; }
  std::string kind(const Point&) const override { return "one"; }
  std::optional<Cost> bound(const Point&) override { return Cost{0.5, {1, 0}}; }
  double effort(const Point&) override { return effort_; }
  void expect(const std::vector<Point>& points) override {
    for (const Point& point : points) expected_.insert(point);
  }
  std::optional<Cost> estimate(const Point& point) override {
    asked_.insert(point);
    return cost(point);
  }
  std::optional<double> seconds(const Point& point) override { return cost(point).seconds; }
  Memory memory(const Point& point) override { return cost(point).memory; }

  std::set<Point> expected_, asked_;

 private:
  static Cost cost(const Point& point) {
    Cost cost{10.0, {50, 0}};
    if (point[0] == 1) cost = {5.0, {150, 0}};
    cost.seconds += 0.01 * point[1] + 0.02 * point[2];
    cost.memory.device -= point[1] == 7 ? 60 : 2 * point[1] + point[2];
    return cost;
  }

  double effort_;
};

TEST(Search, TriesTheMostPromisingTwoChangesWhereEstimatesTakeLong) {
  Crowded easy(0.0), hard(1e9);
  for (Crowded* each : {&easy, &hard})
    EXPECT_EQ(search(*each, {100, 100}, 1).best.front().point, (Point{1, 7, 0}));
  EXPECT_LT(hard.asked_.size(), easy.asked_.size());
}

/// The first start is the faster one, and has no room with any setting.
class SlowerFits : public Line {
 public:
  SlowerFits() : Line({}, {}) {}
  std::vector<int> sizes() const override { return {2, 2, 2}; }
  std::vector<bool> are_starts() const override { return {true, false, false}; }
  std::optional<Cost> estimate(const Point& point) override {
    if (point[0] == 0) return Cost{1.0, {200, 0}};
    return Cost{1.2, {point[2] == 1 ? 50 : 500, 0}};
  }
  std::optional<double> seconds(const Point& point) override { return estimate(point)->seconds; }
  Memory memory(const Point& point) override { return estimate(point)->memory; }
};

TEST(Search, FollowsSlowerStartsWhereNothingFits) {
  SlowerFits each;
  const SearchResult found = search(each, {100, 100}, 1);
  ASSERT_EQ(found.best.size(), 1u);
  EXPECT_EQ(found.best.front().point, (Point{1, 0, 1}));
}

/// Each setting needs less of one memory, and more of the other, than the one before.
class TwoMemories : public Line {
 public:
  TwoMemories() : Line({}, {}) {}
  std::vector<int> sizes() const override { return {5}; }
  std::optional<Cost> bound(const Point& point) override { return estimate(point); }
  std::optional<Cost> estimate(const Point& point) override {
    return Cost{1.0 + point[0], {100 - 20 * point[0], 20 * point[0]}};
  }
  std::optional<double> seconds(const Point& point) override { return estimate(point)->seconds; }
  Memory memory(const Point& point) override { return estimate(point)->memory; }
};

TEST(Search, FitsBothMemories) {
  TwoMemories line;
  for (const auto& find : {search, search_all}) {
    EXPECT_EQ(find(line, {100, 100}, 1).best.front().point, Point{0});
    EXPECT_EQ(find(line, {50, 60}, 1).best.front().point, Point{3});
    const SearchResult none = find(line, {50, 50}, 1);
    EXPECT_TRUE(none.best.empty());
    EXPECT_TRUE(none.smallest.has_value());
  }
}

/// The first setting is fast and large; it fits with both of the others, which each take time.
class ThreeAtOnce : public Line {
 public:
  ThreeAtOnce() : Line({}, {}) {}
  std::vector<int> sizes() const override { return {2, 2, 2}; }
  std::vector<bool> are_starts() const override { return {false, false, false}; }
  std::optional<Cost> estimate(const Point& point) override {
    const int less = point[1] + point[2];
    return Cost{10.0 - 5 * point[0] + less, {100 + 60 * point[0] - 30 * less, 0}};
  }
  std::optional<double> seconds(const Point& point) override { return estimate(point)->seconds; }
  Memory memory(const Point& point) override { return estimate(point)->memory; }
};

TEST(Search, MakesRoomForWhatIsFastByMoreThanOneChange) {
  ThreeAtOnce each;
  EXPECT_EQ(search(each, {100, 100}, 1).best.front().point, (Point{1, 1, 1}));
}

TEST(Search, AsksForWhatItSaysThatItWill) {
  Crowded each(0.0);
  search(each, {100, 100}, 1);
  EXPECT_GT(each.expected_.size(), 20u);
  for (const Point& point : each.expected_) EXPECT_EQ(each.asked_.count(point), 1u);
}

}  // namespace
}  // namespace ostrakon::tune
