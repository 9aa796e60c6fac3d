// SPDX-License-Identifier: Apache-2.0
#pragma once

// A decoder-only transformer in plain loops, written from the papers and sharing no code with the
// library but the settings: what the library's forward is measured against.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <ostrakon/model/decoder.hpp>
#include <string>
#include <utility>
#include <vector>

namespace ostrakon::test::reference {

/// What the model computes on the way, for every row.
template <class Real>
struct Result {
  std::vector<std::vector<Real>> hidden;  ///< of the embedding, then of each block: (rows, width)
  std::vector<Real> logits;               ///< (rows, vocabulary)
  std::vector<Real> losses;               ///< (rows), in nats
};

template <class Real>
class Decoder {
 public:
  using Array = std::vector<Real>;
  /// The parameter `name` of unit `unit`.
  using Parameters = std::function<Array(const std::string& unit, const std::string& name)>;

  /// `positions`: of each row in its sequence, whose `tokens` rows are neighbours in any order.
  Decoder(const model::DecoderSettings& settings, int tokens, std::vector<int> positions,
          Parameters parameters)
      : s_(settings),
        tokens_(tokens),
        positions_(std::move(positions)),
        parameters_(std::move(parameters)) {}

  Result<Real> run(const std::vector<int>& tokens, const std::vector<int>& targets) const {
    Result<Real> result;
    Array x = embed(tokens);
    result.hidden.push_back(x);
    for (int layer = 0; layer < s_.layers; ++layer) {
      const std::string unit = "block." + std::to_string(layer);
      const Array attended = attend(unit, norm(unit, "attention.norm", x));
      for (std::size_t i = 0; i < x.size(); ++i) x[i] += attended[i];
      const Array fed = feed_forward(unit, norm(unit, "mlp.norm", x));
      for (std::size_t i = 0; i < x.size(); ++i) x[i] += fed[i];
      result.hidden.push_back(x);
    }
    const Array weight = s_.tie_embeddings ? parameters_("embedding", "token.weight")
                                           : parameters_("head", "output.weight");
    result.logits = multiply(norm("head", "norm", x), weight, s_.width, s_.vocabulary);
    result.losses = cross_entropy(result.logits, targets);
    return result;
  }

 private:
  int rows() const { return static_cast<int>(positions_.size()); }
  bool has_layer_norm() const { return s_.norm == math::NormKind::layernorm; }
  bool has_learned_positions() const { return s_.positions == model::Positions::learned; }

  Array embed(const std::vector<int>& tokens) const {
    const Array table = parameters_("embedding", "token.weight");
    Array x(rows() * s_.width);
    for (int r = 0; r < rows(); ++r)
      for (int j = 0; j < s_.width; ++j) x[r * s_.width + j] = table[tokens[r] * s_.width + j];
    if (!has_learned_positions()) return x;
    const Array positions = parameters_("embedding", "position.weight");
    for (int r = 0; r < rows(); ++r)
      for (int j = 0; j < s_.width; ++j)
        x[r * s_.width + j] += positions[positions_[r] * s_.width + j];
    return x;
  }

  /// Ba et al. 2016, section 3; Zhang & Sennrich 2019, eq. 4.
  Array norm(const std::string& unit, const std::string& name, const Array& x) const {
    const Array gain = parameters_(unit, name + ".weight");
    const int n = s_.width;
    Array y(x.size());
    for (int r = 0; r < rows(); ++r) {
      Real mean = 0, square = 0;
      if (has_layer_norm())
        for (int j = 0; j < n; ++j) mean += x[r * n + j] / n;
      for (int j = 0; j < n; ++j) square += (x[r * n + j] - mean) * (x[r * n + j] - mean) / n;
      for (int j = 0; j < n; ++j)
        y[r * n + j] = (x[r * n + j] - mean) / std::sqrt(square + Real(s_.norm_epsilon)) * gain[j];
    }
    if (has_layer_norm() && s_.bias) add_bias(y, parameters_(unit, name + ".bias"));
    return y;
  }

  void add_bias(Array& y, const Array& bias) const {
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += bias[i % bias.size()];
  }

  /// x (rows, inputs) times weight (outputs, inputs) transposed.
  Array multiply(const Array& x, const Array& weight, int inputs, int outputs) const {
    Array y(static_cast<std::size_t>(rows()) * outputs, Real(0));
    for (int r = 0; r < rows(); ++r)
      for (int o = 0; o < outputs; ++o)
        for (int i = 0; i < inputs; ++i)
          y[r * outputs + o] += x[r * inputs + i] * weight[o * inputs + i];
    return y;
  }

  Array linear(const std::string& unit, const std::string& name, const Array& x, int inputs,
               int outputs) const {
    Array y = multiply(x, parameters_(unit, name + ".weight"), inputs, outputs);
    if (name.rfind("mlp.", 0) == 0 ? s_.mlp_bias() : s_.bias)
      add_bias(y, parameters_(unit, name + ".bias"));
    return y;
  }

  /// RMS norm of one head (Qwen Team 2025, section 2).
  void normalize(Real* head, const Array& gain) const {
    Real square = 0;
    for (const Real* x = head; x < head + gain.size(); ++x) square += *x * *x / Real(gain.size());
    for (std::size_t i = 0; i < gain.size(); ++i)
      head[i] *= gain[i] / std::sqrt(square + Real(s_.norm_epsilon));
  }

  /// Su et al. 2021, eq. 15, with the pairs (i, i + head_width / 2).
  void rotate(Real* head, int position, int head_width) const {
    for (int i = 0; i < head_width / 2; ++i) {
      const double angle = position * std::pow(s_.rotary.base, -2.0 * i / head_width);
      const Real a = head[i], b = head[i + head_width / 2];
      head[i] = Real(a * std::cos(angle) - b * std::sin(angle));
      head[i + head_width / 2] = Real(a * std::sin(angle) + b * std::cos(angle));
    }
  }

  /// Vaswani et al. 2017, section 3.2, causal; heads in groups as in Ainslie et al. 2023.
  Array attend(const std::string& unit, const Array& x) const {
    const int heads = static_cast<int>(s_.heads), kv_heads = static_cast<int>(s_.kv_heads);
    const int head_width = static_cast<int>(s_.head_width()), heads_width = heads * head_width;
    const int qkv_width = (heads + 2 * kv_heads) * head_width;
    Array qkv = linear(unit, "attention.qkv", x, s_.width, qkv_width);
    for (int r = 0; r < rows(); ++r)
      for (int h = 0; h < heads + kv_heads; ++h) {
        Real* const head = &qkv[r * qkv_width + h * head_width];
        if (s_.query_key_norm != model::QueryKeyNorm::none)
          normalize(head, parameters_(unit, h < heads ? "attention.query_norm.weight"
                                                      : "attention.key_norm.weight"));
        if (!has_learned_positions()) rotate(head, positions_[r], head_width);
      }

    Array mixed(rows() * heads_width, Real(0));
    for (int r = 0; r < rows(); ++r)
      for (int h = 0; h < heads; ++h) {
        const int kv_head = h / (heads / kv_heads);
        const int first = r / tokens_ * tokens_;  // of the sequence
        const Real* query = &qkv[r * qkv_width + h * head_width];
        Array probability(tokens_, Real(0));
        Real sum = 0;
        for (int k = 0; k < tokens_; ++k) {
          if (positions_[first + k] > positions_[r]) continue;
          const Real* key = &qkv[(first + k) * qkv_width + (heads + kv_head) * head_width];
          Real score = 0;
          for (int i = 0; i < head_width; ++i) score += query[i] * key[i];
          probability[k] = std::exp(score / std::sqrt(Real(head_width)));
          sum += probability[k];
        }
        for (int k = 0; k < tokens_; ++k) {
          const Real* value =
              &qkv[(first + k) * qkv_width + (heads + kv_heads + kv_head) * head_width];
          for (int i = 0; i < head_width; ++i)
            mixed[r * heads_width + h * head_width + i] += probability[k] / sum * value[i];
        }
      }
    return linear(unit, "attention.out", mixed, heads_width, s_.width);
  }

  Array feed_forward(const std::string& unit, const Array& x) const {
    return s_.experts.exist() ? mix(unit, x) : mlp(unit, "mlp", s_.ffn_width, x);
  }

  using Scores = std::vector<std::pair<Real, int>>;

  /// Those of the groups with the highest sums of two scores, which are negative here.
  Scores of_best_groups(const Scores& scores) const {
    const auto size = static_cast<int>(s_.experts.count / s_.experts.groups);
    std::vector<std::pair<Real, Scores>> groups;
    for (int g = 0; g < s_.experts.groups; ++g) {
      Scores group(scores.begin() + g * size, scores.begin() + (g + 1) * size);
      std::sort(group.begin(), group.end());
      groups.emplace_back(group[0].first + (size > 1 ? group[1].first : Real(0)), group);
    }
    std::sort(groups.begin(), groups.end());
    Scores best;
    for (int g = 0; g < s_.experts.groups_per_token; ++g)
      best.insert(best.end(), groups[g].second.begin(), groups[g].second.end());
    return best;
  }

  /// Shazeer et al. 2017, section 2, with the scores of Jiang et al. 2024 or of DeepSeek-AI 2024
  /// (V3), section 2.1.2. Every expert computes every token; most are then multiplied by 0.
  Array mix(const std::string& unit, const Array& x) const {
    const model::ExpertSettings& e = s_.experts;
    const bool is_sigmoid = e.score == math::RouterScore::sigmoid;
    const Array logits = multiply(x, parameters_(unit, "mlp.router.weight"), s_.width, e.count);
    std::vector<Array> weights(e.count, Array(rows(), Real(0)));
    for (int r = 0; r < rows(); ++r) {
      Scores scores;
      Real all = 0, chosen = 0;
      for (int i = 0; i < e.count; ++i) all += std::exp(logits[r * e.count + i]);
      for (int i = 0; i < e.count; ++i) {
        const Real power = std::exp(logits[r * e.count + i]);
        scores.push_back({-(is_sigmoid ? power / (power + 1) : power / all), i});
      }
      scores = of_best_groups(scores);
      std::sort(scores.begin(), scores.end());
      for (int k = 0; k < e.per_token; ++k) chosen -= scores[k].first;
      for (int k = 0; k < e.per_token; ++k)
        weights[scores[k].second][r] =
            Real(-e.scale) * scores[k].first / (e.normalize ? chosen : Real(1));
    }
    Array y(x.size(), Real(0));
    if (e.shared > 0) y = mlp(unit, "mlp.shared", e.shared * e.width, x);
    for (int i = 0; i < e.count; ++i) {
      const Array one = mlp(unit, "mlp.experts." + std::to_string(i), e.width, x);
      for (std::size_t j = 0; j < y.size(); ++j) y[j] += weights[i][j / s_.width] * one[j];
    }
    return y;
  }

  /// Hendrycks & Gimpel 2016 (tanh form) or Shazeer 2020, eq. 6.
  Array mlp(const std::string& unit, const std::string& name, int n, const Array& x) const {
    Array active(rows() * n);
    if (s_.activation == model::Activation::gelu) {
      const Array up = linear(unit, name + ".up", x, s_.width, n);
      for (std::size_t i = 0; i < up.size(); ++i) {
        const Real u = up[i];
        const Real inner =
            Real(std::sqrt(2.0 / 3.14159265358979323846)) * (u + Real(0.044715) * u * u * u);
        active[i] = Real(0.5) * u * (Real(1) + std::tanh(inner));
      }
    } else {
      const Array gate_up = linear(unit, name + ".gate_up", x, s_.width, 2 * n);
      for (int r = 0; r < rows(); ++r)
        for (int j = 0; j < n; ++j) {
          const Real gate = gate_up[r * 2 * n + j];
          active[r * n + j] = gate / (Real(1) + std::exp(-gate)) * gate_up[r * 2 * n + n + j];
        }
    }
    return linear(unit, name + ".down", active, n, s_.width);
  }

  Array cross_entropy(const Array& logits, const std::vector<int>& targets) const {
    Array losses(rows());
    for (int r = 0; r < rows(); ++r) {
      Real sum = 0;
      for (int v = 0; v < s_.vocabulary; ++v) sum += std::exp(logits[r * s_.vocabulary + v]);
      losses[r] = std::log(sum) - logits[r * s_.vocabulary + targets[r]];
    }
    return losses;
  }

  model::DecoderSettings s_;
  int tokens_;
  std::vector<int> positions_;
  Parameters parameters_;
};

}  // namespace ostrakon::test::reference
