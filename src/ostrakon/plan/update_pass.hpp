// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <ostrakon/plan/builder.hpp>
#include <ostrakon/plan/policy.hpp>
#include <ostrakon/plan/sums_pass.hpp>
#include <ostrakon/plan/tasks.hpp>
#include <utility>
#include <vector>

namespace ostrakon::plan {

/// Updates parameters: brings gradients, and masters, to where a rank updates them, and what is
/// updated to where it is computed with. What later updates need is in flight meanwhile.
class UpdatePass {
 public:
  UpdatePass(Builder& builder, const Policy& policy, const Tasks& tasks, bool updates_early,
             SumsPass& sums);

  void on(const Task& task);
  /// After the last task.
  void finish();

 private:
  /// A unit whose update has begun.
  struct Update {
    int gradients = -1;  ///< of all that this rank updates, where it updates
    int masters = -1;    ///< there too
    std::vector<int> ended;
  };

  void begin(int u);
  void end(int u);
  void orthogonalize(int u, Update& update);
  int optimize(int u, Update& update);
  void spread(int u, int fresh, Update& update);
  void finish(std::size_t most);
  Stream stream() const;

  Builder& builder_;
  SumsPass& sums_;
  const Layouts& layouts_;
  const std::size_t ahead_;  // updates that have begun while one ends
  std::size_t behind_;       // updates that compute has not waited for yet
  std::vector<int> units_;   // in the order of their updates
  std::size_t begun_ = 0, ended_ = 0;
  std::deque<Update> updates_;  // begun
  std::deque<std::pair<int, std::vector<int>>> ended_updates_;
};

}  // namespace ostrakon::plan
