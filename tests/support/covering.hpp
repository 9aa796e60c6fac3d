// SPDX-License-Identifier: Apache-2.0
#pragma once

// Selects a few rows of a table of choices that cover all pairs of choices.

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
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

/// A choice for each of some factors, by their names.
class NamedRow {
 public:
  using Names = std::shared_ptr<const std::vector<std::string>>;
  NamedRow(Names names, Choices row) : names_(std::move(names)), choices_(std::move(row)) {}

  int operator[](const char* factor) const {
    const auto at = std::find(names_->begin(), names_->end(), factor);
    if (at == names_->end()) throw std::out_of_range(factor);
    return choices_[static_cast<std::size_t>(at - names_->begin())];
  }
  /// Calls act(choice), if there is such a factor.
  template <class Act>
  void apply(const char* factor, const Act& act) const {
    if (std::count(names_->begin(), names_->end(), factor) > 0) act((*this)[factor]);
  }
  std::string text() const {
    std::string all;
    for (std::size_t f = 0; f < choices_.size(); ++f)
      all += (f > 0 ? ", " : "") + (*names_)[f] + " " + std::to_string(choices_[f]);
    return all;
  }

 private:
  Names names_;
  Choices choices_;
};

/// Returns covering rows of factors that are listed with their numbers of choices, as in
/// "sharding 4, offload 2".
inline std::vector<NamedRow> covering_rows(
    const std::string& factors, const std::function<bool(const NamedRow&)>& is_valid = nullptr) {
  const auto names = std::make_shared<std::vector<std::string>>();
  std::vector<int> choices_of;
  std::istringstream list(factors);
  for (std::string factor; std::getline(list >> std::ws, factor, ',');) {
    const std::size_t blank = factor.find(' ');
    names->push_back(factor.substr(0, blank));
    choices_of.push_back(std::stoi(factor.substr(blank)));
  }
  std::vector<NamedRow> rows;
  for (Choices& row : covering_rows(choices_of, [&](const Choices& chosen) {
         return !is_valid || is_valid({names, chosen});
       }))
    rows.emplace_back(names, std::move(row));
  return rows;
}

}  // namespace ostrakon::tests
