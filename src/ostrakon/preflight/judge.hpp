// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/base/middle.hpp>
#include <ostrakon/preflight/check.hpp>
#include <string>
#include <vector>

// Judges: pure functions of a table of all ranks.

namespace ostrakon::preflight {

/// A rate that ranks are compared by.
struct Rate {
  std::string name;    ///< as in Answer::rates
  std::string unit;    ///< for people: "GFLOP/s"
  double scale = 1.0;  ///< what a rate is multiplied by to have that unit
  double floor = 0.15;
  std::string advice;
};
std::string shown(const Rate& rate, double value);

/// Finds ranks whose rate is an outlier: one finding for each host that has some.
Findings judge_rate(const Table& table, const std::string& check, const Rate& rate);

/// Adds a finding, of no rank, if the median of all ranks is below half of what a machine file
/// states; `known`: that rate, 0 where there is none.
void judge_by_machine(const Table& table, const std::string& check, const Rate& rate, double known,
                      Findings& findings);

/// Finds ranks with another value of a fact than most: one finding for each such host and value. Of
/// values that equally many have that of the lowest rank counts. `all_have`: a rank without the
/// fact differs, too.
Findings judge_fact(const Table& table, const std::string& check, const std::string& name,
                    bool all_have, const std::string& advice);
/// Judges all facts that any rank gives.
Findings judge_facts(const Table& table, const std::string& check, bool all_have,
                     const std::string& advice);

/// A fact that is the digest of a computation: "9f0c by cuBLAS", with the kernel.
std::string digest_fact(const std::string& digest, const std::string& kernel);
/// The name of the fact that says how many results of a rank had other bits than its first.
std::string wrong_name(const std::string& name);

/// Finds ranks that compute wrong bits in `name`: those that say that they did, and those whose
/// digest is not that of most ranks with the same kernel. If equally many have each of two digests,
/// all of them are named.
Findings judge_digest(const Table& table, const std::string& check, const std::string& name);

/// The name of the rate of the link from a rank to the one whose number differs in bit `round`.
std::string link_name(int round);

/// Finds pairs of ranks whose link is an outlier among those inside hosts, or among those across
/// hosts; a host most of whose links are is named once. `known_inside`, `known_across`: bytes per
/// second that a machine file states, 0 where there is none: links that are all below half of it
/// are found, too.
Findings judge_links(const Table& table, const std::string& check, double known_inside,
                     double known_across);

}  // namespace ostrakon::preflight
