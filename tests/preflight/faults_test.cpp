// SPDX-License-Identifier: Apache-2.0
// Faults made on purpose are found by measurements of these ranks.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <ostrakon/base/clock.hpp>
#include <ostrakon/preflight/compute.hpp>
#include <ostrakon/preflight/links.hpp>
#include <ostrakon/preflight/places.hpp>
#include <ostrakon/preflight/preflight.hpp>
#include <string>
#include <vector>

#include "support/shared_folder.hpp"

namespace ostrakon::testing {
namespace {

using namespace preflight;

void spin(double seconds) {
  const Stopwatch since;
  while (since.seconds() < seconds) {
  }
}

class PreflightFaults : public ::testing::Test {
 protected:
  comm::Communicator world = comm::Communicator::duplicate(MPI_COMM_WORLD);
  const int last = world.size() - 1;

  /// Findings of one check whose text has `words`; speeds of a busy machine are others.
  Findings found(const Check& check, const std::string& words) {
    Findings all;
    for (const Finding& one : inspect(world, {check}, 0).findings)
      if (one.what.find(words) != std::string::npos) all.push_back(one);
    return all;
  }
};

TEST_F(PreflightFaults, OneWrongProductInTenThousandIsFound) {
  EXPECT_TRUE(found(products(0.02, {}, nullptr), "other bits").empty());
  Faults faults;
  faults.products = [this](const std::function<void()>& multiply, std::int64_t first,
                           View<float**> results) {
    multiply();
    constexpr std::int64_t wrong = 5003, period = 10000;
    for (std::int64_t i = 0; i < results.extent(0); ++i)
      if (world.rank() == last && (first + i) % period == wrong) results(i, 77) += 1e-3F;
  };
  const Findings findings = found(products(2.0, faults, nullptr), "other bits");
  ASSERT_EQ(findings.size(), 2U);  // of fp32 and of bf16
  for (const Finding& one : findings) {
    EXPECT_EQ(one.ranks, std::vector<int>{last});
    EXPECT_NE(one.what.find(" of "), std::string::npos) << one.what;
  }
}

TEST_F(PreflightFaults, ARankThatAlwaysMultipliesWronglyIsFound) {
  if (world.size() < 3) GTEST_SKIP() << "with two ranks it can't be told which is wrong";
  Faults faults;
  faults.products = [this](const std::function<void()>& multiply, std::int64_t,
                           View<float**> results) {
    multiply();
    if (world.rank() != 1) return;
    for (std::int64_t i = 0; i < results.extent(0); ++i) results(i, 0) = 0.0F;
  };
  const Findings findings = found(products(0.02, faults, nullptr), "other bits");
  ASSERT_FALSE(findings.empty());
  for (const Finding& one : findings) EXPECT_EQ(one.ranks, std::vector<int>{1});
}

// Beside other work the others may be slow, too, for as long as a measurement takes, so there are
// several attempts.
TEST_F(PreflightFaults, ARankThatIsAFifthSlowerIsFound) {
  if (world.size() == 1) GTEST_SKIP() << "needs others";
  Faults faults;
  faults.products = [this](const std::function<void()>& multiply, std::int64_t, View<float**>) {
    const Stopwatch timer;
    multiply();
    if (world.rank() == 0) spin(0.25 * timer.seconds());
  };
  Findings findings;
  for (int attempt = 0; attempt < 8 && findings.empty(); ++attempt)
    findings = found(products(0.2, faults, nullptr), "below the median");
  ASSERT_FALSE(findings.empty());
  EXPECT_EQ(findings[0].check, "products");
  bool is_named = false;
  for (const Finding& one : findings) is_named = is_named || one.ranks == std::vector<int>{0};
  EXPECT_TRUE(is_named);
}

TEST_F(PreflightFaults, ALinkThatWaitsIsTheSlowest) {
  if (world.size() < 4) GTEST_SKIP() << "needs other links";
  Faults faults;
  faults.exchange = [this](const std::function<void()>& exchange, int other) {
    exchange();
    if (world.rank() + other == 5) spin(0.05);  // ranks 2 and 3
  };
  const Report report = inspect(world, {links(world, 1 << 20, 0.05, faults, nullptr)}, 0);
  double slowest = 1e30;
  std::string name;
  int rank = -1;
  for (int r = 0; r < world.size(); ++r)
    for (const auto& [link, rate] :
         report.parts[0].table.answers[static_cast<std::size_t>(r)].rates)
      if (rate < slowest) {
        slowest = rate;
        name = link;
        rank = r;
      }
  EXPECT_EQ(name, "link 0");
  EXPECT_TRUE(rank == 2 || rank == 3) << rank;
}

TEST_F(PreflightFaults, StepsAndCollectivesHaveTheSameBitsAndNamesOnAllRanks) {
  const Report report = inspect(world, {steps(0.02)}, 0);
  for (const Finding& one : report.findings)
    EXPECT_EQ(one.what.find("other bits"), std::string::npos) << one.what;
  EXPECT_EQ(report.parts[0].table.answers[0].facts.size(), 2U);
  const Report groups =
      inspect(world, {collectives(world, usual_collectives(world), 0.01, nullptr)}, 0);
  for (const Answer& answer : groups.parts[0].table.answers)
    EXPECT_EQ(answer.rates.size(), world.size() > 1 ? 4U : 0U);
}

TEST_F(PreflightFaults, OtherVersionsAreFound) {
  if (world.size() == 1) GTEST_SKIP() << "needs others";
  Check check = versions(world, {"/proc/self/cmdline", "/none"});
  const auto measure = check.measure;
  EXPECT_TRUE(inspect(world, {check}).findings.empty());
  check.measure = [this, measure] {
    Answer answer = measure();
    if (world.rank() == last)
      for (Fact& fact : answer.facts)
        if (fact.name == "program" || fact.name == "MPI") fact.value += "-other";
    return answer;
  };
  const Findings findings = inspect(world, {check}).findings;
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings[0].what.rfind("MPI: ", 0), 0U) << findings[0].what;
  EXPECT_EQ(findings[1].what.rfind("program: ", 0), 0U) << findings[1].what;
  for (const Finding& one : findings) EXPECT_EQ(one.ranks, std::vector<int>{last});
}

TEST_F(PreflightFaults, AFolderThatNobodyCanWriteIsFound) {
  const SharedFolder scratch;
  EXPECT_TRUE(inspect(world, {folder(world, scratch.file("run/deep"))}).findings.empty());
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
  const Findings findings = inspect(world, {folder(world, "/proc/run")}, 0).findings;
  ASSERT_FALSE(findings.empty());
  bool is_named = false;
  for (const Finding& one : findings)
    is_named = is_named || one.what.find("/proc/.ostrakon-preflight-") != std::string::npos;
  EXPECT_TRUE(is_named);
}

}  // namespace
}  // namespace ostrakon::testing
