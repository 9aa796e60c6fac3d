// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/scaling/results_files.hpp>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostrakon/base/text.hpp>

namespace ostrakon::scaling {
namespace {

using Json = nlohmann::ordered_json;

/// "exposed_communication"
std::string field(std::string name) {
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

Json json_of(const Interval& interval) {
  return {{"mean", interval.mean},
          {"half_width", interval.is_known ? Json(interval.half_width) : Json()}};
}

/// A prediction is of ranks that compute equally long.
Json predicted_shares(const PredictedStep& step) {
  const double shares[] = {step.compute, 0.0,         step.communication,
                           step.host,    step.copies, step.waiting};
  Json json;
  for (std::size_t i = 0; i < std::size(named_shares); ++i)
    json[field(named_shares[i].name)] = shares[i] / step.seconds;
  return json;
}

Json json_of(const ScalingPoint& point) {
  Json json = {{"ranks", point.size.ranks},
               {"nodes", point.size.nodes},
               {"runs", point.runs},
               {"step_seconds", json_of(point.step_seconds)},
               {"tokens_per_second", json_of(point.tokens_per_second)},
               {"speedup", json_of(point.speedup)},
               {"ideal_speedup", point.ideal},
               {"efficiency", json_of(point.efficiency)},
               {"superlinear", point.is_superlinear},
               {"mfu", point.mfu},
               {"mfu_uncertain", point.mfu_uncertain},
               {"peak_bytes", point.peak_bytes}};
  for (const NamedFactor& factor : named_factors)
    json["relative_factors"][field(factor.name)] = point.relative.*factor.value;
  for (const NamedShare& share : named_shares)
    json["shares"][field(share.name)] = point.shares.*share.value;
  json["prediction"] = nullptr;
  if (point.size.prediction)
    json["prediction"] = {
        {"step_seconds", point.size.prediction->seconds},
        {"speedup", point.predicted_speedup},
        {"error", point.prediction_error ? Json(*point.prediction_error) : Json()},
        {"shares", predicted_shares(*point.size.prediction)}};
  return json;
}

}  // namespace

Json points_json(const std::vector<ScalingPoint>& points) {
  Json json = Json::array();
  for (const ScalingPoint& point : points) json.push_back(json_of(point));
  return json;
}

std::string points_csv(const std::vector<ScalingPoint>& points) {
  std::string csv =
      "ranks,nodes,runs,step_seconds,step_seconds_95,tokens_per_second,"
      "tokens_per_second_per_rank,mfu,speedup,speedup_95,ideal_speedup,efficiency,efficiency_95";
  for (const NamedFactor& factor : named_factors) csv += ",factor_" + field(factor.name);
  for (const NamedShare& share : named_shares) csv += ",share_" + field(share.name);
  csv += ",predicted_step_seconds,prediction_error\n";
  const auto half_width = [](const Interval& interval) {
    return interval.is_known ? text(interval.half_width) : "";
  };
  for (const ScalingPoint& point : points) {
    csv += text(point.size.ranks, ",", point.size.nodes, ",", point.runs, ",",
                point.step_seconds.mean, ",", half_width(point.step_seconds), ",",
                point.tokens_per_second.mean, ",", point.tokens_per_second.mean / point.size.ranks,
                ",", point.mfu, ",", point.speedup.mean, ",", half_width(point.speedup), ",",
                point.ideal, ",", point.efficiency.mean, ",", half_width(point.efficiency));
    for (const NamedFactor& factor : named_factors) csv += text(",", point.relative.*factor.value);
    for (const NamedShare& share : named_shares) csv += text(",", point.shares.*share.value);
    csv += ",";
    if (point.size.prediction) csv += text(point.size.prediction->seconds);
    csv += ",";
    if (point.prediction_error) csv += text(*point.prediction_error);
    csv += "\n";
  }
  return csv;
}

}  // namespace ostrakon::scaling
