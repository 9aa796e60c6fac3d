// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>

namespace ostrakon::train {

/// One row of metrics.jsonl.
struct StepMetrics {
  std::int64_t step = 0;
  double loss = 0.0;       ///< nats per token
  double grad_norm = 0.0;  ///< before clipping
  double learning_rate = 0.0;
  std::int64_t tokens = 0;  ///< seen since step 1, with this step
  double step_seconds = 0.0;
  double tokens_per_second = 0.0;       ///< all ranks together
  double mfu = 0.0;                     ///< model flops per second over the ranks' peak
  bool mfu_uncertain = false;           ///< mfu is an upper bound: see PeakRate
  std::int64_t planned_peak_bytes = 0;  ///< of a rank
  std::int64_t peak_bytes = 0;          ///< as counted, of the rank with most
  std::int64_t allocations = 0;         ///< made during this step, of the rank with most
  std::int64_t resident_bytes = 0;      ///< most so far, of the rank with most
  std::optional<double> loss_scale;     ///< where gradients are scaled: of this step
  std::string skipped;                  ///< why the update was left out; empty where it was not
  std::optional<std::uint64_t> state_digest;
};

/// A row of metrics.jsonl after a validation.
struct ValidationMetrics {
  std::int64_t step = 0;
  double validation_loss = 0.0;         ///< nats per token
  std::optional<double> bits_per_byte;  ///< where the data tells how long its tokens are
};

/// Appends rows to a file, each flushed at once, so that a run can be watched and nothing is lost
/// when it is killed. One rank writes.
class MetricsFile {
 public:
  /// Replaces the file, but for its rows up to step `keep`. Throws Error where it can't be written.
  explicit MetricsFile(const std::string& path, std::int64_t keep = 0);
  void write(const StepMetrics& metrics);
  void write(const ValidationMetrics& metrics);

 private:
  void write_line(const std::string& line);
  std::string path_;
  std::ofstream stream_;
};

}  // namespace ostrakon::train
