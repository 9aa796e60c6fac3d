// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/text/tokenizers/tokenizer_folder.hpp>

#include <algorithm>
#include <filesystem>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/checkpoint/json_file.hpp>
#include <ostrakon/text/json_fields.hpp>
#include <utility>

namespace ostrakon::texts {
namespace {

constexpr std::int64_t most_companion_bytes = 1 << 26;

/// A file of the folder; an empty object where it is not there.
struct CompanionFile {
  std::string path;
  nlohmann::json json = nlohmann::json::object();
  CompanionFile(const std::string& folder, const char* name)
      : path((std::filesystem::path(folder) / name).string()) {
    if (is_plain_file(path)) json = checkpoint::read_json_object(path, name, most_companion_bytes);
  }
  JsonFields fields() const { return {json, path, ""}; }
};

class TextEndsReader {
 public:
  TextEndsReader(const std::string& folder, std::int64_t vocabulary, const IdOf& id_of)
      : vocabulary_(vocabulary),
        id_of_(id_of),
        tokenizer_config_(folder, "tokenizer_config.json"),
        special_tokens_(folder, "special_tokens_map.json"),
        config_(folder, "config.json"),
        generation_config_(folder, "generation_config.json") {}

  TextEnds read() const {
    check_added_tokens();
    TextEnds ends;
    ends.begin = first(token_or_id("bos"));
    const auto end_ids = token_or_id("eos");
    ends.end = first(end_ids);
    add(end_ids, ends.ends);
    const bool has_own = generation_config_.json.contains("eos_token_id");
    add(ids(has_own ? generation_config_ : config_, "eos_token_id"), ends.ends);
    return ends;
  }

 private:
  using Ids = std::vector<std::int32_t>;

  static std::optional<std::int32_t> first(const Ids& ids) {
    if (ids.empty()) return std::nullopt;
    return ids.front();
  }

  static void add(const Ids& more, Ids& ids) {
    for (const std::int32_t id : more)
      if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  }

  /// The token of the first file that has one, or says that there is none.
  Ids token_or_id(const std::string& which) const {
    const std::string name = which + "_token";
    for (const CompanionFile* const file : {&tokenizer_config_, &special_tokens_})
      if (file->json.contains(name)) return token(*file, name);
    const bool has_own = generation_config_.json.contains(name + "_id");
    return ids(has_own ? generation_config_ : config_, name + "_id");
  }

  /// A token is its text, or an object with it.
  Ids token(const CompanionFile& file, const std::string& name) const {
    JsonFields fields = file.fields();
    if (!fields.has(name)) return {};
    const bool is_object = fields.value(name).is_object();
    JsonFields object = is_object ? fields.object(name) : fields;
    const std::string key = is_object ? "content" : name;
    const auto id = id_of_(object.string(key));
    if (!id) object.refuse(key, "a token of the tokenizer");
    return {*id};
  }

  Ids ids(const CompanionFile& file, const std::string& name) const {
    JsonFields fields = file.fields();
    if (!fields.has(name)) return {};
    const nlohmann::json& value = fields.value(name);
    Ids found;
    for (const nlohmann::json& id : value.is_array() ? value : nlohmann::json::array({value})) {
      const bool is_id = id.is_number_unsigned() &&
                         id.get<std::uint64_t>() < static_cast<std::uint64_t>(vocabulary_);
      if (!is_id) fields.refuse(name, "ids of the tokenizer");
      found.push_back(id.get<std::int32_t>());
    }
    return found;
  }

  /// Other programs add these to a tokenizer: it must have them already.
  void check_added_tokens() const {
    JsonFields fields = tokenizer_config_.fields();
    if (!fields.has("added_tokens_decoder")) return;
    JsonFields list = fields.object("added_tokens_decoder");
    for (const auto& [id, token] : list.json().items()) {
      JsonFields added = list.object(id);
      const auto known = id_of_(added.string("content"));
      if (!known || std::to_string(*known) != id)
        added.refuse("content", "a token that the tokenizer has with this id");
    }
  }

  std::int64_t vocabulary_;
  const IdOf& id_of_;
  CompanionFile tokenizer_config_, special_tokens_, config_, generation_config_;
};

}  // namespace

TextEnds read_text_ends(const std::string& folder, std::int64_t vocabulary, const IdOf& id_of) {
  return TextEndsReader(folder, vocabulary, id_of).read();
}

}  // namespace ostrakon::texts
