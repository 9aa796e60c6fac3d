// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/scaling/collected.hpp>

#include <filesystem>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/new_file.hpp>
#include <ostrakon/checkpoint/json_file.hpp>
#include <ostrakon/scaling/json_fields.hpp>
#include <ostrakon/scaling/results_files.hpp>

namespace ostrakon::scaling {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* format = "ostrakon-scaling-runs";
constexpr int format_version = 1;
constexpr std::int64_t most_file_bytes = std::int64_t{256} << 20;

template <class Struct, std::size_t count>
Json json_of(const Struct& of, const NamedMember<Struct> (&members)[count]) {
  Json json;
  for (const NamedMember<Struct>& member : members) json[member.key] = of.*member.value;
  return json;
}

template <class Struct, std::size_t count>
Struct read(const Fields& fields, const NamedMember<Struct> (&members)[count]) {
  Struct of;
  for (const NamedMember<Struct>& member : members) of.*member.value = fields.number(member.key);
  return of;
}

Json json_of(const OutlierStep& outlier) {
  Json json = {{"step", outlier.step},
               {"seconds", outlier.seconds},
               {"usual_seconds", outlier.usual},
               {"traced", outlier.is_traced}};
  if (!outlier.is_traced) return json;
  json["stream"] = outlier.stream;
  json["rank"] = outlier.rank;
  json["more_seconds"] = outlier.more;
  return json;
}

OutlierStep read_outlier(const Fields& fields) {
  OutlierStep outlier;
  outlier.step = fields.integer("step", 1);
  outlier.seconds = fields.number("seconds");
  outlier.usual = fields.number("usual_seconds");
  outlier.is_traced = fields.flag("traced");
  if (!outlier.is_traced) return outlier;
  outlier.stream = fields.text("stream");
  outlier.rank = fields.small("rank");
  outlier.more = fields.number("more_seconds");
  return outlier;
}

Json json_of(const CollectedRun& run) {
  Json json = {{"run", run.folder},
               {"ranks", run.ranks},
               {"number", run.run},
               {"hosts", run.hosts},
               {"steps", run.steps},
               {"step_seconds", run.step_seconds.mean},
               {"step_seconds_95", nullptr},
               {"tokens_per_second", run.tokens_per_second},
               {"tokens_per_second_per_rank", run.tokens_per_second_per_rank},
               {"mfu", run.mfu},
               {"mfu_uncertain", run.mfu_uncertain},
               {"peak_bytes", run.peak_bytes},
               {"traced_steps", run.traced_steps},
               {"shares", json_of(run.shares, named_shares)},
               {"factors", json_of(run.factors, named_factors)},
               {"outliers", Json::array()}};
  if (run.step_seconds.is_known) json["step_seconds_95"] = run.step_seconds.half_width;
  for (const OutlierStep& outlier : run.outliers) json["outliers"].push_back(json_of(outlier));
  return json;
}

CollectedRun read_run(const Fields& fields, const std::string& file) {
  CollectedRun run;
  run.folder = fields.text("run");
  run.ranks = fields.small("ranks", 1);
  run.run = fields.small("number", 1);
  run.hosts = fields.small("hosts");
  run.steps = fields.integer("steps", 1);
  run.step_seconds.mean = fields.number("step_seconds");
  require(run.step_seconds.mean > 0.0, "'", file, "': step_seconds of ", run.folder,
          " = 0; expected more than 0");
  run.step_seconds.is_known = fields.has("step_seconds_95");
  if (run.step_seconds.is_known) run.step_seconds.half_width = fields.number("step_seconds_95");
  run.tokens_per_second = fields.number("tokens_per_second");
  run.tokens_per_second_per_rank = fields.number("tokens_per_second_per_rank");
  run.mfu = fields.number("mfu");
  run.mfu_uncertain = fields.flag("mfu_uncertain");
  run.peak_bytes = fields.integer("peak_bytes");
  run.traced_steps = fields.integer("traced_steps", 1);
  run.shares = read(fields.object("shares"), named_shares);
  require(run.shares.compute > 0.0, "'", file, "': shares.compute of ", run.folder,
          " = 0; expected more than 0");
  run.factors = read(fields.object("factors"), named_factors);
  fields.each("outliers",
              [&](const Fields& outlier) { run.outliers.push_back(read_outlier(outlier)); });
  return run;
}

std::string path_in(const std::string& folder) {
  return (std::filesystem::path(folder) / "collected.json").string();
}

}  // namespace

std::string collected_csv(const Collected& collected) {
  std::string csv =
      "run,ranks,hosts,steps,step_seconds,step_seconds_95,tokens_per_second,"
      "tokens_per_second_per_rank,mfu,peak_bytes,traced_steps";
  for (const NamedShare& share : named_shares) csv += text(",share_", share.key);
  for (const NamedFactor& factor : named_factors) csv += text(",factor_", factor.key);
  csv += ",outlier_steps\n";
  for (const CollectedRun& run : collected.runs) {
    csv += text(run.folder, ",", run.ranks, ",", run.hosts, ",", run.steps, ",",
                run.step_seconds.mean, ",");
    if (run.step_seconds.is_known) csv += text(run.step_seconds.half_width);
    csv += text(",", run.tokens_per_second, ",", run.tokens_per_second_per_rank, ",", run.mfu, ",",
                run.peak_bytes, ",", run.traced_steps);
    for (const NamedShare& share : named_shares) csv += text(",", run.shares.*share.value);
    for (const NamedFactor& factor : named_factors) csv += text(",", run.factors.*factor.value);
    csv += ",";
    for (std::size_t i = 0; i < run.outliers.size(); ++i)
      csv += text(i == 0 ? "" : ";", run.outliers[i].step);
    csv += "\n";
  }
  return csv;
}

void write_collected(const std::string& study_folder, const Collected& collected) {
  Json json = {{"format", format},
               {"format_version", format_version},
               {"study", study_json(collected.study)},
               {"runs", Json::array()},
               {"missing", Json::array()}};
  for (const CollectedRun& run : collected.runs) json["runs"].push_back(json_of(run));
  for (const MissingRun& run : collected.missing)
    json["missing"].push_back({{"run", run.folder}, {"reason", run.reason}});
  const std::vector<ScalingPoint> points = scaling_points(collected);
  json["points"] = points_json(points);
  json["remarks"] = describe_remarks(collected, points);
  json["outlier_steps"] = describe_outliers(collected);
  replace_file(path_in(study_folder),
               json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

Collected read_collected(const std::string& study_folder) {
  const std::string file = path_in(study_folder);
  require(!is_missing(file), "'", file,
          "' does not exist; expected it from ostrakon-scale collect ", study_folder);
  const nlohmann::json json =
      checkpoint::read_json_object(file, "runs of a study", most_file_bytes);
  const Fields fields(json, file);
  fields.require_format(format, format_version);
  Collected collected;
  fields.object("study");
  collected.study = read_study(json["study"], file);
  fields.each("runs", [&](const Fields& run) { collected.runs.push_back(read_run(run, file)); });
  require(!collected.runs.empty(), "'", file, "': runs is empty; expected one at least");
  fields.each("missing", [&](const Fields& run) {
    collected.missing.push_back({run.text("run"), run.text("reason")});
  });
  return collected;
}

}  // namespace ostrakon::scaling
