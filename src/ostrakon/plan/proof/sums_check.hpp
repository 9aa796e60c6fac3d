// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <ostrakon/plan/ir/reduction_tree.hpp>
#include <ostrakon/plan/ir/step_plan.hpp>
#include <ostrakon/plan/ir/sum_order.hpp>
#include <string>
#include <vector>

namespace ostrakon::plan {

/// Checks the sums in the gradient buffers of a plan, from backward to the norm: each leaf is in
/// once, summed over one of the plan's spans after the other, by the trees that span_sums says. The
/// gradients of a unit's own use of its parameters, and of a tied unit's, are added in backward or,
/// last of all, as sums over all leaves.
class SumsCheck {
 public:
  explicit SumsCheck(const StepPlan& plan);

  /// Takes the next action, which wrong_communication accepts. Returns what is wrong with it, or
  /// "".
  std::string wrong(const Action& action);

 private:
  /// Content of a buffer: gradients of a unit, summed over some of the leaves.
  struct Sum {
    int unit = -1;           ///< -1: no gradients
    unsigned uses = 0;       ///< a bit for each use of the unit's parameters
    TreeNode micro_batches;  ///< micro-batches of this rank, or of the ranks that it is summed with
    std::size_t spans = 0;   ///< number of its unit's spans over which it is summed
  };

  std::string wrong_backward(const Action& action);
  bool join(Sum& leaf, const Sum& before, AddsTo to) const;
  std::string begin_again(const Action& action);
  std::string wrong_reduce_scatter(const Action& action);
  std::string wrong_sum(const Action& action, std::size_t span);
  std::string wrong_accumulate(const Action& action);
  std::string wrong_norm(const Action& action) const;
  void set(int buffer, Sum sum);

  const StepPlan& plan_;
  std::vector<std::vector<SpanSum>> spans_;  // one list per unit
  std::vector<unsigned> uses_;               // per unit: the uses that have gradients
  std::vector<Sum> sums_;                    // one per buffer
};

}  // namespace ostrakon::plan
