// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/config/model_checks.hpp>

#include <ostrakon/base/numbers.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/config/factors.hpp>
#include <ostrakon/math/attention/rotary_frequencies.hpp>
#include <utility>

namespace ostrakon::config {
namespace {

/// Checks that the layers that a pattern names exist.
void check_patterns(const model::DecoderSettings& model, const std::string& name) {
  const std::pair<const char*, const model::LayerPattern&> patterns[] = {
      {"delta_layers", model.delta_layers},
      {"expert_layers", model.expert_layers},
      {"rotary_layers", model.rotary_layers},
      {"window_layers", model.window_layers}};
  for (const auto& [key, pattern] : patterns)
    require(pattern.least_layers() <= model.layers, name, ": model.", key, " = ", pattern.text(),
            " names layers that model.layers = ", model.layers, " has not; expected layers up to ",
            model.layers - 1);
}

/// Checks keys and values that are made of a latent, and settings that these have no place for.
void check_latent(const model::DecoderSettings& model, const std::string& name) {
  const model::LatentSettings& latent = model.latent;
  if (!latent.exist()) {
    for (const auto& [key, value] :
         {std::pair{"query_rank", latent.q_rank}, std::pair{"rotary_width", latent.rotary_width},
          std::pair{"value_width", latent.value_width}})
      require(value == 0, name, ": model.", key, " = ", value,
              " with model.kv_rank = 0, without latent attention; expected 0, or a kv_rank");
    return;
  }
  const std::string with = text(" with latent attention (model.kv_rank = ", latent.kv_rank, ")");
  require(latent.rotary_width >= 1 && latent.rotary_width < model.head_width(), name,
          ": model.rotary_width = ", latent.rotary_width, with,
          ": heads share that part of a key; expected 1 or more, and less than model.head_width = ",
          model.head_width());
  require(model.positions != model::Positions::rotary || latent.rotary_width % 2 == 0, name,
          ": model.positions = rotary rotates pairs of elements, but model.rotary_width = ",
          latent.rotary_width, "; expected an even number");
  require(model.kv_heads == model.heads, name, ": model.kv_heads = ", model.kv_heads, with,
          ", which makes keys and values of every head; expected model.heads = ", model.heads);
  require(!model.qkv_bias(), name, ": ",
          model.own_qkv_bias ? "model.qkv_bias = true" : "model.bias = true", with,
          ", whose queries, keys and values have no biases; expected model.qkv_bias = false");
  require(model.query_key_norm == model::QueryKeyNorm::none, name, ": model.query_key_norm is set",
          with, ", which norms latents; expected false");
  require(!model.attention_gate, name, ": model.attention_gate = true", with,
          ", whose layer of queries makes no gate; expected false");
  require(model.rotary.share == 1.0, name, ": model.rotary_share = ", model.rotary.share, with,
          ", of whose heads model.rotary_width elements are rotated; expected 1");
}

/// Checks gated delta nets.
void check_delta_nets(const model::DecoderSettings& model, const std::string& name) {
  const model::DeltaNetSettings& net = model.delta_net;
  require(net.exist() || net.value_heads == 0, name,
          ": model.delta_value_heads = ", net.value_heads,
          " with model.delta_key_heads = 0, without gated delta nets; expected 0, "
          "or some delta_key_heads");
  if (!net.exist()) return;
  require(net.value_heads > 0 && net.value_heads % net.key_heads == 0, name,
          ": model.delta_value_heads = ", net.value_heads,
          " is no multiple of model.delta_key_heads = ", net.key_heads,
          "; expected as many, or a multiple");
}

/// Checks the numbers of attention's scores.
void check_scores(const model::DecoderSettings& model, const std::string& name) {
  const std::pair<const char*, double> numbers[] = {
      {"attention_scale", model.attention_scale},
      {"attention_soft_cap", model.attention_soft_cap},
      {"clip_qkv", model.clip_qkv}};
  for (const auto& [key, value] : numbers)
    require(value == 0.0 ||
                (value >= model::least_attention_number && value <= model::most_attention_number),
            name, ": model.", key, " = ", value, "; expected 0, or ", model::least_attention_number,
            " to ", model::most_attention_number);
}

}  // namespace

void check_model(const model::DecoderSettings& model, const std::string& name) {
  require(model.head_dim > 0 || model.width % model.heads == 0, name,
          ": model.heads = ", model.heads, " does not divide model.width = ", model.width, " (",
          division(model.width, model.heads), "); expected a divisor, or model.head_width");
  require_divides(name, {"model.kv_heads", model.kv_heads}, {"model.heads", model.heads});
  require(model.blocks_per_unit <= model.layers, name,
          ": model.blocks_per_unit = ", model.blocks_per_unit,
          " is more than model.layers = ", model.layers);
  check_latent(model, name);
  check_delta_nets(model, name);
  if (model.positions == model::Positions::rotary) {
    const std::int64_t rotated =
        model.latent.exist() ? model.latent.rotary_width : model.head_width();
    require(
        model.latent.exist() || model.rotary.share < 1.0 || model.head_width() % 2 == 0, name,
        ": model.positions = rotary rotates pairs of elements, so a head's width must be even: ",
        model.head_width() * model.heads == model.width
            ? text("model.width / model.heads = ", model.width, " / ", model.heads, " = ")
            : "model.head_width = ",
        model.head_width());
    math::require_possible(model.rotary, rotated, name + ": ", "model.rotary_");
  }
  require(model.query_key_norm != model::QueryKeyNorm::whole ||
              model.query_key_norm_kind == math::NormKind::rmsnorm,
          name, ": model.query_key_norm = whole with model.query_key_norm_kind = layernorm, which ",
          "is of each head; expected rmsnorm, or true or each_head");
  check_patterns(model, name);
  check_scores(model, name);
}

void check_lora(const Settings& settings, const std::string& name) {
  const model::DecoderSettings& model = settings.model;
  const model::LoraSettings& lora = model.lora;
  if (!lora.exist()) {
    require(settings.lora_initial.empty(), name, ": lora.initial = ", settings.lora_initial,
            " with lora.rank = 0, without adapters; expected the rank of these");
    // Decks written by programs give every key; there the default beside rank 0 asks for nothing.
    const bool asks =
        lora.layers != model::LoraSettings().layers ||
        (settings.given.count("lora.targets") > 0 && settings.given.count("lora.rank") == 0);
    require(!asks, name, ": lora.targets = ", value_of(settings, "lora", "targets"),
            " with lora.rank = 0, which trains all parameters, without adapters; expected a rank, "
            "or no targets");
    return;
  }
  require(settings.lora_initial.empty() || !settings.checkpoint.initial_weights.empty(), name,
          ": lora.initial = ", settings.lora_initial, " without checkpoint.initial_weights, the ",
          "weights that these adapters were trained with; expected both");
  const auto refuse_unless = [&](bool fits, const char* key, const auto& value, const char* why,
                                 const auto& expected) {
    require(fits, name, ": ", key, " = ", value, " with lora.rank = ", lora.rank, ": ", why,
            "; expected ", expected);
  };
  refuse_unless(settings.tensor == 1, "parallel.tensor", settings.tensor,
                "adapters are not divided over tensor ranks", 1);
  refuse_unless(settings.tensor_grain == 1, "model.tensor_grain", settings.tensor_grain,
                "adapters are not cut into pieces", 1);
  refuse_unless(!model.experts.exist(), "model.experts", model.experts.count,
                "experts have no adapters", 0);
  refuse_unless(!model.latent.exist(), "model.kv_rank", model.latent.kv_rank,
                "layers of latent attention have no adapters", 0);
  refuse_unless(!model.attention_gate, "model.attention_gate", "true",
                "a layer of queries and gates has no adapter", "false");
  refuse_unless(!model.has_delta_nets(), "model.delta_key_heads", model.delta_net.key_heads,
                "layers of gated delta nets have no adapters", 0);
  refuse_unless(model.multi_token_depth == 0, "model.multi_token_depth", model.multi_token_depth,
                "modules of multi-token prediction have no adapters", 0);
  require(!lora.has("mlp.gate") || math::is_gated(model.activation), name,
          ": lora.targets has gate_proj with model.activation = ", math::name(model.activation),
          ", which has no gate; expected it without");
}

void check_modules(const Settings& settings, const std::string& name) {
  if (settings.model.multi_token_depth == 0) return;
  const std::string with =
      text(" with model.multi_token_depth = ", settings.model.multi_token_depth);
  require(!settings.model.tie_embeddings, name, ": model.tie_embeddings = true", with,
          ", whose module looks up embeddings beside the first unit; expected false");
  require(
      !has_expert_units(settings) || settings.model.norm_placement == model::NormPlacement::before,
      name, ": model.norm_placement = ", model::name(settings.model.norm_placement), with,
      ", whose experts are a unit of their own; expected before");
  const TrainingSettings& training = settings.training;
  require(training.sequence_length > 1, name,
          ": training.sequence_length = ", training.sequence_length, with,
          ", which predicts the token behind the next one; expected 2 or more");
  require(settings.context == 1, name, ": parallel.context = ", settings.context, with,
          ", of whose targets other parts of a sequence have some; expected 1");
  require(training.context_grain == 1, name, ": training.context_grain = ", training.context_grain,
          with, ", of whose targets other pieces of a sequence have some; expected 1");
}

void check_pairs(const Settings& settings, const std::string& name) {
  if (settings.data.objective != data::Objective::dpo) return;
  const std::string key = name + ": training.objective = dpo with ";
  const model::ExpertSettings& experts = settings.model.experts;
  require(settings.data.dataset == data::DatasetKind::tokens, key,
          "data.dataset = ", data::name(settings.data.dataset), ", which has no pairs of answers; ",
          "expected tokens");
  require(settings.data.documents == data::Documents::continued, key,
          "data.documents = ", data::name(settings.data.documents),
          ": a sequence is one pair of answers, which never ", "see each other; expected ",
          data::name(data::Documents::continued), ", the default");
  for (const auto& [what, value] :
       {std::pair{"parallel.tensor", settings.tensor},
        std::pair{"model.tensor_grain", settings.tensor_grain},
        std::pair{"parallel.context", settings.context},
        std::pair{"training.context_grain", settings.training.context_grain}})
    require(value == 1, key, what, " = ", value, ": the loss of a pair is computed where all of ",
            "its tokens and all words are; expected 1");
  for (const auto& [what, value] :
       {std::pair{"training.label_smoothing", settings.training.label_smoothing},
        std::pair{"training.z_loss", settings.training.z_loss}})
    require(value == 0.0, key, what, " = ", value,
            ", which is of losses of tokens, not of pairs; expected 0");
  require(settings.training.evaluate.empty(), key,
          "training.evaluate = ", settings.training.evaluate,
          ", which asks for losses of tokens, not of pairs; expected ", "none");
  require(!experts.exist() || experts.balance != model::RouterBalance::loss, key,
          "model.router_balance = loss, which is a mean over all tokens, not over pairs; expected ",
          "bias or none");
  require(!settings.model.has_delta_nets(), key,
          "model.delta_key_heads = ", settings.model.delta_net.key_heads,
          ": a gated delta net has a state that passes all ",
          "tokens of a sequence, from one answer to the other; expected a model without");
  require(settings.model.multi_token_depth == 0, key,
          "model.multi_token_depth = ", settings.model.multi_token_depth,
          ", whose losses are of tokens; expected 0");
}

void check_documents(const Settings& settings, const std::string& name) {
  if (settings.data.documents != data::Documents::separate) return;
  const model::DecoderSettings& model = settings.model;
  const std::string key = name + ": data.documents = separate with ";
  require(settings.data.dataset == data::DatasetKind::tokens, key,
          "data.dataset = ", data::name(settings.data.dataset),
          ", which has no documents; expected tokens, or data.documents = continue");
  require(!model.has_delta_nets(), key, "model.delta_key_heads = ", model.delta_net.key_heads,
          ": a gated delta net has a state that passes all tokens of a sequence, from one document "
          "to the next; expected a model without, or data.documents = continue");
  require(model.multi_token_depth == 0, key, "model.multi_token_depth = ", model.multi_token_depth,
          ": the token behind the next one may be another document's; expected 0, or "
          "data.documents = continue");
}

void check_experts(const Settings& settings, const std::string& name) {
  const model::ExpertSettings& experts = settings.model.experts;
  require(experts.exist() || settings.expert == 1, name, ": parallel.expert = ", settings.expert,
          " with model.experts = 0; expected 1, or some experts");
  if (!experts.exist()) return;
  require(
      experts.per_token <= experts.count, name, ": model.experts_per_token = ", experts.per_token,
      " is more than model.experts = ", experts.count, "; expected ", experts.count, " at most");
  require(experts.count % experts.groups == 0, name, ": model.router_groups = ", experts.groups,
          " does not divide model.experts = ", experts.count, " (",
          division(experts.count, experts.groups), "); expected a divisor");
  const std::int64_t of_group = experts.count / experts.groups;
  require(experts.groups_per_token <= experts.groups, name,
          ": model.router_groups_per_token = ", experts.groups_per_token,
          " is more than model.router_groups = ", experts.groups, "; expected ", experts.groups,
          " at most");
  require(experts.per_token <= experts.groups_per_token * of_group, name,
          ": model.experts_per_token = ", experts.per_token,
          " is more than the experts of model.router_groups_per_token = ", experts.groups_per_token,
          " groups of ", of_group, " (model.router_groups = ", experts.groups, "); expected ",
          experts.groups_per_token * of_group, " at most");
  require(experts.balance != model::RouterBalance::bias || experts.balance_rate > 0.0, name,
          ": model.router_balance = bias with model.router_balance_rate = ", experts.balance_rate,
          ", by which the bias would never change; expected more than 0");
  const std::int64_t sharing = settings.expert, tensor = settings.tensor;
  require(is_power_of_two(tensor), name, ": parallel.tensor = ", tensor,
          " with model.experts = ", experts.count,
          ", whose sums ranks add in pairs; expected a power of two");
  require(is_power_of_two(sharing) && experts.count % sharing == 0, name,
          ": parallel.expert = ", sharing, " for model.experts = ", experts.count,
          "; expected a power of two that divides it");
  require(sharing % tensor == 0, name, ": parallel.expert = ", sharing,
          " with parallel.tensor = ", tensor, " and model.experts = ", experts.count,
          ": tensor ranks share the experts; expected a multiple of ", tensor);
  require(tensor == 1 || settings.parallel.rank_order != plan::RankOrder::shard_first, name,
          ": parallel.rank_order = shard_first with parallel.tensor = ", tensor,
          " and model.experts = ", experts.count,
          ": ranks that share experts are neighbours; expected tensor_in_node or tensor_first");
  require(!has_expert_units(settings) || settings.model.blocks_per_unit <= 1, name,
          ": model.blocks_per_unit = ", settings.model.blocks_per_unit,
          sharing > 1 ? text(" with parallel.expert = ", sharing)
                      : text(" with model.tensor_grain = ", settings.tensor_grain),
          ", where experts are units of their own; expected 1");
}

}  // namespace ostrakon::config
