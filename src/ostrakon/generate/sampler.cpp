// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/generate/sampler.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <ostrakon/base/error.hpp>

namespace ostrakon::train {
namespace {

/// Returns the ids of the `count` likeliest tokens, in a total order: ties do not depend on the
/// library.
std::vector<std::int32_t> likeliest(const std::vector<float>& logits, std::size_t count) {
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto end = order.begin() + static_cast<std::ptrdiff_t>(count);
  const auto comes_before = [&](std::int32_t a, std::int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  };
  if (end == order.end())
    std::sort(order.begin(), end, comes_before);  // faster than partial_sort if all are wanted
  else
    std::partial_sort(order.begin(), end, order.end(), comes_before);
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
