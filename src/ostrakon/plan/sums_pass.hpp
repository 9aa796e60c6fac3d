// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/plan/builder.hpp>
#include <ostrakon/plan/tasks.hpp>

namespace ostrakon::plan {

/// The step's sums over leaves and gradients: the loss, the norm, what is not finite. They are on
/// the device, and on the host where it updates. Those on the device are copied to the host, where
/// `clip` adds both up over the ranks. Where units are updated before it, `reduce_sums` does, so
/// that they travel meanwhile. It waits for all that is added, and for all that a rank reads, as
/// that may fail: for the norm of the unit that is complete last, or for compute where a stage
/// updates none before. Of a rank's streams only `host` communicates with all ranks.
class SumsPass {
 public:
  SumsPass(Builder& builder, const Tasks& tasks);

  /// Begins the sums; clips.
  void on(const Task& task);

  /// Adds the squares of a unit's summed gradient, where that is.
  void add_norm(int u);
  /// Lets an action of a stream that has not waited for `clip` do so. Of a plan with Work::share.
  void follow_clip(Action& action);
  /// Ends what such an action waits for.
  void finish();

 private:
  void begin();
  void copy();
  void reduce();
  void clip();
  Action& add_over_ranks(Kind kind);
  void look_for_origin(Action& clip);
  void make_host_sums();

  Builder& builder_;
  const bool updates_early_;
  const bool updates_on_host_;
  const bool reduces_apart_;  ///< from `clip`
  const bool travel_;         ///< while units are updated
  const bool are_waited_for_;
  int norms_to_come_ = 0;
  bool owes_gradients_ = false;  ///< to the stage that updates the parameters
  int copied_ = -1;              ///< from the device
  int host_sums_ = -1;
};

}  // namespace ostrakon::plan
