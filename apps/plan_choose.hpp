// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>
#include <ostrakon/tune/choose.hpp>
#include <string>
#include <vector>

namespace ostrakon::apps {

/// What a command line of `ostrakon-plan --choose` says besides what is chosen.
struct ChooseLine {
  std::string deck;
  std::vector<std::string> place;     ///< options: ranks, machine or rates
  std::vector<std::string> settings;  ///< SECTION.KEY=VALUE
  std::string output;                 ///< deck that is written; empty: none
};

/// What `ostrakon-plan --choose` shows.
void show_choice(const tune::Result& choice, const tune::Request& request, const ChooseLine& line,
                 bool json, std::ostream& out);

/// The deck with what was chosen, as it is written to `line.output`.
std::string chosen_deck(const tune::Result& choice, const tune::Request& request,
                        const ChooseLine& line);

}  // namespace ostrakon::apps
