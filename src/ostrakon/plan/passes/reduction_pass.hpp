// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <deque>
#include <map>
#include <ostrakon/plan/ir/parameter_uses.hpp>
#include <ostrakon/plan/ir/policy.hpp>
#include <ostrakon/plan/ir/reduction_tree.hpp>
#include <ostrakon/plan/ir/sum_order.hpp>
#include <ostrakon/plan/ir/tasks.hpp>
#include <ostrakon/plan/passes/builder.hpp>
#include <ostrakon/plan/passes/sums_pass.hpp>
#include <ostrakon/plan/passes/tape.hpp>
#include <utility>
#include <vector>

namespace ostrakon::plan {

/// Sums gradients over leaves, one span after the other as sum_order.hpp says: over ranks by
/// reduce-scatter; over the micro-batches of a rank by a tree, whose partial sums wait in the
/// memory where updates need them, or by reduce-scatters that add to the sum over the micro-batches
/// before. If a gradient has several addends (parameter_uses.hpp), each is summed so, and then they
/// are added.
class ReductionPass {
 public:
  ReductionPass(Builder& builder, const Policy& policy, SumsPass& sums);

  /// Returns the buffer of the partial sum to which the gradients of a unit and micro-batch come
  /// next, if it waits for them where backward can add them (AddsTo::partial_sum); else -1. From
  /// then on the sum counts as one that has them.
  int take_partial_sum(int u, int addend, int micro_batch);
  /// Reduces the gradients that a unit's backward has completed for a micro-batch. At Work::clip,
  /// waits for the reductions that are under way.
  void on(const Task& task, Tape& tape);
  /// Makes compute wait for the sum of a unit's gradients, and no other: once all turns are done.
  void complete(int u);

 private:
  /// Gradients of a unit's addend for one micro-batch, while they are summed.
  struct Reduction {
    int unit = -1;
    int addend = 0;
    int micro_batch = -1;
    int sum = -1;      ///< the buffer of the sum so far; -1: it waits in another sum for later
                       ///< micro-batches, or for another addend
    int staging = -1;  ///< staging of the last reduce-scatter
    Spans divided;     ///< spans that the sum is divided over
    Stream stream = Stream::compute;  ///< stream of the last action
    std::vector<int> ended;           ///< buffers that end when compute has waited for the rest
  };

  /// Sums of an addend over micro-batches.
  struct Addend {
    std::map<TreeNode, int> partial;  ///< partial sums that wait for others
    /// By micro-batch: the node that its gradients and the sum they are added to are of.
    std::map<int, TreeNode> added_in_backward;
    /// The sum over all micro-batches so far, if reduce-scatters add to it, in a buffer in the
    /// memory where updates need it; -1: none.
    int so_far = -1;
  };
  struct UnitSums {
    std::array<Addend, most_addends> addends;
    int to_come = 1;  ///< number of addends that are not complete yet
    int sum = -1;     ///< sum of the complete addends
  };

  void reduce(Reduction& reduction);
  void leave_compute(Reduction& reduction, Stream stream);
  void bring_to(Space space, Reduction& reduction);
  void reduce_scatter(Reduction& reduction, const SpanSum& sum);
  int sum_so_far(Reduction& reduction);
  void keep_so_far(Reduction& reduction);
  void fold(Reduction& reduction, int tree);
  void add_to(int other, Reduction& reduction);
  void add_addends(Reduction& reduction);
  void finish(const Reduction& reduction);
  void reduce_across_stages(int u);
  void finish_sends();
  bool is_borrowed(int u) const { return builder_.state(u).tied_stages.source >= 0; }
  Addend& addend_of(const Reduction& reduction);
  void finish_reductions(std::size_t most);
  void finish_on_host(std::size_t most);

  Builder& builder_;
  SumsPass& sums_;
  const int in_flight_;
  const Space update_space_;
  std::vector<std::vector<SpanSum>> spans_;  // per unit: the spans that are summed over, one after
                                             // the other
  std::vector<UnitSums> unit_sums_;
  /// Reductions under way, the oldest first: an entry has all that one backward has completed.
  std::deque<std::vector<Reduction>> reductions_;
  std::vector<bool> together_;  // per unit: whether the other stage's part of its sum has been sent
                                // here
  std::vector<std::pair<int, int>> sends_;  // units, and the sums that are sent to other stages
  // Buffers that compute has still to wait for, by unit.
  std::deque<std::pair<int, std::vector<int>>> ended_on_host_;
};

}  // namespace ostrakon::plan
