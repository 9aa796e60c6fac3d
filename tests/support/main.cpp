// SPDX-License-Identifier: Apache-2.0
// The main program of every test: all ranks run all tests. Rank 0 reports as GoogleTest does, the
// others only print failures, and the results are combined once, after the last test.

#include <gtest/gtest.h>
#include <mpi.h>

#include <Kokkos_Core.hpp>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>

namespace {

/// Prints failures with their rank.
class FailurePrinter : public testing::EmptyTestEventListener {
 public:
  explicit FailurePrinter(int rank) : rank_(rank) {}

  void OnTestStart(const testing::TestInfo& test) override {
    name_ = std::string(test.test_suite_name()) + "." + test.name();
  }

  // GoogleTest's lock is held here: asking UnitTest for the running test would deadlock.
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "[rank %d] %s\n%s:%d: %s\n", rank_, name_.c_str(),
                 result.file_name() == nullptr ? "-" : result.file_name(), result.line_number(),
                 result.message());
  }

 private:
  int rank_;
  std::string name_ = "-";
};

/// Runs all tests. An exception from a test on one of several ranks ends all ranks, as the others
/// may already wait for this one in a collective.
int run_tests(int rank, int ranks) {
  if (ranks > 1) GTEST_FLAG_SET(catch_exceptions, false);
  if (rank > 0) {
    testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(std::make_unique<FailurePrinter>(rank).release());
  }
  try {
    return RUN_ALL_TESTS();
  } catch (const std::exception& error) {
    const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
    std::fprintf(stderr, "[rank %d] %s.%s: uncaught exception: %s\n", rank,
                 test == nullptr ? "-" : test->test_suite_name(),
                 test == nullptr ? "-" : test->name(), error.what());
    std::fflush(nullptr);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  testing::InitGoogleTest(&argc, argv);

  int failed = 0;
  {
    Kokkos::ScopeGuard kokkos(argc, argv);
    failed = run_tests(rank, ranks);
  }
  const bool passed_here = failed == 0;
  MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  if (rank == 0 && passed_here && failed != 0)
    std::printf("[  FAILED  ] on other ranks than 0: see the lines that begin with [rank\n");
  MPI_Finalize();
  return failed;
}
