// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fake_device/runtime.h>

#include <cstdint>
#include <exception>
#include <string>
#include <tuple>

#include "trainer/small_runs.hpp"

namespace ostrakon::tests {

/// The result of steps; a failure is a different result.
using Result = std::tuple<std::string, double, double, std::uint64_t>;

/// Returns the result of two steps from the initial weights.
inline Result result_of(SmallRun& run) {
  Result result{"", 0.0, 0.0, 0};
  const long before = fake_give_up_kernels();
  try {
    run.trainer.initialize();
    for (std::int64_t step = 1; step <= 2; ++step) {
      const train::StepResult one = run.step(step);
      std::get<1>(result) += one.loss;
      std::get<2>(result) += one.grad_norm;
    }
    std::get<3>(result) = run.trainer.state_digest();
  } catch (const std::exception& error) {
    std::get<0>(result) = error.what();
  }
  if (fake_give_up_kernels() > before) std::get<0>(result) = "an index that is none";
  return result;
}

/// Whether any rank's result differs from `expected`.
inline bool differs_on_any_rank(SmallRun& run, const Result& expected) {
  double same = result_of(run) == expected ? 1.0 : 0.0;
  run.mesh.world().all_reduce_min(&same, 1);
  return same == 0.0;
}

}  // namespace ostrakon::tests
