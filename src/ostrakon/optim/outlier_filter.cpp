// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/optim/outlier_filter.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <ostrakon/base/error.hpp>

namespace ostrakon::optim {
namespace {

using Statistics = OutlierFilter::Statistics;

double deviation(const Statistics& of) {
  return std::max(std::sqrt(of.variance), OutlierFilter::smallest_deviation * std::fabs(of.mean));
}

/// Returns how many deviations `value` is above the mean; 0 if the deviation is 0.
double score(const Statistics& before, double value) {
  const double unit = deviation(before);
  return unit > 0.0 ? (value - before.mean) / unit : 0.0;
}

/// Adds a value by West's (1979) update for weighted values; `weight` is its share of the total
/// weight.
void take_in(Statistics& statistics, double value, double weight) {
  const double difference = value - statistics.mean;
  statistics.mean = std::fma(weight, difference, statistics.mean);
  statistics.variance =
      (1.0 - weight) * std::fma(weight * difference, difference, statistics.variance);
}

}  // namespace

OutlierFilter::OutlierFilter(const OutlierSettings& settings) : settings_(settings) {
  require(settings.window >= 2, "outlier filter: window is ", settings.window,
          ", expected at least 2");
  require(settings.threshold > 0.0, "outlier filter: threshold is ", settings.threshold,
          ", expected a positive number");
}

OutlierFilter::Verdict OutlierFilter::judge(double loss, double gradient_norm) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (!std::isfinite(loss) || !std::isfinite(gradient_norm))
    return {true, std::isfinite(loss) ? 0.0 : infinity,
            std::isfinite(gradient_norm) ? 0.0 : infinity};

  Verdict verdict;
  const bool knows = state_.steps >= std::max<std::int64_t>(2, settings_.window / 2);
  if (knows) {
    verdict.loss_score = score(state_.loss, loss);
    verdict.gradient_norm_score = score(state_.gradient_norm, gradient_norm);
    verdict.skip = verdict.loss_score > settings_.threshold ||
                   verdict.gradient_norm_score > settings_.threshold;
  }

  ++state_.steps;
  const double weight = std::max(1.0 / static_cast<double>(state_.steps),
                                 2.0 / (static_cast<double>(settings_.window) + 1.0));
  const auto take = [&](Statistics& statistics, double value, double value_score) {
    if (value_score > settings_.threshold)
      value = statistics.mean + settings_.threshold * deviation(statistics);
    take_in(statistics, value, weight);
  };
  take(state_.loss, loss, verdict.loss_score);
  take(state_.gradient_norm, gradient_norm, verdict.gradient_norm_score);
  return verdict;
}

void OutlierFilter::restore(const State& state) {
  const auto possible = [](const Statistics& of) {
    return std::isfinite(of.mean) && std::isfinite(of.variance) && of.variance >= 0.0;
  };
  require(state.steps >= 0 && possible(state.loss) && possible(state.gradient_norm),
          "outlier filter: the restored state has ", state.steps, " steps, variances ",
          state.loss.variance, " and ", state.gradient_norm.variance,
          ", expected finite numbers from 0 on");
  state_ = state;
}

}  // namespace ostrakon::optim
