// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/simulate/kernel_fit.hpp>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

namespace ostrakon::simulate {
namespace {

/// Solves a least-squares problem with coefficients of at least 0: rows of `terms` times
/// coefficients are `values`. It optimizes one coefficient after the other, until none changes.
std::vector<double> fit_positive(const std::vector<std::vector<double>>& terms,
                                 const std::vector<double>& values) {
  const std::size_t unknowns = terms.front().size();
  std::vector<double> scale(unknowns, 0.0);  // makes columns comparable in size
  for (const auto& row : terms)
    for (std::size_t u = 0; u < unknowns; ++u) scale[u] = std::max(scale[u], row[u]);
  std::vector<double> found(unknowns, 0.0);
  std::vector<double> left = values;
  constexpr int most_sweeps = 20000;
  constexpr double least_change = 1e-9;
  double change = 1.0;
  for (int sweep = 0; sweep < most_sweeps && change > least_change; ++sweep) {
    change = 0.0;
    for (std::size_t u = 0; u < unknowns; ++u) {
      if (scale[u] == 0.0) continue;
      double dot = 0.0, square = 0.0;
      for (std::size_t r = 0; r < terms.size(); ++r) {
        const double term = terms[r][u] / scale[u];
        dot += term * left[r];
        square += term * term;
      }
      const double next = std::max(0.0, found[u] + dot / square);
      for (std::size_t r = 0; r < terms.size(); ++r)
        left[r] -= (next - found[u]) * terms[r][u] / scale[u];
      change = std::max(change, std::abs(next - found[u]));
      found[u] = next;
    }
  }
  for (std::size_t u = 0; u < unknowns; ++u) found[u] = scale[u] > 0.0 ? found[u] / scale[u] : 0.0;
  return found;
}

}  // namespace

KernelFit::KernelFit(const std::vector<KernelSample>& samples, double product_width,
                     double attention_width, Launches launches)
    : launches_(launches) {
  widths_.product_width = product_width;
  widths_.attention_width = attention_width;
  fit_passes(samples);
  for (std::size_t p = 0; p < parts; ++p) is_told_[p] = explains_any(samples, p);
}

void KernelFit::take_limits(const std::vector<KernelSample>& samples, const RateLimits& limits) {
  const double rates[parts] = {limits.products, 0.0, limits.row_bytes_per_second};
  // With narrow weights the fit may find a higher rate for wide ones.
  constexpr double beyond = 1.25;
  bool is_changed = true;
  while (is_changed) {  // the remaining time may determine less than before
    is_changed = false;
    // If launch times hide products, they also hide shorter kernels, whose rate is then one of
    // launches.
    if (launches_ == Launches::of_all && limits_[products] > 0.0) is_told_[rows] = false;
    for (const std::size_t p : {products, rows}) {
      const bool is_possible = rates[p] <= 0.0 || coefficients_[2 * p] >= 1.0 / (beyond * rates[p]);
      is_told_[p] = is_told_[p] && is_possible && explains_any(samples, p);
      if (is_told_[p] || limits_[p] > 0.0 || rates[p] <= 0.0) continue;
      limits_[p] = 1.0 / rates[p];
      has_passes_[p] = false;
      if (p == products) widths_.product_width = 0.0;  // not determined either
      is_changed = true;
    }
    if (is_changed) fit_passes(samples);
  }
}

/// Whether the fitted rate of a part explains more of a sample's time than times vary.
bool KernelFit::explains_any(const std::vector<KernelSample>& samples, std::size_t part) const {
  constexpr double variation = 0.01;
  return std::any_of(samples.begin(), samples.end(), [&](const KernelSample& sample) {
    const std::vector<double> amounts = terms(sample);
    const double seconds = coefficients_[2 * part] * amounts[2 * part] +
                           coefficients_[2 * part + 1] * amounts[2 * part + 1];
    return seconds > variation * sample.seconds;
  });
}

void KernelFit::fit_passes(const std::vector<KernelSample>& samples) {
  fit(samples);
  bool is_changed = false;
  for (std::size_t p = 0; p < parts; ++p) {
    const double ratio = coefficients_[2 * p + 1] / coefficients_[2 * p];
    if (!has_passes_[p] || (ratio > 0.2 && ratio < 5.0)) continue;  // neither infinite nor 0
    has_passes_[p] = false;
    is_changed = true;
  }
  if (is_changed) fit(samples);
}

/// Returns the amounts that seconds are proportional to: forward and backward of each part, then
/// amounts without passes.
std::vector<double> KernelFit::terms(const KernelSample& sample) const {
  const double amounts[parts] = {widths_.products(sample.flops, sample.work),
                                 widths_.attention(sample.work), sample.work.row_bytes};
  std::vector<double> all;
  for (std::size_t p = 0; p < parts; ++p) {
    const bool is_apart = has_passes_[p] && sample.is_backward;
    all.push_back(is_apart ? 0.0 : amounts[p]);
    all.push_back(is_apart ? amounts[p] : 0.0);
  }
  all.push_back(sample.work.products +
                (launches_ == Launches::of_all ? sample.work.row_kernels : 0.0));
  all.push_back(sample.work.activations);
  return all;
}

double KernelFit::seconds(const KernelSample& sample) const {
  const std::vector<double> amounts = terms(sample);
  double sum = 0.0;
  for (std::size_t t = 0; t < amounts.size(); ++t) sum += coefficients_[t] * amounts[t];
  return sum;
}

void KernelFit::fit(const std::vector<KernelSample>& samples) {
  std::vector<std::vector<double>> weighted;
  std::vector<double> values;
  for (const KernelSample& sample : samples) {
    const double weight = std::sqrt(sample.share);
    weighted.push_back(terms(sample));
    for (double& term : weighted.back()) term *= weight / sample.seconds;
    values.push_back(weight);
    for (std::size_t p = 0; p < parts; ++p)
      if (limits_[p] > 0.0)
        values.back() -= limits_[p] * std::exchange(weighted.back()[2 * p], 0.0);
  }
  coefficients_ = fit_positive(weighted, values);
  for (std::size_t p = 0; p < parts; ++p)
    if (limits_[p] > 0.0) coefficients_[2 * p] = limits_[p];
  error_ = 0.0;
  for (const KernelSample& sample : samples) {
    const double off = seconds(sample) / sample.seconds - 1.0;
    error_ += sample.share * off * off;
  }
}

void KernelFit::set(ComputeRates& rates) const {
  const auto rate = [&](std::size_t term) {
    constexpr double fastest = 1e17;  // upper bound of any rate
    return coefficients_[term] > 1.0 / fastest ? 1.0 / coefficients_[term] : 0.0;
  };
  const auto backward = [&](std::size_t part) {
    return has_passes_[part] ? coefficients_[2 * part + 1] / coefficients_[2 * part] : 1.0;
  };
  constexpr std::size_t no_passes = 2 * parts;
  rates.products = rate(2 * products);
  rates.attention = rate(2 * attention);
  rates.kernels.product_width = widths_.product_width;
  rates.kernels.attention_width = widths_.attention_width;
  rates.kernels.backward_products = backward(products);
  rates.kernels.backward_attention = backward(attention);
  rates.kernels.backward_rows = backward(rows);
  rates.kernels.row_bytes_per_second = rate(2 * rows);
  rates.kernels.product_seconds = coefficients_[no_passes];
  if (launches_ == Launches::of_all) rates.kernels.row_kernel_seconds = coefficients_[no_passes];
  rates.kernels.activations_per_second = rate(no_passes + 1);
}

KernelFit fit_kernels(const std::vector<KernelSample>& samples, Launches launches) {
  std::optional<KernelFit> best;
  for (const double product_width :
       {0.0, 8.0, 16.0, 24.0, 32.0, 48.0, 64.0, 96.0, 128.0, 192.0, 256.0, 384.0, 512.0})
    for (const double attention_width : {0.0, 16.0, 32.0, 64.0, 128.0, 256.0}) {
      const KernelFit fit(samples, product_width, attention_width, launches);
      if (!best || fit.error() < best->error()) best = fit;
    }
  return *best;
}

Waits fit_waits(const std::vector<StepSample>& samples) {
  std::vector<std::vector<double>> terms;
  std::vector<double> values;
  for (const StepSample& sample : samples) {
    terms.push_back({sample.collectives / sample.seconds, sample.simulated / sample.seconds});
    values.push_back(1.0 - sample.simulated / sample.seconds);
  }
  const std::vector<double> found = fit_positive(terms, values);
  return {found[0], found[1]};
}

}  // namespace ostrakon::simulate
