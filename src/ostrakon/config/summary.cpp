// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/config/keys.hpp>
#include <ostrakon/config/nearest.hpp>
#include <ostrakon/config/policy_text.hpp>
#include <ostrakon/math/portability.hpp>
#include <ostrakon/plan/ir/layout.hpp>
#include <stdexcept>

namespace ostrakon::config {
namespace {

bool is_muon(const Settings& settings) {
  return settings.optimizer.kind == optim::OptimizerKind::muon;
}

/// Whether any parameter is frozen.
bool freezes_some(const Settings& settings) {
  const std::vector<optim::ParameterRule>& rules = settings.optimizer.parameters;
  if (settings.model.lora.exist() || rules.empty()) return settings.model.lora.exist();
  const std::vector<model::Parameter> parameters = parameters_of(settings);
  return std::any_of(parameters.begin(), parameters.end(), [&](const model::Parameter& one) {
    return optim::is_frozen(rules, one.full_name());
  });
}

/// Returns layouts that stand for those of any number of ranks: two ranks in a shard group, and two
/// groups if there may be several.
plan::Layouts typical_layouts(const Settings& settings) {
  const plan::Grid grid(1, 2, settings.shard_group == mesh::world_group ? 1 : 2);
  plan::ModelDescription model;  // only the sizes of elements, and whether any is frozen
  if (settings.parallel.frozen_without_masters && freezes_some(settings))
    model.units.emplace_back().frozen_elements = 1;
  model.element_bytes = bytes_of(settings.precision.gather);
  model.master_bytes = bytes_of(DType::fp32);
  return plan::find_layouts(policy_of(settings), model, grid, plan::Purpose::train);
}

/// Whether a key of the section parallel may have an effect with the chosen sharding.
bool has_effect(const Settings& settings, const std::string& key) {
  const plan::Layouts layouts = typical_layouts(settings);
  if (layouts.gathers()) return true;
  // Parameters that are updated as a whole are gathered for the update.
  if (key == "forward_prefetch")
    return !layouts.updates_early && (layouts.updates_ahead() || is_muon(settings));
  return key != "reshard_after_forward" && key != "backward_prefetch" &&
         key != "in_flight_gathers" && key != "units";
}

/// Whether a setting differs from its default; others are not reported as without effect.
bool is_given(const Settings& settings, const Key& key) {
  static const Settings defaults;
  return key.get(settings).shown() != key.get(defaults).shown();
}

std::string written(const Settings& settings, const Key& key) {
  const Value value = key.get(settings);
  return value.kind == Value::Kind::text ? value.text : value.shown();
}

/// Keys, separated by blanks, that have an effect only if `holds`. `decided_by` names the keys that
/// decide this, of the same section or "section.key"; null if the build does. Of the conditions of
/// a key, the first that does not hold is told.
struct Condition {
  const char* section;
  const char* keys;
  const char* decided_by;
  bool (*holds)(const Settings&);
};

bool is_sgd(const Settings& settings) {
  return settings.optimizer.kind == optim::OptimizerKind::sgd;
}
/// Whether any parameter may be updated by AdamW, as some are under Muon.
bool has_adamw(const Settings& settings) {
  return settings.optimizer.kind == optim::OptimizerKind::adamw || is_muon(settings);
}
bool has_betas(const Settings& settings) { return !is_sgd(settings); }
bool takes_momentum(const Settings& settings) { return is_sgd(settings) || is_muon(settings); }
bool has_momentum(const Settings& settings) { return settings.optimizer.momentum > 0.0; }
bool has_moments(const Settings& settings) { return !is_sgd(settings) || has_momentum(settings); }
/// Whether any parameter is updated by Muon.
bool has_use_for_muon(const Settings& settings) {
  if (!is_muon(settings) || settings.optimizer.parameters.empty()) return true;
  const std::vector<model::Parameter> parameters = parameters_of(settings);
  return std::any_of(parameters.begin(), parameters.end(), [&](const model::Parameter& one) {
    return optim::rule_of(settings.optimizer, one) == optim::OptimizerKind::muon && !one.frozen &&
           !optim::is_frozen(settings.optimizer.parameters, one.full_name());
  });
}
bool updates_on_host(const Settings& settings) {
  return plan::offloads(settings.parallel.offload, plan::Offload::optimizer);
}
/// Whether the run has steps that are judged; see optim::OutlierFilter.
bool has_steps_to_judge(const Settings& settings) {
  return settings.training.steps > std::max<std::int64_t>(2, settings.stability.outlier_window / 2);
}
bool is_stable_then_decays(const Settings& settings) {
  return settings.schedule.tail == optim::Tail::warmup_stable_decay;
}
bool falls_to_a_fraction(const Settings& settings) {
  return is_stable_then_decays(settings) || settings.schedule.tail == optim::Tail::cosine ||
         settings.schedule.tail == optim::Tail::linear;
}
bool has_steps_to_fall(const Settings& settings) {
  return !is_stable_then_decays(settings) || settings.schedule.decay_steps > 0;
}

bool norms_queries(const Settings& settings) {
  return settings.model.query_key_norm != model::QueryKeyNorm::none;
}
bool has_experts(const Settings& settings) { return settings.model.experts.exist(); }
bool has_shared_experts(const Settings& settings) { return settings.model.experts.shared > 0; }
bool chooses_groups(const Settings& settings) {
  const model::ExpertSettings& experts = settings.model.experts;
  return experts.groups > experts.groups_per_token;
}
bool balances(const Settings& settings) {
  return settings.model.experts.balance != model::RouterBalance::none;
}
bool balances_by_bias(const Settings& settings) {
  return has_experts(settings) && settings.model.experts.balance == model::RouterBalance::bias;
}

bool has_table_of_positions(const Settings& settings) {
  return settings.model.positions == model::Positions::learned;
}

bool has_latents(const Settings& settings) { return settings.model.latent.exist(); }
bool has_delta_nets(const Settings& settings) { return settings.model.delta_net.exist(); }
bool has_window(const Settings& settings) { return settings.model.attention_window > 0; }

bool has_rotary(const Settings& settings) {
  return settings.model.positions == model::Positions::rotary;
}
/// Whether rotary frequencies are scaled in one of these ways.
template <math::RotaryScaling... ways>
bool scales_rotary(const Settings& settings) {
  return ((settings.model.rotary.scaling == ways) || ...);
}
bool has_rotary_factor(const Settings& settings) {
  return !scales_rotary<math::RotaryScaling::none>(settings);
}
constexpr auto is_llama3 = scales_rotary<math::RotaryScaling::llama3>;
constexpr auto is_yarn = scales_rotary<math::RotaryScaling::yarn>;
constexpr auto is_longrope = scales_rotary<math::RotaryScaling::longrope>;

/// Whether some layer is of a kind that `has`.
template <class Has>
bool some_layer(const Settings& settings, const Has& has) {
  for (std::int64_t layer = 0; layer < settings.model.layers; ++layer)
    if (has(settings.model.block_kind(layer))) return true;
  return false;
}
bool has_expert_layers(const Settings& settings) {
  return some_layer(settings, [](const model::BlockKind& kind) { return kind.has_experts; });
}
bool has_window_layers(const Settings& settings) {
  return some_layer(settings, [](const model::BlockKind& kind) { return kind.has_window; });
}
bool has_rotary_layers(const Settings& settings) {
  return some_layer(settings, [](const model::BlockKind& kind) { return kind.has_rotary; });
}
bool has_rotary_windows(const Settings& settings) {
  return some_layer(
      settings, [](const model::BlockKind& kind) { return kind.has_window && kind.has_rotary; });
}
/// Whether norms have biases unless these are left out.
bool may_bias_norms(const Settings& settings) {
  return settings.model.norm == math::NormKind::layernorm &&
         settings.model.norm_weight != math::NormWeight::none;
}
/// Whether the biases of some layers are as `bias` says.
bool asks_for_bias(const Settings& settings) {
  const model::DecoderSettings& model = settings.model;
  return !model.own_qkv_bias || !model.own_out_bias || !model.own_mlp_bias ||
         (!model.own_norm_bias && may_bias_norms(settings));
}
/// Whether some MLP is as wide as ffn_width.
bool uses_ffn_width(const Settings& settings) {
  return settings.model.has_dense_layers() ||
         settings.model.experts.width == settings.model.ffn_width;
}
bool is_random(const Settings& settings) { return settings.checkpoint.initial_weights.empty(); }
bool reads_tokens(const Settings& settings) {
  return settings.data.dataset == data::DatasetKind::tokens;
}
bool has_documents(const Settings& settings) {
  return settings.data.documents == data::Documents::separate;
}
bool has_pairs(const Settings& settings) { return settings.data.objective == data::Objective::dpo; }
bool is_synthetic(const Settings& settings) { return !reads_tokens(settings); }
bool validates(const Settings& settings) { return settings.training.validate_every > 0; }
bool is_for_device(const Settings&) { return has_device; }

constexpr const char* expert_keys =
    "experts_per_token shared_experts shared_expert_width shared_gate expert_width router_score "
    "router_bias router_normalize router_scale router_groups router_groups_per_token "
    "router_group_score router_balance router_balance_rate";
constexpr const char* rotary_keys =
    "rotary_base rotary_share rotary_scaling rotary_factor rotary_original_length "
    "rotary_low_factor rotary_high_factor rotary_beta_fast rotary_beta_slow rotary_truncate "
    "rotary_attention_factor rotary_short_factors rotary_long_factors window_rotary_base";

constexpr Condition conditions[] = {
    {"model", "latent_norm_epsilon", "kv_rank", has_latents},
    {"model", "delta_key_width", "delta_key_heads", has_delta_nets},
    {"model", "delta_value_width", "delta_key_heads", has_delta_nets},
    {"model", "delta_convolution", "delta_key_heads", has_delta_nets},
    {"model", "delta_layers", "delta_key_heads", has_delta_nets},
    {"model", "multi_token_factor", "multi_token_depth",
     [](const Settings& settings) { return settings.model.multi_token_depth > 0; }},
    {"model", "max_positions", "positions", has_table_of_positions},
    {"model", "initializer_deviation", "checkpoint.initial_weights", is_random},
    {"model", "norm_bias", "norm norm_weight", may_bias_norms},
    {"model", "bias", "qkv_bias out_bias mlp_bias", asks_for_bias},
    {"model", "query_key_norm_kind", "query_key_norm", norms_queries},
    {"model", "window_layers window_rotary_base", "attention_window", has_window},
    {"model", "attention_window window_rotary_base", "window_layers", has_window_layers},
    {"model", rotary_keys, "positions", has_rotary},
    {"model", "rotary_layers", "positions", has_rotary},
    {"model", rotary_keys, "rotary_layers", has_rotary_layers},
    {"model", "window_rotary_base", "window_layers rotary_layers", has_rotary_windows},
    {"model", "rotary_factor", "rotary_scaling", has_rotary_factor},
    {"model", "rotary_original_length", "rotary_scaling",
     scales_rotary<math::RotaryScaling::llama3, math::RotaryScaling::yarn,
                   math::RotaryScaling::longrope>},
    {"model", "rotary_low_factor rotary_high_factor", "rotary_scaling", is_llama3},
    {"model", "rotary_beta_fast rotary_beta_slow rotary_truncate", "rotary_scaling", is_yarn},
    {"model", "rotary_attention_factor", "rotary_scaling",
     scales_rotary<math::RotaryScaling::yarn, math::RotaryScaling::longrope>},
    {"model", "rotary_short_factors rotary_long_factors", "rotary_scaling", is_longrope},
    {"model", "expert_layers", "experts", has_experts},
    {"model", expert_keys, "experts", has_experts},
    {"model", "experts", "expert_layers", has_expert_layers},
    {"model", expert_keys, "expert_layers", has_expert_layers},
    {"model", "ffn_width", "expert_layers expert_width", uses_ffn_width},
    {"model", "shared_expert_width shared_gate", "shared_experts", has_shared_experts},
    {"model", "router_group_score", "router_groups router_groups_per_token", chooses_groups},
    {"model", "router_balance_rate", "router_balance", balances},
    {"lora", "alpha", "rank", [](const Settings& settings) { return settings.model.lora.exist(); }},
    {"data", "path validation_path verify", "dataset", reads_tokens},
    {"data", "validation_path", "training.validate_every", validates},
    {"data", "document_positions", "documents", has_documents},
    {"data", "reference", "training.objective", has_pairs},
    {"training", "dpo_beta", "objective", has_pairs},
    {"data", "synthetic_noise", "dataset", is_synthetic},
    {"parallel", "zero_bubble_memory", "schedule",
     [](const Settings& settings) {
       return settings.parallel.schedule == plan::ScheduleKind::zero_bubble;
     }},
    {"parallel", "expert_capacity", "expert", has_expert_units},
    {"training", "validation_batches", "validate_every", validates},
    {"training", "validate_ema", "validate_every", validates},
    {"training", "outlier_window", "skip_outliers",
     [](const Settings& settings) { return settings.stability.outlier_threshold > 0.0; }},
    {"training", "skip_outliers", "steps outlier_window", has_steps_to_judge},
    {"precision", "fp8_layers fp8_gradients", "products",
     [](const Settings& settings) { return math::is_8bit(settings.precision.products.dtype); }},
    {"precision", "loss_scale", "gather reduce",
     [](const Settings& settings) {
       return scales_loss(settings.precision.gather, settings.parallel.reduce);
     }},
    {"checkpoint", "async", "every",
     [](const Settings& settings) { return settings.checkpoint.every > 0; }},
    {"memory", "pinned", nullptr, is_for_device},
    {"memory", "early_updates", "offload", updates_on_host},
    {"memory", "early_updates", "parallel.pipeline",
     [](const Settings& settings) { return settings.pipeline == 1; }},
    {"optimizer", "name", "parameters", has_use_for_muon},
    {"optimizer", "beta1 beta2", "name", has_betas},
    {"optimizer", "epsilon", "name", has_adamw},
    {"optimizer", "momentum nesterov", "name", takes_momentum},
    {"optimizer", "nesterov", "momentum", has_momentum},
    {"optimizer", "muon_iterations muon_rate_factor", "name", is_muon},
    {"optimizer", "momentum nesterov muon_iterations muon_rate_factor", "parameters",
     has_use_for_muon},
    {"optimizer", "moments", "momentum", has_moments},
    {"schedule", "final_fraction", "tail", falls_to_a_fraction},
    {"schedule", "final_fraction", "decay_steps", has_steps_to_fall},
    {"schedule", "decay_steps", "tail", is_stable_then_decays},
    {"runtime", "transport communicators collective_timeout graphs attention", nullptr,
     is_for_device}};

/// Returns why `key` has no effect: "with sharding none"; empty if it may have one.
std::string why_without_effect(const Settings& settings, const std::string& section,
                               const std::string& key, const OnRanks& ranks) {
  const auto with = [&](const std::string& deciding) {
    std::vector<std::string> all;
    for (const std::string& one : words(deciding)) {  // "key", or "section.key" of another one
      const std::size_t dot = one.find('.');
      const bool is_other = dot != std::string::npos;
      const Section& its = *find_section(is_other ? one.substr(0, dot) : section);
      all.push_back(one + " " +
                    written(settings, *find_key(its, is_other ? one.substr(dot + 1) : one)));
    }
    return "with " + join(all, ", ", " and ");
  };
  if (key == "hierarchical_collectives")
    return ranks.may_have_levels ? "" : "as no group has several ranks on each of several nodes";
  for (const Condition& condition : conditions) {
    const std::vector<std::string> keys = words(condition.keys);
    if (section != condition.section || std::find(keys.begin(), keys.end(), key) == keys.end() ||
        condition.holds(settings))
      continue;
    return condition.decided_by ? with(condition.decided_by) : "in a build without a device";
  }
  if (section == "parallel" && !has_effect(settings, key)) return with("sharding");
  if (section == "precision" && key == "reduce" && ranks.shard_group == 1)
    return "in shard groups of one rank";
  if (section == "precision" && key == "frozen" && !freezes_some(settings))
    return "as no parameter is frozen";
  return "";
}

/// Lists the learning rates and decays that rules give only to frozen parameters.
std::string rules_of_frozen(const Settings& settings) {
  const std::vector<optim::ParameterRule>& rules = settings.optimizer.parameters;
  if (rules.empty()) return "";
  std::vector<optim::ParameterRule> idle;
  const std::vector<model::Parameter> parameters = parameters_of(settings);
  for (optim::ParameterRule rule : rules) {
    rule.frozen.reset();
    if (std::none_of(parameters.begin(), parameters.end(), [&](const model::Parameter& one) {
          return plan::matches(rule.pattern, one.full_name()) && !one.frozen &&
                 !optim::is_frozen(rules, one.full_name());
        }))
      idle.push_back(rule);
  }
  return write_parameter_rules(idle);
}

/// Returns a remark if the run ends before its warm-up or decay is complete, or the learning rate
/// never falls; else "". It is no error: steps may be few for a trial, or raised later.
std::string short_schedule(const Settings& settings) {
  const std::int64_t steps = settings.training.steps;
  const std::int64_t warmup = settings.schedule.warmup_steps, decay = settings.schedule.decay_steps;
  if (warmup > steps)
    return text("the run of ", steps, steps == 1 ? " step" : " steps", " ends in the warm-up, at ",
                steps, "/", warmup, " of the peak learning rate");
  if (is_stable_then_decays(settings) && decay == 0)
    return "the learning rate never falls: decay_steps is 0";
  if (is_stable_then_decays(settings) && decay > steps - warmup)
    return text("the learning rate falls in the ", steps - warmup,
                " steps after the warm-up; decay_steps ", decay, " are more");
  return "";
}

/// Lists settings without effect, in lines that begin with `indent`; empty if there are none.
std::string without_effect(const Settings& settings, const Section& section, const OnRanks& ranks,
                           const std::string& indent) {
  std::vector<std::pair<std::string, std::string>> reasons;  // reason and keys
  for (const Key& key : section.keys) {
    const std::string reason = why_without_effect(settings, section.name, key.name, ranks);
    // Without a deck's word for it, a value may follow from another one, or from a config.json.
    if (reason.empty() || !is_given(settings, key) ||
        settings.given.count(section.name + "." + key.name) == 0)
      continue;
    const auto known = std::find_if(reasons.begin(), reasons.end(),
                                    [&](const auto& one) { return one.first == reason; });
    if (known == reasons.end()) {
      reasons.emplace_back(reason, key.name);
    } else {
      known->second += ", " + key.name;
    }
  }
  const std::string of_frozen = section.name == "optimizer" ? rules_of_frozen(settings) : "";
  if (!of_frozen.empty()) reasons.emplace_back("on frozen parameters", of_frozen);
  std::string lines;
  for (const auto& [reason, keys] : reasons)
    lines += indent + "without effect " + reason + ": " + keys + "\n";
  return lines;
}

}  // namespace

std::string summary(const Settings& settings, const OnRanks& ranks) {
  constexpr std::size_t indent = 15, longest = 96;
  std::string lines;
  for (const Section& section : sections()) {
    std::string line = "  " + section.name;
    line.resize(indent, ' ');
    for (const Key& key : section.keys) {
      const std::string shown = key.name + " " + key.get(settings).shown();
      if (line.size() > indent && line.size() + shown.size() + 2 > longest) {
        lines += line + ",\n";
        line.assign(indent, ' ');
      }
      line += (line.size() > indent ? ", " : "") + shown;
    }
    lines += line + "\n" + without_effect(settings, section, ranks, std::string(indent, ' '));
    const std::string remark = section.name == "schedule" ? short_schedule(settings) : "";
    if (!remark.empty()) lines += std::string(indent, ' ') + remark + "\n";
  }
  return lines;
}

namespace {

/// "24: window of 128 tokens in 12 (all but every 2nd), 32 experts in all"
std::string layers_text(const model::DecoderSettings& model) {
  using model::BlockKind;
  const std::pair<std::string, bool BlockKind::*> properties[] = {
      {"delta nets", &BlockKind::has_delta_net},
      {"rotary positions", &BlockKind::has_rotary},
      {text("window of ", format_count(model.attention_window), " tokens"), &BlockKind::has_window},
      {text(model.experts.count, " experts"), &BlockKind::has_experts}};
  std::string words;
  for (const auto& [what, has] : properties) {
    std::vector<bool> layers;
    for (std::int64_t layer = 0; layer < model.layers; ++layer)
      layers.push_back(model.block_kind(layer).*has);
    const std::int64_t count = std::count(layers.begin(), layers.end(), true);
    if (count == 0) continue;
    words +=
        (words.empty() ? ": " : ", ") + what + " in " +
        (count == model.layers ? "all"
                               : text(count, " (", model::LayerPattern::of(layers).text(), ")"));
  }
  return std::to_string(model.layers) + words;
}

/// "3,041,869,824 for a token: ..."; see model_rows.
std::string active_parameters(const Settings& settings) {
  const model::ExpertSettings& experts = settings.model.experts;
  const std::string module = "block." + std::to_string(settings.model.layers);
  std::int64_t of_experts = 0, of_tables = 0, of_module = 0, others = 0;
  for (const model::Parameter& parameter : parameters_of(settings)) {
    const bool is_of_module =
        parameter.owner == module || parameter.name.rfind("multi_token_norm", 0) == 0;
    const bool is_table = parameter.owner == "embedding" &&
                          (parameter.name == "position.weight" ||
                           (parameter.name == "token.weight" && !settings.model.tie_embeddings));
    const bool is_expert = parameter.name.rfind("mlp.experts.", 0) == 0;
    (is_of_module ? of_module
     : is_table   ? of_tables
     : is_expert  ? of_experts
                  : others) += parameter.elements();
  }
  return text(format_count(others + of_experts / experts.count * experts.per_token),
              " for a token: of experts those of ", experts.per_token, " of ", experts.count,
              of_tables > 0
                  ? text(", and without ", format_count(of_tables), " in tables that are looked up")
                  : "",
              of_module > 0 ? text(", nor ", format_count(of_module),
                                   " in the module of multi-token prediction")
                            : "");
}

/// "those of linear layers in 2 of 4 blocks (all but the first and the last): ..."
std::string products_text(const Settings& settings) {
  const model::ProductSettings& products = settings.precision.products;
  const std::int64_t layers = settings.model.layers;
  std::int64_t count = 0;
  for (std::int64_t layer = 0; layer < layers; ++layer) count += products.are_8bit(layer, layers);
  return text("those of linear layers in ", count, " of ", layers, " blocks (",
              products.fp8_layers ? products.fp8_layers->text() : "all but the first and the last",
              "): e4m3, gradients ", math::name(products.fp8_gradients),
              products.dtype == math::ProductDType::mxfp8 ? ", in blocks of 32" : "",
              products.fp8_gather ? "; their weights are gathered in 8 bits" : "",
              math::is_of_device(settings.processor.kernels)
                  ? ""
                  : "; a CPU rounds operands, and is no faster");
}

}  // namespace

std::vector<std::pair<std::string, std::string>> model_rows(const Settings& settings) {
  std::vector<std::pair<std::string, std::string>> rows = {{"layers", layers_text(settings.model)}};
  if (has_expert_layers(settings))
    rows.emplace_back("active parameters", active_parameters(settings));
  if (math::is_8bit(settings.precision.products.dtype))
    rows.emplace_back("products in 8 bits", products_text(settings));
  return rows;
}

std::vector<plan::Setting> strategy(const Settings& settings, plan::Accumulation accumulation,
                                    const OnRanks& ranks) {
  Settings resolved = settings;
  resolved.parallel.accumulation = accumulation;
  std::vector<plan::Setting> chosen;
  for (const Key& key : find_section("parallel")->keys) {
    // These keys describe the machine; the plan shows their result.
    if (key.name == "ranks_per_node" || key.name == "choose" || key.name == "node_windows")
      continue;
    // These keys are rarely set; the plan shows their result.
    if ((key.name == "hierarchical_collectives" || key.name == "reduction") &&
        !is_given(settings, key))
      continue;
    chosen.push_back({key.name, written(resolved, key),
                      why_without_effect(settings, "parallel", key.name, ranks).empty() ||
                          !is_given(settings, key)});
  }
  const Key& blocks = *find_key(*find_section("model"), "blocks_per_unit");
  chosen.push_back({blocks.name, written(settings, blocks)});
  struct Other {
    const char* section;
    const char* key;
    const char* shown;
  };
  for (const Other& other :
       {Other{"precision", "gather", "gather"}, Other{"precision", "reduce", "reduce"},
        Other{"memory", "activation_checkpointing", "activation_checkpointing"},
        Other{"memory", "offload", "memory.offload"},
        Other{"memory", "activations", "memory.activations"},
        Other{"optimizer", "name", "optimizer"}, Other{"optimizer", "moments", "moments"},
        Other{"optimizer", "parameters", "optimizer.parameters"}}) {
    const Key& key = *find_key(*find_section(other.section), other.key);
    if (!is_given(settings, key) ||
        !why_without_effect(settings, other.section, other.key, {}).empty())
      continue;
    chosen.push_back({other.shown, written(settings, key),
                      why_without_effect(settings, other.section, other.key, ranks).empty()});
  }
  return chosen;
}

std::string value_of(const Settings& settings, const std::string& section, const std::string& key) {
  const Section* const found = find_section(section);
  const Key* const wanted = found == nullptr ? nullptr : find_key(*found, key);
  if (wanted == nullptr) throw std::logic_error("no setting " + section + "." + key);
  return written(settings, *wanted);
}

std::vector<std::string> differences(const Settings& now, const Settings& before) {
  const Settings a = with_absolute_paths(now), b = with_absolute_paths(before);
  std::vector<std::string> found;
  for (const Section& section : sections()) {
    if (section.name == "checkpoint" || section.name == "output") continue;
    for (const Key& key : section.keys) {
      // No other key of the machine changes bits.
      const bool decides_bits = key.name == "subnormals" || key.name == "attention";
      if (section.name == "runtime" && !decides_bits) continue;
      if (section.name == "parallel" && key.name == "choose") continue;
      // Like checkpoint.initial_weights it is of the first step alone.
      if (section.name == "lora" && key.name == "initial") continue;
      const std::string is = key.get(a).shown(), was = key.get(b).shown();
      if (is != was) found.push_back(text(section.name, ".", key.name, " = ", is, ", was ", was));
    }
  }
  return found;
}

Facts facts_of(const Settings& settings) {
  Facts facts;
  for (const Section& section : sections())
    for (const Key& key : section.keys)
      facts.push_back({section.name + "." + key.name, written(settings, key)});
  return facts;
}

namespace {

/// Returns a value of the section `model`; for an `auto` that follows from other keys, the value
/// that it stands for.
std::string model_value(const Settings& settings, const Key& key) {
  const model::DecoderSettings& model = settings.model;
  const std::pair<const char*, bool> biases[] = {{"qkv_bias", model.qkv_bias()},
                                                 {"out_bias", model.out_bias()},
                                                 {"mlp_bias", model.mlp_bias()},
                                                 {"norm_bias", model.norm_bias()}};
  for (const auto& [bias, is_there] : biases)
    if (key.name == bias) return is_there ? "true" : "false";
  if (key.name == "head_width") return std::to_string(model.head_width());
  if (key.name == "value_width") return std::to_string(model.value_width());
  if (key.name == "max_positions")
    return std::to_string(model.position_rows(settings.training.sequence_length));
  return key.get(settings).shown();
}

}  // namespace

void require_same_model(const Settings& settings, const std::string& deck,
                        const std::string& path) {
  if (deck.empty()) return;
  const Settings theirs = read_settings(deck, text("deck in '", path, "'"), {}, DeckUse::model);
  const Section& model = *find_section("model");
  std::string found;
  for (const Key& key : model.keys) {
    // These keys change how parameters are initialised, trained, communicated or summed, but not
    // the model.
    if (key.name == "initializer_deviation" || key.name == "blocks_per_unit" ||
        key.name == "tensor_grain" || key.name == "router_balance_rate")
      continue;
    // A routing bias is a parameter, which is compared by itself.
    if (key.name == "router_balance" && balances_by_bias(settings) == balances_by_bias(theirs))
      continue;
    // With experts it only sets the default of expert_width.
    if (key.name == "ffn_width" && has_experts(settings) && has_experts(theirs)) continue;
    // Only rotary positions have a base and frequencies.
    if (key.name.rfind("rotary_", 0) == 0 && settings.model.positions != model::Positions::rotary)
      continue;
    const bool is_table = key.name == "max_positions";
    if (is_table && !(has_table_of_positions(settings) && has_table_of_positions(theirs))) continue;
    // A value that follows from another differing key is not reported.
    if (!is_table && key.get(settings).shown() == key.get(theirs).shown()) continue;
    const std::string ours = model_value(settings, key), in_it = model_value(theirs, key);
    if (ours != in_it)
      found += text("\n  model.", key.name, " is ", in_it, " in it, but ", ours, " in the deck");
  }
  // Adapters may be new, but those that there are compute what they did.
  const bool both_adapt = settings.model.lora.exist() && theirs.model.lora.exist();
  require(!both_adapt || settings.lora_initial.empty(), "'", path, "' has adapters, of rank ",
          theirs.model.lora.rank, ", which those of lora.initial = ", settings.lora_initial,
          " would replace; expected weights without adapters, or no lora.initial");
  for (const Key& key : find_section("lora")->keys) {
    if (!both_adapt || key.name == "initial") continue;
    const std::string ours = key.get(settings).shown(), in_it = key.get(theirs).shown();
    if (ours != in_it)
      found += text("\n  lora.", key.name, " is ", in_it, " in it, but ", ours, " in the deck");
  }
  require(found.empty(), "'", path, "' is not of the model that the deck describes:", found);
}

}  // namespace ostrakon::config
