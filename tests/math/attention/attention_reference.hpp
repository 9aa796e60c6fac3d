// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <ostrakon/math/attention/attention.hpp>
#include <utility>
#include <vector>

namespace ostrakon::test::attention {

using math::AttentionShape;

inline std::int64_t rows_of(const AttentionShape& s) { return s.batch * s.tokens; }
inline std::int64_t width_of_values(const AttentionShape& s) {
  return s.value_width == 0 ? s.head_width : s.value_width;
}
inline std::int64_t q_columns(const AttentionShape& s) { return s.heads * s.head_width; }
inline std::int64_t kv_columns(const AttentionShape& s) {
  return s.kv_heads * (s.head_width + width_of_values(s));
}
inline std::int64_t out_columns(const AttentionShape& s) { return s.heads * width_of_values(s); }
inline std::int64_t qkv_columns(const AttentionShape& s) { return q_columns(s) + kv_columns(s); }

/// The slopes of MPT and BLOOM: those of the next power of two, every second one first.
inline std::vector<double> reference_slopes(std::int64_t heads) {
  std::int64_t n = 1;
  while (n < heads) n *= 2;
  std::vector<double> all, slopes;
  for (std::int64_t k = 1; k <= n; ++k)
    all.push_back(1.0 / std::pow(2.0, 8.0 * static_cast<double>(k) / static_cast<double>(n)));
  if (n == heads) return all;
  for (const std::size_t first : {1, 0})
    for (std::size_t k = first; k < all.size(); k += 2) slopes.push_back(all[k]);
  return slopes;
}

/// Attention by its definition, with all probabilities stored. `sinks`: one of each head, or none;
/// `document_begins`: of each row, or none.
class AttentionReference {
 public:
  AttentionReference(const AttentionShape& shape, std::vector<double> qkv,
                     const std::vector<double>& sinks = {},
                     std::vector<std::int32_t> document_begins = {})
      : shape_(shape),
        qkv_(std::move(qkv)),
        document_begins_(std::move(document_begins)),
        out(rows_of(shape) * out_columns(shape), 0.0),
        log_sum_exp(rows_of(shape) * shape.heads),
        probabilities_(rows_of(shape) * shape.heads * shape.tokens, 0.0),
        of_sinks_(rows_of(shape) * shape.heads, 0.0) {
    visit([&](std::int64_t b, std::int64_t h, std::int64_t i) {
      const std::int64_t row = (b * shape_.heads + h) * shape_.tokens + i;
      double total = sinks.empty() ? 0.0 : std::exp(sinks[h]);
      for (std::int64_t j = first_of(b, i); j <= i; ++j) total += std::exp(score(b, h, i, j));
      log_sum_exp[row] = std::log(total);
      if (!sinks.empty()) of_sinks_[row] = std::exp(sinks[h]) / total;
      for (std::int64_t j = first_of(b, i); j <= i; ++j) {
        const double p = std::exp(score(b, h, i, j)) / total;
        probability(b, h, i, j) = p;
        for (std::int64_t d = 0; d < width_of_values(shape_); ++d)
          out[out_index(b, i, h, d)] += p * qkv_[value_index(b, j, h, d)];
      }
    });
  }

  std::vector<double> backward(const std::vector<double>& dout) {
    std::vector<double> dqkv(qkv_.size(), 0.0);
    dsinks.assign(shape_.heads, 0.0);
    visit([&](std::int64_t b, std::int64_t h, std::int64_t i) {
      std::vector<double> dp(i + 1, 0.0);
      double mean = 0;
      for (std::int64_t j = first_of(b, i); j <= i; ++j) {
        for (std::int64_t d = 0; d < width_of_values(shape_); ++d) {
          dp[j] += dout[out_index(b, i, h, d)] * qkv_[value_index(b, j, h, d)];
          dqkv[value_index(b, j, h, d)] += probability(b, h, i, j) * dout[out_index(b, i, h, d)];
        }
        mean += probability(b, h, i, j) * dp[j];
      }
      dsinks[h] -= of_sinks_[(b * shape_.heads + h) * shape_.tokens + i] * mean;
      for (std::int64_t j = first_of(b, i); j <= i; ++j) {
        const double ds = probability(b, h, i, j) * (dp[j] - mean) * derivative(b, h, i, j);
        for (std::int64_t d = 0; d < shape_.head_width; ++d) {
          dqkv[query_index(b, i, h, d)] += ds * qkv_[key_index(b, j, h, d)];
          dqkv[key_index(b, j, h, d)] += ds * qkv_[query_index(b, i, h, d)];
        }
      }
    });
    return dqkv;
  }

 private:
  template <class Body>
  void visit(const Body& body) {
    for (std::int64_t b = 0; b < shape_.batch; ++b)
      for (std::int64_t h = 0; h < shape_.heads; ++h)
        for (std::int64_t i = 0; i < shape_.tokens; ++i) body(b, h, i);
  }
  std::int64_t index(std::int64_t b, std::int64_t i, std::int64_t column) const {
    return (b * shape_.tokens + i) * qkv_columns(shape_) + column;
  }
  std::int64_t query_index(std::int64_t b, std::int64_t i, std::int64_t h, std::int64_t d) const {
    return index(b, i, h * shape_.head_width + d);
  }
  std::int64_t key_index(std::int64_t b, std::int64_t j, std::int64_t h, std::int64_t d) const {
    const std::int64_t head = shape_.heads + h * shape_.kv_heads / shape_.heads;
    return index(b, j, head * shape_.head_width + d);
  }
  std::int64_t value_index(std::int64_t b, std::int64_t j, std::int64_t h, std::int64_t d) const {
    const std::int64_t first = (shape_.heads + shape_.kv_heads) * shape_.head_width;
    return index(b, j, first + h * shape_.kv_heads / shape_.heads * width_of_values(shape_) + d);
  }
  std::int64_t out_index(std::int64_t b, std::int64_t i, std::int64_t h, std::int64_t d) const {
    return ((b * shape_.tokens + i) * shape_.heads + h) * width_of_values(shape_) + d;
  }
  double scale() const {
    return shape_.scores.scale > 0 ? shape_.scores.scale : 1.0 / std::sqrt(shape_.head_width);
  }
  std::int64_t first_of(std::int64_t b, std::int64_t i) const {
    std::int64_t j = document_begins_.empty() ? 0 : document_begins_[b * shape_.tokens + i];
    while (shape_.scores.window > 0 && i - j >= shape_.scores.window) ++j;
    return j;
  }
  double product(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    double sum = 0;
    for (std::int64_t d = 0; d < shape_.head_width; ++d)
      sum += qkv_[query_index(b, i, h, d)] * qkv_[key_index(b, j, h, d)];
    return sum * scale();
  }
  double score(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    const math::AttentionScores& s = shape_.scores;
    double x = product(b, h, i, j);
    if (s.soft_cap > 0) x = s.soft_cap * std::tanh(x / s.soft_cap);
    if (s.slopes > 0)
      x -= reference_slopes(s.slopes)[s.first_head + h] * static_cast<double>(i - j);
    return x;
  }
  /// Returns the derivative of a score by the product of query and key.
  double derivative(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    const double cap = shape_.scores.soft_cap;
    return scale() * (cap > 0 ? 1.0 / std::pow(std::cosh(product(b, h, i, j) / cap), 2) : 1.0);
  }
  double& probability(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
    return probabilities_[((b * shape_.heads + h) * shape_.tokens + i) * shape_.tokens + j];
  }

  AttentionShape shape_;
  std::vector<double> qkv_;
  std::vector<std::int32_t> document_begins_;

 public:
  std::vector<double> out;
  std::vector<double> log_sum_exp;
  std::vector<double> dsinks;  ///< by backward()

 private:
  std::vector<double> probabilities_, of_sinks_;
};

}  // namespace ostrakon::test::attention
