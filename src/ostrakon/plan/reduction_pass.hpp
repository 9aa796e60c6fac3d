// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <deque>
#include <map>
#include <ostrakon/plan/builder.hpp>
#include <ostrakon/plan/parameter_uses.hpp>
#include <ostrakon/plan/policy.hpp>
#include <ostrakon/plan/reduction_tree.hpp>
#include <ostrakon/plan/sum_order.hpp>
#include <ostrakon/plan/sums_pass.hpp>
#include <ostrakon/plan/tape.hpp>
#include <ostrakon/plan/tasks.hpp>
#include <utility>
#include <vector>

namespace ostrakon::plan {

/// Sums gradients over leaves, one span after the other as sum_order.hpp says: over ranks by
/// reduce-scatter, over the micro-batches of a rank by a tree whose partial sums wait where updates
/// need them, or by reduce-scatters that add to the sum over the micro-batches before. A gradient
/// of several addends (parameter_uses.hpp) is that of each, and then their sum.
class ReductionPass {
 public:
  ReductionPass(Builder& builder, const Policy& policy, SumsPass& sums);

  /// What happens to the gradients that a unit's backward has completed for a micro-batch. When all
  /// is computed, waits for those that are under way.
  void on(const Task& task, Tape& tape);
  /// Lets compute wait for the sum of a unit's gradients, and no other: once all turns are done.
  void complete(int u);

 private:
  /// One micro-batch's gradients of a unit, of one addend, while they are summed.
  struct Reduction {
    int unit = -1;
    int addend = 0;
    int micro_batch = -1;
    int sum = -1;  ///< the buffer that holds what is summed so far; -1: it waits in another sum for
                   ///< later micro-batches, or for another addend
    int staging = -1;                 ///< of the ranks that were summed last
    Spans divided;                    ///< what the sum is divided over
    Stream stream = Stream::compute;  ///< of what was done last
    std::vector<int> ended;           ///< buffers that end when compute has waited for the rest
  };

  /// An addend's sums over micro-batches.
  struct Addend {
    std::map<TreeNode, int> partial;  ///< that wait for others
    /// Where reduce-scatters add to it: the sum over all micro-batches so far, in a buffer where
    /// updates need it; -1: none.
    int so_far = -1;
  };
  struct UnitSums {
    std::array<Addend, most_addends> addends;
    int to_come = 1;  ///< addends that are not complete yet
    int sum = -1;     ///< of those that are
  };

  void reduce(Reduction& reduction);
  void leave_compute(Reduction& reduction, Stream stream);
  void bring_to(Space space, Reduction& reduction);
  void reduce_scatter(Reduction& reduction, const SpanSum& sum);
  int sum_so_far(Reduction& reduction);
  void keep_so_far(Reduction& reduction);
  void fold(Reduction& reduction, int tree);
  void add_to(int other, Reduction& reduction);
  void join_addends(Reduction& reduction);
  void finish(const Reduction& reduction);
  void bring_together(int u);
  void finish_sends();
  bool is_borrowed(int u) const { return builder_.state(u).borrowed_from >= 0; }
  Addend& addend_of(const Reduction& reduction);
  void finish_reductions(std::size_t most);
  void finish_on_host(std::size_t most);

  Builder& builder_;
  SumsPass& sums_;
  const int in_flight_;
  const Space update_space_;
  std::vector<std::vector<SpanSum>> spans_;  // of each unit: summed over, one after the other
  std::vector<UnitSums> unit_sums_;
  /// Under way, the oldest first: of each, what one backward has completed.
  std::deque<std::vector<Reduction>> reductions_;
  std::vector<bool> together_;  // each unit: what another stage has of its sum has been sent here
  std::vector<std::pair<int, int>> sends_;  // units, and the sums that are sent to other stages
  // What compute has still to wait for, by unit.
  std::deque<std::pair<int, std::vector<int>>> ended_on_host_;
};

}  // namespace ostrakon::plan
