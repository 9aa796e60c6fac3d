// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/trainer/product_rate.hpp>

#include <algorithm>
#include <cmath>
#include <ostrakon/base/clock.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/products/gemm.hpp>
#include <ostrakon/math/random.hpp>
#include <ostrakon/trainer/dispatch_dtype.hpp>
#include <ostrakon/trainer/peak_rate.hpp>

namespace ostrakon::train {
namespace {

template <class T>
double measure(const runtime::Arena& memory, double seconds) {
  const Exec exec;
  const std::int64_t third = memory.bytes() / static_cast<std::int64_t>(3 * sizeof(T));
  const auto largest = static_cast<std::int64_t>(std::sqrt(static_cast<double>(third)));
  const View<T*> all(reinterpret_cast<T*>(memory.data()), 3 * third);
  const auto seconds_of = [&](std::int64_t side) {
    const std::int64_t size = side * side;
    const auto matrix = [&](std::int64_t i) {
      return all.range(i * size, (i + 1) * size).matrix(side, side);
    };
    const View<T**> a = matrix(0), b = matrix(1), c = matrix(2);
    // Random matrices are used, as products of equal numbers take less power, and a GPU at its
    // limit runs faster then.
    if constexpr (on_device)
      math::fill_normal<T>(exec, all.range(0, 2 * size), 1, 0, 1.0);
    else
      math::fill(exec, all.range(0, 2 * size), T(1.0f));
    exec.fence();
    const Stopwatch timer;
    math::gemm<T>(exec, math::Transpose::no, math::Transpose::yes, 1.0f, a, b, 0.0f, c);
    exec.fence();
    return timer.seconds();
  };
  return best_product_rate(std::max<std::int64_t>(1, largest), seconds, seconds_of);
}

}  // namespace

double measure_product_rate(DType dtype, const runtime::Arena& memory, double seconds) {
  double rate = 0.0;
  dispatch_dtype(dtype, [&](auto one) { rate = measure<decltype(one)>(memory, seconds); });
  return rate;
}

}  // namespace ostrakon::train
