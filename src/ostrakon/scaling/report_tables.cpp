// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/scaling/report_tables.hpp>

#include <algorithm>
#include <cmath>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/text.hpp>
#include <ostrakon/plan/picture_style.hpp>

namespace ostrakon::scaling {
namespace {

/// Four digits, or all that are before the point.
std::string digits(double value) { return print(value < 1000.0 ? "%.4g" : "%.0f", value); }

/// Two digits of the interval, and as many decimals of the mean; without one, four digits.
std::string with_interval(const Interval& interval, double scale, const char* unit) {
  const double mean = scale * interval.mean, half_width = scale * interval.half_width;
  if (!interval.is_known || !(half_width > 0.0)) return digits(mean) + unit;
  const int decimals = std::clamp(1 - static_cast<int>(std::floor(std::log10(half_width))), 0, 9);
  return print("%.*f ± %.*f", decimals, mean, decimals, half_width) + unit;
}

std::string percent(double share) { return print("%.1f %%", 100.0 * share); }

std::string count(std::size_t number, const char* noun) {
  return text(number, " ", noun, number == 1 ? "" : "s");
}

}  // namespace

bool has_prediction(const std::vector<ScalingPoint>& points) {
  return std::any_of(points.begin(), points.end(),
                     [](const ScalingPoint& point) { return point.size.prediction.has_value(); });
}

std::string report_title(const Study& study) {
  const std::size_t slash = study.deck.rfind('/');
  const std::string deck = slash == std::string::npos ? study.deck : study.deck.substr(slash + 1);
  return text(study.scaling == Scaling::strong ? "Strong" : "Weak", " scaling of ",
              printable(deck));
}

std::vector<std::string> report_facts(const Collected& collected) {
  const Study& study = collected.study;
  std::vector<std::string> facts;
  facts.push_back(text("Deck ", printable(study.deck), "; Ostrakon ", printable(study.version),
                       " (", printable(study.build), "). ",
                       study.scaling == Scaling::strong
                           ? "Strong scaling: the global batch is the same on any number of ranks."
                           : "Weak scaling: the global batch grows with the ranks.",
                       " ", count(collected.runs.size(), "run"), " of ", study.steps, " steps, ",
                       study.repeat, " of each size, of which steps ", study.warmup + 1, " to ",
                       study.steps, " count."));
  std::string prediction = "No prediction: the study was planned without rates of a machine.";
  for (const StudySize& size : study.sizes)
    if (size.prediction)
      prediction = text("Predicted with ", printable(size.prediction->source), ".");
  facts.push_back(std::move(prediction));
  return facts;
}

ReportTable speed_table(const std::vector<ScalingPoint>& points) {
  ReportTable table;
  table.head = {"ranks", "nodes",   "runs",      "step", "tokens/s", "tokens/s per rank",
                "MFU",   "speedup", "efficiency"};
  const bool predicted = has_prediction(points);
  if (predicted) table.head.insert(table.head.end(), {"predicted step", "error of prediction"});
  for (const ScalingPoint& point : points) {
    std::vector<std::string> row = {text(point.size.ranks),
                                    text(point.size.nodes),
                                    text(point.runs),
                                    with_interval(point.step_seconds, 1.0, " s"),
                                    with_interval(point.tokens_per_second, 1.0, ""),
                                    digits(point.tokens_per_second.mean / point.size.ranks),
                                    text(point.mfu_uncertain ? "≤ " : "", percent(point.mfu)),
                                    with_interval(point.speedup, 1.0, ""),
                                    text(with_interval(point.efficiency, 100.0, " %"),
                                         point.is_superlinear ? " superlinear" : "")};
    if (predicted) {
      row.push_back(point.size.prediction ? print("%.4g s", point.size.prediction->seconds)
                                          : "no prediction");
      row.push_back(point.prediction_error ? print("%+.1f %%", 100.0 * *point.prediction_error)
                                           : "");
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

ReportTable factor_table(const std::vector<ScalingPoint>& points) {
  ReportTable table;
  table.head = {"ranks"};
  for (const NamedFactor& factor : named_factors) table.head.emplace_back(factor.name);
  table.head.insert(table.head.end(), {"product", "efficiency"});
  for (const ScalingPoint& point : points) {
    std::vector<std::string> row = {text(point.size.ranks)};
    for (const NamedFactor& factor : named_factors)
      row.push_back(print("%.4f", point.relative.*factor.value));
    row.push_back(print("%.4f", product(point.relative)));
    row.push_back(print("%.4f", point.efficiency.mean));
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::array<double, 6> predicted_shares(const PredictedStep& step) {
  std::array<double, 6> shares = {step.compute, 0.0,         step.communication,
                                  step.host,    step.copies, step.waiting};
  for (double& share : shares) share /= step.seconds;
  return shares;
}

ReportTable share_table(const std::vector<ScalingPoint>& points) {
  ReportTable table;
  table.head = {"ranks"};
  for (const NamedShare& share : named_shares) table.head.emplace_back(share.name);
  for (const ScalingPoint& point : points) {
    std::vector<std::string> row = {text(point.size.ranks)};
    for (const NamedShare& share : named_shares) row.push_back(percent(point.shares.*share.value));
    table.rows.push_back(std::move(row));
    if (!point.size.prediction) continue;
    row = {text(point.size.ranks, ", predicted")};
    for (const double share : predicted_shares(*point.size.prediction))
      row.push_back(percent(share));
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::vector<std::pair<std::string, std::string>> report_words() {
  return {{"±",
           "half of the 95 % confidence interval: of one run over its steps, by batch means; of "
           "several runs over their means (Student's t)"},
          {"speedup", "tokens/s over those on the fewest ranks"},
          {"efficiency",
           "tokens/s per rank over those on the fewest ranks; equals the product of the "
           "factors"},
          {"compute rate",
           "tokens that a rank processes in a second of computing, relative to the "
           "fewest ranks; above 1 where smaller parts compute faster"},
          {"balance", "mean compute time of ranks over the longest one"},
          {"overlap", "share of the step without exposed communication"},
          {"host", "share of what is left of the step without exposed work of the host"},
          {"copies", "share of what is left without exposed copies between host and device"},
          {"bubbles",
           "share of what is left without waiting: for other stages of a pipeline, and "
           "between actions"},
          {"exposed",
           "while no action of the compute stream runs, on the rank that computes longest in "
           "the step"}};
}

}  // namespace ostrakon::scaling
