// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/trainer/peak_rate.hpp>

#include <algorithm>
#include <cmath>
#include <ostrakon/base/clock.hpp>
#include <ostrakon/base/print.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/products/gemm.hpp>
#include <ostrakon/math/products/product_workspace.hpp>
#include <ostrakon/math/random.hpp>
#include <ostrakon/trainer/dispatch_dtype.hpp>
#include <vector>

namespace ostrakon::train {
namespace {

/// Seconds of a product after which no larger one is tried.
constexpr double long_enough = 0.005;

/// Shorter times are not measured.
constexpr double clock_tick = 1e-9;

/// While a rate improves by this factor, measuring continues, for so many budgets at most.
constexpr double better = 1.01;
constexpr double most_budgets = 3.0;

/// A rate that is this many times an earlier one shows that the earlier one was disturbed.
constexpr double noticeable = 1.1;

struct Window {
  std::int64_t side;
  double spent = 0.0;  ///< seconds, in all products of this side

  double flops() const {
    const auto n = static_cast<double>(side);
    return 2.0 * n * n * n;
  }
};

}  // namespace

double best_product_rate(std::int64_t largest_side, double budget,
                         const std::function<double(std::int64_t side)>& seconds_of) {
  double best = 0.0, total = 0.0, last = 0.0;
  const auto measure = [&](Window& window) {
    last = std::max(seconds_of(window.side), clock_tick);
    window.spent += last;
    total += last;
    best = std::max(best, window.flops() / last);
  };
  std::vector<Window> windows;
  for (std::int64_t side = std::min<std::int64_t>(256, largest_side);
       side <= largest_side && last < long_enough; side *= 2) {
    seconds_of(side);  // the library initializes itself
    windows.push_back({side});
    measure(windows.back());
  }
  // Measuring takes at least the budget, and continues while the last half of it still found a
  // better rate: the machine gets faster, or is seldom undisturbed.
  constexpr int most = 10000;  // bound if a product takes next to no time
  double best_before = 0.0, until = 0.5 * budget;
  for (int i = 0; i < most; ++i) {
    if (total >= until) {
      if (until >= budget && (best <= better * best_before || until >= most_budgets * budget))
        break;
      best_before = best;
      until += 0.5 * budget;
    }
    measure(*std::min_element(windows.begin(), windows.end(),
                              [](const Window& a, const Window& b) { return a.spent < b.spent; }));
  }
  return best;
}

double PeakRate::utilization(double step_rate) {
  if (step_rate > best_) {
    best_ = step_rate;
    measured_again_ = false;
  }
  return step_rate / best_;
}

void PeakRate::measure_again(double rate) {
  if (rate <= best_) return;
  best_ = rate;
  measured_again_ = true;
}

std::string PeakRate::describe() const {
  const double best = 1e-9 * best_, first = 1e-9 * first_;
  if (is_uncertain() && origin_ == Origin::given)
    return print(
        "runtime.peak_gflops = %.4g is too low, steps reached %.4g GFLOP/s a rank: MFU is an upper "
        "bound",
        first, best);
  if (is_uncertain())
    return print(
        "peak at least %.4g GFLOP/s a rank, which steps reached: measured too low, as on a busy "
        "machine; MFU is an upper bound",
        best);
  if (best > noticeable * first)
    return print(
        "peak %.4g GFLOP/s a rank, measured after the last step; %.4g at start, as on a busy "
        "machine: MFU of single steps is up to %.2g times too large",
        best, first, best / first);
  return print("peak %.4g GFLOP/s a rank, %s", best,
               origin_ == Origin::given ? "as runtime.peak_gflops says" : "measured");
}

PeakRate peak_rate(double peak_gflops, const std::function<double()>& measure) {
  if (peak_gflops > 0.0) return {peak_gflops * 1e9, PeakRate::Origin::given};
  return {measure(), PeakRate::Origin::measured};
}

namespace {

template <class T>
double measure(const runtime::Arena& memory, double seconds) {
  const Exec exec;
  const std::int64_t of_library = math::product_workspace_bytes(math::kernel_form);
  const std::int64_t taken = of_library < memory.bytes() / 2 ? of_library : 0;
  const math::ProductWorkspace room(View<std::byte*>(memory.data(), taken));
  const std::int64_t third = (memory.bytes() - taken) / static_cast<std::int64_t>(3 * sizeof(T));
  const auto largest = static_cast<std::int64_t>(std::sqrt(static_cast<double>(third)));
  const View<T*> all(reinterpret_cast<T*>(memory.data() + taken), 3 * third);
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
