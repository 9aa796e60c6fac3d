// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/text/sources/document_encoder.hpp>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/text/json_record.hpp>
#include <ostrakon/text/utf8.hpp>

namespace ostrakon::texts {
namespace {

using RecordJson = nlohmann::ordered_json;

/// "a number", for messages.
std::string kind_of(const RecordJson& value) {
  if (value.is_null()) return "null";
  return text(value.is_object() || value.is_array() ? "an " : "a ", value.type_name());
}

/// The names of an object's fields, for messages.
std::string fields_of(const RecordJson& object) {
  std::string names;
  int shown_names = 0;
  for (const auto& entry : object.items()) {
    if (++shown_names > 10) return names + ", ...";
    names += (names.empty() ? "" : ", ") + shown(entry.key());
  }
  return names.empty() ? "none" : names;
}

const RecordJson& member(const RecordJson& object, const std::string& name) {
  if (!object.is_object())
    throw Error(
        text(kind_of(object), " where an object with the field ", shown(name), " was expected"));
  const auto found = object.find(name);
  if (found == object.end())
    throw Error(text("no field ", shown(name), "; the record has ", fields_of(object)));
  return *found;
}

/// A field by its name or, where no field has this, by names with dots between.
const RecordJson& field_of(const RecordJson& record, const std::string& field) {
  if (record.is_object() && record.contains(field)) return record[field];
  const RecordJson* value = &record;
  for (std::size_t begin = 0; begin <= field.size();) {
    const std::size_t end = std::min(field.find('.', begin), field.size());
    value = &member(*value, field.substr(begin, end - begin));
    begin = end + 1;
  }
  return *value;
}

}  // namespace

std::string text_of_record(std::string_view line, const std::string& field) {
  const RecordJson record = parse_record(line);
  const RecordJson& value = field_of(record, field);
  require(value.is_string(), "field ", shown(field), " is ", kind_of(value), "; expected a string");
  return value.get<std::string>();
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

DocumentEncoder::DocumentEncoder(const Tokenizer& tokenizer, const std::vector<Source>& sources,
                                 const EncodeSettings& settings)
    : tokenizer_(tokenizer),
      sources_(sources),
      settings_(settings),
      encoder_(tokenizer_.encoder()) {
  if (!settings_.chats) return;
  ChatOptions options;
  options.field = settings_.field;
  if (!settings_.no_template.empty()) options.no_template = settings_.no_template;
  options.finds_special = settings_.finds_special;
  options.before = settings_.before;
  options.after = settings_.after;
  options.pairs = settings_.pairs;
  options.longest_pair = settings_.longest_pair;
  chats_ = std::make_unique<ChatDocuments>(tokenizer_, settings_.chat_template, options);
}

EncodedPortion DocumentEncoder::encode(const Portion& portion) {
  EncodedPortion to;
  to.after = portion.after;
  to.taken = portion.taken;
  to.text_bytes = static_cast<std::int64_t>(portion.bytes.size());
  for (const Stretch& stretch : portion.stretches) encode_stretch(portion, stretch, to);
  return to;
}

void DocumentEncoder::encode_stretch(const Portion& portion, const Stretch& stretch,
                                     EncodedPortion& to) {
  const std::string_view bytes =
      std::string_view(portion.bytes).substr(stretch.begin, stretch.end - stretch.begin);
  const Source& source = sources_[stretch.source];
  if (source.kind == SourceKind::text) {
    const std::size_t ids = to.ids.size();
    try {
      encode_text(bytes, stretch, to);
    } catch (const Error& error) {
      to.ids.resize(ids);
      const std::size_t at = valid_utf8(bytes);
      const std::string_view before = bytes.substr(0, at);
      const auto lines = std::count(before.begin(), before.end(), '\n');
      const std::size_t begin = before.rfind('\n') + 1;  // 0 in the first line
      to.bad.push_back(at == bytes.size()
                           ? text(place_of(source, stretch.line), ": ", error.what())
                           : text(quoted(source), ", line ", stretch.line + lines, ": byte ",
                                  at - begin + 1, " of the line is not UTF-8, which the tokenizer ",
                                  tokenizer_.name(), " takes"));
    }
    return;
  }
  const bool is_row = source.kind == SourceKind::parquet;
  if (!is_row && is_blank(bytes)) return;
  const std::size_t ids = to.ids.size();
  try {
    if (is_row)
      encode_row(bytes, stretch, to);
    else
      encode_record(bytes, stretch, to);
  } catch (const NoTemplate& error) {
    throw NoTemplate(text(place_of(source, stretch.line), ": ", error.what()));
  } catch (const Error& error) {
    to.ids.resize(ids);
    to.bad.push_back(text(place_of(source, stretch.line), ": ", error.what()));
  }
}

void DocumentEncoder::encode_record(std::string_view record, const Stretch& stretch,
                                    EncodedPortion& to) {
  if (!chats_) {
    encode_text(text_of_record(record, settings_.field), stretch, to);
    return;
  }
  add_chat(chats_->read(record), to);
}

/// `row`: the text, or the JSON object of a chat, as ParquetRows has them.
void DocumentEncoder::encode_row(std::string_view row, const Stretch& stretch, EncodedPortion& to) {
  if (!chats_) {
    try {
      encode_text(row, stretch, to);
    } catch (const Error&) {
      const std::size_t valid = valid_utf8(row);
      if (valid == row.size()) throw;
      throw Error(text("byte ", valid + 1, " of its text is not UTF-8, which the tokenizer ",
                       tokenizer_.name(), " takes"));
    }
    return;
  }
  require(valid_utf8(row) == row.size(), "its text is not UTF-8");
  RecordJson record = parse_record(row);
  for (const std::string& key :
       {settings_.field, std::string("tools"), std::string("chat_template_kwargs")}) {
    const auto found = record.find(key);
    if (found == record.end() || !found->is_string()) continue;
    try {
      *found = parse_record(found->get<std::string>());
    } catch (const Error& error) {
      throw Error(text("the JSON in the column ", shown(key), ": ", error.what()));
    }
  }
  add_chat(chats_->document(record), to);
}

void DocumentEncoder::add_chat(const TokenDocument& document, EncodedPortion& to) {
  to.ids.insert(to.ids.end(), document.ids.begin(), document.ids.end());
  to.counts.insert(to.counts.end(), document.counts.begin(), document.counts.end());
  to.counts.resize(to.ids.size(), 1);
  to.stretches.push_back(
      {static_cast<std::int64_t>(document.ids.size()), document.text_bytes, true});
}

void DocumentEncoder::encode_text(std::string_view text, const Stretch& stretch,
                                  EncodedPortion& to) {
  const bool is_whole = stretch.begins && stretch.ends;
  const std::size_t begin = to.ids.size();
  if (stretch.begins) to.ids.insert(to.ids.end(), settings_.before.begin(), settings_.before.end());
  const std::size_t of_text = to.ids.size();
  encoder_->encode(text, settings_.finds_special, to.ids);
  if (is_whole && to.ids.size() == of_text) {
    to.ids.resize(begin);
    ++to.without_text;
    return;
  }
  if (stretch.ends) to.ids.insert(to.ids.end(), settings_.after.begin(), settings_.after.end());
  to.stretches.push_back({static_cast<std::int64_t>(to.ids.size() - begin),
                          static_cast<std::int64_t>(text.size()), stretch.ends});
}

}  // namespace ostrakon::texts
