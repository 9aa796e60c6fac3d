// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/plan/ir/step_plan.hpp>
#include <vector>

namespace ostrakon::plan {

/// Ranks sorted into classes: the ranks of a class run the same plan, and their partners in
/// collectives and messages are of the same classes. So if all begin together, the ranks of a class
/// do the same at the same time, and one of them represents all.
class RankClasses {
 public:
  /// plans[r] is the plan that rank r runs. Throws std::logic_error where plans are for another
  /// number of ranks, for other axes than each other, or for another stage than the rank's; and
  /// where a collective is over ranks that do not divide their axis.
  explicit RankClasses(const std::vector<const StepPlan*>& plans);

  int count() const { return static_cast<int>(ranks_.size()); }
  const StepPlan& plan(int of_class) const { return *plans_[ranks_[of_class]]; }
  /// The classes of the ranks in a span's group, in ascending order, seen from the ranks of a
  /// class.
  std::vector<int> group(int of_class, const Span& span) const;
  /// The class of the ranks with the same place in another stage.
  int peer(int of_class, int stage) const;
  /// "stage 1", or "stage 1 (rank 5)" where its ranks are not all alike.
  std::string describe(int of_class) const;

 private:
  void check() const;
  void find_spans();
  void refine();
  std::vector<int> classes_of_group(int rank, const Span& span) const;
  int peer_rank(int rank, int stage) const;

  const std::vector<const StepPlan*>& plans_;
  const Grid& grid_;
  std::vector<Span> spans_;  // the spans of all collectives
  std::vector<int> class_;   // class of each rank
  std::vector<int> ranks_;   // lowest rank of each class
};

}  // namespace ostrakon::plan
