// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/base/dtype.hpp>
#include <ostrakon/math/exact_sum.hpp>
#include <ostrakon/math/half.hpp>

namespace ostrakon::train {

/// The number of integers for the sums of losses and of squared gradients.
constexpr int step_sums = 2 * math::exact_sum_limbs;

/// Calls work(T()) with the type T of this dtype.
template <class Work>
void dispatch_dtype(DType dtype, const Work& work) {
  switch (dtype) {
    case DType::fp32:
      return work(float());
    case DType::bf16:
      return work(bf16());
    case DType::fp16:
      return work(fp16());
  }
}

/// Calls `work` with the type of moments, which is never fp16.
template <class Work>
void dispatch_moment_dtype(DType dtype, const Work& work) {
  return dtype == DType::bf16 ? work(bf16()) : work(float());
}

}  // namespace ostrakon::train
