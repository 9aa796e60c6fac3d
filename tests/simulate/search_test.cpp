// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostrakon/simulate/search.hpp>

namespace ostrakon::tests {
namespace {

using namespace ostrakon::simulate;

/// One dimension, whose values are kinds of their own.
class Line : public Candidates {
 public:
  Line(std::vector<double> estimates, std::vector<double> seconds)
      : estimates_(std::move(estimates)), seconds_(std::move(seconds)) {}
  std::vector<int> sizes() const override { return {static_cast<int>(seconds_.size())}; }
  std::vector<bool> are_starts() const override { return {true}; }
  std::string kind(const Point& point) const override { return std::to_string(point[0]); }
  std::optional<Cost> bound(const Point&) override { return Cost{0.5, 1}; }
  std::optional<Cost> estimate(const Point& point) override {
    return Cost{estimates_[static_cast<std::size_t>(point[0])], 1};
  }
  std::optional<double> seconds(const Point& point) override {
    return seconds_[static_cast<std::size_t>(point[0])];
  }
  std::int64_t bytes(const Point&) override { return 1; }

 private:
  std::vector<double> estimates_, seconds_;
};

TEST(Search, IsNoSlowerThanWhereItBegins) {
  Line line({10.0, 1.0, 1.01, 1.02, 1.03, 1.04, 1.05}, {1.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0});
  EXPECT_EQ(search(line, 100, 1).best.front().point, Point{0});
}

// The fastest has the third estimate.
TEST(Search, FindsTheSameHoweverManyAreAskedFor) {
  for (const std::size_t most : {1, 2, 5}) {
    Line line({9.0, 1.0, 1.2, 1.3}, {9.0, 5.0, 4.0, 3.0});
    const Choices found = search(line, 100, most);
    EXPECT_EQ(found.best.front().point, Point{3}) << most;
    EXPECT_LE(found.best.size(), most);
  }
}

}  // namespace
}  // namespace ostrakon::tests
