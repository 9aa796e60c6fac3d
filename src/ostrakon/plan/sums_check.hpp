// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <ostrakon/plan/reduction_tree.hpp>
#include <ostrakon/plan/step_plan.hpp>
#include <ostrakon/plan/sum_order.hpp>
#include <string>
#include <vector>

namespace ostrakon::plan {

/// Follows what the gradient buffers of a plan are sums of, from backward to the norm: each leaf is
/// in once, summed over one of the plan's spans after the other, by the trees that span_sums says.
/// Uses of a unit's parameters, its own and that by a unit that is tied to it, are added in
/// backward or, last of all, as sums over all leaves.
class SumsCheck {
 public:
  explicit SumsCheck(const StepPlan& plan);

  /// The next action, which wrong_communication accepts. What is wrong with it, or "".
  std::string wrong(const Action& action);

 private:
  /// What a buffer holds: gradients of a unit, summed over some of the leaves.
  struct Sum {
    int unit = -1;           ///< -1: no gradients
    unsigned uses = 0;       ///< a bit for each use of its parameters
    TreeNode micro_batches;  ///< of this rank, or of those that it is summed with
    std::size_t spans = 0;   ///< of its unit's, all over which it is summed
  };

  std::string wrong_backward(const Action& action);
  std::string wrong_reduce_scatter(const Action& action);
  std::string wrong_sum(const Action& action, std::size_t span);
  std::string wrong_accumulate(const Action& action);
  std::string wrong_norm(const Action& action) const;
  void set(int buffer, Sum sum);

  const StepPlan& plan_;
  std::vector<std::vector<SpanSum>> spans_;  // of each unit
  std::vector<unsigned> uses_;               // of each unit: those of which there are gradients
  std::vector<Sum> sums_;                    // of each buffer
};

}  // namespace ostrakon::plan
