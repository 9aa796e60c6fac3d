// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <ostrakon/watch/verdict.hpp>
#include <string>
#include <support/scratch_folder.hpp>

namespace ostrakon::watch {
namespace {

TEST(Verdict, IsALineForEachJob) {
  const testing::ScratchFolder folder;
  const std::string file = folder.file("watchdog.jsonl");
  const std::string path = file.substr(0, file.rfind('/'));
  add_verdict({0xab, 12, "rank 2 (n7) is \"late\"", 2, "n7"}, path);
  add_verdict({1, 0, "wait for each other \xff", -1, ""}, path);  // no UTF-8
  add_verdict({1, 0, "nowhere", 0, "n1"}, "");
  std::ifstream rows(file);
  std::string first, second, third;
  ASSERT_TRUE(std::getline(rows, first) && std::getline(rows, second));
  EXPECT_FALSE(std::getline(rows, third));
  const auto row = nlohmann::json::parse(first);
  EXPECT_EQ(row["job"], "ab");
  EXPECT_EQ(row["rank"], 2);
  EXPECT_EQ(row["host"], "n7");
  EXPECT_EQ(row["reason"], "rank 2 (n7) is \"late\"");
  EXPECT_EQ(nlohmann::json::parse(second)["host"], "");
  add_verdict({0xab, 13, "of ranks of that job", 1, "n9"}, path);
  const std::vector<Verdict> read = read_verdicts(path);
  ASSERT_EQ(read.size(), 2U);
  EXPECT_EQ(read[0].job, 0xabU);
  EXPECT_EQ(read[0].step, 12);
  EXPECT_EQ(read[0].rank, 2);
  EXPECT_EQ(read[0].host, "n7");
  EXPECT_EQ(read[0].reason, "rank 2 (n7) is \"late\"");
  EXPECT_EQ(read[1].rank, -1);
}

TEST(Verdict, IsLeftOutWhereItCanNotBeWritten) {
  add_verdict({1, 0, "late", 0, "n1"}, "/nowhere/at/all");
  EXPECT_TRUE(read_verdicts("/nowhere/at/all").empty());
}

}  // namespace
}  // namespace ostrakon::watch
