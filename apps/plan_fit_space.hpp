// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <exception>
#include <map>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/plan/description.hpp>
#include <ostrakon/plan/fit.hpp>
#include <set>
#include <string>
#include <vector>

#include "plan_fit_keys.hpp"
#include "plan_fit_request.hpp"
#include "plan_ranks.hpp"

namespace ostrakon::apps::fit {

/// All settings to choose from, as candidates of plans.
class Space {
 public:
  /// Both must outlive it. Throws Error where no settings fit these ranks.
  Space(const config::Settings& deck, const FitRequest& request);

  const config::Settings& deck() const { return deck_; }
  const std::vector<plan::Candidate>& candidates() const { return candidates_; }
  Throughput throughput_of(const plan::Fit& fit) const;
  /// SECTION.KEY=VALUE of all that a candidate has otherwise than the deck.
  std::vector<std::string> changes(int candidate) const;

 private:
  Choices overlaps_of(config::Settings settings);
  void add(config::Settings settings);
  /// Returns one number for all that differ only in overlap, or in what is on the host: the most
  /// wanted come first, as the last axes are the fastest.
  int family(config::Settings settings);
  const plan::ModelDescription& model(const config::Settings& settings);

  const config::Settings& deck_;
  const FitRequest& request_;
  std::vector<plan::Candidate> candidates_;
  std::vector<config::Settings> settings_;  // of each candidate, before it is placed on ranks
  std::set<std::string> seen_;
  std::map<std::string, int> families_;
  std::map<std::string, plan::ModelDescription> models_;
  std::exception_ptr error_;  // the first
};

}  // namespace ostrakon::apps::fit
