// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/checkpoint/huggingface/huggingface_config.hpp>

namespace ostrakon::checkpoint {
namespace {

using Ordered = nlohmann::ordered_json;

/// Returns the number of positions for config.json: all rows of a learned table.
std::int64_t positions_of(const HuggingFaceModel& model) {
  return model.settings.positions == model::Positions::learned
             ? model.settings.position_rows(model.tokens)
             : model.tokens;
}

/// Writes the config.json of a model without a source.
Ordered new_config(Family family, const HuggingFaceModel& model) {
  const ConfigKeys& keys = keys_of(family);
  Ordered json = {{"architectures", {causal_class(family)}}, {"model_type", model_type(family)}};
  for (const RequiredKey& key : keys.required)
    if (key.is_written) json[key.name] = Ordered::parse(key.computed.front());
  for (const ComparedKey& key : keys.compared)
    if (!key.is_alias) json[key.name] = Ordered::parse(json_text(key, key.get(model.settings)));
  json[keys.positions] = positions_of(model);
  if (keys.has_rope) {
    json["rope_theta"] = model.settings.rotary.base;
    json["rope_scaling"] = nullptr;
  }
  if (keys.has_window) json["sliding_window"] = nullptr;
  for (const char* key : {"attention_dropout", "attn_pdrop", "embd_pdrop", "embedding_dropout",
                          "resid_pdrop", "residual_dropout"})
    if (keys.no_effect.count(key) > 0) json[key] = 0.0;
  json["initializer_range"] = model.settings.initializer_deviation;
  // Without these keys, transformers uses default ids that this vocabulary may lack.
  for (const char* key : {"bos_token_id", "eos_token_id"})
    json[key] = model.end_of_text ? Ordered(*model.end_of_text) : Ordered();
  return json;
}

Ordered config_of_source(Family family, const HuggingFaceModel& model) {
  const HuggingFaceConfig source =
      parse_huggingface_config(model.source, "the source's config.json");
  require_same_model(source, model.settings, model.tokens);
  Ordered json = Ordered::parse(model.source);
  json["architectures"] = {causal_class(family)};
  json[keys_of(family).positions] = std::max(source.positions, positions_of(model));
  return json;
}

}  // namespace

Family family_of(const HuggingFaceModel& model) {
  if (model.source.empty()) return family_of(model.settings);
  return parse_huggingface_config(model.source, "the source's config.json").family;
}

std::string write_huggingface_config(const HuggingFaceModel& model) {
  const Family family = family_of(model);
  Ordered json = model.source.empty() ? new_config(family, model) : config_of_source(family, model);
  const char* const key = json.contains("dtype") ? "dtype" : "torch_dtype";
  json[key] = model.dtype == DType::fp32 ? "float32" : "bfloat16";
  if (json.contains("dtype")) json.erase("torch_dtype");
  return json.dump(2) + "\n";
}

}  // namespace ostrakon::checkpoint
