// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>
#include <ostrakon/plan/ir/policy.hpp>
#include <ostrakon/plan/ir/tasks.hpp>
#include <ostrakon/plan/passes/builder.hpp>
#include <ostrakon/plan/passes/gathers.hpp>
#include <vector>

namespace ostrakon::plan {

/// Gathers parameters before each task that reads them, ahead of time as GatherOrder says, and
/// releases them afterwards: all, none, or all but a part.
class GatherPass {
 public:
  /// Throws Error where rules for units match no unit of the model, or a limit is below what one
  /// task needs.
  GatherPass(Builder& builder, const Policy& policy, const Tasks& tasks);

  void before(const Task& task);
  void after(const Task& task);

  /// The buffer in which the current task reads the parameters of a unit.
  int parameters(int u) const {
    return units_[u].gathered >= 0 ? units_[u].gathered : builder_.state(u).compute();
  }

 private:
  /// Buffers of a unit's parameters; -1: none.
  struct Unit {
    int parts = 0;            ///< number of parts of which one is kept after forward
    int gathered = -1;        ///< -1 while released
    int kept = -1;            ///< part kept after forward
    std::vector<int> on_way;  ///< copies that the parameters are gathered from
  };

  std::array<int, 2> needs_of(const Task& task) const;
  std::vector<Visit> list_visits(const Tasks& tasks) const;
  void gather(int u);
  void release(int u, GatherOrder::End end);

  Builder& builder_;
  const std::vector<bool> checkpointed_;  // one per unit
  std::unique_ptr<GatherOrder> order_;    // null where nothing is gathered
  int visit_ = 0;                         // the next visit, or the current one
  std::vector<Unit> units_;
};

}  // namespace ostrakon::plan
