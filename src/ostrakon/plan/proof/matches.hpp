// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <ostrakon/plan/ir/rank_classes.hpp>
#include <string>
#include <vector>

namespace ostrakon::plan {

/// An action of a class of ranks.
struct ActionOfClass {
  int of_class = 0;
  int action = 0;

  friend bool operator==(ActionOfClass a, ActionOfClass b) {
    return a.of_class == b.of_class && a.action == b.action;
  }
};

/// Actions that happen at the same time or not at all: a send and its receive, or a collective on
/// all ranks of a group.
using Match = std::vector<ActionOfClass>;

/// Throws std::logic_error: plans do not fit together, with this reason.
[[noreturn]] void refuse_ranks(const std::string& reason);

/// Returns "stage 1's send(block.3, micro-batch 0, to stage 2)".
std::string describe(const RankClasses& classes, ActionOfClass place);

/// Matches actions between classes by the order in which each class submits them: the k-th send
/// from one to another with the k-th receive there, and the k-th collectives on a stream of all
/// classes of a group. Collectives among ranks of one class are skipped, as they always match.
/// Throws std::logic_error where matches differ, or an action has no match.
std::vector<Match> find_matches(const RankClasses& classes);

}  // namespace ostrakon::plan
