// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <ostrakon/preflight/network.hpp>
#include <ostrakon/preflight/places.hpp>
#include <string>
#include <vector>

#include "support/scratch_folder.hpp"
#include "tables.hpp"

namespace ostrakon::testing {
namespace {

using namespace preflight;

/// What hosts of two ranks each give that have sent 64 MB to others and as much inside.
Table table_of_network(int hosts, const Facts& facts) {
  Table table = table_of(2 * hosts, 2);
  for (Answer& answer : table.answers) {
    answer.facts = {{"sent to other hosts", "32000000"}, {"sent inside the host", "32000000"}};
    answer.facts.insert(answer.facts.end(), facts.begin(), facts.end());
  }
  return table;
}

TEST(PreflightNetwork, TcpIsAFaultWhereThereIsAPort) {
  const Fact port = {"port mlx5_0/1", "ACTIVE, 200 Gb/sec (4X HDR)"};
  const Fact down = {"port mlx5_0/1", "DOWN, 10 Gb/sec (4X SDR)"};
  const Fact tcp = {"sent by interface eth0", "70000000"};
  const Fact little = {"sent by interface eth0", "90000"};
  const Fact loopback = {"sent by interface lo", "66000000"};
  const Fact nccl = {"NCCL's network", "Socket"}, nccl_ib = {"NCCL's network", "IB"};
  struct Row {
    Facts facts;
    std::vector<std::string> found;  ///< beginnings of what is found
    bool is_fault = true;
  };
  comm::Communicator world = comm::Communicator::duplicate(MPI_COMM_WORLD);
  const Check check = network(world);
  for (const Row& row :
       std::vector<Row>{{{}, {}},
                        {{port, little, nccl_ib}, {}},
                        {{port, tcp}, {"MPI sends to other hosts by TCP over eth0, although"}},
                        {{{"device cxi0", "there"}, tcp}, {"MPI sends to other hosts by TCP over"}},
                        {{down, tcp}, {"MPI sends to other hosts by TCP over eth0; the"}, false},
                        {{tcp}, {"MPI sends to other hosts by TCP over eth0; the system"}, false},
                        {{loopback}, {"MPI sends to ranks of the same host by TCP"}},
                        {{nccl}, {}},
                        {{port, nccl}, {"NCCL sends to other hosts by TCP, although"}}}) {
    const Findings found = check.judge(table_of_network(3, row.facts));
    ASSERT_EQ(found.size(), row.found.size()) << ::testing::PrintToString(row.found);
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].what.rfind(row.found[i], 0), 0U) << found[i].what;
      EXPECT_TRUE(found[i].hosts.empty());
      EXPECT_EQ(found[i].is_fault, row.is_fault);
    }
  }
  // One host differs: its port is down, so it falls back.
  Table table = table_of_network(3, {port, little});
  for (const int rank : {2, 3}) {
    answer_of(table, rank).facts[2] = down;
    answer_of(table, rank).facts[3] = tcp;
  }
  const Findings found = check.judge(table);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].hosts, std::vector<std::string>{"n1"});
  EXPECT_EQ(found[0].what.rfind("port mlx5_0/1: DOWN", 0), 0U) << found[0].what;
  EXPECT_EQ(found[1].hosts, std::vector<std::string>{"n1"});
}

TEST(PreflightNetwork, ReadsWhatTheSystemShows) {
  const ScratchFolder scratch;
  const auto write = [&](const std::string& name, const std::string& text) {
    const std::filesystem::path path = scratch.file(name);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  };
  EXPECT_TRUE(fast_ports(scratch.file("none")).empty());
  write("class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
  write("class/infiniband/mlx5_0/ports/1/rate", "200 Gb/sec (4X HDR)\n");
  write("class/cxi/cxi0/name", "\n");
  const Facts facts = fast_ports(scratch.file("."));
  ASSERT_EQ(facts.size(), 2U);
  EXPECT_EQ(facts[0].name, "port mlx5_0/1");
  EXPECT_EQ(facts[0].value, "ACTIVE, 200 Gb/sec (4X HDR)");
  EXPECT_EQ(facts[1].name, "device cxi0");

  const auto sent = sent_by_interface(
      "Inter-|   Receive                          |  Transmit\n"
      " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets\n"
      "    lo:  111 2 3 4 5 6 7 8 999 10 11 12 13 14 15 16\n"
      "eth0:17 2 3 4 5 6 7 8 5000000000 10 11 12 13 14 15 16\n"
      "bad: 1 2\n");
  EXPECT_EQ(sent, (std::map<std::string, std::int64_t>{{"lo", 999}, {"eth0", 5000000000}}));

  EXPECT_EQ(nccl_network("n1:7:7 [0] NCCL INFO Using network Socket\nmore\n"), "Socket");
  EXPECT_EQ(nccl_network("n1:7:7 [0] NCCL INFO Using network IB"), "IB");
  EXPECT_EQ(nccl_network("nothing of it"), "");
}

TEST(PreflightNetwork, PairsAreMutual) {
  const std::vector<std::string> hosts = {"a", "a", "a", "b", "b", "b", "c"};
  EXPECT_EQ(pairs_of(hosts, true), (std::vector<int>{-1, 5, 3, 2, 6, 1, 4}));
  EXPECT_EQ(pairs_of(hosts, false), (std::vector<int>{1, 0, -1, -1, 5, 4, -1}));
  EXPECT_EQ(pairs_of({"a"}, true), std::vector<int>{-1});
}

TEST(PreflightNetwork, ThisProgramHasABuildId) {
  const Facts code = loaded_code();
  ASSERT_FALSE(code.empty());
  bool has_library = false;
  for (const Fact& fact : code) {
    EXPECT_EQ(fact.value.rfind("build ", 0), 0U) << fact.name;
    has_library = has_library || fact.name.rfind("library ", 0) == 0;
  }
  EXPECT_TRUE(has_library);
}

TEST(PreflightPlaces, ClocksThatAreApartAreFound) {
  comm::Communicator world = comm::Communicator::duplicate(MPI_COMM_WORLD);
  const Check check = versions(world, {});
  Table table = table_of(8, 1);
  for (int rank = 0; rank < 8; ++rank)
    answer_of(table, rank).rates["time of day"] = 1.7e9 + 0.2 * rank;
  EXPECT_TRUE(check.judge(table).empty());
  answer_of(table, 6).rates["time of day"] = 1.7e9 - 30.0;
  const Findings found = check.judge(table);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].ranks, std::vector<int>{6});
  EXPECT_NE(found[0].what.find("s earlier than on most ranks"), std::string::npos);
}

}  // namespace
}  // namespace ostrakon::testing
