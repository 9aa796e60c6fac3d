// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/train/console.hpp>
#include <ostrakon/train/metrics.hpp>
#include <ostrakon/train/run_folder.hpp>
#include <ostrakon/train/trace_recorder.hpp>
#include <ostrakon/train/trainer.hpp>
#include <ostrakon/train/usage_summary.hpp>
#include <string>

namespace ostrakon::train {

/// Counts what is allocated from one step's end to the next.
class AllocationCounter {
 public:
  AllocationCounter() { take(); }
  /// Allocations since the last call, or since the counter was made.
  std::int64_t take();

 private:
  std::int64_t before_ = 0;
};

/// Ends a run whose steps change nothing any more. With fp16 gradients overflow now and then, and
/// the loss scale is lowered: such steps do not show that parameters are ruined.
class SkippedSteps {
 public:
  static constexpr std::int64_t most = 100;        ///< in a row
  static constexpr std::int64_t least_ruined = 3;  ///< last steps: see problem()

  /// In a row, up to the last step.
  std::int64_t in_a_row() const { return in_a_row_; }
  /// As a checkpoint says. `overflowed`: as StepResult, of the last of them.
  void restore(std::int64_t in_a_row, bool overflowed);
  /// Notes a step: `why` its update was skipped, or empty. Throws AgreedError where it is one too
  /// many; to be called with the same on all ranks.
  void note(std::int64_t step, const std::string& why, bool overflowed = false);

  /// What is wrong with a run that ends after step `last`; empty where its parameters were updated
  /// of late.
  std::string problem(std::int64_t last) const;

 private:
  std::int64_t in_a_row_ = 0, not_overflowed_ = 0;
  std::string why_;  // the last one was skipped
};

/// Records what steps do: rows of metrics.jsonl, lines on the console, trace.json, and sums for the
/// end of the run.
class StepRecorder {
 public:
  StepRecorder(const config::Settings& settings, Trainer& trainer, comm::Communicator& world,
               RunFolder& folder, Console& console);

  TraceRecorder& trace() { return trace_; }
  UsageSummary& usage() { return usage_; }
  SkippedSteps& skipped() { return skipped_; }

  /// Takes the peak rate that MFU is a share of: runtime.peak_gflops or, where that is 0, what is
  /// measured now: see Trainer::measure_peak_flops. Collective.
  void find_peak();
  /// Before the first step of this process.
  void begin(std::int64_t first_step);
  /// A step that the trainer has just done, in `seconds` on this rank. Collective; throws
  /// AgreedError where output can't be written, replicas differ, or too many steps in a row have
  /// changed nothing.
  void record(std::int64_t step, const StepResult& result, double seconds);
  /// A validation. Collective; throws AgreedError.
  void record(const ValidationMetrics& metrics);

 private:
  StepMetrics measure(std::int64_t step, const StepResult& result, double seconds);

  const config::Settings& settings_;
  Trainer& trainer_;
  comm::Communicator& world_;
  RunFolder& folder_;
  Console& console_;
  AllocationCounter allocations_;
  TraceRecorder trace_;
  UsageSummary usage_;
  SkippedSteps skipped_;
  bool trace_waits_ = false;  // and the user was told
};

}  // namespace ostrakon::train
