// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/scaling/factors.hpp>

#include <algorithm>

namespace ostrakon::scaling {
namespace {

/// Returns part / whole; 1 if both are 0.
double ratio(double part, double whole) { return whole > 0.0 ? part / whole : 1.0; }

}  // namespace

void ShareSums::add(const std::vector<RankParts>& ranks) {
  const auto longest = std::max_element(ranks.begin(), ranks.end(),
                                        [](const RankParts& one, const RankParts& other) {
                                          return one.of(Part::compute) < other.of(Part::compute);
                                        });
  double mean = 0.0;
  for (const RankParts& rank : ranks)
    mean += rank.of(Part::compute) / static_cast<double>(ranks.size());
  sums_.compute += mean;
  sums_.imbalance += longest->of(Part::compute) - mean;
  sums_.communication += longest->of(Part::communication);
  sums_.host += longest->of(Part::host);
  sums_.copies += longest->of(Part::copies);
  sums_.waiting += longest->of(Part::waiting);
  ++steps_;
}

Shares ShareSums::shares() const {
  const double all = sums_.compute + sums_.imbalance + sums_.communication + sums_.host +
                     sums_.copies + sums_.waiting;
  return {sums_.compute / all, sums_.imbalance / all, sums_.communication / all,
          sums_.host / all,    sums_.copies / all,    sums_.waiting / all};
}

Factors factors_of(const Shares& shares, double tokens_per_rank, double step_seconds) {
  const double longest = shares.compute + shares.imbalance;
  const double with_waiting = longest + shares.waiting;
  const double with_copies = with_waiting + shares.copies;
  const double with_host = with_copies + shares.host;
  const double all = with_host + shares.communication;
  Factors factors;
  factors.compute_rate = tokens_per_rank / (shares.compute / all * step_seconds);
  factors.balance = ratio(shares.compute, longest);
  factors.overlap = ratio(with_host, all);
  factors.host = ratio(with_copies, with_host);
  factors.copies = ratio(with_waiting, with_copies);
  factors.bubbles = ratio(longest, with_waiting);
  return factors;
}

Factors relative(const Factors& factors, const Factors& base) {
  return {factors.compute_rate / base.compute_rate,
          factors.balance / base.balance,
          factors.overlap / base.overlap,
          factors.host / base.host,
          factors.copies / base.copies,
          factors.bubbles / base.bubbles};
}

double product(const Factors& factors) {
  return factors.compute_rate * factors.balance * factors.overlap * factors.host * factors.copies *
         factors.bubbles;
}

}  // namespace ostrakon::scaling
