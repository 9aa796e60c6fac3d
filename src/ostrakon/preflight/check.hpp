// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <ostrakon/base/facts.hpp>
#include <string>
#include <vector>

// What a check of the ranks is made of. Each rank measures and gives an Answer; a judge, a pure
// function of the answers of all ranks, says what is wrong and where. So judges are tested with
// tables of any number of ranks.

namespace ostrakon::preflight {

/// What one rank gives for one check.
struct Answer {
  /// Rates by name, in SI units: more is better. A rate that is missing was not measured here.
  std::map<std::string, double> rates;
  Facts facts;

  /// The fact of that name; "" where there is none.
  std::string fact(const std::string& name) const;
};

/// The answers of all ranks, by rank, and the host of each.
struct Table {
  std::vector<std::string> hosts;
  std::vector<Answer> answers;

  int ranks() const { return static_cast<int>(hosts.size()); }
};

/// Something that is wrong with ranks of one host, or between two.
struct Finding {
  std::string check;               ///< name of the check
  std::string what;                ///< what is wrong, and how far off it is
  std::vector<int> ranks;          ///< ascending
  std::vector<std::string> hosts;  ///< of these ranks, each once; a host file leaves them out
  std::string advice;
  bool is_fault = true;  ///< else something to know
};
using Findings = std::vector<Finding>;

/// Adds findings to others.
void append(Findings& all, const Findings& more);

struct Check {
  std::string name;
  /// Measures on this rank. All ranks call it at the same time. Throws nothing that is due to a
  /// fault it looks for: that is a fact.
  std::function<Answer()> measure;
  std::function<Findings(const Table&)> judge;
  /// Whether other work on the machine may look like a fault: what is found is measured again, and
  /// the best rates count.
  bool may_vary = false;
  std::string unit = "";  ///< of its rates, for people; empty: they are not shown
  double scale = 1e-9;    ///< what a rate is multiplied by to have that unit
};

/// What two measurements of a rank say together: the better rates, and all facts. A fact that has
/// changed meanwhile has both values.
Answer best_of(const Answer& one, const Answer& other);

/// pack() returns an answer as text to send between processes, unpack() reads it. Throws Error for
/// text of another form.
std::string pack(const Answer& answer);
Answer unpack(const std::string& packed);

}  // namespace ostrakon::preflight
