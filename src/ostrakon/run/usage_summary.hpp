// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/config/timing.hpp>
#include <ostrakon/runtime/overlap.hpp>
#include <ostrakon/trainer/peak_rate.hpp>
#include <ostrakon/trainer/trainer.hpp>
#include <string>

namespace ostrakon::train {

/// Adds up how the time of this process's steps was used, for the lines at the end of a run.
class UsageSummary {
 public:
  /// Sets the peak rate of a rank; to be called before the first step.
  void set_peak(const PeakRate& peak) { peak_ = peak; }
  PeakRate& peak() { return *peak_; }

  /// Adds a step: its seconds, the maximum over ranks, and what overlapped with compute on this
  /// rank.
  void add(double seconds, const runtime::OverlapTimes& overlap);

  /// Adds a step with optimistic updates. `repeated`: they were undone and repeated, as the
  /// gradient had to be clipped. `skipped`: they were undone, as the step was skipped.
  void add_optimistic(bool repeated, bool skipped);

  /// A line on how often updates were undone; empty without such steps.
  std::string describe_optimistic() const;

  /// A line each on communication, copies and work of the host, if there were any: seconds per step
  /// and rank, as means over ranks and this process's steps, and the share that overlapped with
  /// compute. Collective; the same on all ranks.
  std::string describe_overlap(comm::Communicator& world) const;

  /// A line on the peak rate, and the share of it that all steps reached; empty without any. After
  /// a long run, or if steps were faster than the peak, it is measured once more with `measure`, as
  /// the measurement at start may have been disturbed. `flops`: of a step on each rank. Collective
  /// if `measure` is.
  std::string describe_peak(double flops, const std::function<double()>& measure);

  /// Lines of base/format.hpp for the mean step of this process: step_seconds, tokens_per_second,
  /// tokens_per_second_per_rank, mfu. The first step, which warms up, counts only if it is the only
  /// one; without steps there are no lines. `tokens`: of a step on all `ranks`; `flops`: of a step
  /// on each rank.
  std::string figures(double tokens, int ranks, double flops);

 private:
  std::optional<PeakRate> peak_;
  std::int64_t steps_ = 0;
  double seconds_ = 0.0;
  double first_seconds_ = 0.0;  // seconds of the first step
  runtime::OverlapTimes overlap_;
  std::int64_t optimistic_ = 0, repeated_ = 0, skipped_ = 0;  // number of steps
};

/// Returns the text at the end of a run: overlap with compute, peak rate, memory, the lines of
/// UsageSummary::figures, and a table of times. `tokens`: of a step. May measure the peak rate
/// again, for which it overwrites the trainer's arena. Collective; the text is rank 0's.
std::string describe_end(config::Timers& timers, Trainer& trainer, UsageSummary& usage,
                         mesh::Mesh& mesh, std::int64_t tokens);

}  // namespace ostrakon::train
