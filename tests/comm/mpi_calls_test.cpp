// SPDX-License-Identifier: Apache-2.0

// Tests which MPI functions are called, and how their failures are reported.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <ostrakon/comm/communicator.hpp>
#include <stdexcept>
#include <string>
#include <support/scratch_folder.hpp>
#include <utility>
#include <vector>

#include "communicator_fixture.hpp"

// The program's own versions of the tested MPI functions take precedence over the library's: they
// count calls, and fail on demand.
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
int MPI_Reduce_scatter_block(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op,
                             MPI_Comm comm) {
  return intercept([&] { return PMPI_Reduce_scatter_block(in, out, count, type, op, comm); });
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

using namespace ostrakon::tests;
using ostrakon::testing::error_of;

TEST_F(CommunicatorTest, CountsThatMpiCannotTellAreRefused) {
  if (has_device || world.size() == 1) GTEST_SKIP() << "nothing to refuse";
  const std::int64_t int_max = std::numeric_limits<int>::max();
  for (const std::int64_t count : {int_max + 2, 64 * (int_max + 1)}) {
    const std::string expected = "a collective of " + std::to_string(count) + " elements";
    const View<float*> shard(nullptr, count);
    const View<float*> full(nullptr, count * world.size());
    EXPECT_EQ(error_of([&] {
                world.all_gather<float, OnDevice>(Exec(), shard, full);
              }).compare(0, expected.size(), expected),
              0);
    EXPECT_EQ(error_of([&] {
                world.reduce_scatter<float, OnDevice>(Exec(), full, full, shard);
              }).compare(0, expected.size(), expected),
              0);
  }
}

TEST_F(CommunicatorTest, DeviceMemoryNeedsATransport) {
  if (!has_device || world.size() == 1) GTEST_SKIP() << "MPI reaches the memory";
  Communicator plain = Communicator::duplicate(MPI_COMM_WORLD);
  const Array data(64 * world.size()), staging(64 * world.size());
  const std::string expected =
      "a collective of arrays in device memory in a group that has no transport";
  const View<float*> shard = data.part(0, 64);
  EXPECT_EQ(error_of([&] { plain.all_gather<float, OnDevice>(Exec(), staging.part(0, 64), data); }),
            expected);
  EXPECT_EQ(error_of([&] { plain.reduce_scatter<float, OnDevice>(Exec(), data, staging, shard); }),
            expected);
  EXPECT_EQ(error_of([&] {
              plain.library_reduce_scatter<float, OnDevice>(Exec(), data, staging.part(0, 64));
            }),
            expected);
}

TEST_F(CommunicatorTest, HostMemoryIsReached) {
  const std::int64_t count = 64;
  const auto whole = random_values(12, count * world.size());
  const auto own = part(whole, world.rank() * count, count);
  std::vector<float> full(whole.size()), staging(whole.size()), shard(own.size());
  world.all_gather<float, OnHost>(Exec(), host_view(own), host_view(full));
  EXPECT_TRUE(same_bits(full, whole));
  world.reduce_scatter<float, OnHost>(Exec(), host_view(full), host_view(staging),
                                      host_view(shard));
  const std::vector<std::vector<float>> equal(static_cast<std::size_t>(world.size()), own);
  for (std::size_t i = 0; i < own.size(); ++i) ASSERT_EQ(shard[i], tree(equal, 0, world.size(), i));
}

TEST_F(CommunicatorTest, ArraysThatDoNotFitEachOtherAreRefused) {
  const int ranks = world.size();
  const Array full(64 * ranks);
  const Array staging(64 * ranks);
  const Array shard(65);
  EXPECT_EQ(error_of([&] { world.all_gather<float, OnDevice>(Exec(), shard, full); }),
            text("all_gather: a shard of 65 elements and an array of ", 64 * ranks,
                 " of all ranks, expected ", ranks, " times as many"));
  EXPECT_EQ(error_of([&] { world.reduce_scatter<float, OnDevice>(Exec(), full, staging, shard); }),
            text("reduce_scatter: a shard of 65 elements and an array of ", 64 * ranks,
                 " of all ranks, expected ", ranks, " times as many"));
  if (ranks == 1) return;
  EXPECT_EQ(error_of([&] {
              world.reduce_scatter<float, OnDevice>(Exec(), full, staging.part(0, 64),
                                                    shard.part(0, 64));
            }),
            text("reduce_scatter: a staging array of 64 elements, expected ", 64 * ranks));
}

TEST_F(CommunicatorTest, AGroupOfOneNeverCallsMpi) {
  Communicator alone = Communicator::split(world.mpi(), world.rank());
  ASSERT_EQ(alone.size(), 1);
  const int before = mpi_calls;
  const auto values = random_values(9, 100);
  const Array from(values);
  const Array gathered(100);
  const Array reduced(100);
  alone.all_gather<float, OnDevice>(Exec(), from, gathered);
  alone.all_gather<float, OnDevice>(Exec(), from, from);
  alone.reduce_scatter<float, OnDevice>(Exec(), from, {}, reduced);
  alone.library_reduce_scatter<float, OnDevice>(Exec(), from, reduced);
  std::uint64_t count = 5;
  double number = 2.5;
  alone.all_reduce_sum(&count, 1);
  alone.all_reduce_max(&number, 1);
  alone.all_reduce_min(&number, 1);
  alone.barrier();
  alone.run_collectively([] {});
  EXPECT_EQ(error_of([&] { alone.run_collectively([] { throw std::runtime_error("no"); }); }),
            "no");
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
  if (has_device || world.size() == 1) GTEST_SKIP() << "other calls";
  const Array shard(64);
  const Array full(64 * world.size());
  const Array staging(64 * world.size());
  std::uint64_t count = 1;
  double number = 1.0;
  const std::vector<std::pair<std::string, std::function<void()>>> calls = {
      {"MPI_Allgather", [&] { world.all_gather<float, OnDevice>(Exec(), shard, full); }},
      {"MPI_Alltoall",
       [&] { world.reduce_scatter<float, OnDevice>(Exec(), full, staging, shard); }},
      {"MPI_Reduce_scatter_block",
       [&] { world.library_reduce_scatter<float, OnDevice>(Exec(), full, shard); }},
      {"MPI_Allreduce", [&] { world.all_reduce_sum(&count, 1); }},
      {"MPI_Allreduce", [&] { world.all_reduce_max(&number, 1); }},
      {"MPI_Allreduce", [&] { world.all_reduce_min(&number, 1); }},
      {"MPI_Allreduce", [&] { world.run_collectively([] {}); }},
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
}  // namespace ostrakon::comm
