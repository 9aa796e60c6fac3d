// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/run/metrics.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/files/free_name.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/saving/truncate_metrics.hpp>
#include <utility>

namespace ostrakon::train {

using Row = nlohmann::ordered_json;

namespace {

/// Rounds to four decimals, which are enough to see imbalance.
double rounded(double share) { return std::round(share * 1e4) / 1e4; }

/// Returns {"max": 1.5, "layers": [[0.5, 1.5], [0.75, 1.25]]}.
Row row_of(const std::vector<ExpertLoad>& loads) {
  double most = 0.0;
  Row layers = Row::array();
  for (const ExpertLoad& load : loads) {
    most = std::max(most, load.most);
    layers.push_back({rounded(load.least), rounded(load.most)});
  }
  return {{"max", rounded(most)}, {"layers", layers}};
}

/// Returns {"max": 3, "layers": [[1, 0], [3, 0.25]]}.
Row row_of(const std::vector<ExpertRoundsTaken>& rounds) {
  std::int64_t most = 1;
  Row layers = Row::array();
  for (const ExpertRoundsTaken& taken : rounds) {
    most = std::max(most, taken.most);
    layers.push_back({taken.most, rounded(taken.share_of_more)});
  }
  return {{"max", most}, {"layers", layers}};
}

/// Rounds to four significant digits, or to microseconds where these are fewer.
double short_seconds(double seconds) {
  const double exponent = std::floor(std::log10(std::clamp(seconds, 1e-3, 1e3)));
  const double scale = std::pow(10.0, 3.0 - exponent);
  return std::round(seconds * scale) / scale;
}

/// Returns {"steps": 50, "step": [0.3, 0.3], "compute": [0.2, 0.21], ..., "late": [...]}.
Row row_of(const std::vector<RankTimes>& ranks, std::int64_t steps,
           const std::vector<Straggler>& late) {
  Row row = {{"steps", steps}, {"step", Row::array()}};
  for (const RankTimes& times : ranks) {
    row["step"].push_back(short_seconds(times.step));
    for (const Named<Part>& part : part_names)
      row[part.name].push_back(short_seconds(times[part.value]));
  }
  for (const Straggler& one : late)
    row["late"].push_back({{"rank", one.rank},
                           {"part", name(one.part)},
                           {"seconds", short_seconds(one.seconds)},
                           {"median", short_seconds(one.median)},
                           {"share", rounded(one.share)}});
  return row;
}

void add_rewards(const std::optional<PairRewards>& rewards, Row& row) {
  if (!rewards) return;
  row["reward_chosen"] = rewards->chosen;
  row["reward_rejected"] = rewards->rejected;
  row["reward_margin"] = rewards->margin();
  row["reward_accuracy"] = rewards->accuracy;
}

/// Returns the path of a file after its rows of steps after `last` were removed.
const std::string& cut(const std::string& path, std::int64_t last) {
  if (is_plain_file(path)) truncate_metrics_after(path, last);
  return path;
}

}  // namespace

MetricsFile::MetricsFile(const std::string& path, std::int64_t last) : file_(cut(path, last)) {}

MetricsFile::Waiting MetricsFile::write(const StepMetrics& metrics) {
  const StepResult& result = metrics.result;
  Row row = {{"step", metrics.step},
             {"loss", result.loss},
             {"grad_norm", result.grad_norm},
             {"learning_rate", result.learning_rate},
             {"tokens", metrics.tokens},
             {"step_seconds", metrics.step_seconds},
             {"tokens_per_second", metrics.tokens_per_second},
             {"mfu", metrics.mfu},
             {"planned_peak_bytes", metrics.planned_peak_bytes},
             {"peak_bytes", metrics.peak_bytes},
             {"allocations", metrics.allocations},
             {"resident_bytes", metrics.resident_bytes}};
  if (metrics.counted_tokens) row["counted_tokens"] = *metrics.counted_tokens;
  if (result.multi_token_loss) row["multi_token_loss"] = *result.multi_token_loss;
  add_rewards(metrics.rewards, row);
  if (metrics.mfu_uncertain) row["mfu_uncertain"] = true;
  if (result.loss_scale != 1.0) row["loss_scale"] = result.loss_scale;
  if (!result.skipped.empty()) row["skipped"] = result.skipped;
  if (result.update_repeated) row["update_repeated"] = true;
  if (result.audited) row["audited"] = true;
  if (!result.audit_finding.empty()) row["audit_finding"] = result.audit_finding;
  if (!result.expert_load.empty()) row["expert_load"] = row_of(result.expert_load);
  if (!result.expert_rounds.empty()) row["expert_rounds"] = row_of(result.expert_rounds);
  if (!metrics.source_samples.empty()) row["source_samples"] = metrics.source_samples;
  if (metrics.state_digest) row["state_digest"] = format_hex(*metrics.state_digest);
  if (!metrics.rank_times.empty())
    row["rank_seconds"] = row_of(metrics.rank_times, metrics.rank_times_steps, metrics.late);
  return add(row.dump() + "\n");
}

MetricsFile::Waiting MetricsFile::write(const ValidationMetrics& metrics) {
  Row row = {{"step", metrics.step}, {"validation_loss", metrics.validation_loss}};
  if (metrics.ema_validation_loss) row["ema_validation_loss"] = *metrics.ema_validation_loss;
  if (metrics.counted_tokens) row["counted_tokens"] = *metrics.counted_tokens;
  if (metrics.bits_per_byte) row["bits_per_byte"] = *metrics.bits_per_byte;
  add_rewards(metrics.rewards, row);
  return add(row.dump() + "\n");
}

MetricsFile::Waiting MetricsFile::write(const EvaluationMetrics& metrics) {
  Row row = {{"step", metrics.step}};
  for (const auto& [file, findings] : metrics.found)
    for (const auto& [what, value] : findings) row["evaluation"][file][what] = value;
  return add(row.dump(-1, ' ', false, Row::error_handler_t::replace) + "\n");
}

MetricsFile::Waiting MetricsFile::add(std::string row) {
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    rows_.push_back(std::move(row));
  }
  return flush();
}

MetricsFile::Waiting MetricsFile::flush() {
  const std::lock_guard<std::mutex> guard(mutex_);
  try {
    for (; !rows_.empty(); rows_.pop_front()) file_.append(rows_.front());
  } catch (const Error& error) {
    return {rows_.size(), error.what()};
  }
  return {};
}

void MetricsFile::close() {
  const Waiting waiting = flush();
  require(waiting.rows == 0, waiting.why, "; its last ",
          waiting.rows == 1 ? "row is missing" : text(waiting.rows, " rows are missing"));
  file_.close();
}

std::string rename_previous_metrics(const std::string& path) {
  namespace fs = std::filesystem;
  if (!is_plain_file(path)) return "";
  std::error_code problem;
  const bool is_empty = fs::file_size(path, problem) == 0;
  require(!problem, "can't look at '", path, "': ", problem.message());
  if (is_empty) return "";
  const fs::path from = path;
  const std::string start = (from.parent_path() / from.stem()).string() + ".previous";
  const std::string to = free_name(start, from.extension().string());
  rename_file(path, to);
  return to;
}

}  // namespace ostrakon::train
