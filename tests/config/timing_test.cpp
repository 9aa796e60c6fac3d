// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>
#include <ostrakon/config/timing.hpp>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <vector>

namespace ostrakon::config {
namespace {

struct Row {
  int depth;
  std::string name;
  int calls;
  double least, mean, most;
};

std::vector<Row> parse(const std::string& report) {
  std::istringstream lines(report);
  std::string line;
  std::getline(lines, line);  // skips the header
  std::vector<Row> rows;
  while (std::getline(lines, line)) {
    Row row;
    row.depth = static_cast<int>(line.find_first_not_of(' ')) / 2;
    std::istringstream words(line);
    words >> row.name >> row.calls >> row.least >> row.mean >> row.most;
    EXPECT_FALSE(words.fail()) << line;
    rows.push_back(row);
  }
  return rows;
}

int rank_of_world() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

TEST(Timers, AnExceptionLeavesNoTimerRunning) {
  Timers timers;
  try {
    ScopedTimer step(timers, "step");
    timers.start("forward");
    timers.start("gather");
    throw std::runtime_error("diverged");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(timers.running(), 0U);
  ScopedTimer next(timers, "next");
  EXPECT_EQ(timers.running(), 1U);
}

TEST(Timers, ReportLeastMeanAndMostOverTheRanks) {
  const int rank = rank_of_world();
  int ranks = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  Timers timers;
  for (int i = 0; i < 3; ++i) {
    ScopedTimer step(timers, "step");
    {
      ScopedTimer forward(timers, "forward");
      std::this_thread::sleep_for(std::chrono::milliseconds(10 * (rank + 1)));
    }
    ScopedTimer backward(timers, "backward");
  }
  timers.start("save");
  timers.stop("save");
  {
    ScopedTimer step(timers, "step");  // a name that is first used later is still below its parent
    ScopedTimer validate(timers, "validate");
  }
  const std::string report = timers.report(MPI_COMM_WORLD);
  if (rank != 0) {
    EXPECT_EQ(report, "");
    return;
  }
  const std::vector<Row> rows = parse(report);
  ASSERT_EQ(rows.size(), 6u) << report;
  const std::vector<Row> expected = {{0, "total", 1, 0, 0, 0},    {1, "step", 4, 0, 0, 0},
                                     {2, "forward", 3, 0, 0, 0},  {2, "backward", 3, 0, 0, 0},
                                     {2, "validate", 1, 0, 0, 0}, {1, "save", 1, 0, 0, 0}};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].name, expected[i].name) << report;
    EXPECT_EQ(rows[i].depth, expected[i].depth) << report;
    EXPECT_EQ(rows[i].calls, expected[i].calls) << report;
    EXPECT_LE(rows[i].least, rows[i].mean) << report;
    EXPECT_LE(rows[i].mean, rows[i].most) << report;
    EXPECT_LE(rows[i].most, rows[0].most) << report;
  }
  EXPECT_GE(rows[2].least, 0.030);
  EXPECT_GE(rows[2].most, 0.030 * ranks);
  EXPECT_GE(rows[1].least, rows[2].least);
}

TEST(Timers, ReportAgainWithoutLosingTime) {
  Timers timers;
  timers.report(MPI_COMM_WORLD);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const std::string report = timers.report(MPI_COMM_WORLD);
  if (rank_of_world() != 0) return;
  ASSERT_EQ(parse(report).size(), 1u);
  EXPECT_GE(parse(report)[0].least, 0.020);
}

TEST(Timers, RefuseToStopAnythingButTheLast) {
  Timers timers;
  EXPECT_THROW(timers.stop("total"), std::logic_error);
  timers.start("a");
  timers.start("b");
  EXPECT_THROW(timers.stop("a"), std::logic_error);
  timers.stop("b");
  timers.stop("a");
}

}  // namespace
}  // namespace ostrakon::config
