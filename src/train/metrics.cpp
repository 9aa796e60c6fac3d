// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/train/metrics.hpp>

namespace ostrakon::train {

using Row = nlohmann::ordered_json;

namespace {

/// The rows up to a step. A line that is none, such as one that was cut off, ends them.
std::string rows_up_to(const std::string& path, std::int64_t last) {
  std::string rows;
  std::ifstream stream(path);
  for (std::string line; last > 0 && std::getline(stream, line);) {
    const Row row = Row::parse(line, nullptr, false);
    if (!row.is_object() || !row.contains("step") || !row["step"].is_number_integer() ||
        row["step"].get<std::int64_t>() > last)
      break;
    rows += line + "\n";
  }
  return rows;
}

}  // namespace

MetricsFile::MetricsFile(const std::string& path, std::int64_t keep) : path_(path) {
  // In its place only when it is whole: who is interrupted here loses no rows.
  const std::string kept = rows_up_to(path, keep);
  if (!kept.empty()) {
    const std::string partial = path + ".partial";
    std::ofstream stream(partial);
    stream << kept;
    stream.close();
    require(stream.good(), partial, ": can't be written: ", std::strerror(errno));
    sync_file(partial);
    rename_file(partial, path);
  }
  stream_.open(path, kept.empty() ? std::ios::trunc : std::ios::app);
  require(stream_.is_open(), path, ": can't be written: ", std::strerror(errno));
}

void MetricsFile::write(const StepMetrics& metrics) {
  Row row = {{"step", metrics.step},
             {"loss", metrics.loss},
             {"grad_norm", metrics.grad_norm},
             {"learning_rate", metrics.learning_rate},
             {"tokens", metrics.tokens},
             {"step_seconds", metrics.step_seconds},
             {"tokens_per_second", metrics.tokens_per_second},
             {"mfu", metrics.mfu},
             {"planned_peak_bytes", metrics.planned_peak_bytes},
             {"peak_bytes", metrics.peak_bytes},
             {"allocations", metrics.allocations},
             {"resident_bytes", metrics.resident_bytes}};
  if (metrics.mfu_uncertain) row["mfu_uncertain"] = true;
  if (metrics.loss_scale) row["loss_scale"] = *metrics.loss_scale;
  if (!metrics.skipped.empty()) row["skipped"] = metrics.skipped;
  if (metrics.state_digest) row["state_digest"] = format_hex(*metrics.state_digest);
  write_line(row.dump());
}

void MetricsFile::write(const ValidationMetrics& metrics) {
  Row row = {{"step", metrics.step}, {"validation_loss", metrics.validation_loss}};
  if (metrics.bits_per_byte) row["bits_per_byte"] = *metrics.bits_per_byte;
  write_line(row.dump());
}

void MetricsFile::write_line(const std::string& line) {
  stream_ << line << std::endl;
  require(stream_.good(), path_, ": can't be written: ", std::strerror(errno));
}

}  // namespace ostrakon::train
