// SPDX-License-Identifier: Apache-2.0
// list_plans DECKS
//   prints hashes of the canonical listings of some thousand plans, as in listings.txt.
// list_plans DECKS FIRST
//   prints the listings of the run of plans whose first plan has that name: to compare two versions
//   of the planner with diff.

#include <Kokkos_Core.hpp>
#include <iostream>

#include "plan/listing.hpp"

int main(int argc, char** argv) {
  using namespace ostrakon::tests;
  if (argc < 2 || argc > 3) {
    std::cerr << "usage: list_plans DECKS [FIRST]\n";
    return 1;
  }
  const Kokkos::ScopeGuard kokkos(argc, argv);
  const std::vector<ListedPlan> plans = listed_plans(argv[1]);
  if (argc == 2) {
    for (const std::string& line : listing_hashes(plans)) std::cout << line << "\n";
    return 0;
  }
  for (std::size_t first = 0; first < plans.size(); first += plans_a_line) {
    if (plans[first].name != argv[2]) continue;
    for (std::size_t p = first; p < std::min(first + plans_a_line, plans.size()); ++p)
      std::cout << "# " << plans[p].name << "\n" << listing(plans[p]);
    return 0;
  }
  std::cerr << "no run of plans begins with '" << argv[2] << "'; see listings.txt\n";
  return 1;
}
