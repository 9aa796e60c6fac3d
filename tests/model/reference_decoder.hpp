// SPDX-License-Identifier: Apache-2.0
#pragma once

// A decoder-only transformer in plain loops, written from the papers and sharing no code with the
// library but the settings: what the library's forward is measured against.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <ostrakon/base/text.hpp>
#include <ostrakon/model/decoder.hpp>
#include <string>
#include <utility>
#include <vector>

namespace ostrakon::test::reference {

/// What the model computes on the way, for every row.
template <class Real>
struct Result {
  /// Of the embedding, then of each block, with that of a module: (rows, width).
  std::vector<std::vector<Real>> hidden;
  std::vector<Real> logits;   ///< (rows, vocabulary)
  std::vector<Real> losses;   ///< (rows), in nats
  std::vector<Real> further;  ///< of a module's predictions; 0 for last rows
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
    for (int layer = 0; layer < s_.layers; ++layer)
      result.hidden.push_back(x = block("block." + std::to_string(layer), layer, x));
    result.logits = logits_of("norm", x);
    result.losses = cross_entropy(result.logits, targets);
    if (s_.multi_token_depth == 0) return result;
    result.hidden.push_back(run_module(x, targets));
    std::vector<int> behind(targets.begin() + 1, targets.end());
    behind.push_back(0);
    result.further = cross_entropy(logits_of("multi_token_norm", result.hidden.back()), behind);
    for (int r = tokens_ - 1; r < rows(); r += tokens_) result.further[r] = 0;
    return result;
  }

 private:
  int rows() const { return static_cast<int>(positions_.size()); }
  bool has_layer_norm() const { return s_.norm == math::NormKind::layernorm; }
  bool has_learned_positions() const { return s_.positions == model::Positions::learned; }

  Array block(const std::string& unit, int layer, const Array& x) const {
    const Array taken = norm_before(unit, "attention", x);
    Array middle = x;
    add_to_residual(middle, unit, "attention", mix_tokens(unit, layer, taken));
    Array fed = taken;
    if (s_.block != model::BlockForm::parallel)
      fed = norm_before(unit, "mlp", s_.block == model::BlockForm::sequential ? middle : x);
    add_to_residual(middle, unit, "mlp", feed_forward(unit, layer, fed));
    return middle;
  }

  /// DeepSeek-AI 2024 (V3), eq. 21 and 22, of rows in the order of tokens.
  Array run_module(const Array& x, const std::vector<int>& next) const {
    const std::string unit = "block." + std::to_string(s_.layers);
    const Array table = parameters_("embedding", "token.weight");
    Array embedded(x.size()), joined;
    for (std::size_t i = 0; i < x.size(); ++i)
      embedded[i] = Real(s_.embedding_scale) * table[next[i / s_.width] * s_.width + i % s_.width];
    embedded = norm(unit, "embedding_norm", embedded);
    const Array hidden = norm(unit, "hidden_norm", x);
    for (int r = 0; r < rows(); ++r)
      for (int half = 0; half < 2; ++half) {
        const Real* const row = (half == 0 ? embedded : hidden).data() + r * s_.width;
        joined.insert(joined.end(), row, row + s_.width);
      }
    return block(unit, static_cast<int>(s_.layers) - 1,
                 multiply(joined, parameters_(unit, "projection.weight"), 2 * s_.width, s_.width));
  }

  Array logits_of(const std::string& norm_name, const Array& x) const {
    const Array weight = s_.tie_embeddings ? parameters_("embedding", "token.weight")
                                           : parameters_("head", "output.weight");
    return make_logits(multiply(norm("head", norm_name, x), weight, s_.width, s_.vocabulary));
  }

  Array embed(const std::vector<int>& tokens) const {
    const Array table = parameters_("embedding", "token.weight");
    Array x(rows() * s_.width);
    for (int r = 0; r < rows(); ++r)
      for (int j = 0; j < s_.width; ++j) x[r * s_.width + j] = table[tokens[r] * s_.width + j];
    if (has_learned_positions()) {
      const Array positions = parameters_("embedding", "position.weight");
      for (int r = 0; r < rows(); ++r)
        for (int j = 0; j < s_.width; ++j)
          x[r * s_.width + j] += positions[positions_[r] * s_.width + j];
    }
    for (Real& value : x) value *= Real(s_.embedding_scale);
    return s_.embedding_norm ? norm("embedding", "norm", x) : x;
  }

  /// What a norm of so many columns multiplies by.
  Array gain_of(const std::string& unit, const std::string& name, int columns) const {
    if (s_.norm_weight == math::NormWeight::none) return Array(columns, Real(1));
    Array gain = parameters_(unit, name + ".weight");
    if (s_.norm_weight == math::NormWeight::one_plus)
      for (Real& value : gain) value += Real(1);
    return gain;
  }

  /// What attention or MLP takes, and what is added of its output.
  Array norm_before(const std::string& unit, const std::string& part, const Array& x) const {
    return s_.norm_placement == model::NormPlacement::after ? x : norm(unit, part + ".norm", x);
  }
  void add_to_residual(Array& x, const std::string& unit, const std::string& part,
                       const Array& y) const {
    const bool is_normed = s_.norm_placement != model::NormPlacement::before;
    const Array added = is_normed ? norm(unit, part + ".out_norm", y) : y;
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += Real(s_.residual_scale) * added[i];
  }

  /// Ba et al. 2016, section 3; Zhang & Sennrich 2019, eq. 4.
  Array norm(const std::string& unit, const std::string& name, const Array& x) const {
    const Array gain = gain_of(unit, name, static_cast<int>(s_.width));
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
    if (has_layer_norm() && s_.norm_bias() && s_.norm_weight != math::NormWeight::none)
      add_bias(y, parameters_(unit, name + ".bias"));
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
    if (name.rfind("mlp.", 0) == 0 ? s_.mlp_bias()
        : name == "attention.qkv"  ? s_.qkv_bias()
                                   : s_.out_bias())
      add_bias(y, parameters_(unit, name + ".bias"));
    return y;
  }

  /// Norm of one head (Qwen Team 2025, section 2; of layer norms Dehghani et al. 2023, section 2),
  /// or of all heads together.
  void normalize(Real* head, const Real* gain, int n) const {
    Real mean = 0, square = 0;
    if (s_.query_key_norm_kind == math::NormKind::layernorm)
      for (int i = 0; i < n; ++i) mean += head[i] / n;
    for (int i = 0; i < n; ++i) square += (head[i] - mean) * (head[i] - mean) / n;
    for (int i = 0; i < n; ++i)
      head[i] = (head[i] - mean) * gain[i] / std::sqrt(square + Real(s_.norm_epsilon));
  }

  /// Turns of pair i of `pairs` per position, in radians: Su et al. 2021, section 3.2.2, scaled as
  /// by Chen et al. 2023, eq. 4, the code of Llama 3.1, Peng et al. 2023, eq. 19 to 23 as their
  /// code has it, or Ding et al. 2024, eq. 2.
  double frequency(int i, int pairs) const {
    const math::RotarySettings& r = s_.rotary;
    const double own = std::pow(r.base, -1.0 * i / pairs), pi = 3.14159265358979323846;
    const double turns = static_cast<double>(r.original_length) * own / (2 * pi);
    switch (r.scaling) {
      case math::RotaryScaling::none:
        return own;
      case math::RotaryScaling::linear:
        return own / r.factor;
      case math::RotaryScaling::llama3: {
        const double kept = (turns - r.low_factor) / (r.high_factor - r.low_factor);
        return own * (turns > r.high_factor  ? 1.0
                      : turns < r.low_factor ? 1.0 / r.factor
                                             : kept + (1.0 - kept) / r.factor);
      }
      case math::RotaryScaling::yarn: {
        // Pair p turns often in the original length: base^(p / pairs) = length / (2 pi often).
        const auto pair = [&](double often) {
          return pairs * std::log(r.original_length / (2 * pi * often)) / std::log(r.base);
        };
        double low = pair(r.beta_fast), high = pair(r.beta_slow);
        if (r.truncate) low = std::floor(low), high = std::ceil(high);
        low = low < 0 ? 0 : low;
        high = high > 2 * pairs - 1 ? 2 * pairs - 1 : high;
        const double kept = i <= low ? 1.0 : i >= high ? 0.0 : (high - i) / (high - low);
        return own * (kept + (1.0 - kept) / r.factor);
      }
      case math::RotaryScaling::longrope:
        return own / (tokens_ > r.original_length ? r.long_factors : r.short_factors)[i];
    }
    return 0.0;
  }

  double rotary_factor() const {
    const math::RotarySettings& r = s_.rotary;
    if (r.scaling != math::RotaryScaling::yarn && r.scaling != math::RotaryScaling::longrope)
      return 1.0;
    if (r.attention_factor > 0) return r.attention_factor;
    return r.scaling == math::RotaryScaling::yarn
               ? 0.1 * std::log(r.factor) + 1.0
               : std::sqrt(1.0 + std::log(r.factor) / std::log(r.original_length));
  }

  /// Su et al. 2021, eq. 15, with the pairs (i, i + n / 2) of the first n elements.
  void rotate(Real* head, int position, int head_width) const {
    const int pairs = static_cast<int>(s_.rotary.share * head_width) / 2;
    for (int i = 0; i < pairs; ++i) {
      const double angle = position * frequency(i, pairs), factor = rotary_factor();
      const Real a = head[i], b = head[i + pairs];
      head[i] = Real(factor * (a * std::cos(angle) - b * std::sin(angle)));
      head[i + pairs] = Real(factor * (a * std::sin(angle) + b * std::cos(angle)));
    }
  }

  /// The first n of every `columns` elements, by their RMS norm.
  Array latent(const Array& x, int columns, const Array& gain) const {
    const auto n = static_cast<int>(gain.size());
    Array y(rows() * n);
    for (int r = 0; r < rows(); ++r) {
      Real square = 0;
      for (int j = 0; j < n; ++j) square += x[r * columns + j] * x[r * columns + j] / n;
      for (int j = 0; j < n; ++j)
        y[r * n + j] =
            x[r * columns + j] / std::sqrt(square + Real(s_.latent.norm_epsilon)) * gain[j];
    }
    return y;
  }

  /// DeepSeek-AI 2024 (V2), eq. 9 to 18, of every row, before rotation: queries, keys, values, with
  /// the part that is rotated first in each head.
  Array latent_qkv(const std::string& unit, const Array& x) const {
    const auto weight = [&](const char* name) {
      return parameters_(unit, text("attention.", name, ".weight"));
    };
    const int heads = s_.heads, head = s_.head_width(), value = s_.value_width();
    const int q_rank = s_.latent.q_rank, kv_rank = s_.latent.kv_rank;
    const int first = s_.latent.rotary_width, own = head - first;
    const Array q = q_rank == 0 ? multiply(x, weight("q"), s_.width, heads * head)
                                : multiply(latent(multiply(x, weight("q_down"), s_.width, q_rank),
                                                  q_rank, weight("q_down_norm")),
                                           weight("q"), q_rank, heads * head);
    const Array down = multiply(x, weight("kv_down"), s_.width, kv_rank + first);
    const Array up = multiply(latent(down, kv_rank + first, weight("kv_norm")), weight("kv_up"),
                              kv_rank, heads * (own + value));
    Array qkv;
    for (int r = 0; r < rows(); ++r) {
      qkv.insert(qkv.end(), &q[r * heads * head], &q[r * heads * head] + heads * head);
      const Real* const of_row = &up[r * heads * (own + value)];
      const Real* const of_all = &down[r * (kv_rank + first) + kv_rank];
      for (int h = 0; h < heads; ++h) {
        qkv.insert(qkv.end(), of_all, of_all + first);
        qkv.insert(qkv.end(), of_row + h * own, of_row + (h + 1) * own);
      }
      qkv.insert(qkv.end(), of_row + heads * own, of_row + heads * (own + value));
    }
    return qkv;
  }

  /// ALiBi (Press et al. 2022): slopes in a geometric sequence, for a number of heads that is no
  /// power of two those of the power below, then every second one of the power above.
  static double slope(int heads, int head) {
    int below = 1;
    while (2 * below <= heads) below *= 2;
    return head < below ? std::pow(2.0, -8.0 * (head + 1) / below)
                        : std::pow(2.0, -4.0 * (2 * (head - below) + 1) / below);
  }

  /// Vaswani et al. 2017, section 3.2, causal; heads in groups as in Ainslie et al. 2023. Windows
  /// as in Jiang et al. 2023, caps as in Gemma Team 2024, sinks as in OpenAI 2025 (gpt-oss).
  Array attend(const std::string& unit, int layer, const Array& x) const {
    const int heads = static_cast<int>(s_.heads), kv_heads = static_cast<int>(s_.kv_heads);
    const int head_width = static_cast<int>(s_.head_width());
    const int value_width = static_cast<int>(s_.value_width()), heads_width = heads * value_width;
    const int values = (heads + kv_heads) * head_width, qkv_width = values + kv_heads * value_width;
    const int gates = s_.attention_gate ? heads_width : 0;
    const int rotated = s_.latent.exist() ? static_cast<int>(s_.latent.rotary_width) : head_width;
    Array qkv = s_.latent.exist() ? latent_qkv(unit, x)
                                  : linear(unit, "attention.qkv", x, s_.width, gates + qkv_width);
    Array gate;
    if (gates > 0) {
      const Array both = std::exchange(qkv, {});
      for (int r = 0; r < rows(); ++r) {
        const Real* const row = &both[r * (gates + qkv_width)];
        gate.insert(gate.end(), row, row + gates);
        qkv.insert(qkv.end(), row + gates, row + gates + qkv_width);
      }
    }
    const auto kind = s_.query_key_norm;
    const bool is_whole = kind == model::QueryKeyNorm::whole;
    const bool is_each = kind == model::QueryKeyNorm::each_head;
    const bool is_rotary = s_.positions == model::Positions::rotary && s_.rotary_layers.has(layer);
    Array gains[2];
    for (int k = 0; k < 2 && kind != model::QueryKeyNorm::none; ++k)
      gains[k] =
          gain_of(unit, k == 0 ? "attention.query_norm" : "attention.key_norm",
                  is_whole || is_each ? (k == 0 ? heads : kv_heads) * head_width : head_width);
    for (int r = 0; r < rows(); ++r) {
      Real* const row = &qkv[r * qkv_width];
      if (is_whole) {
        normalize(row, gains[0].data(), heads * head_width);
        normalize(row + heads * head_width, gains[1].data(), kv_heads * head_width);
      }
      if (s_.clip_qkv > 0)
        for (int i = 0; i < qkv_width; ++i)
          row[i] = std::min(std::max(row[i], Real(-s_.clip_qkv)), Real(s_.clip_qkv));
      for (int h = 0; h < heads + kv_heads; ++h) {
        Real* const head = row + h * head_width;
        const Real* const gain = gains[h < heads ? 0 : 1].data() +
                                 (is_each ? (h < heads ? h : h - heads) * head_width : 0);
        if (kind == model::QueryKeyNorm::head || is_each) normalize(head, gain, head_width);
        if (is_rotary) rotate(head, positions_[r], rotated);
        if (kind == model::QueryKeyNorm::rotated) normalize(head, gain, head_width);
      }
    }

    const bool has_window = s_.attention_window > 0 && s_.window_layers.has(layer);
    const Real scale =
        s_.attention_scale > 0 ? Real(s_.attention_scale) : 1 / std::sqrt(Real(head_width));
    const Array sinks = s_.attention_sinks ? parameters_(unit, "attention.sinks") : Array();
    Array mixed(rows() * heads_width, Real(0));
    for (int r = 0; r < rows(); ++r)
      for (int h = 0; h < heads; ++h) {
        const int kv_head = h / (heads / kv_heads);
        const int first = r / tokens_ * tokens_;  // of the sequence
        const Real* query = &qkv[r * qkv_width + h * head_width];
        Array probability(tokens_, Real(0));
        Real sum = s_.attention_sinks ? std::exp(sinks[h]) : Real(0);
        for (int k = 0; k < tokens_; ++k) {
          const int distance = positions_[r] - positions_[first + k];
          if (distance < 0 || (has_window && distance >= s_.attention_window)) continue;
          const Real* key = &qkv[(first + k) * qkv_width + (heads + kv_head) * head_width];
          Real score = 0;
          for (int i = 0; i < head_width; ++i) score += query[i] * key[i];
          score *= scale;
          if (s_.attention_soft_cap > 0)
            score = Real(s_.attention_soft_cap) * std::tanh(score / Real(s_.attention_soft_cap));
          if (s_.positions == model::Positions::alibi) score -= Real(slope(heads, h) * distance);
          probability[k] = std::exp(score);
          sum += probability[k];
        }
        for (int k = 0; k < tokens_; ++k) {
          const Real* value = &qkv[(first + k) * qkv_width + values + kv_head * value_width];
          for (int i = 0; i < value_width; ++i)
            mixed[r * heads_width + h * value_width + i] += probability[k] / sum * value[i];
        }
      }
    for (std::size_t i = 0; i < gate.size(); ++i) mixed[i] *= sigmoid(gate[i]);  // Qwen3-Next
    return linear(unit, "attention.out", mixed, heads_width, s_.width);
  }

  /// Yang, Kautz, Hatamizadeh 2024, section 3, by token; with the convolution, gates and norm of
  /// Qwen3-Next.
  Array delta_net(const std::string& unit, const Array& x) const {
    const model::DeltaNetSettings& d = s_.delta_net;
    const int kh = d.key_heads, vh = d.value_heads, kw = d.key_width, vw = d.value_width;
    const int keys = kh * kw, values = vh * vw, convolved = 2 * keys + values;
    const int all = convolved + values + 2 * vh, taps = d.convolution;
    const Array in = multiply(x, parameters_(unit, "delta_net.in.weight"), s_.width, all);
    const Array w = parameters_(unit, "delta_net.convolution.weight");
    const Array decay = parameters_(unit, "delta_net.decay"),
                step = parameters_(unit, "delta_net.step");
    const Array gain = parameters_(unit, "delta_net.norm.weight");
    const auto silu = [](Real z) { return z * sigmoid(z); };
    const auto unit_length = [&](const Array& row, int first) {
      Real squares = Real(1e-6);
      for (int i = 0; i < kw; ++i) squares += row[first + i] * row[first + i];
      Array one;
      for (int i = 0; i < kw; ++i) one.push_back(row[first + i] / std::sqrt(squares));
      return one;
    };
    Array y(rows() * values);
    std::vector<Array> states(vh);
    for (int r = 0; r < rows(); ++r) {
      if (r % tokens_ == 0)
        for (Array& state : states) state.assign(kw * vw, Real(0));
      Array row(convolved);
      for (int c = 0; c < convolved; ++c) {
        for (int back = 0; back < taps && back <= r % tokens_; ++back)
          row[c] += w[c * taps + taps - 1 - back] * in[(r - back) * all + c];
        row[c] = silu(row[c]);
      }
      const Real* const z = &in[r * all + convolved];
      for (int h = 0; h < vh; ++h) {
        const Array q = unit_length(row, h / (vh / kh) * kw);
        const Array k = unit_length(row, keys + h / (vh / kh) * kw);
        const Real beta = sigmoid(z[values + h]);
        const Real kept =
            std::exp(-std::exp(decay[h]) * std::log1p(std::exp(z[values + vh + h] + step[h])));
        Array out(vw);
        Real squares = 0;
        for (int j = 0; j < vw; ++j) {
          Real found = 0;
          for (int i = 0; i < kw; ++i) found += (states[h][i * vw + j] *= kept) * k[i];
          const Real change = beta * (row[2 * keys + h * vw + j] - found);
          for (int i = 0; i < kw; ++i)
            out[j] += (states[h][i * vw + j] += k[i] * change) * q[i] / std::sqrt(Real(kw));
          squares += out[j] * out[j];
        }
        for (int j = 0; j < vw; ++j)
          y[r * values + h * vw + j] = out[j] / std::sqrt(squares / vw + Real(s_.norm_epsilon)) *
                                       gain[j] * silu(z[h * vw + j]);
      }
    }
    return multiply(y, parameters_(unit, "delta_net.out.weight"), values, s_.width);
  }

  Array mix_tokens(const std::string& unit, int layer, const Array& x) const {
    return s_.has_delta_nets() && s_.delta_layers.has(layer) ? delta_net(unit, x)
                                                             : attend(unit, layer, x);
  }

  Array feed_forward(const std::string& unit, int layer, const Array& x) const {
    return s_.experts.exist() && s_.expert_layers.has(layer) ? mix(unit, x)
                                                             : mlp(unit, "mlp", s_.ffn_width, x);
  }

  using Scores = std::vector<std::pair<Real, int>>;

  /// Those of the groups with the highest sums of two scores, or with the highest score. Scores are
  /// negative here.
  Scores of_best_groups(const Scores& scores) const {
    const auto size = static_cast<int>(s_.experts.count / s_.experts.groups);
    const bool takes_two = size > 1 && s_.experts.group_score == math::RouterGroupScore::sum_of_two;
    std::vector<std::pair<Real, Scores>> groups;
    for (int g = 0; g < s_.experts.groups; ++g) {
      Scores group(scores.begin() + g * size, scores.begin() + (g + 1) * size);
      std::sort(group.begin(), group.end());
      groups.emplace_back(group[0].first + (takes_two ? group[1].first : Real(0)), group);
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
    Array logits = multiply(x, parameters_(unit, "mlp.router.weight"), s_.width, e.count);
    if (e.router_bias) add_bias(logits, parameters_(unit, "mlp.router.bias"));
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
    if (e.shared > 0) {
      const std::int64_t own = e.own_shared_width;
      y = mlp(unit, "mlp.shared", static_cast<int>(own > 0 ? own : e.shared * e.width), x);
    }
    if (e.shared_gate) {  // Qwen Team 2024, Qwen1.5-MoE
      const Array gate = multiply(x, parameters_(unit, "mlp.shared_gate.weight"), s_.width, 1);
      for (std::size_t j = 0; j < y.size(); ++j) y[j] *= sigmoid(gate[j / s_.width]);
    }
    for (int i = 0; i < e.count; ++i) {
      const Array one = mlp(unit, "mlp.experts." + std::to_string(i), e.width, x);
      for (std::size_t j = 0; j < y.size(); ++j) y[j] += weights[i][j / s_.width] * one[j];
    }
    return y;
  }

  static Real sigmoid(Real x) { return Real(1) / (Real(1) + std::exp(-x)); }

  /// Hendrycks & Gimpel 2016, in the tanh form or exact.
  static Real gelu(Real x, bool is_exact) {
    if (is_exact) return Real(0.5) * x * (Real(1) + std::erf(x / std::sqrt(Real(2))));
    const Real inner =
        Real(std::sqrt(2.0 / 3.14159265358979323846)) * (x + Real(0.044715) * x * x * x);
    return Real(0.5) * x * (Real(1) + std::tanh(inner));
  }

  /// Shazeer 2020, section 2, or gpt-oss (OpenAI 2025) with its clamps.
  Real gated(Real gate, Real up) const {
    switch (s_.activation) {
      case model::Activation::swiglu:
        return gate * sigmoid(gate) * up;
      case model::Activation::geglu:
      case model::Activation::geglu_exact:
        return gelu(gate, s_.activation == model::Activation::geglu_exact) * up;
      default:
        gate = std::min(gate, Real(7));
        return gate * sigmoid(Real(1.702) * gate) * (std::min(std::max(up, Real(-7)), Real(7)) + 1);
    }
  }
  Real ungated(Real x) const {
    switch (s_.activation) {
      case model::Activation::gelu:
      case model::Activation::gelu_exact:
        return gelu(x, s_.activation == model::Activation::gelu_exact);
      case model::Activation::relu:
        return std::max(x, Real(0));
      default:  // So et al. 2021
        return std::max(x, Real(0)) * std::max(x, Real(0));
    }
  }
  bool has_gate() const {
    return std::string(math::name(s_.activation)).find("glu") != std::string::npos;
  }

  Array mlp(const std::string& unit, const std::string& name, int n, const Array& x) const {
    Array active(rows() * n);
    if (!has_gate()) {
      const Array up = linear(unit, name + ".up", x, s_.width, n);
      for (std::size_t i = 0; i < up.size(); ++i) active[i] = ungated(up[i]);
    } else {
      const Array gate_up = linear(unit, name + ".gate_up", x, s_.width, 2 * n);
      for (int r = 0; r < rows(); ++r)
        for (int j = 0; j < n; ++j)
          active[r * n + j] = gated(gate_up[r * 2 * n + j], gate_up[r * 2 * n + n + j]);
    }
    return linear(unit, name + ".down", active, n, s_.width);
  }

  /// Makes logits of products with the output's weight; the cap is of Gemma Team 2024, section 2.
  Array make_logits(Array z) const {
    if (s_.head_bias) add_bias(z, parameters_("head", "output.bias"));
    const Real cap = Real(s_.logit_soft_cap);
    for (Real& logit : z) {
      logit *= Real(s_.logit_scale);
      if (cap > 0) logit = cap * std::tanh(logit / cap);
    }
    return z;
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
