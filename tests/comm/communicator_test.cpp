// SPDX-License-Identifier: Apache-2.0

// Groups of ranks, and the small messages between them.

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <ostrakon/base/error.hpp>
#include <ostrakon/comm/communicator.hpp>
#include <stdexcept>
#include <string>
#include <support/scratch_folder.hpp>
#include <type_traits>
#include <utility>
#include <vector>

#include "communicator_fixture.hpp"

namespace ostrakon::comm {
namespace {

using namespace ostrakon::tests;
using ostrakon::testing::error_of;

static_assert(!std::is_copy_constructible<Communicator>::value, "a communicator has one owner");
static_assert(std::is_nothrow_move_constructible<Communicator>::value, "moves don't fail");

TEST_F(CommunicatorTest, SumsWrapAround) {
  const auto ranks = static_cast<std::uint64_t>(world.size());
  const std::uint64_t large = 0xfedcba9876543210U;
  std::uint64_t values[2] = {large, static_cast<std::uint64_t>(world.rank())};
  world.all_reduce_sum(values, 2);
  EXPECT_EQ(values[0], large * ranks);
  EXPECT_EQ(values[1], ranks * (ranks - 1) / 2);

  std::int64_t signed_values[2] = {std::numeric_limits<std::int64_t>::max(), -3};
  world.all_reduce_sum(signed_values, 2);
  EXPECT_EQ(static_cast<std::uint64_t>(signed_values[0]), 0x7fffffffffffffffU * ranks);
  EXPECT_EQ(signed_values[1], -3 * static_cast<std::int64_t>(ranks));
}

TEST_F(CommunicatorTest, MaximumAndMinimum) {
  const double rank = world.rank();
  const double last = world.size() - 1;
  double values[2] = {rank, -rank};
  world.all_reduce_max(values, 2);
  EXPECT_EQ(values[0], last);
  EXPECT_EQ(values[1], 0.0);
  double others[2] = {rank, -rank};
  world.all_reduce_min(others, 2);
  EXPECT_EQ(others[0], 0.0);
  EXPECT_EQ(others[1], -last);
}

TEST_F(CommunicatorTest, BroadcastTextsFromEveryRank) {
  std::string longest(3000000, 'x');
  for (std::size_t i = 0; i < longest.size(); ++i) longest[i] = static_cast<char>(i * i % 251);
  for (int root = 0; root < world.size(); ++root)
    for (const std::string& sent : {std::string(), std::string("deck"), std::string("a\0b", 3),
                                    longest + std::to_string(root)})
      EXPECT_EQ(world.broadcast(world.rank() == root ? sent : "something else", root), sent);
}

TEST_F(CommunicatorTest, GatherTextsInRankOrder) {
  const auto text_of = [](int rank) {
    return rank % 2 == 0 ? std::string(static_cast<std::size_t>(1000 * rank), 'a' + rank)
                         : std::to_string(rank);
  };
  const auto texts = world.gather_texts(text_of(world.rank()));
  ASSERT_EQ(static_cast<int>(texts.size()), world.size());
  for (int rank = 0; rank < world.size(); ++rank)
    EXPECT_EQ(texts[static_cast<std::size_t>(rank)], text_of(rank));
}

TEST_F(CommunicatorTest, AgreeThrowsTheLowestFailureEverywhere) {
  const int last = world.size() - 1;
  const std::map<std::string, std::pair<std::function<bool(int)>, std::string>> cases = {
      {"none", {[](int) { return false; }, "no error"}},
      {"first", {[](int rank) { return rank == 0; }, "rank 0 can't read"}},
      {"last", {[=](int rank) { return rank == last; }, text("rank ", last, " can't read")}},
      {"all but the first",
       {[](int rank) { return rank > 0; }, last > 0 ? "rank 1 can't read" : "no error"}},
      {"all", {[](int) { return true; }, "rank 0 can't read"}}};
  for (const auto& [name, fails] : cases) {
    const auto work = [&, fails = fails.first] {
      if (fails(world.rank())) throw Error(text("rank ", world.rank(), " can't read"));
    };
    EXPECT_EQ(error_of([&] { world.run_collectively(work); }), fails.second) << name;
  }
  std::int64_t one = 1;
  world.all_reduce_sum(&one, 1);
  EXPECT_EQ(one, world.size());
}

TEST_F(CommunicatorTest, AgreeTakesAnyException) {
  const bool last = world.rank() == world.size() - 1;
  EXPECT_EQ(error_of([&] {
              world.run_collectively([&] {
                if (last) throw std::out_of_range("");
              });
            }),
            "");
  EXPECT_EQ(error_of([&] {
              world.run_collectively([&] {
                if (last) throw 42;
              });
            }),
            "an exception of unknown type");
}

TEST_F(CommunicatorTest, OneRankWorksAndAllLearnOfItsFailure) {
  std::int64_t ran = 0;
  world.run_on_root([&] { ran = 1 + world.rank(); });
  world.all_reduce_sum(&ran, 1);
  EXPECT_EQ(ran, 1);
  EXPECT_EQ(error_of([&] { world.run_on_root([] { throw Error("no room"); }); }), "no room");
}

TEST_F(CommunicatorTest, SplitKeepsTheOrderOfRanks) {
  Communicator half = Communicator::split(world.mpi(), world.rank() % 2);
  EXPECT_EQ(half.rank(), world.rank() / 2);
  EXPECT_EQ(half.size(), (world.size() + 1 - world.rank() % 2) / 2);
  std::int64_t sum = world.rank();
  half.all_reduce_sum(&sum, 1);
  std::int64_t expected = 0;
  for (int rank = world.rank() % 2; rank < world.size(); rank += 2) expected += rank;
  EXPECT_EQ(sum, expected);
  EXPECT_THROW(Communicator::split(world.mpi(), -1), Error);
}

TEST_F(CommunicatorTest, MovesHandOverTheGroup) {
  Communicator other = Communicator::duplicate(world.mpi());
  const MPI_Comm handle = other.mpi();
  Communicator moved = std::move(other);
  EXPECT_EQ(moved.mpi(), handle);
  EXPECT_EQ(moved.size(), world.size());
  Communicator assigned = Communicator::duplicate(world.mpi());
  assigned = std::move(moved);
  EXPECT_EQ(assigned.mpi(), handle);
  EXPECT_EQ(assigned.rank(), world.rank());
  assigned.barrier();
}

TEST(Communicator, FirstRankSeesEveryText) {
  comm::Communicator world = comm::Communicator::duplicate(MPI_COMM_WORLD);
  const auto text_of = [](int rank) {
    return std::string(static_cast<std::size_t>(rank * 100000), static_cast<char>('a' + rank % 26));
  };
  std::vector<int> seen;
  world.gather_texts_on_root(text_of(world.rank()), [&](int rank, const std::string& text) {
    EXPECT_EQ(text, text_of(rank));
    seen.push_back(rank);
  });
  std::vector<int> expected;
  for (int rank = 0; rank < world.size() && world.rank() == 0; ++rank) expected.push_back(rank);
  EXPECT_EQ(seen, expected);
}

}  // namespace
}  // namespace ostrakon::comm
