// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostrakon/base/error.hpp>
#include <ostrakon/base/process.hpp>
#include <ostrakon/comm/agreement.hpp>
#include <string>

#include "support/messages.hpp"

namespace ostrakon::testing {
namespace {

using comm::Communicator;

TEST(Agreement, RanksThatStateTheSameAgree) {
  Communicator world = Communicator::duplicate(MPI_COMM_WORLD);
  EXPECT_EQ(comm::disagreement(world, {{"checksum", "1"}, {"tokenizer", "byte"}}), "");
  EXPECT_EQ(comm::disagreement(world, {}), "");
  EXPECT_NO_THROW(comm::require_agreement(world, "unlike", {{"checksum", "1"}}));
}

TEST(Agreement, TheLowestRankThatDiffersIsNamedOnAllRanks) {
  Communicator world = Communicator::duplicate(MPI_COMM_WORLD);
  if (world.size() == 1) GTEST_SKIP() << "needs others";
  const int second = world.size() > 2 ? world.size() - 2 : 1;
  const std::string value = world.rank() >= second ? "of " + std::to_string(world.rank()) : "1";
  // Some ranks state many more facts than others: no rank waits for further messages.
  Facts facts = {{"dataset", "tokens"}, {"checksum", value}};
  for (int i = 0; i < 1000 * world.rank(); ++i) facts.push_back({"more", std::to_string(i)});
  const std::string host = " (host " + host_name() + ")";
  const std::string expected =
      world.size() > 2 && second > 1
          ? "the more is 0 on rank 1" + host + ", nothing on rank 0" + host
          : "the checksum is of 1 on rank 1" + host + ", 1 on rank 0" + host;
  EXPECT_EQ(comm::disagreement(world, facts), expected);
  const auto require = [&] { comm::require_agreement(world, "data", {{"checksum", value}}); };
  EXPECT_EQ(
      error_of<CollectiveError>(require),
      text("data: the checksum is of ", second, " on rank ", second, host, ", 1 on rank 0", host));
}

}  // namespace
}  // namespace ostrakon::testing
