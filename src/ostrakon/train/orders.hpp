// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/train/triggers.hpp>
#include <string>

namespace ostrakon::train {

/// Requests to a run at the end of a step; the same on all ranks, whichever of them received them.
struct Orders {
  bool save = false;          ///< a checkpoint, now
  bool stop = false;          ///< with a checkpoint
  bool at_wall_time = false;  ///< that is why
  bool out_of_time = false;   ///< training.time_limit_minutes is over
  bool is_writing = false;    ///< some rank works on a checkpoint
};

/// The state of a run after a step.
struct StepEnd {
  std::int64_t step = 0;
  bool is_last = false;  ///< of this process
  bool stops = false;    ///< before the last step of training: to be resumed from its checkpoint
};

/// Says how step `step` ends, where training has `steps`.
StepEnd end_of_step(std::int64_t step, std::int64_t steps, const Orders& orders);

/// A line on why a run ends at a step that is not the last one of training; empty otherwise.
std::string describe_early_end(const StepEnd& end, const Orders& orders,
                               const config::TrainingSettings& training);

/// Seconds that it may take to stop with a checkpoint: one more step, what is to be saved by then,
/// and what may go slower than before. `longest_step`: seconds of the longest step so far, with
/// what followed it; `saving`: SavePolicy::seconds_to_save().
double seconds_to_stop(double longest_step, double saving);

/// Collects requests of users, batch systems and the clock: signals, the file checkpoint_now in
/// output.directory, runtime.wall_time and training.time_limit_minutes. The clock is that of rank
/// 0.
class OrderTaker {
 public:
  OrderTaker(const config::Settings& settings, comm::Communicator& world);

  /// Collective. Requests since the last call. `training_seconds`: since training began;
  /// `seconds_to_stop`: see above; `is_writing`: of this rank.
  Orders take(double training_seconds, double seconds_to_stop, bool is_writing);

  /// Collective: whether a signal requests a stop, which stays requested. `has_steps`: whether
  /// there are steps left to skip, the same on all ranks.
  bool wants_stop(bool has_steps);

 private:
  comm::Communicator& world_;
  const bool is_root_;
  const double wall_time_;   // seconds; 0: no limit
  const double time_limit_;  // of training, in seconds; 0: no limit
  Triggers triggers_;
};

}  // namespace ostrakon::train
