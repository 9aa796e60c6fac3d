// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <ostrakon/config/timing.hpp>
#include <ostrakon/train/console.hpp>
#include <ostrakon/train/orders.hpp>
#include <ostrakon/train/saver.hpp>
#include <string>

namespace ostrakon::train {

/// When a run saves, what it says of it, and what becomes of a save that fails: the run outlives
/// it, as long as it does not depend on it. Methods are collective, with the same arguments on all
/// ranks, but for seconds_to_save().
class SavePolicy {
 public:
  /// Calls Saver::begin with the state of the run. `overlapped`: while steps continue.
  using Begin = std::function<void(bool overlapped)>;

  /// `every`: steps between checkpoints; 0: only those that are asked for. `ranks`: of the world.
  SavePolicy(Saver& saver, Console& console, config::Timers& timers, std::int64_t every, int ranks);

  /// There is a checkpoint of this step already: none is saved again.
  void note_saved(std::int64_t step) { saved_step_ = step; }

  /// Saves where that is due or requested, overlapped with the next steps where there is a staging
  /// copy of the state; else advances the save before, where no rank works on it. Throws
  /// AgreedError where a run that stops has no checkpoint of its last step.
  void after_step(const StepEnd& end, const Orders& orders, const Begin& begin);
  /// Waits for the save in progress.
  void finish();
  /// Throws AgreedError where the last save failed: the exit status then says that a requested
  /// checkpoint is not there.
  void require_saved() const;

  /// Seconds that are still needed to have a checkpoint of a step to come: the longest save so far,
  /// or a guess, for that and for the one in progress.
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
  std::int64_t saved_step_ = -1;  // of the newest checkpoint
  std::string failure_;           // why the last one failed
  double longest_ = 0.0;          // seconds that this rank was at work on one
};

}  // namespace ostrakon::train
