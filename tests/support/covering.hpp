// SPDX-License-Identifier: Apache-2.0
#pragma once

// Selects a few rows of a table of choices that cover all pairs of choices.

#include <cstddef>
#include <functional>
#include <random>
#include <set>
#include <tuple>
#include <vector>

namespace ostrakon::tests {

/// The index of one choice per factor.
using Choices = std::vector<int>;

/// Returns valid rows that cover every two choices of different factors that can be in one row;
/// factor f has choices 0 to choices_of[f] - 1. The method is greedy: of many random rows it takes
/// the one with the most new pairs, and repeats (D. Cohen et al., "The AETG system", 1997). The
/// result is the same on every rank.
inline std::vector<Choices> covering_rows(const std::vector<int>& choices_of,
                                          const std::function<bool(const Choices&)>& is_valid) {
  using Pair = std::tuple<int, int, int, int>;  // factor, choice, factor, choice
  const int factors = static_cast<int>(choices_of.size());
  std::mt19937 random(1);
  const auto any = [&] {
    Choices row;
    for (int most : choices_of)
      row.push_back(static_cast<int>(random() % static_cast<unsigned>(most)));
    return row;
  };
  const auto pairs_of = [factors](const Choices& row) {
    std::vector<Pair> pairs;
    for (int f = 0; f < factors; ++f)
      for (int g = f + 1; g < factors; ++g) pairs.emplace_back(f, row[f], g, row[g]);
    return pairs;
  };
  // So many random rows contain every possible pair.
  std::set<Pair> left;
  for (int i = 0; i < 20000; ++i) {
    const Choices row = any();
    if (!is_valid(row)) continue;
    const std::vector<Pair> pairs = pairs_of(row);
    left.insert(pairs.begin(), pairs.end());
  }
  std::vector<Choices> chosen;
  while (!left.empty()) {
    Choices best;
    std::size_t most = 0;
    for (int i = 0; i < 200 || most == 0; ++i) {
      Choices row = any();
      const auto [f, a, g, b] = *left.begin();
      row[f] = a;
      row[g] = b;
      if (!is_valid(row)) continue;
      std::size_t fresh = 0;
      for (const Pair& pair : pairs_of(row)) fresh += left.count(pair);
      if (fresh > most) {
        most = fresh;
        best = row;
      }
    }
    for (const Pair& pair : pairs_of(best)) left.erase(pair);
    chosen.push_back(best);
  }
  return chosen;
}

}  // namespace ostrakon::tests
