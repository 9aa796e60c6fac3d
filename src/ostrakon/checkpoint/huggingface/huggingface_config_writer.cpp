// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/checkpoint/families/model_settings.hpp>
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

/// Writes what a family's keys can say of settings.
Ordered keys_of(const Family& family, const model::DecoderSettings& settings) {
  Ordered json = Ordered::object();
  for (const Key& key : family.keys)
    if (key.write) key.write(settings, json);
  return json;
}

/// Writes the config.json of a model without a source.
Ordered new_config(const Family& family, const HuggingFaceModel& model) {
  Ordered json = {{"architectures", {family.causal_class()}}, {"model_type", family.model_type}};
  json.update(keys_of(family, model.settings));
  json[family.positions_key] = positions_of(model);
  for (const char* key : {"attention_dropout", "attn_pdrop", "embd_pdrop", "embedding_dropout",
                          "resid_pdrop", "residual_dropout"})
    if (family.no_effect.count(key) > 0) json[key] = 0.0;
  json["initializer_range"] = model.settings.initializer_deviation;
  // Without these keys, transformers uses default ids that this vocabulary may lack.
  for (const char* key : {"bos_token_id", "eos_token_id"})
    json[key] = model.end_of_text ? Ordered(*model.end_of_text) : Ordered();
  json["pad_token_id"] = nullptr;
  return json;
}

Ordered config_of_source(const Family& family, const HuggingFaceModel& model) {
  const HuggingFaceConfig source =
      parse_huggingface_config(model.source, "the source's config.json");
  require_same_model(source, model.settings, model.tokens);
  Ordered json = Ordered::parse(model.source);
  json.erase("_name_or_path");
  json["architectures"] = {family.causal_class()};
  if (!family.names.module_norm.empty() || !family.names.further_tokens.empty())
    for (const char* key : {"num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers"})
      if (json.contains(key)) json[key] = model.settings.multi_token_depth;
  // Scalings of rotary frequencies may follow from the longest context: then it stays.
  Ordered longer = json;
  longer[family.positions_key] = std::max(source.positions, positions_of(model));
  constexpr std::int64_t any_length = std::numeric_limits<std::int64_t>::max();
  const HuggingFaceConfig read = parse_huggingface_config(longer.dump(), "written config.json");
  return model_differences(read.model, source.model, any_length).empty() ? longer : json;
}

/// How a family's models differ from a model that is written as one of them. Nothing if its keys
/// can't say the settings, such as a family of experts those of a model without.
std::optional<std::vector<ModelDifference>> differences(const Family& family,
                                                        const model::DecoderSettings& settings) {
  const nlohmann::json written = nlohmann::json::parse(keys_of(family, settings).dump());
  ConfigReading reading("written config.json", family.model_type, written);
  try {
    read_keys(family, reading);
  } catch (const Error&) {
    return std::nullopt;
  }
  constexpr std::int64_t any_length = std::numeric_limits<std::int64_t>::max();
  return model_differences(reading.model, settings, any_length);
}

}  // namespace

const Family& family_of(const model::DecoderSettings& settings) {
  const Family* nearest = nullptr;
  std::vector<ModelDifference> fewest;
  for (const Family& family : all_families()) {
    std::optional<std::vector<ModelDifference>> found = differences(family, settings);
    if (!found) continue;
    if (found->empty()) return family;
    if (nearest != nullptr && found->size() >= fewest.size()) continue;
    nearest = &family;
    fewest = std::move(*found);
  }
  require(nearest != nullptr,
          "the model has no counterpart at Hugging Face; expected one of the types ",
          all_model_types());
  std::string list;
  for (const ModelDifference& one : fewest)
    list += text(list.empty() ? "" : "; ", one.key, " of ", nearest->model_type, " is ", one.theirs,
                 ", but model.", one.key, " is ", one.ours);
  throw Error(text("the model has no counterpart at Hugging Face; of the nearest one, ",
                   nearest->title, ": ", list, "; expected one of the types ", all_model_types()));
}

const Family& family_of(const HuggingFaceModel& model) {
  if (model.source.empty()) return family_of(model.settings);
  return *parse_huggingface_config(model.source, "the source's config.json").family;
}

std::string write_huggingface_config(const HuggingFaceModel& model) {
  const Family& family = family_of(model);
  Ordered json = model.source.empty() ? new_config(family, model) : config_of_source(family, model);
  const char* const key = json.contains("dtype") ? "dtype" : "torch_dtype";
  json[key] = model.dtype == DType::fp32 ? "float32" : "bfloat16";
  if (json.contains("dtype")) json.erase("torch_dtype");
  return json.dump(2) + "\n";
}

}  // namespace ostrakon::checkpoint
