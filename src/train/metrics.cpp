// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/train/metrics.hpp>

namespace ostrakon::train {

using Row = nlohmann::ordered_json;

MetricsFile::MetricsFile(const std::string& path) : path_(path), stream_(path) {
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
