// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/runtime/overlap.hpp>
#include <ostrakon/train/peak_rate.hpp>
#include <string>

namespace ostrakon::train {

/// Adds up where the time of the steps of this process went, for the lines at the end of a run.
class UsageSummary {
 public:
  /// The peak rate of a rank, before the first step.
  void set_peak(const PeakRate& peak) { peak_ = peak; }
  PeakRate& peak() { return *peak_; }

  /// A step: its seconds, the most over ranks, and what overlapped with compute on this rank.
  void add(double seconds, const runtime::OverlapTimes& overlap);

  /// A step whose updates were made before its sums were known: whether they were undone, and then
  /// repeated, as the gradient had to be clipped, or not, as the step was skipped.
  void add_optimistic(bool repeated, bool skipped);

  /// A line on how often that happened; empty without such steps.
  std::string describe_optimistic() const;

  /// A line each on communication, copies and work of the host, where there were some: seconds of a
  /// step on each rank, means over ranks and the steps of this process, and the share that
  /// overlapped with compute. Collective; the same on all ranks.
  std::string describe_overlap(comm::Communicator& world) const;

  /// A line on the peak rate, and the share of it that all steps had; empty without any. A run that
  /// is long enough, or whose steps were faster than the peak, measures it once more with
  /// `measure`: what was measured at start was perhaps disturbed. `flops`: of a step on each rank.
  /// Collective where `measure` is.
  std::string describe_peak(double flops, const std::function<double()>& measure);

  /// Lines of base/figure.hpp for the mean step of this process: step_seconds, tokens_per_second,
  /// tokens_per_second_per_rank, mfu. The first step, which warms up, counts only where it is the
  /// only one; without steps there are no lines. `tokens`: of a step on all `ranks`; `flops`: of a
  /// step on each rank.
  std::string figures(double tokens, int ranks, double flops);

 private:
  std::optional<PeakRate> peak_;
  std::int64_t steps_ = 0;
  double seconds_ = 0.0;
  double first_seconds_ = 0.0;  // of the first step
  runtime::OverlapTimes overlap_;
  std::int64_t optimistic_ = 0, repeated_ = 0, skipped_ = 0;  // steps
};

}  // namespace ostrakon::train
