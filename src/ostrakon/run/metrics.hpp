// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <ostrakon/base/files/append_file.hpp>
#include <ostrakon/run/rank_times.hpp>
#include <ostrakon/run/stragglers.hpp>
#include <ostrakon/trainer/handlers/step_context.hpp>
#include <string>
#include <utility>
#include <vector>

namespace ostrakon::train {

/// What DPO tells of a batch's pairs of answers: means over them. A reward is beta times the
/// log-ratio of math::PairOutput.
struct PairRewards {
  double chosen = 0.0, rejected = 0.0;
  double accuracy = 0.0;  ///< share of pairs whose chosen answer has the larger reward

  PairRewards(const PairMeans& means, double beta)
      : chosen(beta * means.chosen_log_ratio),
        rejected(beta * means.rejected_log_ratio),
        accuracy(means.preferred) {}
  double margin() const { return chosen - rejected; }
};

/// One row of metrics.jsonl.
struct StepMetrics {
  std::int64_t step = 0;
  StepResult result;
  std::optional<PairRewards> rewards;  ///< with training.objective = dpo
  std::int64_t tokens = 0;             ///< seen since step 1, including this step
  double step_seconds = 0.0;
  /// How many tokens of this step count in the loss; none: all of them do.
  std::optional<std::int64_t> counted_tokens;
  double tokens_per_second = 0.0;            ///< all ranks together
  double mfu = 0.0;                          ///< model flops per second over the ranks' peak
  bool mfu_uncertain = false;                ///< whether mfu is an upper bound: see PeakRate
  std::int64_t planned_peak_bytes = 0;       ///< per rank
  std::int64_t peak_bytes = 0;               ///< as counted, on the rank with the most
  std::int64_t allocations = 0;              ///< made during this step, on the rank with the most
  std::int64_t resident_bytes = 0;           ///< maximum so far, on the rank with the most
  std::vector<std::int64_t> source_samples;  ///< of a mixture: taken of each source since step 1
  std::optional<std::uint64_t> state_digest;
  std::vector<RankTimes> rank_times;  ///< of each rank, where they are due
  std::int64_t rank_times_steps = 0;  ///< how many steps these are means over
  std::vector<Straggler> late;        ///< of these
};

/// A row of metrics.jsonl after a validation.
struct ValidationMetrics {
  std::int64_t step = 0;
  double validation_loss = 0.0;               ///< nats per token
  std::optional<double> ema_validation_loss;  ///< of the averages of parameters
  /// How many tokens count in the loss; none: all of them do.
  std::optional<std::int64_t> counted_tokens;
  std::optional<double> bits_per_byte;  ///< if all count and the data has the lengths of tokens
  std::optional<PairRewards> rewards;   ///< with training.objective = dpo
};

/// Numbers that are found of something, by name.
using EvaluationScores = std::vector<std::pair<std::string, double>>;

/// A row of metrics.jsonl after answers to questions.
struct EvaluationMetrics {
  std::int64_t step = 0;
  std::vector<std::pair<std::string, EvaluationScores>> found;  ///< by file
};

/// Appends rows to a file, each written at once, so that a run can be watched and nothing is lost
/// if it is killed. Rows that can't be written because the disk is full wait in memory for the next
/// try; the file has whole rows only. One rank writes, from any thread.
class MetricsFile {
 public:
  /// Appends to a file, after removing its rows of steps after `last`: see truncate_metrics_after.
  /// Throws Error, naming the path and the reason, where it can't be read or written; no row is
  /// lost then.
  explicit MetricsFile(const std::string& path, std::int64_t last = 0);

  struct Waiting {
    std::size_t rows = 0;
    std::string why;  ///< the path and the reason; empty if no rows wait
  };
  /// Adds a row, and returns what flush() does.
  Waiting write(const StepMetrics& metrics);
  Waiting write(const ValidationMetrics& metrics);
  Waiting write(const EvaluationMetrics& metrics);
  /// Tries to write waiting rows; returns those that still wait.
  Waiting flush();
  /// To be called after the last row: throws Error where not all rows are on the disk. They wait
  /// then, and a later call tries again.
  void close();

 private:
  Waiting add(std::string row);

  std::mutex mutex_;  // held while rows are added or written
  AppendFile file_;
  std::deque<std::string> rows_;  // waiting rows
};

/// Renames an earlier run's file, "a/metrics.jsonl", to "a/metrics.previous.jsonl", or
/// "a/metrics.previous-2.jsonl" and so on if that name is taken. Returns the new name; empty if
/// there is no such file, or it is empty. Throws Error.
std::string rename_previous_metrics(const std::string& path);

}  // namespace ostrakon::train
