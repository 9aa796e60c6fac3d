// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/data/dataset.hpp>
#include <ostrakon/run/console.hpp>
#include <ostrakon/run/metrics.hpp>
#include <ostrakon/run/rank_times.hpp>
#include <ostrakon/run/run_folder.hpp>
#include <ostrakon/run/stragglers.hpp>
#include <ostrakon/run/trace_recorder.hpp>
#include <ostrakon/run/usage_summary.hpp>
#include <ostrakon/trainer/trainer.hpp>
#include <string>
#include <vector>

namespace ostrakon::train {

/// Counts allocations from one step's end to the next.
class AllocationCounter {
 public:
  AllocationCounter() { take(); }
  /// Allocations since the last call, or since the counter was made.
  std::int64_t take();

 private:
  std::int64_t before_ = 0;
};

/// Records steps: rows of metrics.jsonl, lines on the console, trace.json, and sums for the end of
/// the run.
class StepRecorder {
 public:
  StepRecorder(const config::Settings& settings, Trainer& trainer, comm::Communicator& world,
               RunFolder& folder, Console& console);

  TraceRecorder& trace() { return trace_; }
  UsageSummary& usage() { return usage_; }

  /// Sets the peak rate for MFU: runtime.peak_gflops or, if that is 0, a measurement: see
  /// Trainer::measure_peak_flops. Collective.
  void find_peak();
  /// To be called before the first step of this process. Collective.
  void begin(std::int64_t first_step);
  /// To be called before each step, once all that follows the one before is done.
  void begin_step() { timer_.begin_step(); }
  /// Records a step that the trainer has just done, in `seconds` on this rank, after which so much
  /// was taken of `sources`. Collective; throws CollectiveError where output can't be written,
  /// replicas differ, or too many steps in a row have changed nothing.
  void record(std::int64_t step, const StepResult& result, double seconds,
              const std::vector<data::SourceUse>& sources = {});
  /// To be called after the last step of this process, which may have come early: looks for ranks
  /// that were late in the steps since the last look, without a row of metrics.jsonl. Collective.
  void end();
  /// Records a validation. Collective; throws CollectiveError.
  void record(const ValidationMetrics& metrics);
  /// Records answers to questions. Collective; throws CollectiveError.
  void record(const EvaluationMetrics& metrics);
  /// Lines on ranks that were late in the steps of this process; empty without any. On rank 0.
  std::string describe_stragglers() const { return stragglers_ ? stragglers_->summary() : ""; }
  /// Closes the trace: see TraceRecorder. On rank 0; throws Error.
  void close_trace();

 private:
  void tell_of_trace();
  StepMetrics measure(std::int64_t step, const StepResult& result, double seconds);
  std::string look_for_stragglers(StepMetrics& metrics);
  std::string close_window(StepMetrics& metrics);

  const config::Settings& settings_;
  Trainer& trainer_;
  comm::Communicator& world_;
  RunFolder& folder_;
  Console& console_;
  AllocationCounter allocations_;
  TraceRecorder trace_;
  UsageSummary usage_;
  RankTimer timer_;
  std::optional<StragglerLog> stragglers_;  // on rank 0
  bool trace_waits_ = false;  // whether the user was told that the trace waits for disk space
};

}  // namespace ostrakon::train
