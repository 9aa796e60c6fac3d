// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdlib>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/math/portability.hpp>
#include <ostrakon/trainer/threads.hpp>
#include <string>

#if defined(_OPENMP)
#include <omp.h>
#endif

#include "support/scratch_folder.hpp"

namespace {

using namespace ostrakon;
using config::StreamsChoice;
using runtime::Streams;
using train::StreamsFacts;

/// The tests of this program on several threads would else be those on one.
TEST(KernelThreads, AreThoseOfTheEnvironment) {
#if defined(KOKKOS_ENABLE_OPENMP)
  const char* const wanted = std::getenv("OMP_NUM_THREADS");
  if (wanted == nullptr) GTEST_SKIP() << "OMP_NUM_THREADS is not set";
  EXPECT_EQ(host_threads(), std::atoi(wanted));
#elif defined(KOKKOS_ENABLE_THREADS)
  EXPECT_GE(host_threads(), 1);
#else
  EXPECT_EQ(host_threads(), 1);
#endif
}

TEST(MatrixThreads, AreThoseOfKernelsUnlessADeckSays) {
  comm::Communicator world = comm::Communicator::duplicate(MPI_COMM_WORLD);
  // Ranks that have more take as many as the others.
  EXPECT_EQ(train::matrix_threads(config::automatic_threads, 3 + world.rank(), world), 3);
  const int last_has_fewest = 2 + world.size() - world.rank();
  EXPECT_EQ(train::matrix_threads(config::automatic_threads, last_has_fewest, world), 3);
  EXPECT_EQ(train::matrix_threads(5, 3, world), 5);
  EXPECT_EQ(train::matrix_threads(1, 3, world), 1);
}

TEST(MatrixThreads, AreSetInTheLibrary) {
  comm::Communicator world = comm::Communicator::duplicate(MPI_COMM_WORLD);
  config::Settings settings;
  for (const int wanted : {3, 1, 0}) {
    settings.runtime.threads = wanted;
    const int expected = wanted == 0 ? host_threads() : wanted;
    EXPECT_EQ(train::set_matrix_threads(settings, world), expected);
#if defined(_OPENMP)
    EXPECT_EQ(omp_get_max_threads(), expected);
#endif
  }
}

TEST(ThreadsLine, SaysWhatToSetWhereThereAreTooMany) {
  if (has_device) GTEST_SKIP() << "kernels run on the device";
  const std::string title = "  threads of a rank      ", blank(title.size(), ' ');
  EXPECT_EQ(train::threads_line(2, 2, 2), title + "2 for kernels, 2 for matrix products\n");
  EXPECT_EQ(train::threads_line(1, 1, 0), title + "1 for kernels, 1 for matrix products\n");
  EXPECT_EQ(train::threads_line(4, 4, 2),
            title + "4 for kernels, 4 for matrix products\n" + blank +
                "more than its 2 cores: slow; set OMP_NUM_THREADS=2, or give ranks more cores\n");
  EXPECT_EQ(train::threads_line(1, 2, 0),
            title + "1 for kernels, 2 for matrix products\n" + blank +
                "more than its 1 core: slow; set runtime.threads to 1 or auto, or give ranks "
                "more cores\n");
}

StreamsFacts four_cores() {
  StreamsFacts facts;
  facts.threads_may_call_mpi = facts.has_other_streams = true;
  facts.cores = 4;
  facts.compute_threads = 2;
  return facts;
}

TEST(StreamsChoice, IsThreadsWhereTwoCoresAreToSpare) {
  const auto automatic = [](const StreamsFacts& facts) {
    return train::streams_for(StreamsChoice::automatic, facts);
  };
  EXPECT_EQ(automatic(four_cores()), Streams::threads);
  StreamsFacts facts = four_cores();
  facts.compute_threads = 3;
  EXPECT_EQ(automatic(facts), Streams::in_plan_order);
  facts = four_cores();
  facts.has_other_streams = false;
  EXPECT_EQ(automatic(facts), Streams::in_plan_order);
  facts = four_cores();
  facts.threads_may_call_mpi = false;
  EXPECT_EQ(automatic(facts), Streams::in_plan_order);
  facts = four_cores();
  facts.computes_on_device = true;
  EXPECT_EQ(automatic(facts), Streams::device);
  facts.threads_may_call_mpi = false;
  EXPECT_EQ(automatic(facts), Streams::in_plan_order);
}

TEST(StreamsChoice, IsWhatTheDeckSaysWhereThatCanBe) {
  StreamsFacts facts = four_cores();
  facts.cores = 0;
  EXPECT_EQ(train::streams_for(StreamsChoice::threads, facts), Streams::threads);
  EXPECT_EQ(train::streams_for(StreamsChoice::in_plan_order, four_cores()), Streams::in_plan_order);
}

TEST(StreamsChoice, OnThreadsIsRefusedWhereItCannotBe) {
  const auto refusal = [](const StreamsFacts& facts) {
    return ostrakon::testing::error_of([&] { train::streams_for(StreamsChoice::threads, facts); });
  };
  StreamsFacts facts = four_cores();
  facts.computes_on_device = true;
  EXPECT_EQ(refusal(facts),
            "runtime.streams = threads: this build computes on a device, whose streams are begun "
            "from one thread; expected inline or auto");
  EXPECT_EQ(train::streams_for(StreamsChoice::in_plan_order, facts), Streams::in_plan_order);
  facts = four_cores();
  facts.threads_may_call_mpi = false;
  EXPECT_EQ(refusal(facts),
            "runtime.streams = threads: this MPI lets only one thread of a rank call it; expected "
            "inline or auto, or an MPI with MPI_THREAD_MULTIPLE");
  EXPECT_EQ(ostrakon::testing::error_of([&] {
              train::require_stream_threads(facts, "streams = Streams::threads",
                                            "Streams::in_plan_order");
            }),
            "streams = Streams::threads: this MPI lets only one thread of a rank call it; expected "
            "Streams::in_plan_order, or an MPI with MPI_THREAD_MULTIPLE");
}

}  // namespace
