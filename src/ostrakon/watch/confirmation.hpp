// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <ostrakon/watch/judge.hpp>
#include <utility>
#include <vector>

namespace ostrakon::watch {

/// Finds what holds in records that all ranks made after it was first found.
class Confirmation {
 public:
  /// Returns the findings of a round that are confirmed, in order: those that are sure, and those
  /// of a kind and ranks that were found in each round since one that all ranks have heard of.
  /// `members`: those they are about.
  std::vector<Finding> confirmed(const std::vector<Finding>& found,
                                 const std::vector<Member>& members, std::int32_t round);

 private:
  /// The first of the rounds in which each was found without a break.
  std::map<std::pair<Finding::Kind, int>, std::int32_t> first_rounds_;
};

/// Which notices are given: one in 10 s, and one in a minute of a kind about a rank.
class Notices {
 public:
  /// Returns the first of some findings for which it is time at `now`, in seconds, and takes it as
  /// given.
  std::optional<Finding> next(const std::vector<Finding>& found, double now);

 private:
  std::map<std::pair<Finding::Kind, int>, double> given_;  // when
  double last_ = -1e9;
};

}  // namespace ostrakon::watch
