// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/plan/ir/tasks.hpp>
#include <ostrakon/plan/passes/builder.hpp>

namespace ostrakon::plan {

/// Adds up the step's sums over leaves and gradients: the loss, the norm, the number of nonfinite
/// values. There are sums on the device, and on the host if it updates. Those on the device are
/// copied to the host, where `clip` adds both up over the ranks. If units are updated before
/// `clip`, `reduce_sums` adds them up instead, overlapped with the updates. It waits for all
/// addends and for all that a rank reads, as reading may fail: for the norm of the unit that is
/// complete last, or for compute where a stage updates none before. Of a rank's streams only `host`
/// communicates with all ranks.
class SumsPass {
 public:
  SumsPass(Builder& builder, const Tasks& tasks);

  /// Begins the sums for Work::begin, adds them up for Work::clip.
  void on(const Task& task);

  /// Adds the squares of a unit's summed gradient, in the memory where that is.
  void add_norm(int u);
  /// Makes an action of a stream that has not waited for `clip` wait for it. For plans with
  /// Work::share.
  void follow_clip(Action& action);
  /// Ends the buffers that such actions wait for.
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
  const bool reduces_apart_;  ///< whether reduce_sums is apart from `clip`
  const bool travel_;         ///< whether sums are added up over ranks while units are updated
  const bool are_waited_for_;
  int norms_to_come_ = 0;
  bool sends_tied_gradients_ = false;  ///< whether it has to send gradients to the stage that
                                       ///< updates the parameters
  int copied_ = -1;                    ///< copy of the device's sums
  int host_sums_ = -1;
};

}  // namespace ostrakon::plan
