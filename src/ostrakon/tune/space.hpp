// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/config/assignment.hpp>
#include <ostrakon/config/settings.hpp>
#include <set>
#include <string>
#include <vector>

namespace ostrakon::tune {

/// Settings that are varied together, independently of all others.
struct Dimension {
  config::Choices choices;    ///< the first: as the deck says
  bool divides_work = false;  ///< whether they say what ranks compute together
};

/// What may be chosen so that a step is fast, and changes no bit of its result unless that is asked
/// for.
struct Space {
  std::vector<Dimension> dimensions;
  std::vector<std::string> left_out;  ///< what is not varied as it would change bits, and why
};

/// What is varied of a deck.
struct Freedom {
  int ranks = 1, ranks_per_node = 1;
  std::set<std::string> kept;  ///< keys, "parallel.tensor", that stay as the deck says
  /// Whether all that decides in which order gradients are summed stays as the deck says.
  bool keeps_sums = false;
  bool offloads = false;  ///< also what is in host memory
  /// Also what rounds otherwise: other dtypes, and any number of samples at once.
  bool any_precision = false;
};

Space make_space(const config::Settings& deck, const Freedom& freedom);

/// Keys that are varied, in the order of decks.
const std::vector<const config::Varied*>& varied_keys();

}  // namespace ostrakon::tune
