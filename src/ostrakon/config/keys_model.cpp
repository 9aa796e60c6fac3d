// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <ostrakon/config/key_kinds.hpp>
#include <ostrakon/config/keys.hpp>
#include <ostrakon/math/delta_net/convolution.hpp>

namespace ostrakon::config {
namespace {

// Bounds that keep every product of two of them, and the 32-bit sizes of BLAS libraries, in range.
constexpr std::int64_t most_columns = std::int64_t{1} << 26;
constexpr std::int64_t most_tokens = std::numeric_limits<std::int32_t>::max();

#define FIELD(member) \
  [](auto& settings) -> auto& { return settings.member; }

/// Names of kinds of norms of queries and keys, besides false and true.
constexpr Named<model::QueryKeyNorm> query_key_norm_names[] = {
    {model::QueryKeyNorm::each_head, "each_head"},
    {model::QueryKeyNorm::whole, "whole"},
    {model::QueryKeyNorm::rotated, "rotated"}};

/// A key of a norm of queries and keys: false, true, or the name of a kind.
template <class Field>
Key query_key_norm(const std::string& name, Field field, const std::string& meaning) {
  Key key(name, meaning);
  key.expected = "false, true, each_head, whole or rotated";
  key.limits = "false | true | each_head | whole | rotated";
  key.set = [=](Settings& settings, const Value& value) {
    model::QueryKeyNorm& norm = field(settings);
    if (value.kind == Value::Kind::boolean) {
      norm = value.boolean ? model::QueryKeyNorm::head : model::QueryKeyNorm::none;
      return true;
    }
    for (const auto& one : query_key_norm_names)
      if (value.kind == Value::Kind::text && value.text == one.name) {
        norm = one.value;
        return true;
      }
    return false;
  };
  key.get = [=](const Settings& settings) {
    const model::QueryKeyNorm norm = field(settings);
    for (const auto& one : query_key_norm_names)
      if (norm == one.value) return Value::of(std::string(one.name));
    return Value::of(norm == model::QueryKeyNorm::head);
  };
  return key;
}

/// Returns the layer that PEFT calls so; null: none.
const char* layer_of_target(const std::string& target) {
  for (const model::AdaptableLayer& one : model::adaptable_layers)
    if (one.target == target) return one.layer;
  return nullptr;
}

/// A key of layers with adapters, by PEFT's names: "q_proj, v_proj", or a list.
template <class Field>
Key lora_targets(const std::string& name, Field field, const std::string& meaning) {
  std::vector<std::string> targets;
  for (const model::AdaptableLayer& one : model::adaptable_layers) targets.emplace_back(one.target);
  Key key(name, meaning);
  key.expected = text("some of ", join(targets, ", ", " and "), ", as text or a list");
  key.limits = "targets";
  key.is_text = true;
  key.set = [=](Settings& settings, const Value& value) {
    if (value.kind != Value::Kind::text && value.kind != Value::Kind::list) return false;
    std::vector<std::string> named = value.items;
    if (value.kind == Value::Kind::text) {
      named.clear();
      std::string one;
      for (const char c : value.text + ",") {
        if (c != ',' && c != ' ') {
          one += c;
        } else if (!one.empty()) {
          named.push_back(one);
          one.clear();
        }
      }
    }
    std::set<std::string> layers;
    for (const std::string& target : named) {
      const char* const layer = layer_of_target(target);
      if (layer == nullptr) return false;
      require(layers.insert(layer).second, target, " is given twice; expected each layer once");
    }
    if (layers.empty()) return false;
    field(settings) = layers;
    return true;
  };
  key.get = [=](const Settings& settings) {
    std::vector<std::string> named;
    for (const model::AdaptableLayer& one : model::adaptable_layers)
      if (field(settings).count(one.layer) > 0) named.emplace_back(one.target);
    return Value::of(join(named, ", ", ", "));
  };
  return key;
}

}  // namespace

Section lora_section() {
  constexpr std::int64_t most_rank = 65536;
  return {"lora",
          "low-rank adapters of linear layers, which alone are trained: see docs/tuning.md",
          {integer("rank", FIELD(model.lora.rank), 0, most_rank,
                   "rank of the adapters, PEFT's r; 0: none, all parameters are trained"),
           number("alpha", FIELD(model.lora.alpha), positive,
                  "what adapters add is multiplied by alpha / rank; PEFT's lora_alpha"),
           lora_targets("targets", FIELD(model.lora.layers),
                        "layers of each block that have adapters; PEFT's target_modules"),
           path("initial", FIELD(lora_initial), true,
                "folder of PEFT (adapter_config.json, adapter_model.safetensors) with the adapters "
                "to begin with; empty: they begin as zero products, of a random and a zero "
                "matrix")}};
}

Section model_section() {
  return {
      "model",
      "what is computed: a decoder-only transformer",
      {path(
           "from", FIELD(model_from), true,
           "folder with a config.json (Hugging Face) that sets the keys of this section: keys that "
           "are given besides must agree with it, or be those that it does not set. Its weights "
           "are "
           "read only where checkpoint.initial_weights names them; empty: none"),
       choice("norm", FIELD(model.norm), math::norm_names,
              "norm of attention's and MLP's inputs or outputs (norm_placement), and before the "
              "output projection"),
       choice("norm_weight", FIELD(model.norm_weight), math::norm_weight_names,
              "what norms multiply by: plain: their weight; one_plus: 1 + their weight; none: "
              "nothing, they have neither weights nor biases"),
       choice(
           "norm_placement", FIELD(model.norm_placement), model::norm_placement_names,
           "where blocks have norms. before: of what attention and MLP take; after: of what they "
           "add to the residual stream; both: of either"),
       choice("block", FIELD(model.block), model::block_form_names,
              "what the MLP of a block takes. sequential: the sum with attention's output; "
              "parallel: what attention takes, by the same norm; parallel_two_norms: the block's "
              "input, by a norm of its own"),
       choice("positions", FIELD(model.positions), model::positions_names, "positional encoding"),
       named_integer("max_positions", FIELD(model.max_positions), {{"auto", 0}}, 1, most_tokens,
                     "rows of the table of learned positions, at least training.sequence_length, "
                     "whose tokens use the first rows; auto: training.sequence_length"),
       choice("activation", FIELD(model.activation), math::activation_names,
              "activation function of the MLP. gelu and geglu have the tanh form of GELU, "
              "gelu_exact and geglu_exact its own. swiglu, geglu, geglu_exact and swiglu_clamped "
              "have a gate: they multiply silu(gate) or gelu(gate) by up. swiglu_clamped, of "
              "gpt-oss: gate sigmoid(1.702 gate) (up + 1), with gate up to 7 and up within 7"),
       integer("layers", FIELD(model.layers), 1, most_layers, "number of transformer blocks"),
       named_integer("blocks_per_unit", FIELD(model.blocks_per_unit), {{"auto", 0}}, 1, most_layers,
                     "transformer blocks in a unit, which is gathered and released together; auto: "
                     "units of 33 million parameters or more, but at least four units"),
       integer("width", FIELD(model.width), 1, most_columns, "width of the residual stream"),
       integer("heads", FIELD(model.heads), 1, most_columns, "attention heads"),
       integer(
           "kv_heads", FIELD(model.kv_heads), 0, most_columns,
           "heads of keys and values (grouped-query attention). By default, and with 0, as many as "
           "heads"),
       named_integer("head_width", FIELD(model.head_dim), {{"auto", 0}}, 1, most_columns,
                     "width of each head; auto: width / heads"),
       integer("kv_rank", FIELD(model.latent.kv_rank), 0, most_columns,
               "above 0: latent attention (MLA). Keys and values are made of a normed latent of so "
               "many columns, but for rotary_width elements of the keys"),
       integer(
           "query_rank", FIELD(model.latent.q_rank), 0, most_columns,
           "columns of a normed latent that queries are made of, with kv_rank; 0: they are made "
           "directly"),
       integer("rotary_width", FIELD(model.latent.rotary_width), 0, most_columns,
               "with kv_rank: first elements of each head that are rotated; in keys they are the "
               "same for all heads"),
       integer("value_width", FIELD(model.latent.value_width), 0, most_columns,
               "with kv_rank: width of each head's values; 0: head_width"),
       number("latent_norm_epsilon", FIELD(model.latent.norm_epsilon), small,
              "with kv_rank: epsilon of the RMS norms of latents"),
       query_key_norm("query_key_norm", FIELD(model.query_key_norm),
                      "norm of queries and keys. true: of each head, before rotary positions; "
                      "each_head: the same, with weights of its own for each head; whole: of all "
                      "heads of a token together, before; rotated: of each head, after rotary "
                      "positions"),
       choice("query_key_norm_kind", FIELD(model.query_key_norm_kind), math::norm_names,
              "kind of query_key_norm; layernorm has no bias there"),
       number("attention_scale", FIELD(model.attention_scale), not_negative,
              "factor of attention's scores; 0: 1 / sqrt(head_width)"),
       number("attention_soft_cap", FIELD(model.attention_soft_cap), not_negative,
              "c above 0: scores become c tanh(score / c)"),
       integer("attention_window", FIELD(model.attention_window), 0, most_tokens,
               "tokens that a token attends to, itself and those before it, in window_layers; 0: "
               "all before it"),
       layer_pattern("window_layers", FIELD(model.window_layers), "layers with attention_window"),
       boolean("attention_sinks", FIELD(model.attention_sinks),
               "a trained logit of each head, which takes part in the softmax of scores but has no "
               "value"),
       boolean(
           "attention_gate", FIELD(model.attention_gate),
           "attention's output is multiplied by the sigmoid of a gate of each column, which the "
           "layer of queries makes besides"),
       number("clip_qkv", FIELD(model.clip_qkv), not_negative,
              "above 0: queries, keys and values are clamped to plus or minus it"),
       integer("delta_key_heads", FIELD(model.delta_net.key_heads), 0, most_columns,
               "above 0: delta_layers have a gated delta net in place of attention, with so many "
               "heads of queries and keys"),
       integer("delta_value_heads", FIELD(model.delta_net.value_heads), 0, most_columns,
               "heads of values and states of gated delta nets, a multiple of delta_key_heads"),
       integer("delta_key_width", FIELD(model.delta_net.key_width), 1, most_columns,
               "width of a head's queries and keys in gated delta nets"),
       integer("delta_value_width", FIELD(model.delta_net.value_width), 1, most_columns,
               "width of a head's values in gated delta nets"),
       integer("delta_convolution", FIELD(model.delta_net.convolution), 1, math::most_taps,
               "tokens, the last one its own, over which the convolution of queries, keys and "
               "values in gated delta nets goes"),
       layer_pattern("delta_layers", FIELD(model.delta_layers),
                     "layers with a gated delta net in place of attention"),
       integer(
           "ffn_width", FIELD(model.ffn_width), 0, most_columns,
           "inner width of the MLP. By default, and with 0, 4 x width, or with a gate 8/3 x width "
           "rounded up to a multiple of 64. With experts: only the default of expert_width"),
       integer("experts", FIELD(model.experts.count), 0, model::most_experts,
               "MLPs of each block, of which a router chooses some for each token (a mixture of "
               "experts); 0: one MLP for all tokens"),
       layer_pattern("expert_layers", FIELD(model.expert_layers),
                     "layers with experts; others have one MLP of ffn_width"),
       integer("experts_per_token", FIELD(model.experts.per_token), 1, model::most_experts,
               "experts that compute a token: those with the highest scores, of equal ones the "
               "first. No token is dropped"),
       integer("shared_experts", FIELD(model.experts.shared), 0, model::most_experts,
               "further experts that compute all tokens: one MLP of shared_expert_width"),
       integer("shared_expert_width", FIELD(model.experts.own_shared_width), 0, most_columns,
               "inner width of the MLP of shared experts; 0: shared_experts x expert_width"),
       boolean("shared_gate", FIELD(model.experts.shared_gate),
               "the output of shared experts is multiplied by the sigmoid of a trained linear "
               "function of each token"),
       integer("expert_width", FIELD(model.experts.width), 0, most_columns,
               "inner width of each expert. By default, and with 0, ffn_width"),
       choice("router_score", FIELD(model.experts.score), math::router_score_names,
              "what makes scores of the router's logits: softmax over all experts, or sigmoid of "
              "each logit. Both in fp32"),
       boolean("router_bias", FIELD(model.experts.router_bias), "bias of the router's logits"),
       boolean("router_normalize", FIELD(model.experts.normalize),
               "divide the scores of a token's experts by their sum"),
       number("router_scale", FIELD(model.experts.scale), positive,
              "factor of the scores, which are then the weights of the experts' outputs"),
       integer("router_groups", FIELD(model.experts.groups), 1, math::most_router_groups,
               "number of groups of neighbouring experts. A token's experts are all of its "
               "router_groups_per_token groups, those with the highest router_group_score; divides "
               "experts"),
       choice("router_group_score", FIELD(model.experts.group_score),
              math::router_group_score_names,
              "score of a group of experts. sum_of_two: the sum of its two highest; max: its "
              "highest"),
       integer("router_groups_per_token", FIELD(model.experts.groups_per_token), 1,
               math::most_router_groups,
               "groups from which a token's experts are chosen; together they have "
               "experts_per_token experts or more"),
       choice("router_balance", FIELD(model.experts.balance), model::router_balance_names,
              "what keeps the router from sending most tokens to few experts. loss: an auxiliary "
              "loss of each block, router_balance_rate x experts x the sum over experts of f P, "
              "averaged over leaves; f is the expert's share of all that is chosen in the leaf, P "
              "its mean score. It adds gradients; the reported loss is without it. bias: a bias "
              "of scores, for the choice alone, which after each step is lower by "
              "router_balance_rate for experts with more tokens than the mean, and higher for "
              "those with fewer"),
       number("router_balance_rate", FIELD(model.experts.balance_rate), up_to_1e30,
              "factor of the auxiliary loss of router_balance, or step of its bias"),
       integer("vocabulary", FIELD(model.vocabulary), 2, most_tokens,
               "number of token ids, at least that of the token file; the byte tokenizer has 257: "
               "256 bytes and one that ends a document"),
       boolean("bias", FIELD(model.bias),
               "biases in linear layers, and in norms if they are layernorm"),
       boolean_or_auto("qkv_bias", FIELD(model.own_qkv_bias),
                       "biases of queries, keys and values; auto: as bias"),
       boolean_or_auto("out_bias", FIELD(model.own_out_bias),
                       "bias of attention's output projection; auto: as bias"),
       boolean_or_auto("mlp_bias", FIELD(model.own_mlp_bias),
                       "biases in linear layers of MLPs and experts; auto: as bias"),
       boolean_or_auto("norm_bias", FIELD(model.own_norm_bias),
                       "biases of norms, if they are layernorm; auto: as bias"),
       boolean("head_bias", FIELD(model.head_bias), "bias of the logits"),
       boolean("tie_embeddings", FIELD(model.tie_embeddings),
               "input embedding and output projection share one parameter (tied)"),
       power_of_two("tensor_grain", FIELD(tensor_grain), 1,
                    "number of pieces of heads, MLP columns and vocabulary whose terms are summed "
                    "by themselves. With every parallel.tensor that divides it results have the "
                    "same bits; another number is equal up to rounding. 1: cut only where "
                    "parallel.tensor divides them"),
       number("norm_epsilon", FIELD(model.norm_epsilon), small,
              "epsilon that norms add to the variance"),
       number("rotary_base", FIELD(model.rotary.base), rotary_base,
              "base of rotary positional encoding, rope_theta"),
       number("rotary_share", FIELD(model.rotary.share), share,
              "share of a head's width, from its first element on, that is rotated; "
              "partial_rotary_factor"),
       layer_pattern("rotary_layers", FIELD(model.rotary_layers),
                     "layers with rotary positions; others have none"),
       named_number("window_rotary_base", FIELD(model.window_rotary_base), "auto", rotary_base,
                    "rotary_base of layers with attention_window, where rotary_scaling is not "
                    "applied; auto: as other layers"),
       choice("rotary_scaling", FIELD(model.rotary.scaling), math::rotary_scaling_names,
              "scaling of rotary frequencies for sequences longer than "
              "rotary_original_length. linear: all divided by rotary_factor; llama3: "
              "low ones alone; yarn: by how often they turn in that length; longrope: each by a "
              "factor of its own"),
       number("rotary_factor", FIELD(model.rotary.factor), positive,
              "factor of rotary_scaling linear, llama3, yarn and longrope"),
       integer("rotary_original_length", FIELD(model.rotary.original_length), 0, most_tokens,
               "tokens of sequences before rotary_scaling: llama3, yarn, longrope; 0: not known"),
       number("rotary_low_factor", FIELD(model.rotary.low_factor), positive,
              "llama3: frequencies whose wavelength is above rotary_original_length over it are "
              "divided by rotary_factor"),
       number("rotary_high_factor", FIELD(model.rotary.high_factor), positive,
              "llama3: frequencies whose wavelength is below rotary_original_length over it stay"),
       number("rotary_beta_fast", FIELD(model.rotary.beta_fast), positive,
              "yarn: frequencies with more turns in rotary_original_length stay"),
       number("rotary_beta_slow", FIELD(model.rotary.beta_slow), positive,
              "yarn: frequencies with fewer turns are divided by rotary_factor"),
       boolean("rotary_truncate", FIELD(model.rotary.truncate),
               "yarn: the bounds between these are rounded to whole pairs"),
       named_number("rotary_attention_factor", FIELD(model.rotary.attention_factor), "auto",
                    positive,
                    "yarn and longrope: factor of queries and keys; auto: by the formula of each"),
       numbers("rotary_short_factors", FIELD(model.rotary.short_factors), positive,
               "longrope: factors of pairs for sequences of up to rotary_original_length tokens"),
       numbers("rotary_long_factors", FIELD(model.rotary.long_factors), positive,
               "longrope: factors of pairs for longer sequences"),
       boolean("embedding_norm", FIELD(model.embedding_norm), "norm of the embedding"),
       number("embedding_scale", FIELD(model.embedding_scale), positive, "factor of the embedding"),
       number("residual_scale", FIELD(model.residual_scale), positive,
              "factor of what attention and MLP add to the residual stream"),
       number("logit_scale", FIELD(model.logit_scale), positive, "factor of the logits"),
       number("logit_soft_cap", FIELD(model.logit_soft_cap), not_negative,
              "c above 0: logits become c tanh(logit / c)"),
       integer("multi_token_depth", FIELD(model.multi_token_depth), 0, 1,
               "tokens behind the next one that a module predicts while the model is trained "
               "(multi-token prediction): a further block, which takes the last block's output "
               "and the embedding of the next token. num_nextn_predict_layers"),
       number("multi_token_factor", FIELD(model.multi_token_factor), positive,
              "factor of the mean loss of these tokens, which is added to that of the next ones"),
       number("initializer_deviation", FIELD(model.initializer_deviation), positive,
              "standard deviation of initial weights; over sqrt(2 x layers) for the output "
              "projections of attention and MLP")}};
}

#undef FIELD

}  // namespace ostrakon::config
