// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostrakon/math/products/gemm.hpp>
#include <ostrakon/math/products/gemm_facts.hpp>
#include <set>
#include <string>

namespace ostrakon::math {
namespace {

TEST(GemmFacts, AreTheSameTwiceAndHaveNames) {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    const Facts facts = gemm_facts(dtype);
    ASSERT_FALSE(facts.empty());
    std::set<std::string> names;
    for (const Fact& fact : facts) {
      EXPECT_FALSE(fact.value.empty()) << fact.name;
      EXPECT_TRUE(names.insert(fact.name).second) << fact.name;
    }
    EXPECT_FALSE(first_difference(facts, gemm_facts(dtype)));
  }
}

#if !OSTRAKON_PRODUCTS_ON_DEVICE
TEST(GemmFacts, NameNoProcessorInFp32) {
  for (const Fact& fact : gemm_facts(DType::fp32))
    EXPECT_EQ(fact.value.find("AVX"), std::string::npos) << fact.name;
  // This holds on every processor and with every compiler, as sums have a fixed order.
  EXPECT_EQ(gemm_digest(DType::fp32), "e879899fc639a90c");
}
#endif

TEST(GemmFacts, DigestsAreThoseOfTheProducts) {
  std::set<std::string> digests;
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    const std::string digest = gemm_digest(dtype);
    EXPECT_EQ(digest.size(), 16u);
    EXPECT_EQ(digest.find_first_not_of("0123456789abcdef"), std::string::npos) << digest;
    EXPECT_EQ(digest, gemm_digest(dtype));
    digests.insert(digest);
  }
  EXPECT_EQ(digests.size(), 3u);  // other inputs and kernels give other digests
}

}  // namespace
}  // namespace ostrakon::math
