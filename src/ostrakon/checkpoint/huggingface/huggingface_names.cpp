// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/huggingface/huggingface_names.hpp>

#include <map>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/hdf5/hdf5.hpp>
#include <utility>

namespace ostrakon::checkpoint {
namespace {

using Shape = std::vector<std::int64_t>;

/// The rows of one of our matrices that a tensor of Hugging Face holds.
enum class Rows { all, queries, keys, half, half_of_expert };

struct Part {
  std::string name;
  Rows rows = Rows::all;
};

/// Maps our name of a layer in a block to Hugging Face's names of its parts, ordered by rows of
/// ours. * stands for the number of an expert.
using Layers = std::map<std::string, std::vector<Part>>;

struct Names {
  const char* model_type;
  const char* title;
  const char* class_prefix;
  const char* causal_class;  ///< without class_prefix
  const char* prefix;
  const char* token;
  const char* position;  ///< empty: no learned positions
  const char* head_norm;
  const char* block;
  bool transposed;
  Layers layers;
};

/// Names that are common to all families with separate matrices for queries, keys and values.
const std::vector<Part> apart_qkv = {{"self_attn.q_proj", Rows::queries},
                                     {"self_attn.k_proj", Rows::keys},
                                     {"self_attn.v_proj", Rows::keys}};

const Layers gpt2_layers = {
    {"attention.norm", {{"ln_1"}}},       {"attention.qkv", {{"attn.c_attn"}}},
    {"attention.out", {{"attn.c_proj"}}}, {"mlp.norm", {{"ln_2"}}},
    {"mlp.up", {{"mlp.c_fc"}}},           {"mlp.down", {{"mlp.c_proj"}}}};

const Layers llama_layers = {
    {"attention.norm", {{"input_layernorm"}}},
    {"attention.qkv", apart_qkv},
    {"attention.out", {{"self_attn.o_proj"}}},
    {"mlp.norm", {{"post_attention_layernorm"}}},
    {"mlp.gate_up", {{"mlp.gate_proj", Rows::half}, {"mlp.up_proj", Rows::half}}},
    {"mlp.down", {{"mlp.down_proj"}}}};

const Layers mixtral_layers = {{"attention.norm", {{"input_layernorm"}}},
                               {"attention.qkv", apart_qkv},
                               {"attention.out", {{"self_attn.o_proj"}}},
                               {"mlp.norm", {{"post_attention_layernorm"}}},
                               {"mlp.router", {{"block_sparse_moe.gate"}}},
                               {"mlp.experts.*.gate_up",
                                {{"block_sparse_moe.experts.*.w1", Rows::half_of_expert},
                                 {"block_sparse_moe.experts.*.w3", Rows::half_of_expert}}},
                               {"mlp.experts.*.down", {{"block_sparse_moe.experts.*.w2"}}}};

Layers with_head_norms(Layers layers) {
  layers["attention.query_norm"] = {{"self_attn.q_norm"}};
  layers["attention.key_norm"] = {{"self_attn.k_norm"}};
  return layers;
}

const Layers qwen3_layers = with_head_norms(llama_layers);

const Layers qwen3_moe_layers =
    with_head_norms({{"attention.norm", {{"input_layernorm"}}},
                     {"attention.qkv", apart_qkv},
                     {"attention.out", {{"self_attn.o_proj"}}},
                     {"mlp.norm", {{"post_attention_layernorm"}}},
                     {"mlp.router", {{"mlp.gate"}}},
                     {"mlp.experts.*.gate_up",
                      {{"mlp.experts.*.gate_proj", Rows::half_of_expert},
                       {"mlp.experts.*.up_proj", Rows::half_of_expert}}},
                     {"mlp.experts.*.down", {{"mlp.experts.*.down_proj"}}}});

const Layers phi3_layers = {
    {"attention.norm", {{"input_layernorm"}}}, {"attention.qkv", {{"self_attn.qkv_proj"}}},
    {"attention.out", {{"self_attn.o_proj"}}}, {"mlp.norm", {{"post_attention_layernorm"}}},
    {"mlp.gate_up", {{"mlp.gate_up_proj"}}},   {"mlp.down", {{"mlp.down_proj"}}}};

const Layers starcoder2_layers = {{"attention.norm", {{"input_layernorm"}}},
                                  {"attention.qkv", apart_qkv},
                                  {"attention.out", {{"self_attn.o_proj"}}},
                                  {"mlp.norm", {{"post_attention_layernorm"}}},
                                  {"mlp.up", {{"mlp.c_fc"}}},
                                  {"mlp.down", {{"mlp.c_proj"}}}};

const Names& names_of(Family family) {
  static const std::map<Family, Names> all = {
      {Family::gpt2,
       {"gpt2", "GPT-2", "GPT2", "LMHeadModel", "transformer.", "wte", "wpe", "ln_f", "h.", true,
        gpt2_layers}},
      {Family::gpt_bigcode,
       {"gpt_bigcode", "GPT-BigCode", "GPTBigCode", "ForCausalLM", "transformer.", "wte", "wpe",
        "ln_f", "h.", false, gpt2_layers}},
      {Family::llama,
       {"llama", "Llama", "Llama", "ForCausalLM", "model.", "embed_tokens", "", "norm", "layers.",
        false, llama_layers}},
      {Family::mistral,
       {"mistral", "Mistral", "Mistral", "ForCausalLM", "model.", "embed_tokens", "", "norm",
        "layers.", false, llama_layers}},
      {Family::mixtral,
       {"mixtral", "Mixtral", "Mixtral", "ForCausalLM", "model.", "embed_tokens", "", "norm",
        "layers.", false, mixtral_layers}},
      {Family::phi3,
       {"phi3", "Phi-3", "Phi3", "ForCausalLM", "model.", "embed_tokens", "", "norm", "layers.",
        false, phi3_layers}},
      {Family::qwen3,
       {"qwen3", "Qwen3", "Qwen3", "ForCausalLM", "model.", "embed_tokens", "", "norm", "layers.",
        false, qwen3_layers}},
      {Family::qwen3_moe,
       {"qwen3_moe", "Qwen3-MoE", "Qwen3Moe", "ForCausalLM", "model.", "embed_tokens", "", "norm",
        "layers.", false, qwen3_moe_layers}},
      {Family::starcoder2,
       {"starcoder2", "Starcoder2", "Starcoder2", "ForCausalLM", "model.", "embed_tokens", "",
        "norm", "layers.", false, starcoder2_layers}}};
  return all.at(family);
}

[[noreturn]] void unknown(const std::string& owner, const std::string& parameter) {
  throw Error(
      text("parameter '", parameter, "' of '", owner, "' has no name in Hugging Face's models"));
}

/// Properties that all models of a family have.
struct Structure {
  math::NormKind norm;
  model::Positions positions;
  model::Activation activation;
  std::optional<bool> bias;  ///< none: set by config.json
};

Structure structure_of(Family family) {
  using math::NormKind;
  using model::Activation;
  using model::Positions;
  switch (family) {
    case Family::gpt2:
    case Family::gpt_bigcode:
      return {NormKind::layernorm, Positions::learned, Activation::gelu, true};
    case Family::starcoder2:
      return {NormKind::layernorm, Positions::rotary, Activation::gelu, true};
    case Family::llama:
      return {NormKind::rmsnorm, Positions::rotary, Activation::swiglu, std::nullopt};
    default:
      return {NormKind::rmsnorm, Positions::rotary, Activation::swiglu, false};
  }
}

const char* name(bool flag) { return flag ? "true" : "false"; }

bool has_experts(Family family) { return family == Family::mixtral || family == Family::qwen3_moe; }

bool has_head_norms(Family family) {
  return family == Family::qwen3 || family == Family::qwen3_moe;
}

/// Whether the family's config.json has a key for the head width.
bool has_head_width(Family family) {
  return family != Family::gpt2 && family != Family::gpt_bigcode && family != Family::starcoder2;
}

/// Returns `experts` with the properties that all models of the family have.
model::ExpertSettings with_experts_of(Family family, model::ExpertSettings experts) {
  if (!has_experts(family)) return {};
  experts.shared = 0;
  experts.score = math::RouterScore::softmax;
  if (family == Family::mixtral) experts.normalize = true;  // else set by config.json
  experts.scale = 1.0;
  experts.groups = experts.groups_per_token = 1;
  return experts;
}

/// Returns the number of key-value heads, if the family fixes it.
std::int64_t kv_heads_of(Family family, const model::DecoderSettings& settings) {
  if (family == Family::gpt2) return settings.heads;
  return family == Family::gpt_bigcode ? 1 : settings.kv_heads;
}

/// Splits "mlp.experts.12.down" into "mlp.experts.*.down" and "12"; a name without an expert is
/// returned unchanged.
std::pair<std::string, std::string> split_expert(const std::string& name) {
  const std::string start = "mlp.experts.";
  const std::size_t end = name.find('.', start.size());
  if (name.rfind(start, 0) != 0 || end == std::string::npos) return {name, ""};
  return {start + "*" + name.substr(end), name.substr(start.size(), end - start.size())};
}

std::vector<Part> parts_of(const Names& names, const std::string& owner, const std::string& name) {
  if (owner == "embedding" && name == "token") return {{names.token}};
  if (owner == "embedding" && name == "position" && *names.position != '\0')
    return {{names.position}};
  if (owner == "head" && name == "norm") return {{names.head_norm}};
  const auto [layer, expert] = split_expert(name);
  const auto found = names.layers.find(layer);
  if (owner.rfind("block.", 0) != 0 || found == names.layers.end()) unknown(owner, name);
  std::vector<Part> parts = found->second;
  for (Part& part : parts)
    if (const std::size_t star = part.name.find('*'); star != std::string::npos)
      part.name.replace(star, 1, expert);
  return parts;
}

std::int64_t rows_of(Rows rows, const model::DecoderSettings& settings, std::int64_t all) {
  if (rows == Rows::queries) return settings.heads * settings.head_width();
  if (rows == Rows::keys) return settings.kv_heads * settings.head_width();
  if (rows == Rows::half_of_expert) return settings.experts.width;
  return rows == Rows::half ? settings.ffn_width : all;
}

/// Splits "attention.qkv.weight" into "attention.qkv" and "weight".
std::pair<std::string, std::string> split_name(const std::string& parameter) {
  const std::size_t dot = parameter.rfind('.');
  if (dot == std::string::npos) return {parameter, ""};
  return {parameter.substr(0, dot), parameter.substr(dot + 1)};
}

}  // namespace

const char* model_type(Family family) { return names_of(family).model_type; }

std::optional<Family> family_named(const std::string& name) {
  for (const Family family : all_families)
    if (name == model_type(family)) return family;
  return std::nullopt;
}

std::string all_model_types() {
  std::string list;
  for (const Family family : all_families) {
    const bool is_last = family == all_families[std::size(all_families) - 1];
    list += text(list.empty() ? "" : is_last ? " or " : ", ", model_type(family));
  }
  return list;
}

const char* title(Family family) { return names_of(family).title; }

const char* class_prefix(Family family) { return names_of(family).class_prefix; }

std::string causal_class(Family family) {
  return std::string(class_prefix(family)) + names_of(family).causal_class;
}

std::vector<std::string> structure_differences(Family family,
                                               const model::DecoderSettings& settings) {
  std::vector<std::string> differences;
  const auto compare = [&](const char* key, auto theirs, auto ours) {
    if (theirs != ours)
      differences.push_back(
          text(key, " of ", model_type(family), " is ", theirs, ", but model.", key, " is ", ours));
  };
  const Structure structure = structure_of(family);
  const auto compare_names = [&](const char* key, auto theirs, auto ours) {
    compare(key, std::string(name(theirs)), std::string(name(ours)));
  };
  compare_names("norm", structure.norm, settings.norm);
  compare_names("positions", structure.positions, settings.positions);
  compare_names("activation", structure.activation, settings.activation);
  if (structure.bias) compare_names("bias", *structure.bias, settings.bias);
  if (structure.bias) compare_names("mlp_bias", *structure.bias, settings.mlp_bias());
  compare("kv_heads", kv_heads_of(family, settings), settings.kv_heads);
  compare_names("query_key_norm", has_head_norms(family),
                settings.query_key_norm != model::QueryKeyNorm::none);
  if (!has_head_width(family))
    compare("head_width", settings.width / settings.heads, settings.head_width());
  const model::ExpertSettings& experts = settings.experts;
  if (!has_experts(family)) {
    compare("experts", 0, experts.count);
    return differences;
  }
  if (!experts.exist()) compare("experts", std::string("more than 0"), std::string("0"));
  const model::ExpertSettings theirs = with_experts_of(family, experts);
  if (experts.balance == model::RouterBalance::bias)
    compare("router_balance", std::string("none or loss"), std::string("bias"));
  compare("shared_experts", theirs.shared, experts.shared);
  compare_names("router_score", theirs.score, experts.score);
  compare_names("router_normalize", theirs.normalize, experts.normalize);
  compare("router_scale", theirs.scale, experts.scale);
  compare("router_groups", theirs.groups, experts.groups);
  return differences;
}

void set_structure(Family family, model::DecoderSettings& settings) {
  const Structure structure = structure_of(family);
  settings.norm = structure.norm;
  settings.positions = structure.positions;
  settings.activation = structure.activation;
  if (structure.bias) settings.bias = *structure.bias;
  if (structure.bias) settings.own_mlp_bias.reset();
  settings.kv_heads = kv_heads_of(family, settings);
  settings.query_key_norm =
      has_head_norms(family) ? model::QueryKeyNorm::head : model::QueryKeyNorm::none;
  settings.experts = with_experts_of(family, settings.experts);
}

Family family_of(const model::DecoderSettings& settings) {
  // Mistral and Phi-3 compute the same as Llama: only a config.json distinguishes them.
  std::vector<std::string> fewest;
  for (const Family family : {Family::gpt2, Family::gpt_bigcode, Family::starcoder2, Family::llama,
                              Family::mixtral, Family::qwen3, Family::qwen3_moe}) {
    std::vector<std::string> differences = structure_differences(family, settings);
    if (differences.empty()) return family;
    const bool is_alike = has_experts(family) == settings.experts.exist();
    if (is_alike && (fewest.empty() || differences.size() < fewest.size()))
      fewest = std::move(differences);
  }
  std::string nearest;
  for (const std::string& one : fewest) nearest += (nearest.empty() ? "" : "; ") + one;
  throw Error(text(
      "the model has no counterpart at Hugging Face; of the nearest one: ", nearest,
      "; expected GPT-2 (layernorm, learned, gelu, bias true, as many kv_heads as heads), "
      "GPT-BigCode (the same with kv_heads 1), Starcoder2 (layernorm, rotary, gelu, bias true), "
      "Llama (rmsnorm, rotary, swiglu), Mixtral (the same with experts and bias false, "
      "router_score "
      "softmax, router_normalize true, router_scale 1, router_groups 1, shared_experts 0, "
      "router_balance none or loss), Qwen3 (Llama with query_key_norm and bias false) or Qwen3-MoE "
      "(Mixtral with query_key_norm, any router_normalize)"));
}

const char* prefix_of(Family family) { return names_of(family).prefix; }

std::string embedding_name(Family family) {
  return std::string(names_of(family).token) + ".weight";
}

std::string positions_name(Family family) {
  const std::string name = names_of(family).position;
  return name.empty() ? "" : name + ".weight";
}

std::vector<HuggingFaceTensor> huggingface_tensors(
    Family family, const model::DecoderSettings& settings, const std::string& prefix,
    const std::string& owner, const std::string& parameter, const Shape& shape) {
  require(shape.size() == 1 || shape.size() == 2, "parameter '", parameter, "' of '", owner,
          "' has the shape ", hdf5::shape_text(shape), "; expected a vector or a matrix");
  if (owner == "head" && parameter == "output.weight")
    return {{output_head, shape, 0, shape[0], false}};
  const auto [name, what] = split_name(parameter);
  if (what != "weight" && what != "bias") unknown(owner, parameter);
  const Names& names = names_of(family);
  const bool in_block = owner.rfind("block.", 0) == 0;
  const std::string start =
      prefix + (in_block ? names.block + owner.substr(6) + "." : std::string());
  const bool transposed = names.transposed && in_block && shape.size() == 2;
  std::vector<HuggingFaceTensor> tensors;
  std::int64_t row = 0;
  for (const Part& part : parts_of(names, owner, name)) {
    const std::int64_t rows = rows_of(part.rows, settings, shape[0]);
    Shape theirs = shape;
    theirs[0] = rows;
    if (transposed) std::swap(theirs[0], theirs[1]);
    tensors.push_back({start + part.name + "." + what, std::move(theirs), row, rows, transposed});
    row += rows;
  }
  require(row == shape[0], "parameter '", parameter, "' of '", owner, "' has the shape ",
          hdf5::shape_text(shape), "; the model's settings say ", row, " rows");
  return tensors;
}

}  // namespace ostrakon::checkpoint
