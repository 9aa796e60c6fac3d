// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/preflight/judge.hpp>
#include <ostrakon/preflight/preflight.hpp>
#include <random>
#include <string>
#include <vector>

#include "tables.hpp"

namespace ostrakon::testing {
namespace {

using namespace preflight;

constexpr int many = 512, per_host = 4;
const Rate speed = {"speed", "GFLOP/s", 1e-9, 0.15, "look"};

/// 512 ranks whose speed varies by 2 % of 50 GFLOP/s.
Table good_speeds(unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> rate(50e9, 1e9);
  Table table = table_of(many, per_host);
  for (Answer& answer : table.answers) answer.rates["speed"] = rate(generator);
  return table;
}

TEST(PreflightJudge, FindsASlowRankAmongMany) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    Table table = good_speeds(seed);
    EXPECT_TRUE(judge_rate(table, "products", speed).empty()) << seed;
    answer_of(table, 77).rates["speed"] = 40e9;
    const Findings found = judge_rate(table, "products", speed);
    ASSERT_EQ(found.size(), 1U) << seed;
    EXPECT_EQ(found[0].ranks, std::vector<int>{77});
    EXPECT_EQ(found[0].hosts, std::vector<std::string>{"n19"});
    EXPECT_EQ(found[0].what.rfind("speed: 40 GFLOP/s, 20 % below the median of ", 0), 0U)
        << found[0].what;
  }
}

TEST(PreflightJudge, RanksOfAHostAreOneFinding) {
  Table table = good_speeds(1);
  for (const int rank : {8, 9, 11}) answer_of(table, rank).rates["speed"] = 25e9;
  // What was not measured somewhere is no fault.
  answer_of(table, 100).rates.clear();
  const Findings found = judge_rate(table, "products", speed);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].ranks, (std::vector<int>{8, 9, 11}));
}

TEST(PreflightJudge, TheSlowerOfTwoIsFoundAndNoiseOfFewIsNot) {
  struct Row {
    std::vector<double> rates;
    std::vector<int> slow;
  };
  for (const Row& row : std::vector<Row>{{{1.0}, {}},
                                         {{1.0, 0.8}, {1}},
                                         {{1.0, 0.9}, {}},
                                         {{0.8, 1.0, 1.0}, {0}},
                                         {{1.0, 1.0, 0.79, 1.02}, {2}},
                                         {{1.0, 0.9, 0.84, 0.95}, {}},
                                         // ranks that differ much tell nothing
                                         {{1.0, 0.5, 0.7, 0.3, 0.9}, {}}}) {
    Table table = table_of(static_cast<int>(row.rates.size()), 1);
    for (std::size_t rank = 0; rank < row.rates.size(); ++rank)
      table.answers[rank].rates["speed"] = row.rates[rank];
    std::vector<int> slow;
    for (const Finding& one : judge_rate(table, "products", speed))
      slow.insert(slow.end(), one.ranks.begin(), one.ranks.end());
    EXPECT_EQ(slow, row.slow) << ::testing::PrintToString(row.rates);
  }
}

TEST(PreflightJudge, WhatIsSlowEverywhereIsFoundByAMachineFile) {
  const Table table = good_speeds(2);
  Findings found;
  judge_by_machine(table, "products", speed, 0.0, found);
  judge_by_machine(table, "products", speed, 90e9, found);
  EXPECT_TRUE(found.empty());
  judge_by_machine(table, "products", speed, 120e9, found);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_TRUE(found[0].hosts.empty());
  EXPECT_NE(found[0].what.find("the machine file says 120 GFLOP/s"), std::string::npos);
}

std::string ranks_of(const Findings& findings) {
  std::string all;
  for (const Finding& one : findings)
    for (const int rank : one.ranks) all += std::to_string(rank) + " ";
  return all;
}

TEST(PreflightJudge, FindsRanksThatComputeOtherBits) {
  Table table = table_of(many, per_host);
  for (int rank = 0; rank < many; ++rank)
    // Two kinds of processors, with bits of their own.
    answer_of(table, rank)
        .facts.push_back(
            {"sums", rank < 256 ? digest_fact("a1", "AVX2") : digest_fact("b2", "AMX")});
  EXPECT_TRUE(judge_digest(table, "products", "sums").empty());
  answer_of(table, 300).facts[0].value = digest_fact("a1", "AMX");
  answer_of(table, 301).facts[0].value = digest_fact("ff", "AMX");
  answer_of(table, 5).facts.push_back({wrong_name("sums"), "1 of 30,000"});
  const Findings found = judge_digest(table, "products", "sums");
  EXPECT_EQ(ranks_of(found), "5 300 301 ");
  EXPECT_NE(found[0].what.find("1 of 30,000"), std::string::npos) << found[0].what;
  EXPECT_NE(found[1].what.find("than on most ranks"), std::string::npos) << found[1].what;
}

TEST(PreflightJudge, OfTwoRanksThatDifferBothAreNamed) {
  Table table = table_of(2, 1);
  answer_of(table, 0).facts.push_back({"sums", digest_fact("a", "k")});
  answer_of(table, 1).facts.push_back({"sums", digest_fact("b", "k")});
  const Findings found = judge_digest(table, "products", "sums");
  EXPECT_EQ(ranks_of(found), "0 1 ");
  EXPECT_NE(found.at(0).what.find("which are wrong can't be told"), std::string::npos);
  // One that was seen to be wrong is named once, with that.
  answer_of(table, 1).facts.push_back({wrong_name("sums"), "3 of 9"});
  EXPECT_EQ(ranks_of(judge_digest(table, "products", "sums")), "1 0 ");
}

TEST(PreflightJudge, FindsOtherFacts) {
  Table table = table_of(many, per_host);
  for (Answer& answer : table.answers) answer.facts = {{"MPI", "4.1"}, {"library x", "1"}};
  EXPECT_TRUE(judge_facts(table, "versions", true, "").empty());
  answer_of(table, 130).facts[0].value = "4.0";
  answer_of(table, 131).facts[0].value = "4.0";
  answer_of(table, 7).facts.pop_back();
  const Findings found = judge_facts(table, "versions", false, "");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].ranks, (std::vector<int>{130, 131}));
  EXPECT_EQ(found[0].what, "MPI: 4.0; 4.1 on 510 of 512 ranks, as on rank 0 (n0)");
  EXPECT_EQ(ranks_of(judge_facts(table, "versions", true, "")), "130 131 7 ");
}

/// Links of 10 GB/s inside hosts and of 2 GB/s across, which vary by 3 %.
Table good_links(int ranks, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> noise(1.0, 0.03);
  Table table = table_of(ranks, per_host);
  for (int rank = 0; rank < ranks; ++rank)
    for (int round = 0; 1 << round < ranks; ++round) {
      const int other = rank ^ 1 << round;
      if (other >= ranks) continue;
      const bool inside = rank / per_host == other / per_host;
      answer_of(table, rank).rates[link_name(round)] = (inside ? 10e9 : 2e9) * noise(generator);
    }
  return table;
}

void slow_link(Table& table, int one, int round) {
  for (const int rank : {one, one ^ 1 << round})
    answer_of(table, rank).rates[link_name(round)] *= 0.5;
}

TEST(PreflightJudge, FindsASlowLink) {
  for (const int ranks : {many, 500, 12}) {
    Table table = good_links(ranks, 1);
    EXPECT_TRUE(judge_links(table, "links", 10e9, 2e9).empty()) << ranks;
    slow_link(table, 5, 1);  // inside
    slow_link(table, 2, 3);  // across
    const Findings found = judge_links(table, "links", 0.0, 0.0);
    ASSERT_EQ(found.size(), 2U) << ranks;
    EXPECT_EQ(found[0].ranks, (std::vector<int>{5, 7}));
    EXPECT_EQ(found[0].hosts, std::vector<std::string>{"n1"});
    EXPECT_EQ(found[1].ranks, (std::vector<int>{2, 10}));
    EXPECT_EQ(found[1].hosts, (std::vector<std::string>{"n0", "n2"}));
  }
}

TEST(PreflightJudge, FindsAHostWithSlowLinks) {
  Table table = good_links(many, 2);
  for (int rank = 40; rank < 44; ++rank)
    for (int round = 2; round < 9; ++round) slow_link(table, rank, round);
  const Findings found = judge_links(table, "links", 0.0, 0.0);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].hosts, std::vector<std::string>{"n10"});
  EXPECT_NE(found[0].what.find("28 of 28 links across hosts are slow"), std::string::npos);
  const Findings by_file = judge_links(good_links(many, 2), "links", 30e9, 2e9);
  ASSERT_EQ(by_file.size(), 1U);
  EXPECT_NE(by_file[0].what.find("the machine file says 30 GB/s"), std::string::npos);
}

TEST(PreflightJudge, AnswersArePackedAndJoined) {
  const Answer first = {{{"a", 1.5}, {"b", 2.0}}, {{"x", "1:2\n"}, {"y", ""}}};
  const Answer same = unpack(pack(first));
  EXPECT_EQ(same.rates, first.rates);
  ASSERT_EQ(same.facts.size(), 2U);
  EXPECT_EQ(same.fact("x"), "1:2\n");
  EXPECT_THROW(unpack("1:a1:b0:0:"), Error);
  const Answer best = best_of(first, {{{"a", 1.0}, {"b", 3.0}, {"c", 4.0}}, {{"x", "new"}}});
  EXPECT_EQ(best.rates, (std::map<std::string, double>{{"a", 1.5}, {"b", 3.0}, {"c", 4.0}}));
  EXPECT_EQ(best.fact("x"), "1:2\n and later new");
}

TEST(PreflightJudge, ReportsNameWhatIsWrongAndHostsWithout) {
  Report report;
  Report::Part part;
  part.check.name = "products";
  part.check.unit = "GFLOP/s";
  part.table = good_speeds(3);
  answer_of(part.table, 77).rates["speed"] = 10e9;
  report.findings = judge_rate(part.table, "products", speed);
  report.findings.push_back({"network", "TCP", {4, 5, 6, 7}, {"n1"}, "nothing", false});
  report.parts.push_back(part);
  EXPECT_EQ(report.faults(), 1);
  const std::string lines = describe(report);
  EXPECT_NE(lines.find("512 ranks on 128 hosts"), std::string::npos);
  EXPECT_NE(lines.find("fault: products, rank 77 (n19): speed: 10 GFLOP/s"), std::string::npos);
  EXPECT_NE(lines.find("note: network, ranks 4-7 (n1): TCP; nothing"), std::string::npos);
  EXPECT_NE(lines.find("lowest on rank 77 (n19)"), std::string::npos);
  const std::string hosts = good_hosts(report);
  EXPECT_EQ(std::count(hosts.begin(), hosts.end(), '\n'), 127);
  EXPECT_EQ(hosts.rfind("n0\nn1\nn2\n", 0), 0U);
  EXPECT_EQ(hosts.find("n19\n"), std::string::npos);
  const nlohmann::ordered_json json = to_json(report);
  EXPECT_EQ(json["faults"], 1);
  EXPECT_EQ(json["findings"][0]["ranks"][0], 77);
  EXPECT_EQ(json["checks"][0]["rates"]["speed"][77], 10e9);
}

}  // namespace
}  // namespace ostrakon::testing
