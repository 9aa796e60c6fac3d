// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <ostrakon/config/timing.hpp>
#include <ostrakon/run/console.hpp>
#include <ostrakon/run/stop_requests.hpp>
#include <ostrakon/saving/saver.hpp>
#include <string>

namespace ostrakon::train {

/// Decides when a run saves, prints messages, and handles failed saves: a run continues after one,
/// unless it depends on it. Methods are collective, with the same arguments on all ranks, except
/// seconds_to_save().
class SavePolicy {
 public:
  /// Calls Saver::begin with the state of the run. `overlapped`: whether steps continue.
  using Begin = std::function<void(bool overlapped)>;

  /// `every`: steps between checkpoints; 0: only requested ones. `ranks`: of the world.
  SavePolicy(Saver& saver, Console& console, config::Timers& timers, std::int64_t every, int ranks);

  /// Notes that there is a checkpoint of this step: it is not saved again.
  void note_saved(std::int64_t step) { saved_step_ = step; }

  /// Saves if that is due or requested, overlapped with the next steps if there is a staging copy
  /// of the state; otherwise advances the save in progress, if no rank is working on it. Throws
  /// CollectiveError where a run that stops has no checkpoint of its last step.
  void after_step(const StepEnd& end, const Requests& requests, const Begin& begin);
  /// Waits for the save in progress.
  void finish();
  /// Throws CollectiveError where the last save failed, so that the exit status tells that a
  /// requested checkpoint is missing.
  void require_saved() const;

  /// Estimates the seconds until a checkpoint of a later step is complete: for that save and the
  /// one in progress, each as long as the longest so far, or a guess.
  double seconds_to_save() const;

 private:
  void save(const StepEnd& end, const Begin& begin);
  void attempt(const std::function<void()>& work);
  void tell(const std::optional<Saver::Saved>& saved);

  Saver& saver_;
  Console& console_;
  config::Timers& timers_;
  const std::int64_t every_;
  const int ranks_;
  std::int64_t saved_step_ = -1;  // step of the newest checkpoint
  std::string failure_;           // why the last save failed
  double longest_ = 0.0;          // longest time that this rank worked on a save, in seconds
};

}  // namespace ostrakon::train
