// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <ostrakon/plan/builder.hpp>
#include <ostrakon/plan/policy.hpp>
#include <ostrakon/plan/reduction_pass.hpp>
#include <ostrakon/plan/tasks.hpp>
#include <utility>
#include <vector>

namespace ostrakon::plan {

/// Updates parameters: brings gradients, and masters, to where a rank updates them, and what is
/// updated to where it is computed with. What later updates need is in flight meanwhile.
///
/// An update before `clip` keeps what it replaces, and brings nothing anywhere before it is
/// verified: undoing it is then a matter of this rank alone.
class UpdatePass {
 public:
  UpdatePass(Builder& builder, const Policy& policy, const Tasks& tasks, ReductionPass& reductions);

  void on(const Task& task);
  /// After the last task.
  void finish();

 private:
  /// A unit whose update has begun.
  struct Update {
    int gradients = -1;  ///< of all that this rank updates, where it updates
    int masters = -1;    ///< there too
    int converted = -1;  ///< what is updated, in the compute dtype; -1: that are the masters
    int replaced = -1;   ///< what it replaces, until it is verified
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
  const std::size_t ahead_;           // updates that have begun while one ends
  std::size_t behind_;                // updates that compute has not waited for yet
  std::vector<int> units_;            // in the order of their updates
  std::size_t before_clip_ = 0;       // of these, how many are updated before `clip`
  bool is_clipped_ = false;           // `clip` is written
  std::map<int, Update> unverified_;  // by unit
  std::size_t begun_ = 0, ended_ = 0;
  std::deque<Update> updates_;  // begun
  std::deque<std::pair<int, std::vector<int>>> ended_updates_;
};

}  // namespace ostrakon::plan
