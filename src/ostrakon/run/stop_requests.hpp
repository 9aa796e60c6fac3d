// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/saving/signals.hpp>
#include <string>

namespace ostrakon::train {

/// Requests to a run at the end of a step; the same on all ranks, whichever of them received them.
struct Requests {
  bool save = false;          ///< save a checkpoint now
  bool stop = false;          ///< stop with a checkpoint
  bool at_wall_time = false;  ///< stop because of the wall time
  bool out_of_time = false;   ///< training.time_limit_minutes is over
  bool is_writing = false;    ///< some rank is working on a checkpoint
};

/// The state of a run after a step.
struct StepEnd {
  std::int64_t step = 0;
  bool is_last = false;  ///< last step of this process
  bool stops =
      false;  ///< stops before the last step of training: to be resumed from its checkpoint
};

/// Returns how step `step` ends; training has `steps` steps.
StepEnd end_of_step(std::int64_t step, std::int64_t steps, const Requests& requests);

/// Returns why a run ends at a step that is not the last one of training; "" at the last one.
std::string describe_early_end(const StepEnd& end, const Requests& requests,
                               const config::TrainingSettings& training);

/// Estimates the seconds that it takes to stop with a checkpoint: one more step, the save, and a
/// margin. `longest_step`: seconds of the longest step so far, with the work after it; `saving`:
/// SavePolicy::seconds_to_save().
double seconds_to_stop(double longest_step, double saving);

/// Collects requests of users, batch systems and the clock: signals, the file checkpoint_now in
/// output.directory, runtime.wall_time and training.time_limit_minutes. The clock is rank 0's.
class StopRequests {
 public:
  StopRequests(const config::Settings& settings, comm::Communicator& world);

  /// Returns the requests since the last call. `training_seconds`: time since training began;
  /// `seconds_to_stop`: see above; `is_writing`: whether this rank is working on a checkpoint.
  /// Collective.
  Requests take(double training_seconds, double seconds_to_stop, bool is_writing);

  /// Whether a signal requests a stop; the request is not consumed. `has_steps`: whether there are
  /// steps left to skip, the same on all ranks. Collective.
  bool wants_stop(bool has_steps);

 private:
  comm::Communicator& world_;
  const bool is_root_;
  const double wall_time_;   // seconds; 0: no limit
  const double time_limit_;  // limit of training in seconds; 0: no limit
  SignalRequests signals_;
};

}  // namespace ostrakon::train
