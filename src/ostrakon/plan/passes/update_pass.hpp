// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <ostrakon/plan/ir/policy.hpp>
#include <ostrakon/plan/ir/tasks.hpp>
#include <ostrakon/plan/passes/builder.hpp>
#include <ostrakon/plan/passes/reduction_pass.hpp>
#include <utility>
#include <vector>

namespace ostrakon::plan {

/// Updates parameters: brings gradients and masters to where a rank updates them, and the updated
/// parameters to where units compute with them. Transfers for later updates overlap with this one.
/// An update before `clip` keeps the values that it replaces, and sends nothing before it is
/// verified, so that a rank can undo it alone.
class UpdatePass {
 public:
  UpdatePass(Builder& builder, const Policy& policy, const Tasks& tasks, ReductionPass& reductions);

  void on(const Task& task);
  /// To be called after the last task.
  void finish();

 private:
  /// A unit whose update has begun.
  struct Update {
    int gradients = -1;  ///< gradients of all that this rank updates, where it updates them
    int masters = -1;    ///< masters, where this rank updates them
    int converted = -1;  ///< updated parameters in the compute dtype; -1: the masters have it
    int replaced = -1;   ///< replaced values, kept until the update is verified
    std::vector<int> ended;

    int fresh() const { return converted >= 0 ? converted : masters; }
  };

  void begin(int u);
  void end(int u, Update update);
  void verify(int u);
  void orthogonalize(int u, Update& update);
  void optimize(int u, Update& update);
  void emit(Kind kind, int u, const Update& update);
  void spread(int u, Update& update);
  bool is_optimistic() const { return layouts_.updates_optimistically && !is_clipped_; }
  std::size_t ahead() const;
  void finish(std::size_t most);
  Stream stream() const;

  Builder& builder_;
  ReductionPass& reductions_;
  const Layouts& layouts_;
  const std::size_t ahead_;           // how many updates have begun while one ends
  std::size_t behind_;                // how many updates compute has not waited for yet
  std::vector<int> units_;            // in the order of their updates
  std::size_t before_clip_ = 0;       // how many of units_ are updated before `clip`
  bool is_clipped_ = false;           // whether `clip` is in the plan already
  std::map<int, Update> unverified_;  // keyed by unit
  std::size_t begun_ = 0, ended_ = 0;
  std::deque<Update> updates_;  // updates that have begun and not ended
  std::deque<std::pair<int, std::vector<int>>> ended_updates_;
};

}  // namespace ostrakon::plan
