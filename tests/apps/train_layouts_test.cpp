// SPDX-License-Identifier: Apache-2.0

// Ranks, sharding and threads of ostrakon-train: the same bits, and the bytes that were planned.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <ostrakon/math/portability.hpp>
#include <string>
#include <vector>

#include "programs_fixture.hpp"
#include "support/messages.hpp"

namespace ostrakon::testing {
namespace {

using Json = nlohmann::json;
using Texts = std::vector<std::string>;

TEST_F(Programs, LayoutsGiveTheSameBitsAndKeepToThePlan) {
  const std::vector<Json> expected = train(1, "np1");
  expect_kept_promises(expected);
  for (const char* sharding : {"full", "none"})
    for (const int ranks : {1, 2, 4}) {
      SCOPED_TRACE(std::string(sharding) + " on " + std::to_string(ranks));
      const std::vector<Json> rows =
          train(ranks, "bits", {std::string("parallel.sharding=") + sharding});
      EXPECT_EQ(results(rows), results(expected));
      expect_kept_promises(rows);
    }
}

// How many run kernels is Kokkos' choice, and the matrix library follows it.
TEST_F(Programs, TheMatrixLibraryHasAsManyThreadsAsKernels) {
#if defined(KOKKOS_ENABLE_OPENMP) && !OSTRAKON_ON_DEVICE
  const std::string kernels = "2";
#else
  const std::string kernels = "1";
  if (has_device) GTEST_SKIP() << "kernels run on the device";
#endif
  const auto shown = [](const Texts& settings) {
    Texts arguments = {"small.yaml", "--dry-run"};
    arguments.insert(arguments.end(), settings.begin(), settings.end());
    const Outcome outcome = start("ostrakon-train", 1, arguments, {{"OMP_NUM_THREADS", "2"}});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.out;
  };
  const auto expect_matrix_threads = [&](const std::string& out, const std::string& threads) {
    for (const std::string& line :
         {"\n  threads of a rank      " + kernels + " for kernels, " + threads +
              " for matrix products\n",
          "\n  sums over leaves       bitwise equal to 1 rank with " + threads +
              (threads == "1" ? " thread" : " threads") + " for matrix products\n"})
      EXPECT_HAS(out, line);
  };
  expect_matrix_threads(shown({}), kernels);
  expect_matrix_threads(shown({"--set", "runtime.threads=1"}), "1");
  expect_matrix_threads(shown({"--set", "runtime.threads=3"}), "3");
}

TEST_F(Programs, KernelThreadsChangeNoBit) {
#if !defined(KOKKOS_ENABLE_OPENMP) || OSTRAKON_ON_DEVICE
  GTEST_SKIP() << "takes a Kokkos with OpenMP";
#endif
  for (const Texts& kind :
       {Texts{}, Texts{"precision.gather=bf16", "model.activation=gelu", "model.norm=layernorm"},
        Texts{"optimizer.name=muon", "parallel.sharding=gradients"},
        Texts{"model.positions=learned", "memory.offload=all", "optimizer.clip_norm=0"}}) {
    std::vector<std::vector<Json>> runs;
    for (const char* threads : {"1", "2", "3"}) {
      const std::string folder = std::string("kernels-") + threads;
      Texts arguments = {"small.yaml", "--set", "runtime.threads=1", "--set",
                         "output.directory=" + folder};
      for (const std::string& setting : kind) {
        arguments.push_back("--set");
        arguments.push_back(setting);
      }
      const Outcome outcome = start("ostrakon-train", 2, arguments,
                                    {{"OMP_NUM_THREADS", threads}, {"OMP_WAIT_POLICY", "passive"}});
      ASSERT_EQ(outcome.status, 0) << outcome.err;
      EXPECT_HAS(outcome.out, std::string(threads) + " for kernels, 1 for matrix products");
      runs.push_back(results(read_rows(folder)));
    }
    EXPECT_EQ(runs[1], runs[0]) << ::testing::PrintToString(kind);
    EXPECT_EQ(runs[2], runs[0]) << ::testing::PrintToString(kind);
  }
}

TEST_F(Programs, RanksThatShareUnevenlyAgreeToRounding) {
  const Texts six_leaves = {"training.global_batch_size=6"};
  const std::vector<Json> expected = train(1, "one", six_leaves);
  const std::vector<Json> rows = train(3, "three", six_leaves);
  expect_kept_promises(rows);
  ASSERT_EQ(rows.size(), expected.size());
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (const char* field : {"loss", "grad_norm", "validation_loss"})
      if (expected[i].contains(field)) {
        EXPECT_NEAR(rows[i].at(field), expected[i].at(field),
                    1e-5 * expected[i].at(field).get<double>());
      }
}

}  // namespace
}  // namespace ostrakon::testing
