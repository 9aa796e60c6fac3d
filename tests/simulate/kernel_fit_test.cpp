// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <ostrakon/simulate/kernel_fit.hpp>

namespace ostrakon::tests {
namespace {

using namespace ostrakon::plan;
using namespace ostrakon::simulate;

/// What phases of models take on a machine of these numbers.
std::vector<KernelSample> samples_of(const ComputeRates& rates) {
  std::vector<KernelSample> all;
  const KernelRates& kernels = rates.kernels;
  for (const double width : {128.0, 256.0, 512.0, 1024.0})
    for (const bool is_backward : {false, true})
      for (const bool is_head : {false, true}) {
        KernelSample sample;
        sample.is_backward = is_backward;
        sample.share = is_head ? 0.1 : 0.4;
        const double times = is_backward ? 2.0 : 1.0, rows = 65536.0 / width;
        const auto outputs = static_cast<std::int64_t>(is_head ? 5000 : 4.0 * width);
        const double flops = times * 2.0 * rows * width * static_cast<double>(outputs);
        sample.work =
            times * product_work(flops / times, static_cast<std::int64_t>(width), outputs) +
            row_work((is_backward ? 9.0 : 4.0) * rows * width);
        sample.flops = flops;
        if (!is_head) {
          const double scores = times * 100.0 * rows * width;
          sample.work += attention_work(scores, width > 300.0 ? 128 : 32);
          sample.work.activations = (is_backward ? 7.0 : 2.0) * rows * width * width / 256.0;
          sample.flops += scores;
        }
        const auto longer = [&](double factor) { return is_backward ? factor : 1.0; };
        sample.seconds =
            longer(kernels.backward_products) * kernels.products(sample.flops, sample.work) /
                rates.products +
            longer(kernels.backward_attention) * kernels.attention(sample.work) / rates.attention +
            longer(kernels.backward_rows) * sample.work.row_bytes / kernels.row_bytes_per_second +
            sample.work.products * kernels.product_seconds +
            sample.work.activations / kernels.activations_per_second;
        all.push_back(sample);
      }
  return all;
}

ComputeRates made_up() {
  ComputeRates rates;
  rates.products = 1e11;
  rates.attention = 4e10;
  rates.kernels.product_width = 64.0;
  rates.kernels.attention_width = 32.0;
  rates.kernels.backward_products = 1.1;
  rates.kernels.backward_attention = 1.5;
  rates.kernels.backward_rows = 0.6;
  rates.kernels.product_seconds = 1e-5;
  rates.kernels.row_bytes_per_second = 1e10;
  rates.kernels.activations_per_second = 5e8;
  return rates;
}

TEST(KernelFit, FindsTheNumbersThatTimesWereMadeFrom) {
  const std::vector<KernelSample> samples = samples_of(made_up());
  const KernelFit fit = fit_kernels(samples);
  for (const KernelSample& sample : samples)
    EXPECT_NEAR(fit.seconds(sample), sample.seconds, 1e-3 * sample.seconds);
  ComputeRates found;
  fit.set(found);
  EXPECT_DOUBLE_EQ(found.kernels.product_width, 64.0);
  EXPECT_DOUBLE_EQ(found.kernels.attention_width, 32.0);
  EXPECT_NEAR(found.products, 1e11, 1e9);
  EXPECT_NEAR(found.kernels.backward_products, 1.1, 0.01);
}

// A machine whose kernels without products take no time: no factor that is infinite, or none.
TEST(KernelFit, WhatTakesNoTimeIsBounded) {
  ComputeRates rates = made_up();
  rates.kernels.row_bytes_per_second = rates.kernels.activations_per_second = 1e30;
  const std::vector<KernelSample> samples = samples_of(rates);
  const KernelFit fit = fit_kernels(samples);
  ComputeRates found;
  fit.set(found);
  for (const KernelSample& sample : samples)
    EXPECT_NEAR(fit.seconds(sample), sample.seconds, 0.02 * sample.seconds);
  for (const double factor : {found.kernels.backward_products, found.kernels.backward_attention,
                              found.kernels.backward_rows}) {
    EXPECT_GE(factor, 0.2);
    EXPECT_LE(factor, 5.0);
  }
  for (const double rate : {found.attention, found.kernels.row_bytes_per_second,
                            found.kernels.activations_per_second}) {
    EXPECT_GE(rate, 0.0);
    EXPECT_LE(rate, 1e17);
  }
}

/// Phases on a device to which kernels are submitted: each takes as long as its launch, or as its
/// work. `elements`: of an activation, so how much of the device a kernel fills.
std::vector<KernelSample> device_samples(const ComputeRates& rates, double launch_seconds,
                                         std::initializer_list<double> elements) {
  std::vector<KernelSample> all;
  const auto add = [&](double times, double share, const KernelWork& once, double flops) {
    KernelSample sample;
    sample.is_backward = times > 1.0;
    sample.share = share;
    sample.work = times * once;
    sample.flops = times * flops;
    const auto of_kernels = [&](double kernels, double work_seconds) {
      return std::max(kernels * launch_seconds, work_seconds);
    };
    sample.seconds =
        of_kernels(sample.work.products,
                   rates.kernels.products(sample.flops, sample.work) / rates.products) +
        of_kernels(sample.work.row_kernels,
                   sample.work.row_bytes / rates.kernels.row_bytes_per_second) +
        rates.kernels.attention(sample.work) / rates.attention;
    all.push_back(sample);
  };
  for (const double count : elements)
    for (const std::int64_t width : {512, 1024, 2048, 4096})
      for (const double times : {1.0, 2.0}) {  // forward, backward
        const double scores = 400.0 * count;
        const double block = 8.0 * count * static_cast<double>(width), head = 32768.0 * count;
        add(times, 0.4,
            6.0 * product_work(block, width, 4 * width) + row_work(30.0 * count, 8.0) +
                attention_work(scores, width > 1500 ? 128 : 64),
            6.0 * block + scores);
        add(times, 0.1, product_work(head, width, 16384) + row_work(4.0 * count), head);
        add(times, 0.02, row_work(6.0 * count), 0.0);  // the embedding
      }
  return all;
}

ComputeRates like_an_h200() {
  ComputeRates rates;
  rates.products = 7e14;
  rates.attention = 3e14;
  rates.kernels.product_width = 128.0;
  rates.kernels.row_bytes_per_second = 4e12;
  return rates;
}

constexpr double launch_seconds = 4e-6;

TEST(KernelFit, FindsTheRatesOfADeviceThatIsFilled) {
  const ComputeRates rates = like_an_h200();
  // 32 million elements fill it, 100,000 are launches and nothing else.
  const std::vector<KernelSample> samples = device_samples(rates, launch_seconds, {32e6, 1e5});
  const KernelFit fit = fit_kernels(samples, Launches::of_all);
  EXPECT_TRUE(fit.tells_products());
  EXPECT_TRUE(fit.tells_rows());
  ComputeRates found;
  fit.set(found);
  EXPECT_NEAR(found.products, rates.products, 0.1 * rates.products);
  EXPECT_NEAR(found.kernels.row_bytes_per_second, 4e12, 0.1 * 4e12);
  EXPECT_NEAR(found.kernels.product_seconds, launch_seconds, 0.3 * launch_seconds);
  EXPECT_DOUBLE_EQ(found.kernels.row_kernel_seconds, found.kernels.product_seconds);
  for (const KernelSample& sample : samples)
    EXPECT_NEAR(fit.seconds(sample), sample.seconds, 0.25 * sample.seconds);
}

// Small models on a large device: launches explain all of the time, so products take none of it, or
// less than they can.
TEST(KernelFit, RatesThatTimesDoNotTellAreLimits) {
  for (const double elements : {1e4, 1e5}) {
    const std::vector<KernelSample> samples =
        device_samples(like_an_h200(), launch_seconds, {elements});
    KernelFit fit = fit_kernels(samples, Launches::of_all);
    fit.take_limits(samples, {8e14, 4.2e12});
    EXPECT_FALSE(fit.tells_products());
    EXPECT_FALSE(fit.tells_rows());
    ComputeRates found;
    fit.set(found);
    EXPECT_DOUBLE_EQ(found.products, 8e14);
    EXPECT_DOUBLE_EQ(found.kernels.row_bytes_per_second, 4.2e12);
    EXPECT_EQ(found.kernels.product_width, 0.0);
    EXPECT_GT(found.kernels.product_seconds, 0.5 * launch_seconds);
    EXPECT_LT(found.kernels.product_seconds, 1.1 * launch_seconds);
    for (const KernelSample& sample : samples)
      EXPECT_NEAR(fit.seconds(sample), sample.seconds, 0.4 * sample.seconds);
  }
  // The times of the smaller ones say that products take no time at all.
  KernelFit fit = fit_kernels(device_samples(like_an_h200(), launch_seconds, {1e4}));
  EXPECT_FALSE(fit.tells_products());
  ComputeRates found;
  fit.set(found);
  EXPECT_EQ(found.products, 0.0);
}

TEST(KernelFit, LimitsChangeNothingThatTimesTell) {
  const std::vector<KernelSample> samples = samples_of(made_up());
  KernelFit fit = fit_kernels(samples);
  ComputeRates before, after;
  fit.set(before);
  fit.take_limits(samples, {1.2e11, 2e10});
  fit.set(after);
  EXPECT_TRUE(fit.tells_products());
  EXPECT_TRUE(fit.tells_rows());
  EXPECT_EQ(after.products, before.products);
  EXPECT_EQ(after.kernels.row_bytes_per_second, before.kernels.row_bytes_per_second);
  EXPECT_EQ(after.kernels.row_kernel_seconds, 0.0);
}

TEST(FitWaits, FindsTheNumbersThatTimesWereMadeFrom) {
  std::vector<StepSample> samples;
  for (const double simulated : {0.02, 0.1, 0.5, 0.9})
    for (const double collectives : {10.0, 30.0}) {
      const double seconds = 1.05 * simulated + 3e-4 * collectives;
      samples.push_back({seconds, simulated, collectives});
    }
  const Waits found = fit_waits(samples);
  EXPECT_NEAR(found.of_collective, 3e-4, 1e-8);
  EXPECT_NEAR(found.of_step, 0.05, 1e-5);
}

TEST(FitWaits, StepsFasterThanSimulatedWaitForNothing) {
  const Waits found = fit_waits({{0.1, 0.11, 10.0}, {0.2, 0.21, 30.0}});
  EXPECT_EQ(found.of_collective, 0.0);
  EXPECT_EQ(found.of_step, 0.0);
}

}  // namespace
}  // namespace ostrakon::tests
