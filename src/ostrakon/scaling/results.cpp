// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/scaling/results.hpp>

#include <algorithm>
#include <cmath>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>

namespace ostrakon::scaling {
namespace {

/// Returns the interval of numerator / value.
Interval inverse(double numerator, const Interval& value) {
  Interval interval = value;
  interval.mean = numerator / value.mean;
  interval.half_width = interval.mean * value.relative();
  return interval;
}

Interval scaled(Interval interval, double factor) {
  interval.mean *= factor;
  interval.half_width *= factor;
  return interval;
}

Interval ratio(const Interval& value, const Interval& base) {
  Interval interval;
  interval.mean = value.mean / base.mean;
  interval.is_known = value.is_known && base.is_known;
  if (interval.is_known)
    interval.half_width = interval.mean * std::hypot(value.relative(), base.relative());
  return interval;
}

ScalingPoint point_of(const StudySize& size, const std::vector<const CollectedRun*>& runs) {
  ScalingPoint point;
  point.size = size;
  point.runs = static_cast<int>(runs.size());
  std::vector<double> means;
  for (const CollectedRun* run : runs) {
    means.push_back(run->step_seconds.mean);
    const double share = 1.0 / static_cast<double>(runs.size());
    for (const NamedShare& one : named_shares)
      point.shares.*one.value += share * run->shares.*one.value;
    point.mfu += share * run->mfu;
    point.mfu_uncertain = point.mfu_uncertain || run->mfu_uncertain;
    point.peak_bytes = std::max(point.peak_bytes, run->peak_bytes);
  }
  point.step_seconds = runs.size() == 1 ? runs[0]->step_seconds : interval_of(means);
  const auto tokens = static_cast<double>(size.tokens_per_step);
  point.tokens_per_second = inverse(tokens, point.step_seconds);
  point.factors = factors_of(point.shares, tokens / size.ranks, point.step_seconds.mean);
  if (size.prediction)
    point.prediction_error = size.prediction->seconds / point.step_seconds.mean - 1.0;
  return point;
}

void compare(ScalingPoint& point, const ScalingPoint& base) {
  point.ideal = static_cast<double>(point.size.ranks) / base.size.ranks;
  point.relative = relative(point.factors, base.factors);
  if (point.size.ranks == base.size.ranks) {
    point.speedup = point.efficiency = {1.0, 0.0, false};
  } else {
    point.speedup = ratio(point.tokens_per_second, base.tokens_per_second);
    point.efficiency = scaled(point.speedup, 1.0 / point.ideal);
  }
  point.is_superlinear = point.efficiency.mean - point.efficiency.half_width > 1.0;
  if (point.is_superlinear) {
    const auto* most =
        std::max_element(std::begin(named_factors), std::end(named_factors),
                         [&](const NamedFactor& one, const NamedFactor& other) {
                           return point.relative.*one.value < point.relative.*other.value;
                         });
    point.superlinear_factor = most->name;
  }
  if (point.size.prediction && base.size.prediction) {
    const auto rate = [](const StudySize& size) {
      return static_cast<double>(size.tokens_per_step) / size.prediction->seconds;
    };
    point.predicted_speedup = rate(point.size) / rate(base.size);
  }
}

double rounded(double value, int digits) {
  const double scale = std::pow(10.0, digits);
  return std::round(value * scale) / scale;
}

}  // namespace

std::vector<ScalingPoint> scaling_points(const Collected& collected) {
  std::vector<ScalingPoint> points;
  for (const StudySize& size : collected.study.sizes) {
    std::vector<const CollectedRun*> runs;
    for (const CollectedRun& run : collected.runs)
      if (run.ranks == size.ranks) runs.push_back(&run);
    if (!runs.empty()) points.push_back(point_of(size, runs));
  }
  require(!points.empty(), "no run is of a size that the study has");
  for (ScalingPoint& point : points) compare(point, points[0]);
  return points;
}

std::string figures(const std::vector<ScalingPoint>& points) {
  std::string lines;
  for (const ScalingPoint& point : points) {
    const std::string begin = text("ranks_", point.size.ranks, ".");
    const auto add = [&](const std::string& name, double value, const char* unit) {
      lines += figure(begin + name, value, unit);
    };
    add("step_seconds", point.step_seconds.mean, "s");
    if (point.step_seconds.is_known) add("step_seconds_95", point.step_seconds.half_width, "s");
    add("tokens_per_second", point.tokens_per_second.mean, "tokens/s");
    add("tokens_per_second_per_rank", point.tokens_per_second.mean / point.size.ranks, "tokens/s");
    add("mfu", 100.0 * point.mfu, "%");
    add("speedup", point.speedup.mean, "x");
    add("efficiency", 100.0 * point.efficiency.mean, "%");
    for (const NamedFactor& factor : named_factors) {
      std::string name = factor.name;
      std::replace(name.begin(), name.end(), ' ', '_');
      add("factor_" + name, point.relative.*factor.value, "x");
    }
    if (point.prediction_error) {
      add("predicted_step_seconds", point.size.prediction->seconds, "s");
      add("prediction_error", 100.0 * *point.prediction_error, "%");
    }
  }
  return lines;
}

std::vector<std::string> describe_outliers(const Collected& collected) {
  std::vector<std::string> lines;
  for (const CollectedRun& run : collected.runs)
    for (const OutlierStep& outlier : run.outliers) {
      std::string line =
          text("step ", outlier.step, " of ", run.folder, ": ", rounded(outlier.seconds, 4),
               " s, usually ", rounded(outlier.usual, 4), " s (",
               rounded(outlier.seconds / outlier.usual, 2), " times as long); ");
      if (!outlier.is_traced)
        line += "not in the trace";
      else if (outlier.stream.empty())
        line += "no part of it took longer";
      else
        line += text("+", rounded(outlier.more, 4), " s on rank ", outlier.rank,
                     outlier.stream == "waiting" ? ", where no stream ran"
                                                 : ", on the stream " + outlier.stream);
      lines.push_back(std::move(line));
    }
  return lines;
}

std::vector<std::string> describe_remarks(const Collected& collected,
                                          const std::vector<ScalingPoint>& points) {
  std::vector<std::string> remarks;
  for (const MissingRun& run : collected.missing)
    remarks.push_back(text("missing: ", run.folder, ": ", run.reason));
  for (const ScalingPoint& point : points)
    if (point.is_superlinear)
      remarks.push_back(
          text("superlinear: on ", point.size.ranks,
               " ranks the efficiency is above 100 % by more than "
               "its interval; the factor that gains most is ",
               point.superlinear_factor,
               " (a smaller part of a rank may fit into its cache, or the base was disturbed)"));
  for (const ScalingPoint& point : points)
    if (point.relative.compute_rate < 0.8)
      remarks.push_back(text("compute rate: ranks compute at ",
                             rounded(100.0 * point.relative.compute_rate, 1), " % of the rate on ",
                             points[0].size.ranks, " when there are ", point.size.ranks,
                             ": there may be more ranks than cores, or ranks share what limits "
                             "them, such as memory bandwidth; small parts also compute slower"));
  for (const CollectedRun& run : collected.runs)
    for (const StudySize& size : collected.study.sizes)
      if (size.ranks == run.ranks && size.nodes != run.hosts)
        remarks.push_back(text("hosts: ", run.folder, " ran on ", run.hosts,
                               run.hosts == 1 ? " host" : " hosts", ", planned were ", size.nodes));
  for (const ScalingPoint& point : points)
    if (point.peak_bytes != point.size.memory_bytes)
      remarks.push_back(text("memory: on ", point.size.ranks, " ranks a rank had ",
                             point.peak_bytes, " bytes, planned were ", point.size.memory_bytes));
  for (const CollectedRun& run : collected.runs)
    if (!run.step_seconds.is_known)
      remarks.push_back(
          text("intervals: ", run.folder, " has one step; expected more for an interval"));
  if (collected.study.repeat == 2)
    remarks.push_back(
        "intervals: with two runs of a size they are wide (Student's t with one degree "
        "of freedom); three or more tell more");
  return remarks;
}

}  // namespace ostrakon::scaling
