// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <ostrakon/base/error.hpp>
#include <ostrakon/comm/communicator.hpp>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

// The program's own versions of the calls under test come before MPI's: they count, and fail when
// told to, which no MPI does on demand.
namespace {
std::atomic<int> mpi_calls{0};
std::atomic<int> next_code{MPI_SUCCESS};

template <class Call>
int intercept(const Call& call) {
  ++mpi_calls;
  const int code = call();
  const int injected = next_code.exchange(MPI_SUCCESS);
  return injected == MPI_SUCCESS ? code : injected;
}
}  // namespace

extern "C" {
int MPI_Allgather(const void* in, int in_count, MPI_Datatype in_type, void* out, int out_count,
                  MPI_Datatype out_type, MPI_Comm comm) {
  return intercept(
      [&] { return PMPI_Allgather(in, in_count, in_type, out, out_count, out_type, comm); });
}
int MPI_Allgatherv(const void* in, int in_count, MPI_Datatype in_type, void* out,
                   const int* out_counts, const int* begins, MPI_Datatype out_type, MPI_Comm comm) {
  return intercept([&] {
    return PMPI_Allgatherv(in, in_count, in_type, out, out_counts, begins, out_type, comm);
  });
}
int MPI_Alltoall(const void* in, int in_count, MPI_Datatype in_type, void* out, int out_count,
                 MPI_Datatype out_type, MPI_Comm comm) {
  return intercept(
      [&] { return PMPI_Alltoall(in, in_count, in_type, out, out_count, out_type, comm); });
}
int MPI_Allreduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op,
                  MPI_Comm comm) {
  return intercept([&] { return PMPI_Allreduce(in, out, count, type, op, comm); });
}
int MPI_Bcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  return intercept([&] { return PMPI_Bcast(data, count, type, root, comm); });
}
int MPI_Barrier(MPI_Comm comm) {
  return intercept([&] { return PMPI_Barrier(comm); });
}
}

namespace ostrakon::comm {
namespace {

static_assert(!std::is_copy_constructible<Communicator>::value, "a communicator has one owner");
static_assert(std::is_nothrow_move_constructible<Communicator>::value, "moves don't fail");

/// Floats in the memory that the collectives work on.
class Array {
 public:
  explicit Array(std::int64_t count) : view_("test", static_cast<std::size_t>(count)) {}
  explicit Array(const std::vector<float>& values)
      : Array(static_cast<std::int64_t>(values.size())) {
    const auto mirror = Kokkos::create_mirror_view(view_);
    for (std::size_t i = 0; i < values.size(); ++i) mirror(i) = values[i];
    Kokkos::deep_copy(view_, mirror);
  }
  float* data() const { return view_.data(); }
  std::vector<float> values() const {
    const auto mirror = Kokkos::create_mirror_view(view_);
    Kokkos::deep_copy(mirror, view_);
    return std::vector<float>(mirror.data(), mirror.data() + mirror.size());
  }

 private:
  Kokkos::View<float*, Memory> view_;
};

/// The same values for the same `seed` on every rank; magnitudes so different that the order of
/// additions shows in the bits.
std::vector<float> random_values(unsigned seed, std::int64_t count) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> mantissa(-1.0F, 1.0F);
  std::uniform_int_distribution<int> exponent(-12, 12);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = std::ldexp(mantissa(generator), exponent(generator));
  return values;
}

std::vector<std::vector<float>> random_arrays(int arrays, std::int64_t count) {
  std::vector<std::vector<float>> all;
  for (int array = 0; array < arrays; ++array)
    all.push_back(random_values(1000U + static_cast<unsigned>(array), count));
  return all;
}

/// The sum of element i of arrays [begin, end) by the tree whose left half is the largest power of
/// two below the number of arrays.
float tree(const std::vector<std::vector<float>>& arrays, int begin, int end, std::size_t i) {
  if (end - begin == 1) return arrays[static_cast<std::size_t>(begin)][i];
  int left = 1;
  while (2 * left < end - begin) left *= 2;
  return tree(arrays, begin, begin + left, i) + tree(arrays, begin + left, end, i);
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](float x, float y) {
           return std::memcmp(&x, &y, sizeof x) == 0;
         });
}

std::vector<float> part(const std::vector<float>& values, std::int64_t begin, std::int64_t count) {
  return std::vector<float>(values.begin() + begin, values.begin() + begin + count);
}

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

class CommunicatorTest : public testing::Test {
 protected:
  bool reachable() const { return memory_is_host_accessible || world.size() == 1; }

  Communicator world = Communicator::duplicate(MPI_COMM_WORLD);
};

// Odd counts are sent as floats, multiples of 64 as blocks.
const std::int64_t shard_sizes[] = {0, 1, 37, 64, 192, 4099, 65536};

TEST_F(CommunicatorTest, AllGatherFromElsewhere) {
  if (!reachable()) GTEST_SKIP() << "device memory";
  for (const std::int64_t count : shard_sizes) {
    const auto whole = random_values(7, count * world.size());
    const auto own = part(whole, world.rank() * count, count);
    const Array shard(own);
    const Array full(count * world.size());
    world.all_gather(shard.data(), count, full.data());
    EXPECT_TRUE(same_bits(full.values(), whole)) << count;
    EXPECT_TRUE(same_bits(shard.values(), own)) << count;
  }
}

TEST_F(CommunicatorTest, AllGatherInPlace) {
  if (!reachable()) GTEST_SKIP() << "device memory";
  for (const std::int64_t count : shard_sizes) {
    const auto whole = random_values(8, count * world.size());
    std::vector<float> start(whole.size(), -1.0F);
    for (std::int64_t i = world.rank() * count; i < (world.rank() + 1) * count; ++i)
      start[static_cast<std::size_t>(i)] = whole[static_cast<std::size_t>(i)];
    const Array full(start);
    world.all_gather(full.data() + world.rank() * count, count, full.data());
    EXPECT_TRUE(same_bits(full.values(), whole)) << count;
  }
}

TEST_F(CommunicatorTest, AllGatherRefusesAShardAtTheWrongPlace) {
  if (!reachable() || world.size() == 1) GTEST_SKIP() << "nothing to refuse";
  const std::int64_t count = 64;
  const Array full(count * world.size());
  const std::int64_t wrong = world.rank() * count + (world.rank() == 0 ? 1 : -1);
  EXPECT_NE(error_of([&] {
              world.all_gather(full.data() + wrong, count, full.data());
            }).find("not at the place of rank " + std::to_string(world.rank())),
            std::string::npos);
  EXPECT_EQ(world.bytes_sent(), 0);
}

TEST_F(CommunicatorTest, ReduceScatterHasTheBitsOfTheTree) {
  if (!reachable()) GTEST_SKIP() << "device memory";
  for (const std::int64_t count : shard_sizes) {
    const auto arrays = random_arrays(world.size(), count * world.size());
    const auto& own = arrays[static_cast<std::size_t>(world.rank())];
    const Array full(own);
    const Array staging(count * world.size());
    const Array shard(count);
    world.reduce_scatter(full.data(), count, staging.data(), shard.data());

    std::vector<float> expected;
    for (std::int64_t i = 0; i < count; ++i)
      expected.push_back(
          tree(arrays, 0, world.size(), static_cast<std::size_t>(world.rank() * count + i)));
    EXPECT_TRUE(same_bits(shard.values(), expected)) << count;
    EXPECT_TRUE(same_bits(full.values(), own)) << count;

    // To where the staging array begins, and to this rank's part of the array.
    world.reduce_scatter(full.data(), count, staging.data(),
                         world.size() == 1 ? shard.data() : staging.data());
    EXPECT_TRUE(same_bits(part((world.size() == 1 ? shard : staging).values(), 0, count), expected))
        << count;
    const std::int64_t place = world.rank() * count;
    world.reduce_scatter(full.data(), count, staging.data(), full.data() + place);
    EXPECT_TRUE(same_bits(part(full.values(), place, count), expected)) << count;
  }
}

// Several micro-batches, whose trees over a few ranks are accumulated in order.
template <class T>
void expect_chained_sums(Communicator& world) {
  const std::int64_t count = 193;
  const int ranks = world.size(), rounds = 3;
  // What ranks send of their values, in the order of micro-batches and ranks.
  const auto arrays = random_arrays(rounds * ranks, count * ranks);
  std::vector<std::vector<float>> sent = arrays;
  for (std::vector<float>& array : sent)
    for (float& value : array) value = static_cast<float>(static_cast<T>(value));
  for (int tree_ranks : {1, 2, 3, 4, 8}) {
    std::vector<float> expected(static_cast<std::size_t>(count));
    std::vector<float> shard(expected.size());
    for (int round = 0; round < rounds; ++round) {
      for (std::size_t i = 0; i < expected.size(); ++i)
        for (int first = 0; first < ranks; first += tree_ranks) {
          const int begin = round * ranks + first;
          const int end = round * ranks + std::min(ranks, first + tree_ranks);
          const float sum =
              tree(sent, begin, end, static_cast<std::size_t>(world.rank() * count) + i);
          expected[i] = round + first == 0 ? sum : expected[i] + sum;
        }
      const auto& own = arrays[static_cast<std::size_t>(round * ranks + world.rank())];
      std::vector<T> full, staging(own.size());
      for (float value : own) full.push_back(static_cast<T>(value));
      const std::vector<T> before = full;
      world.reduce_scatter(full.data(), count, staging.data(), shard.data(),
                           {tree_ranks, round > 0});
      EXPECT_TRUE(same_bits(shard, expected)) << tree_ranks << ", round " << round;
      EXPECT_EQ(std::memcmp(full.data(), before.data(), full.size() * sizeof(T)), 0);
    }
  }
}

TEST_F(CommunicatorTest, ReduceScatterContinuesASum) {
  if (!memory_is_host_accessible) GTEST_SKIP() << "device memory";
  expect_chained_sums<float>(world);
  expect_chained_sums<bf16>(world);
  expect_chained_sums<fp16>(world);
}

TEST_F(CommunicatorTest, WhatIsAddedToLiesApart) {
  if (!reachable() || world.size() == 1) GTEST_SKIP() << "nothing to refuse";
  const Array full(64 * world.size());
  const Array staging(64 * world.size());
  for (float* shard : {staging.data(), full.data() + 64 * world.rank()})
    EXPECT_EQ(error_of([&] {
                world.reduce_scatter(full.data(), 64, staging.data(), shard, {0, true});
              }),
              "reduce_scatter: the shard, which is added to, lies inside another array");
}

// Else the tests above could not tell one order from another.
TEST_F(CommunicatorTest, TheRandomArraysTellOrdersApart) {
  if (world.size() < 3) GTEST_SKIP() << "two numbers have one sum";
  const auto arrays = random_arrays(world.size(), 1000);
  int different = 0;
  for (std::size_t i = 0; i < 1000; ++i) {
    float backwards = 0.0F;
    for (int rank = world.size() - 1; rank >= 0; --rank)
      backwards += arrays[static_cast<std::size_t>(rank)][i];
    different += backwards != tree(arrays, 0, world.size(), i) ? 1 : 0;
  }
  EXPECT_GT(different, 50);
}

TEST_F(CommunicatorTest, ReduceScatterRefusesOverlap) {
  if (!reachable() || world.size() == 1) GTEST_SKIP() << "nothing to refuse";
  const Array full(2 * 64 * world.size());
  const Array staging(64 * world.size());
  EXPECT_EQ(
      error_of([&] { world.reduce_scatter(full.data(), 64, full.data() + 64, staging.data()); }),
      "reduce_scatter: the staging array overlaps the array to reduce");
  EXPECT_EQ(
      error_of([&] { world.reduce_scatter(full.data(), 64, staging.data(), staging.data() + 1); }),
      "reduce_scatter: the shard lies inside the staging array, but not where it begins");
  EXPECT_EQ(error_of([&] {
              world.reduce_scatter(full.data(), 64, staging.data(),
                                   full.data() + 64 * world.rank() + (world.rank() == 0 ? 1 : -1));
            }),
            text("reduce_scatter: the shard of rank ", world.rank(),
                 " lies inside the array to reduce, but not at the place of rank ", world.rank()));
  EXPECT_EQ(world.bytes_sent(), 0);
}

TEST_F(CommunicatorTest, BytesSentFollowTheRingFormulas) {
  if (!reachable()) GTEST_SKIP() << "device memory";
  EXPECT_EQ(world.bytes_sent(), 0);
  const std::int64_t count = 192;
  const std::int64_t whole_bytes = count * world.size() * 4;
  const std::int64_t moved = whole_bytes / world.size() * (world.size() - 1);
  const Array shard(count);
  const Array full(count * world.size());
  const Array staging(count * world.size());
  world.all_gather(shard.data(), count, full.data());
  EXPECT_EQ(world.bytes_sent(), moved);
  world.reduce_scatter(full.data(), count, staging.data(), shard.data());
  EXPECT_EQ(world.bytes_sent(), 2 * moved);
  world.barrier();
  world.broadcast("control messages don't count", 0);
  EXPECT_EQ(world.bytes_sent(), 2 * moved);
}

TEST_F(CommunicatorTest, ASlowNetworkTakesItsTimeForEachByte) {
  if (!reachable()) GTEST_SKIP() << "device memory";
  const std::int64_t count = 64;
  const Array shard(count);
  const Array full(count * world.size());
  const Array staging(count * world.size());
  const auto seconds_of = [&](Communicator& group) {
    group.barrier();
    const auto begin = std::chrono::steady_clock::now();
    group.all_gather(shard.data(), count, full.data());
    group.reduce_scatter(full.data(), count, staging.data(), shard.data());
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  const double expected = world.size() == 1 ? 0.0 : 0.2;
  const auto bytes = static_cast<double>(2 * (world.size() - 1) * count * 4);
  world.slow_down(world.size() == 1 ? 1.0 : expected / bytes);
  EXPECT_GE(seconds_of(world), expected);

  // A move takes it along.
  Communicator moved = std::move(world);
  EXPECT_GE(seconds_of(moved), expected);

  // As busy as the machine may be, not every call takes so long by chance.
  moved.slow_down(0.0);
  double least = seconds_of(moved);
  for (int i = 0; i < 20; ++i) least = std::min(least, seconds_of(moved));
  EXPECT_LT(least, 0.2);
  for (const double wrong : {-1.0, std::numeric_limits<double>::infinity(), std::nan("")})
    EXPECT_NE(error_of([&] { moved.slow_down(wrong); }), "no error") << wrong;
}

// A thread outside Kokkos gathers while this one reduces, each in a group of its own.
TEST_F(CommunicatorTest, ThreadsCommunicateAtTheSameTime) {
  if (!reachable()) GTEST_SKIP() << "device memory";
  if (!Communicator::threads_may_call()) GTEST_SKIP() << "MPI allows one thread only";
  Communicator gathers = Communicator::duplicate(world.mpi());
  Communicator reductions = Communicator::duplicate(world.mpi());
  constexpr std::int64_t count = 4099;
  constexpr int times = 30;
  const auto whole = random_values(3, count * world.size());
  const auto arrays = random_arrays(world.size(), count * world.size());
  const Array shard(part(whole, world.rank() * count, count));
  const Array gathered(count * world.size());
  const Array full(arrays[static_cast<std::size_t>(world.rank())]);
  const Array staging(count * world.size());
  const Array reduced(count);
  std::string failure;
  std::thread gathering([&] {
    failure = error_of([&] {
      for (int i = 0; i < times; ++i) gathers.all_gather(shard.data(), count, gathered.data());
    });
  });
  for (int i = 0; i < times; ++i)
    reductions.reduce_scatter(full.data(), count, staging.data(), reduced.data());
  gathering.join();

  EXPECT_EQ(failure, "no error");
  EXPECT_TRUE(same_bits(gathered.values(), whole));
  std::vector<float> expected;
  for (std::int64_t i = 0; i < count; ++i)
    expected.push_back(
        tree(arrays, 0, world.size(), static_cast<std::size_t>(world.rank() * count + i)));
  EXPECT_TRUE(same_bits(reduced.values(), expected));
  EXPECT_EQ(gathers.bytes_sent(), times * (world.size() - 1) * count * 4);
  EXPECT_EQ(reductions.bytes_sent(), gathers.bytes_sent());
}

TEST_F(CommunicatorTest, CountsThatMpiCannotTellAreRefused) {
  if (!reachable() || world.size() == 1) GTEST_SKIP() << "nothing to refuse";
  const std::int64_t int_max = std::numeric_limits<int>::max();
  for (const std::int64_t count : {int_max + 2, 64 * (int_max + 1)}) {
    const std::string expected = "a collective of " + std::to_string(count) + " elements";
    EXPECT_EQ(error_of([&] {
                world.all_gather<float>(nullptr, count, nullptr);
              }).compare(0, expected.size(), expected),
              0);
    EXPECT_EQ(error_of([&] {
                world.reduce_scatter<float>(nullptr, count, nullptr, nullptr);
              }).compare(0, expected.size(), expected),
              0);
  }
}

TEST_F(CommunicatorTest, DeviceMemoryIsRefused) {
  if (reachable()) GTEST_SKIP() << "MPI reaches the memory";
  const Array data(64 * world.size());
  const std::string expected = "this build has no communication for device memory";
  EXPECT_EQ(error_of([&] { world.all_gather(data.data(), 64, data.data()); }), expected);
  EXPECT_EQ(error_of([&] { world.reduce_scatter(data.data(), 64, data.data(), data.data()); }),
            expected);
}

TEST_F(CommunicatorTest, SumsWrapAround) {
  const auto ranks = static_cast<std::uint64_t>(world.size());
  const std::uint64_t large = 0xfedcba9876543210U;
  std::uint64_t values[2] = {large, static_cast<std::uint64_t>(world.rank())};
  world.sum(values, 2);
  EXPECT_EQ(values[0], large * ranks);
  EXPECT_EQ(values[1], ranks * (ranks - 1) / 2);

  std::int64_t signed_values[2] = {std::numeric_limits<std::int64_t>::max(), -3};
  world.sum(signed_values, 2);
  EXPECT_EQ(static_cast<std::uint64_t>(signed_values[0]), 0x7fffffffffffffffU * ranks);
  EXPECT_EQ(signed_values[1], -3 * static_cast<std::int64_t>(ranks));
}

TEST_F(CommunicatorTest, MaximumAndMinimum) {
  const double rank = world.rank();
  const double last = world.size() - 1;
  double values[2] = {rank, -rank};
  world.maximum(values, 2);
  EXPECT_EQ(values[0], last);
  EXPECT_EQ(values[1], 0.0);
  double others[2] = {rank, -rank};
  world.minimum(others, 2);
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
    EXPECT_EQ(error_of([&] { world.agree(work); }), fails.second) << name;
  }
  std::int64_t one = 1;
  world.sum(&one, 1);
  EXPECT_EQ(one, world.size());
}

TEST_F(CommunicatorTest, AgreeTakesAnyException) {
  const bool last = world.rank() == world.size() - 1;
  EXPECT_EQ(error_of([&] {
              world.agree([&] {
                if (last) throw std::out_of_range("");
              });
            }),
            "");
  EXPECT_EQ(error_of([&] {
              world.agree([&] {
                if (last) throw 42;
              });
            }),
            "an exception of unknown type");
}

TEST_F(CommunicatorTest, SplitKeepsTheOrderOfRanks) {
  Communicator half = Communicator::split(world.mpi(), world.rank() % 2);
  EXPECT_EQ(half.rank(), world.rank() / 2);
  EXPECT_EQ(half.size(), (world.size() + 1 - world.rank() % 2) / 2);
  std::int64_t sum = world.rank();
  half.sum(&sum, 1);
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

TEST_F(CommunicatorTest, AGroupOfOneNeverCallsMpi) {
  Communicator alone = Communicator::split(world.mpi(), world.rank());
  ASSERT_EQ(alone.size(), 1);
  const int before = mpi_calls;
  const auto values = random_values(9, 100);
  const Array from(values);
  const Array gathered(100);
  const Array reduced(100);
  alone.all_gather(from.data(), 100, gathered.data());
  alone.all_gather(from.data(), 100, from.data());
  alone.reduce_scatter<float>(from.data(), 100, nullptr, reduced.data());
  std::uint64_t count = 5;
  double number = 2.5;
  alone.sum(&count, 1);
  alone.maximum(&number, 1);
  alone.minimum(&number, 1);
  alone.barrier();
  alone.agree([] {});
  EXPECT_EQ(error_of([&] { alone.agree([] { throw std::runtime_error("no"); }); }), "no");
  EXPECT_EQ(alone.broadcast("text", 0), "text");
  EXPECT_EQ(alone.gather_texts("text"), std::vector<std::string>{"text"});
  EXPECT_EQ(mpi_calls, before);
  EXPECT_EQ(count, 5U);
  EXPECT_EQ(number, 2.5);
  EXPECT_TRUE(same_bits(from.values(), values));
  EXPECT_TRUE(same_bits(gathered.values(), values));
  EXPECT_TRUE(same_bits(reduced.values(), values));
  EXPECT_EQ(alone.bytes_sent(), 0);
}

TEST_F(CommunicatorTest, EveryReturnCodeIsChecked) {
  if (!reachable() || world.size() == 1) GTEST_SKIP() << "no calls";
  const Array shard(64);
  const Array full(64 * world.size());
  const Array staging(64 * world.size());
  std::uint64_t count = 1;
  double number = 1.0;
  const std::vector<std::pair<std::string, std::function<void()>>> calls = {
      {"MPI_Allgather", [&] { world.all_gather(shard.data(), 64, full.data()); }},
      {"MPI_Alltoall",
       [&] { world.reduce_scatter(full.data(), 64, staging.data(), shard.data()); }},
      {"MPI_Allreduce", [&] { world.sum(&count, 1); }},
      {"MPI_Allreduce", [&] { world.maximum(&number, 1); }},
      {"MPI_Allreduce", [&] { world.minimum(&number, 1); }},
      {"MPI_Allreduce", [&] { world.agree([] {}); }},
      {"MPI_Bcast", [&] { world.broadcast(&number, 8, 0); }},
      {"MPI_Barrier", [&] { world.barrier(); }}};
  for (const auto& [name, call] : calls) {
    next_code = MPI_ERR_TRUNCATE;
    const std::string message = error_of(call);
    EXPECT_EQ(message.find(name + " failed with code"), 0U) << message;
    EXPECT_NE(message.find("truncate"), std::string::npos) << message;
  }
  EXPECT_EQ(world.bytes_sent(), 0);
}

TEST_F(CommunicatorTest, MpiErrorsDoNotEndTheProgram) {
  if (world.size() == 1) GTEST_SKIP() << "no calls";
  int value = 0;
  EXPECT_NE(error_of([&] {
              world.broadcast(&value, sizeof value, world.size());
            }).find("MPI_Bcast failed"),
            std::string::npos);
  world.barrier();
}

}  // namespace
TEST(Communicator, FirstRankSeesEveryText) {
  comm::Communicator world = comm::Communicator::duplicate(MPI_COMM_WORLD);
  const auto text_of = [](int rank) {
    return std::string(static_cast<std::size_t>(rank * 100000), static_cast<char>('a' + rank % 26));
  };
  std::vector<int> seen;
  world.show_first(text_of(world.rank()), [&](int rank, const std::string& text) {
    EXPECT_EQ(text, text_of(rank));
    seen.push_back(rank);
  });
  std::vector<int> expected;
  for (int rank = 0; rank < world.size() && world.rank() == 0; ++rank) expected.push_back(rank);
  EXPECT_EQ(seen, expected);
}

}  // namespace ostrakon::comm
