// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/plan/builder.hpp>
#include <ostrakon/plan/tasks.hpp>

namespace ostrakon::plan {

/// The step's sums over leaves and gradients: the loss, the norm, what is not finite. They are on
/// the device, and on the host where it updates; `clip` adds both up over the ranks.
class SumsPass {
 public:
  SumsPass(Builder& builder, bool updates_early);

  /// Begins the sums; clips.
  void on(const Task& task);

  /// Adds the squares of a unit's summed gradient, where that is.
  void add_norm(int u);
  /// Lets an action on the host wait until it is known how the step went.
  void follow_clip(Action& action);
  /// Ends what an update may have waited for.
  void finish();

 private:
  void begin();
  void clip();
  int make_host_sums();

  Builder& builder_;
  const bool updates_early_;
  const bool updates_on_host_;
  int host_sums_ = -1;
};

}  // namespace ostrakon::plan
