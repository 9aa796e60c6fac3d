// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/generate/sampler.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <ostrakon/base/error.hpp>

namespace ostrakon::train {
namespace {

/// Returns a number that is the smaller, the larger a finite logit is.
std::uint32_t sort_key(float logit) {
  const float number = logit + 0.0F;  // 0 for -0, which is equal
  std::uint32_t bits = 0;
  std::memcpy(&bits, &number, sizeof bits);
  constexpr std::uint32_t sign = 0x80000000;
  return (bits & sign) != 0 ? bits : ~(bits | sign);
}

/// Returns the ids of all tokens, likeliest first, by a radix sort: ten times as fast as std::sort
/// for 150,000 tokens, which would take as long as a small model's step.
std::vector<std::int32_t> all_by_logit(const std::vector<float>& logits) {
  constexpr unsigned digit_bits = 11;
  constexpr std::uint32_t last_digit = (1U << digit_bits) - 1;
  struct Entry {
    std::uint32_t key;
    std::int32_t token;
  };
  std::vector<Entry> entries(logits.size()), sorted(logits.size());
  for (std::size_t token = 0; token < logits.size(); ++token)
    entries[token] = {sort_key(logits[token]), static_cast<std::int32_t>(token)};
  for (unsigned shift = 0; shift < 32; shift += digit_bits) {
    std::array<std::size_t, last_digit + 2> begins{};
    for (const Entry& entry : entries) ++begins[(entry.key >> shift & last_digit) + 1];
    std::partial_sum(begins.begin(), begins.end(), begins.begin());
    for (const Entry& entry : entries) sorted[begins[entry.key >> shift & last_digit]++] = entry;
    entries.swap(sorted);
  }
  std::vector<std::int32_t> order(logits.size());
  std::transform(entries.begin(), entries.end(), order.begin(),
                 [](const Entry& entry) { return entry.token; });
  return order;
}

/// Returns the ids of the `count` likeliest tokens, in a total order: of equal ones the smaller id
/// is first.
std::vector<std::int32_t> likeliest(const std::vector<float>& logits, std::size_t count) {
  if (count == logits.size()) return all_by_logit(logits);
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto end = order.begin() + static_cast<std::ptrdiff_t>(count);
  std::partial_sort(order.begin(), end, order.end(), [&](std::int32_t a, std::int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  order.erase(end, order.end());
  return order;
}

double sum_of_weights(const std::vector<Candidate>& candidates) {
  double sum = 0.0;
  for (const Candidate& candidate : candidates) sum += candidate.weight;
  return sum;
}

/// Keeps only tokens for which the probabilities of those before them sum to less than top_p.
void keep_nucleus(std::vector<Candidate>& candidates, double top_p) {
  if (top_p >= 1.0) return;  // rounding must not drop the last ones
  const double wanted = top_p * sum_of_weights(candidates);
  double before = 0.0;
  std::size_t kept = 0;
  while (kept < candidates.size() && (kept == 0 || before < wanted))
    before += candidates[kept++].weight;
  candidates.resize(kept);
}

/// Keeps only tokens that are at least min_p times as likely as the likeliest one.
void keep_likely(std::vector<Candidate>& candidates, double min_p) {
  std::size_t kept = 1;
  while (kept < candidates.size() && candidates[kept].weight >= min_p) ++kept;
  candidates.resize(kept);
}

}  // namespace

std::vector<float> penalized(const std::vector<float>& logits, double penalty,
                             const std::vector<std::int32_t>& seen) {
  const auto factor = static_cast<float>(penalty);
  std::vector<float> result = logits;
  for (const std::int32_t token : seen) {
    const float logit = logits[static_cast<std::size_t>(token)];
    result[static_cast<std::size_t>(token)] = logit < 0.0F ? logit * factor : logit / factor;
  }
  return result;
}

std::vector<Candidate> candidates(const std::vector<float>& logits,
                                  const SamplingSettings& sampling) {
  // Logits that are not finite have no order, so there would be no likeliest token.
  for (std::size_t token = 0; token < logits.size(); ++token)
    require(std::isfinite(logits[token]), "the model's logit of token ", token, " is ",
            logits[token], "; expected finite numbers: its weights are not finite or too large");
  if (sampling.temperature <= 0.0) return {{likeliest(logits, 1).front(), 1.0}};
  std::size_t count = logits.size();
  if (sampling.top_k > 0) count = std::min(count, static_cast<std::size_t>(sampling.top_k));
  const std::vector<std::int32_t> order = likeliest(logits, count);
  std::vector<Candidate> result;
  result.reserve(count);
  for (const std::int32_t token : order)
    result.push_back(
        {token, std::exp((logits[token] - logits[order.front()]) / sampling.temperature)});
  keep_nucleus(result, sampling.top_p);
  keep_likely(result, sampling.min_p);
  return result;
}

std::int32_t draw(const std::vector<float>& logits, const SamplingSettings& sampling,
                  double uniform) {
  const std::vector<Candidate> choices = candidates(logits, sampling);
  double rest = uniform * sum_of_weights(choices);
  for (const Candidate& choice : choices)
    if ((rest -= choice.weight) < 0.0) return choice.token;
  return choices.back().token;
}

}  // namespace ostrakon::train
