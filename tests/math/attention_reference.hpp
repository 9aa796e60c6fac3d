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
inline std::int64_t out_columns(const AttentionShape& s) { return s.heads * s.head_width; }
inline std::int64_t qkv_columns(const AttentionShape& s) {
  return (s.heads + 2 * s.kv_heads) * s.head_width;
}

/// Attention by its definition, with all probabilities stored.
class AttentionReference {
 public:
  AttentionReference(const AttentionShape& shape, std::vector<double> qkv)
      : shape_(shape),
        qkv_(std::move(qkv)),
        out(rows_of(shape) * out_columns(shape), 0.0),
        log_sum_exp(rows_of(shape) * shape.heads),
        probabilities_(rows_of(shape) * shape.heads * shape.tokens, 0.0) {
    visit([&](std::int64_t b, std::int64_t h, std::int64_t i) {
      double total = 0;
      for (std::int64_t j = 0; j <= i; ++j) total += std::exp(score(b, h, i, j));
      log_sum_exp[(b * shape_.heads + h) * shape_.tokens + i] = std::log(total);
      for (std::int64_t j = 0; j <= i; ++j) {
        const double p = std::exp(score(b, h, i, j)) / total;
        probability(b, h, i, j) = p;
        for (std::int64_t d = 0; d < shape_.head_width; ++d)
          out[out_index(b, i, h, d)] += p * qkv_[value_index(b, j, h, d)];
      }
    });
  }

  std::vector<double> backward(const std::vector<double>& dout) {
    std::vector<double> dqkv(qkv_.size(), 0.0);
    visit([&](std::int64_t b, std::int64_t h, std::int64_t i) {
      std::vector<double> dp(i + 1, 0.0);
      double mean = 0;
      for (std::int64_t j = 0; j <= i; ++j) {
        for (std::int64_t d = 0; d < shape_.head_width; ++d) {
          dp[j] += dout[out_index(b, i, h, d)] * qkv_[value_index(b, j, h, d)];
          dqkv[value_index(b, j, h, d)] += probability(b, h, i, j) * dout[out_index(b, i, h, d)];
        }
        mean += probability(b, h, i, j) * dp[j];
      }
      for (std::int64_t j = 0; j <= i; ++j) {
        const double ds = probability(b, h, i, j) * (dp[j] - mean) / std::sqrt(shape_.head_width);
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
  std::int64_t index(std::int64_t b, std::int64_t i, std::int64_t head, std::int64_t d) const {
    return ((b * shape_.tokens + i) * (shape_.heads + 2 * shape_.kv_heads) + head) *
               shape_.head_width +
           d;
  }
  std::int64_t query_index(std::int64_t b, std::int64_t i, std::int64_t h, std::int64_t d) const {
    return index(b, i, h, d);
  }
  std::int64_t key_index(std::int64_t b, std::int64_t j, std::int64_t h, std::int64_t d) const {
    return index(b, j, shape_.heads + h * shape_.kv_heads / shape_.heads, d);
  }
  std::int64_t value_index(std::int64_t b, std::int64_t j, std::int64_t h, std::int64_t d) const {
    return index(b, j, shape_.heads + shape_.kv_heads + h * shape_.kv_heads / shape_.heads, d);
  }
  std::int64_t out_index(std::int64_t b, std::int64_t i, std::int64_t h, std::int64_t d) const {
    return ((b * shape_.tokens + i) * shape_.heads + h) * shape_.head_width + d;
  }
  double score(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    double sum = 0;
    for (std::int64_t d = 0; d < shape_.head_width; ++d)
      sum += qkv_[query_index(b, i, h, d)] * qkv_[key_index(b, j, h, d)];
    return sum / std::sqrt(shape_.head_width);
  }
  double& probability(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
    return probabilities_[((b * shape_.heads + h) * shape_.tokens + i) * shape_.tokens + j];
  }

  AttentionShape shape_;
  std::vector<double> qkv_;

 public:
  std::vector<double> out;
  std::vector<double> log_sum_exp;

 private:
  std::vector<double> probabilities_;
};

}  // namespace ostrakon::test::attention
