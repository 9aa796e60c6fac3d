// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <ostrakon/checkpoint/families/family.hpp>
#include <ostrakon/math/attention/rotary_settings.hpp>
#include <string>
#include <vector>

// The kinds of keys that families are made of. Only families/*.cpp include this file.

namespace ostrakon::checkpoint::keys {

/// A number or flag of settings, and the keys of a deck that hold it.
struct Setting {
  enum class Type {
    whole,
    whole_or_0,
    whole_or_null,  ///< 0 is written as null
    number,
    rounded,  ///< written as a whole number where it is one
    cap,      ///< 0 is written as null
    flag
  };

  std::vector<const char*> deck_keys;
  Type type;
  double (*get)(const model::DecoderSettings& settings);
  void (*set)(model::DecoderSettings& settings, double value);
};

extern const Setting layers, width, heads, kv_heads, head_width, ffn_width, vocabulary, tied,
    epsilon;
extern const Setting ffn_ratio;       ///< ffn_width / width
extern const Setting attention_bias;  ///< of queries, keys, values and attention's output
extern const Setting qkv_bias, out_bias, mlp_bias, linear_bias;
extern const Setting attention_soft_cap, logit_soft_cap, clip_qkv;  ///< null: none
extern const Setting embedding_scale, residual_scale, attention_scale, logit_scale;
extern const Setting logit_divisor;       ///< 1 / logit_scale
extern const Setting query_scalar;        ///< 1 / attention_scale^2
extern const Setting rotary_dim;          ///< elements of a head that are rotated
extern const Setting parallel;            ///< whether attention and MLP share a norm
extern const Setting parallel_two_norms;  ///< whether they take the same, by two norms
extern const Setting head_norms;          ///< norms of queries and keys, of each head
extern const Setting each_head_norms;     ///< layer norms with weights of its own for each head
extern const Setting kv_rank, query_rank, rotary_width, value_width;
extern const Setting unrotated_width;  ///< elements of a head that are not rotated, of latents
extern const Setting experts, experts_per_token, expert_width, shared_experts, router_normalize,
    router_scale, router_groups, router_groups_per_token;
extern const Setting delta_key_heads, delta_value_heads, delta_key_width, delta_value_width,
    delta_convolution;
extern const Setting multi_token_depth;
extern const Setting shared_width;  ///< inner width of all shared experts, as one

/// What a missing key, or null, means.
struct Missing {
  using Meaning = double (*)(const model::DecoderSettings& theirs);

  Missing(double number) : value(number) {}
  Missing(int number) : value(number) {}
  Missing(bool flag) : value(flag ? 1.0 : 0.0) {}
  Missing(Meaning meaning) : null_means(meaning) {}
  Missing(double number, Meaning meaning) : value(number), null_means(meaning) {}

  std::optional<double> value;   ///< of a missing key; none: as null
  Meaning null_means = nullptr;  ///< from keys before this one; null pointer: as a missing key
};

double as_heads(const model::DecoderSettings& theirs);
double equal_heads(const model::DecoderSettings& theirs);  ///< width / heads
double four_widths(const model::DecoderSettings& theirs);

/// A key that holds a setting. `others`: names that stand for a missing `name`; if the file has
/// both, they must agree.
Key key(const std::string& name, const Setting& setting, const Missing& missing,
        const std::vector<std::string>& others = {});

/// A name of a setting that the family does not read, but that must agree with it.
Key alias(const std::string& name, const Setting& setting);

/// A key that Decoder computes only for some values, as JSON, which include the default; the first
/// one is written if `is_written`.
Key required(const std::string& name, const std::vector<std::string>& computed,
             const std::string& why, bool is_written = false);

/// The activation of an MLP with a gate or without one. `others`: as for key().
Key activation(const std::string& name, bool is_gated, const std::string& missing);

/// How rotary positions are said.
struct Rope {
  double theta = 10000.0;  ///< default
  const char* theta_name = "rope_theta";
  /// Name of the share of a head that is rotated; null: whole heads are.
  const char* share_name = nullptr;
  double share = 1.0;  ///< default
  /// Default of original_max_position_embeddings beside rope_scaling; none: not read there.
  std::optional<std::int64_t> original_length = {};
  /// Name of the base in layers with a window, and its default; null: as in other layers.
  const char* window_theta_name = nullptr;
  double window_theta = 10000.0;
  bool scales_full_layers_only = false;  ///< frequencies in layers with a window are not scaled
  /// Whether a "dynamic" scaling with alpha is a larger base: theta alpha^(d / (d - 2)).
  bool has_alpha = false;
  const char* default_scaling = nullptr;  ///< JSON of rope_scaling, if it is missing
  /// Whether mscale_all_dim of yarn scales scores of attention, too, as DeepSeek does.
  bool scales_scores = false;
  /// Whether mrope_section and mrope_interleaved may say which pairs turn by an image's time, row
  /// and column. A token of text has its position as all three, so that they change nothing.
  bool has_axes = false;
};

/// rope_theta, rope_scaling, rope_parameters and what else is in `rope`. Older files have
/// rope_theta and rope_scaling; newer ones have both in rope_parameters, also one for each type of
/// layers. It comes after keys of sizes and of windows.
Key rope(const Rope& rope);

/// How a window of attention is said.
struct Window {
  std::optional<std::int64_t> size = {};  ///< default of sliding_window; none: no window
  /// Whether use_sliding_window switches it on; else that key has no effect.
  bool has_switch = false;
  /// Which layers have one, unless layer_types says it.
  enum class Layers {
    by_period,               ///< all but every `period`-th; all with a period of 0
    from_max_window_layers,  ///< from the one on that the key of this name says
    without_rotary           ///< those without rotary positions
  };
  Layers layers = Layers::by_period;
  int period = 0;
  bool has_types = false;    ///< whether layer_types says which
  bool has_pattern = false;  ///< whether sliding_window_pattern is `period`
  /// Whether only layers with a window have rotary positions: always, or where some have a window.
  bool rotates_within = false, rotates_all_without = false;
};
Key window(const Window& window);
/// layer_types of families without a window: all of them must be full_attention.
Key no_window();

/// layer_types and full_attention_interval: layers with a delta net; `interval` is the default.
Key delta_layers(int interval);

/// no_rope_layers and no_rope_layer_interval of SmolLM3: layers with rotary positions.
Key rotary_layers(int interval);
/// first_k_dense_replace: layers at the beginning that have no experts.
Key first_dense(int missing);
/// topk_method of DeepSeek-V2: whether experts are chosen within groups. It comes after those.
Key group_method();
/// decoder_sparse_step and mlp_only_layers: which layers have experts.
Key sparse_step();

/// Keys that all families require, and names of keys that have no effect in any.
std::vector<Key> common();
const std::set<std::string>& without_effect();

}  // namespace ostrakon::checkpoint::keys
