// SPDX-License-Identifier: Apache-2.0
#pragma once

// GPT-2, GPT-BigCode, Llama, Mixtral, Qwen3, Qwen3-MoE and Starcoder2 in plain loops over tensors
// with Hugging Face's names and shapes, as transformers computes them: references for our models
// with parameters read from such tensors.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ostrakon::test::huggingface {

using Array = std::vector<double>;

struct Tensor {
  std::vector<std::int64_t> shape;
  Array values;
};
using Tensors = std::map<std::string, Tensor>;

struct Config {
  int layers, width, heads, kv_heads;
  double epsilon, rope_theta;
  int experts_per_token = 0;
  int head_dim = 0;            ///< 0: width / heads
  bool norm_topk_prob = true;  ///< used by Qwen3-MoE
};

class Model {
 public:
  Model(Config config, const Tensors& tensors) : c_(config), tensors_(tensors) {}

  /// Returns the loss at each token of one sequence. GPT-BigCode's weights are (out, in).
  Array gpt2(const std::vector<int>& tokens, const std::vector<int>& targets) const {
    const int rows = static_cast<int>(tokens.size());
    Array x = lookup("transformer.wte.weight", tokens);
    const Array& positions = values("transformer.wpe.weight");
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += positions[i];
    for (int layer = 0; layer < c_.layers; ++layer) {
      const std::string block = "transformer.h." + std::to_string(layer) + ".";
      const Array qkv = affine(layer_norm(x, block + "ln_1"), rows, block + "attn.c_attn");
      const int kv_width = c_.kv_heads * head_dim(), all = c_.width + 2 * kv_width;
      Array q, k, v;
      for (int r = 0; r < rows; ++r)
        for (int j = 0; j < all; ++j)
          (j < c_.width ? q : j < c_.width + kv_width ? k : v).push_back(qkv[r * all + j]);
      add(x, affine(attend(q, k, v, rows), rows, block + "attn.c_proj"));
      const Array up = affine(layer_norm(x, block + "ln_2"), rows, block + "mlp.c_fc");
      add(x, affine(gelu(up), rows, block + "mlp.c_proj"));
    }
    return losses(linear(layer_norm(x, "transformer.ln_f"), rows, "transformer.wte.weight"),
                  targets);
  }

  /// Returns losses of Llama, perhaps with biases, Mixtral, Qwen3, Qwen3-MoE, and Starcoder2, which
  /// has no gate.
  Array llama(const std::vector<int>& tokens, const std::vector<int>& targets) const {
    const int rows = static_cast<int>(tokens.size());
    Array x = lookup("model.embed_tokens.weight", tokens);
    for (int layer = 0; layer < c_.layers; ++layer) {
      const std::string block = "model.layers." + std::to_string(layer) + ".";
      const Array h = norm(x, block + "input_layernorm");
      const Array q = rotary(
          of_heads(biased(h, rows, block + "self_attn.q_proj"), block + "self_attn.q_norm.weight"),
          rows);
      const Array k = rotary(
          of_heads(biased(h, rows, block + "self_attn.k_proj"), block + "self_attn.k_norm.weight"),
          rows);
      const Array v = biased(h, rows, block + "self_attn.v_proj");
      add(x, biased(attend(q, k, v, rows), rows, block + "self_attn.o_proj"));
      const Array m = norm(x, block + "post_attention_layernorm");
      if (tensors_.count(block + "mlp.c_fc.weight") > 0) {
        add(x, biased(gelu(biased(m, rows, block + "mlp.c_fc")), rows, block + "mlp.c_proj"));
        continue;
      }
      if (tensors_.count(block + "block_sparse_moe.gate.weight") > 0) {
        add(x, mixture(m, rows, block + "block_sparse_moe.", {"w1", "w3", "w2"}));
        continue;
      }
      if (tensors_.count(block + "mlp.gate.weight") > 0) {
        add(x, mixture(m, rows, block + "mlp.", {"gate_proj", "up_proj", "down_proj"}));
        continue;
      }
      add(x,
          gated(m, rows, block + "mlp.gate_proj", block + "mlp.up_proj", block + "mlp.down_proj"));
    }
    const bool tied = tensors_.count("lm_head.weight") == 0;
    return losses(
        linear(norm(x, "model.norm"), rows, tied ? "model.embed_tokens.weight" : "lm_head.weight"),
        targets);
  }

 private:
  Array gated(const Array& x, int rows, const std::string& gate, const std::string& up,
              const std::string& down) const {
    Array inner = biased(x, rows, gate);
    const Array factors = biased(x, rows, up);
    for (std::size_t i = 0; i < inner.size(); ++i)
      inner[i] *= factors[i] / (1 + std::exp(-inner[i]));
    return biased(inner, rows, down);
  }

  /// Weighs the chosen experts by the probabilities over all experts; they are divided by their sum
  /// for Mixtral, and for Qwen3-MoE with norm_topk_prob. `layers`: gate, up and down of an expert.
  Array mixture(const Array& x, int rows, const std::string& name,
                const std::vector<std::string>& layers) const {
    const Array logits = linear(x, rows, name + "gate.weight");
    const int experts = static_cast<int>(logits.size()) / rows;
    Array y(x.size(), 0.0);
    for (int r = 0; r < rows; ++r) {
      std::vector<int> order(experts);
      for (int e = 0; e < experts; ++e) order[e] = e;
      const double* mine = &logits[static_cast<std::size_t>(r) * experts];
      std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return mine[a] > mine[b]; });
      double sum = 0;
      for (int k = 0; k < (c_.norm_topk_prob ? c_.experts_per_token : experts); ++k)
        sum += std::exp(mine[order[k]]);
      const Array row(x.begin() + r * c_.width, x.begin() + (r + 1) * c_.width);
      for (int k = 0; k < c_.experts_per_token; ++k) {
        const std::string expert = name + "experts." + std::to_string(order[k]) + ".";
        const Array one = gated(row, 1, expert + layers[0], expert + layers[1], expert + layers[2]);
        for (int j = 0; j < c_.width; ++j)
          y[r * c_.width + j] += std::exp(mine[order[k]]) / sum * one[j];
      }
    }
    return y;
  }

  const Array& values(const std::string& name) const { return tensors_.at(name).values; }
  int head_dim() const { return c_.head_dim > 0 ? c_.head_dim : c_.width / c_.heads; }

  static void add(Array& x, const Array& y) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }

  Array lookup(const std::string& table, const std::vector<int>& tokens) const {
    Array x;
    for (const int token : tokens)
      for (int j = 0; j < c_.width; ++j) x.push_back(values(table)[token * c_.width + j]);
    return x;
  }

  /// Returns x (rows, in) W (in, out) + b, the Conv1D of GPT-2.
  Array conv1d(const Array& x, int rows, const std::string& name) const {
    const auto& shape = tensors_.at(name + ".weight").shape;
    const int in = static_cast<int>(shape[0]), out = static_cast<int>(shape[1]);
    Array y(static_cast<std::size_t>(rows) * out);
    for (int r = 0; r < rows; ++r)
      for (int o = 0; o < out; ++o) {
        y[r * out + o] = values(name + ".bias")[o];
        for (int i = 0; i < in; ++i)
          y[r * out + o] += x[r * in + i] * values(name + ".weight")[i * out + o];
      }
    return y;
  }

  /// Returns x (rows, in) W^T for W (out, in).
  Array linear(const Array& x, int rows, const std::string& name) const {
    const auto& shape = tensors_.at(name).shape;
    const int out = static_cast<int>(shape[0]), in = static_cast<int>(shape[1]);
    Array y(static_cast<std::size_t>(rows) * out, 0.0);
    for (int r = 0; r < rows; ++r)
      for (int o = 0; o < out; ++o)
        for (int i = 0; i < in; ++i) y[r * out + o] += x[r * in + i] * values(name)[o * in + i];
    return y;
  }

  /// Returns x W^T + b, or x W^T if there is no b.
  Array biased(const Array& x, int rows, const std::string& name) const {
    Array y = linear(x, rows, name + ".weight");
    if (tensors_.count(name + ".bias") == 0) return y;
    const Array& bias = values(name + ".bias");
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += bias[i % bias.size()];
    return y;
  }

  /// Computes a layer of GPT-2, or of GPT-BigCode, whose weights are transposed.
  Array affine(const Array& x, int rows, const std::string& name) const {
    return c_.kv_heads == c_.heads ? conv1d(x, rows, name) : biased(x, rows, name);
  }

  static Array gelu(Array x) {
    for (double& u : x)
      u = 0.5 * u *
          (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (u + 0.044715 * std::pow(u, 3))));
    return x;
  }

  Array norm(const Array& x, const std::string& name) const {
    return tensors_.count(name + ".bias") > 0 ? layer_norm(x, name) : rms_norm(x, name + ".weight");
  }

  Array layer_norm(const Array& x, const std::string& name) const {
    Array y(x.size());
    for (std::size_t r = 0; r < x.size(); r += c_.width) {
      double mean = 0, variance = 0;
      for (int j = 0; j < c_.width; ++j) mean += x[r + j] / c_.width;
      for (int j = 0; j < c_.width; ++j) variance += std::pow(x[r + j] - mean, 2) / c_.width;
      for (int j = 0; j < c_.width; ++j)
        y[r + j] =
            (x[r + j] - mean) / std::sqrt(variance + c_.epsilon) * values(name + ".weight")[j] +
            values(name + ".bias")[j];
    }
    return y;
  }

  /// Normalizes runs of the length of the weight.
  Array rms_norm(const Array& x, const std::string& name) const {
    Array y(x.size());
    const Array& weight = values(name);
    const std::size_t width = weight.size();
    for (std::size_t r = 0; r < x.size(); r += width) {
      double square = 0;
      for (std::size_t j = 0; j < width; ++j)
        square += x[r + j] * x[r + j] / static_cast<double>(width);
      for (std::size_t j = 0; j < width; ++j)
        y[r + j] = x[r + j] / std::sqrt(square + c_.epsilon) * weight[j];
    }
    return y;
  }

  /// Returns queries or keys after their norms, if they have any.
  Array of_heads(const Array& x, const std::string& name) const {
    return tensors_.count(name) > 0 ? rms_norm(x, name) : x;
  }

  /// Returns x cos + rotate_half(x) sin, where rotate_half(x) = (-second half, first half) of a
  /// head, and both halves have the same angles.
  Array rotary(const Array& x, int rows) const {
    const int d = head_dim();
    const int width = static_cast<int>(x.size()) / rows;
    Array y(x.size());
    for (int r = 0; r < rows; ++r)
      for (int j = 0; j < width; ++j) {
        const int in_head = j % d;
        const double angle = r * std::pow(c_.rope_theta, -2.0 * (in_head % (d / 2)) / d);
        const double turned =
            in_head < d / 2 ? -x[r * width + j + d / 2] : x[r * width + j - d / 2];
        y[r * width + j] = x[r * width + j] * std::cos(angle) + turned * std::sin(angle);
      }
    return y;
  }

  /// Computes causal attention; key and value head h / (heads / kv_heads) serves query head h.
  Array attend(const Array& q, const Array& k, const Array& v, int rows) const {
    const int d = head_dim(), q_width = c_.heads * d, kv_width = c_.kv_heads * d;
    Array out(q.size(), 0.0);
    for (int h = 0; h < c_.heads; ++h)
      for (int r = 0; r < rows; ++r) {
        const int kv = h / (c_.heads / c_.kv_heads);
        Array weight;
        double sum = 0;
        for (int t = 0; t <= r; ++t) {
          double score = 0;
          for (int i = 0; i < d; ++i)
            score += q[r * q_width + h * d + i] * k[t * kv_width + kv * d + i];
          weight.push_back(std::exp(score / std::sqrt(d)));
          sum += weight.back();
        }
        for (int t = 0; t <= r; ++t)
          for (int i = 0; i < d; ++i)
            out[r * q_width + h * d + i] += weight[t] / sum * v[t * kv_width + kv * d + i];
      }
    return out;
  }

  static Array losses(const Array& logits, const std::vector<int>& targets) {
    const std::size_t vocabulary = logits.size() / targets.size();
    Array losses;
    for (std::size_t r = 0; r < targets.size(); ++r) {
      double sum = 0;
      for (std::size_t i = 0; i < vocabulary; ++i) sum += std::exp(logits[r * vocabulary + i]);
      losses.push_back(std::log(sum) - logits[r * vocabulary + targets[r]]);
    }
    return losses;
  }

  Config c_;
  const Tensors& tensors_;
};

}  // namespace ostrakon::test::huggingface
