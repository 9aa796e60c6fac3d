// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/text/tokenizers/post_processor.hpp>

#include <string>
#include <utility>

namespace ostrakon::texts {
namespace {

using TemplateIds = std::vector<std::int32_t>;

bool is_template_id(const nlohmann::json& value) {
  return value.is_number_unsigned() && value.get<std::uint64_t>() <= 0x7fffffff;
}

/// Reads [token, id].
std::int32_t pair_id(JsonFields& fields, const std::string& key) {
  const nlohmann::json& pair = fields.value(key);
  const bool is_pair =
      pair.is_array() && pair.size() == 2 && pair[0].is_string() && is_template_id(pair[1]);
  if (!is_pair) fields.refuse(key, "a token and its id");
  return pair[1].get<std::int32_t>();
}

TemplateIds special_ids(JsonFields& special_tokens, const std::string& name) {
  JsonFields token = special_tokens.object(name);
  token.string("id");
  token.value("tokens");
  const nlohmann::json& list = token.value("ids");
  if (!list.is_array()) token.refuse("ids", "a list of ids");
  TemplateIds ids;
  for (const nlohmann::json& id : list) {
    if (!is_template_id(id)) token.refuse("ids", "a list of ids");
    ids.push_back(id.get<std::int32_t>());
  }
  token.finish();
  return ids;
}

Tokenizer::Around read_template(JsonFields& fields) {
  Tokenizer::Around around;
  JsonFields special_tokens = fields.object("special_tokens");
  fields.value("pair");  // for two texts
  bool after_text = false;
  for (JsonFields& piece : fields.objects("single")) {
    const bool is_text = piece.has("Sequence");
    JsonFields part = piece.object(is_text ? "Sequence" : "SpecialToken");
    piece.finish();
    const std::string id = part.string("id");
    part.count("type_id");
    part.finish();
    if (is_text) {
      if (id != "A" || after_text) fields.refuse("single", "one Sequence, A");
      after_text = true;
    } else {
      TemplateIds& ids = after_text ? around.after : around.before;
      const TemplateIds more = special_ids(special_tokens, id);
      ids.insert(ids.end(), more.begin(), more.end());
    }
  }
  if (!after_text) fields.refuse("single", "one Sequence, A");
  return around;
}

}  // namespace

Tokenizer::Around read_post_processor(JsonFields& fields) {
  const std::string type = fields.type();
  Tokenizer::Around around;
  if (type == "Sequence") {
    for (JsonFields& step : fields.objects("processors")) {
      const Tokenizer::Around outer = read_post_processor(step);
      around.before.insert(around.before.begin(), outer.before.begin(), outer.before.end());
      around.after.insert(around.after.end(), outer.after.begin(), outer.after.end());
    }
  } else if (type == "TemplateProcessing") {
    around = read_template(fields);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    around = {{pair_id(fields, "cls")}, {pair_id(fields, "sep")}};
    if (type == "RobertaProcessing")  // these say where tokens are in the text
      for (const char* const key : {"trim_offsets", "add_prefix_space"}) fields.boolean(key);
  } else if (type == "ByteLevel") {
    for (const char* const key : {"add_prefix_space", "trim_offsets", "use_regex"})
      fields.boolean(key, true);  // say where tokens are in the text
  } else {
    fields.refuse_type(
        "TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel or Sequence");
  }
  fields.finish();
  return around;
}

}  // namespace ostrakon::texts
