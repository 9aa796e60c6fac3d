// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <apps/bench/kernel_name.hpp>

namespace ostrakon::tests {
namespace {

TEST(KernelName, OfThisProgramIsTheFunctionThatLaunchesIt) {
  EXPECT_EQ(
      bench::readable_kernel_name(
          "_ZN6Kokkos4Impl33cuda_parallel_launch_local_memoryINS0_11ParallelForIZN8ostrakon4mat"
          "h11gemm_by_rowINS3_4fp16EEEvRKNS_4CudaENS4_9TransposeENS3_4ViewIPPKT_NS3_8OnDeviceEEE"
          "SH_NSB_IPPSC_SG_EENSB_ISI_SG_EElEUllE_NS_11RangePolicyIJS7_NS_9IndexTypeIlEEEEES7_EEE"
          "EvSC_"),
      "gemm_by_row");
}

TEST(KernelName, OfAnotherProgramIsWithoutItsParameters) {
  EXPECT_EQ(bench::readable_kernel_name("nvjet_tst_256x128_64x4_1x2_h_bz_coopA_TNT"),
            "nvjet_tst_256x128_64x4_1x2_h_bz_coopA_TNT");
  EXPECT_EQ(bench::readable_kernel_name("_ZN7cutlass7Kernel2IiEEvT_"), "Kernel2");
  EXPECT_EQ(bench::readable_kernel_name("_Z6gemvNSPfS_i"), "gemvNS");
  EXPECT_EQ(bench::readable_kernel_name("_Zbroken"), "_Zbroken");
}

}  // namespace
}  // namespace ostrakon::tests
