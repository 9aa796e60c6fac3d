// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/base/names.hpp>
#include <ostrakon/math/attention/rotary_settings.hpp>
#include <ostrakon/math/norm.hpp>
#include <ostrakon/math/routing.hpp>

namespace ostrakon::model {

/// A linear layer y = x W^T + b has a W with random initial values of this standard deviation, and
/// may have a b, which is 0 at first.
struct LinearSettings {
  double deviation = 0.02;
  bool bias = true;
};

/// A norm of rows, or of heads. The bias is layernorm's, and none without a weight.
struct NormSettings {
  math::NormKind kind = math::NormKind::layernorm;
  bool bias = true;
  double epsilon = 1e-5;
  math::NormWeight weight = math::NormWeight::plain;
};

/// Which norm queries and keys have.
enum class QueryKeyNorm {
  none,
  head,    ///< of each head, before rotary positions
  whole,   ///< of all heads of a row together, before rotary positions
  rotated  ///< of each head, after rotary positions
};

/// Causal attention within each sample.
struct AttentionSettings {
  std::int64_t heads = 1;
  std::int64_t kv_heads = 0;                         ///< of keys and values; 0: as many
  std::int64_t head_width = 0;                       ///< 0: columns / heads
  math::RotarySettings rotary = {0.0};               ///< rotary positions; base 0: none
  QueryKeyNorm query_key_norm = QueryKeyNorm::none;  ///< by RMS norm
  double norm_epsilon = 1e-5;                        ///< of that norm
  math::NormWeight norm_weight = math::NormWeight::plain;
  double scale = 0.0;       ///< of scores; 0: 1 / sqrt(head_width)
  double soft_cap = 0.0;    ///< above 0: scores become soft_cap * tanh(score / soft_cap)
  std::int64_t window = 0;  ///< above 0: a token sees itself and the window - 1 tokens before
  bool sinks = false;       ///< a logit of each head beside its scores, with no value
  bool alibi = false;       ///< scores have a slope times the distance subtracted
  double clip = 0.0;        ///< above 0: queries, keys and values are clamped to [-clip, clip]
};

/// What an MLP activates its inner columns by. Gated ones multiply f(gate) by up.
enum class Activation {
  gelu,        ///< tanh form
  gelu_exact,  ///< x Phi(x), by the error function
  relu,
  relu_squared,
  swiglu,         ///< silu(gate) up
  geglu,          ///< gelu(gate) up
  geglu_exact,    ///< gelu_exact(gate) up
  swiglu_clamped  ///< gpt-oss: gate sigmoid(1.702 gate) (up + 1), gate <= 7, |up| <= 7
};
constexpr Named<Activation> activation_names[] = {{Activation::gelu, "gelu"},
                                                  {Activation::gelu_exact, "gelu_exact"},
                                                  {Activation::relu, "relu"},
                                                  {Activation::relu_squared, "relu_squared"},
                                                  {Activation::swiglu, "swiglu"},
                                                  {Activation::geglu, "geglu"},
                                                  {Activation::geglu_exact, "geglu_exact"},
                                                  {Activation::swiglu_clamped, "swiglu_clamped"}};
constexpr const char* name(Activation activation) { return name_in(activation_names, activation); }
/// Whether an activation takes gate and up side by side.
constexpr bool is_gated(Activation activation) {
  return activation == Activation::swiglu || activation == Activation::geglu ||
         activation == Activation::geglu_exact || activation == Activation::swiglu_clamped;
}

/// An MLP: a linear layer up, the activation, a linear layer down. With a gated activation the
/// first one has the gate, too.
struct MlpSettings {
  Activation activation = Activation::gelu;
  LinearSettings up = {};
  LinearSettings down = {};
};

/// What keeps a router from sending most tokens to few experts.
enum class RouterBalance {
  none,
  loss,  ///< the gradient of an auxiliary loss, see math::router_backward
  bias   ///< a bias of scores, for the choice alone, that follows the counts of tokens
};
constexpr Named<RouterBalance> router_balance_names[] = {
    {RouterBalance::none, "none"}, {RouterBalance::loss, "loss"}, {RouterBalance::bias, "bias"}};
constexpr const char* name(RouterBalance balance) { return name_in(router_balance_names, balance); }

/// A mixture of experts: each row is computed by a few of many MLPs, which a router chooses.
/// Mixtral: softmax, normalize. DeepSeek-V3, but for its groups of experts: sigmoid, normalize,
/// scale, shared experts, bias.
struct ExpertSettings {
  std::int64_t count = 0;      ///< MLPs; 0: one that computes all tokens
  std::int64_t per_token = 2;  ///< that compute a token
  std::int64_t shared = 0;     ///< further ones that compute all tokens: one MLP, as wide as these
  std::int64_t width = 0;      ///< inner width of each
  math::RouterScore score = math::RouterScore::softmax;
  bool normalize = true;
  double scale = 1.0;
  RouterBalance balance = RouterBalance::none;
  double balance_rate = 0.001;  ///< factor of the auxiliary loss; step of the bias
  std::int64_t groups = 1;      ///< equal runs of experts, see math::Router
  std::int64_t groups_per_token = 1;

  bool exist() const { return count > 0; }
  std::int64_t shared_width() const { return shared * width; }
  math::Router router() const {
    return {count, per_token, score, normalize, scale, groups, groups_per_token};
  }
};

/// The most experts of a mixture.
constexpr std::int64_t most_experts = 4096;

}  // namespace ostrakon::model
