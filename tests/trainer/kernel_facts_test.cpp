// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostrakon/base/facts.hpp>
#include <ostrakon/math/products/gemm_facts.hpp>
#include <ostrakon/trainer/threads.hpp>
#include <string>

namespace ostrakon::train {
namespace {

std::string value_of(const Facts& facts, const std::string& name) {
  for (const Fact& fact : facts)
    if (fact.name == name) return fact.value;
  return "";
}

TEST(KernelFacts, DifferWhereKernelsDo) {
  config::Settings settings;
  settings.precision.gather = DType::fp32;
  const Facts facts = kernel_facts(settings, 1);
  EXPECT_FALSE(first_difference(facts, kernel_facts(settings, 1)));
  const auto threads = first_difference(facts, kernel_facts(settings, 2));
  ASSERT_TRUE(threads);
  EXPECT_EQ(threads->name, "number of threads in matrix products");
  EXPECT_EQ(threads->ours, "1");
  EXPECT_EQ(threads->theirs, "2");
}

TEST(KernelFacts, DifferWhereSubnormalNumbersAreTreatedDifferently) {
  config::Settings flushed, kept;
  flushed.runtime.subnormals = Subnormals::flush;
  kept.runtime.subnormals = Subnormals::keep;
  const auto differ = first_difference(kernel_facts(flushed, 1), kernel_facts(kept, 1));
  ASSERT_TRUE(differ);
  EXPECT_EQ(differ->name, "subnormal numbers");
  EXPECT_EQ(differ->ours, "flush");
  EXPECT_EQ(differ->theirs, "keep");
}

TEST(KernelFacts, HaveTheDigestsOfTheNumbersInUse) {
  config::Settings settings;
  for (const DType gather : {DType::fp32, DType::bf16, DType::fp16}) {
    settings.precision.gather = gather;
    const Facts facts = kernel_facts(settings, 1);
    for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16})
      EXPECT_EQ(value_of(facts, "digest of " + std::string(name(dtype)) + " products"),
                dtype == DType::fp32 || dtype == gather ? math::gemm_digest(dtype) : "");
  }
}

}  // namespace
}  // namespace ostrakon::train
