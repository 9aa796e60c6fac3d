// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/huggingface/huggingface_config.hpp>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/checkpoint/huggingface/quantization_config.hpp>
#include <ostrakon/checkpoint/json_file.hpp>
#include <utility>

namespace ostrakon::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr const char* config_kind = "model configuration";
constexpr const char* folder_key = "_name_or_path";
constexpr std::int64_t most_bytes = 1 << 20;
constexpr std::size_t most_kept_bytes = 32 << 10;

/// Reads one config.json by the keys of its family.
class Reader {
 public:
  /// `folder`: that of the file; empty: unknown.
  Reader(std::string name, Json object, std::string folder)
      : object_(std::move(object)),
        folder_(std::move(folder)),
        reading_(name, type_of_model(), object_) {
    config_.name = std::move(name);
  }

  HuggingFaceConfig read() {
    if (reading_.has("model_type")) (void)reading_.words("model_type");
    config_.family = family_named(type_of_model());
    if (config_.family == nullptr)
      reading_.refuse("model_type",
                      about_text_model() + "this program computes " + all_model_types());
    read_keys(*config_.family, reading_);
    read_positions();
    check_architectures();
    check_unknown();
    keep();
    config_.multi_token_depth = std::exchange(reading_.model.multi_token_depth, 0);
    config_.model = std::move(reading_.model);
    config_.said = std::move(reading_.said);
    config_.problems = std::move(reading_.problems);
    config_.dtype = dtype();
    return std::move(config_);
  }

 private:
  std::string type_of_model() const {
    const auto type = object_.find("model_type");
    return type != object_.end() && type->is_string() ? type->get<std::string>() : "";
  }

  /// Says of a model of text and more, if its part for text is one that is computed.
  std::string about_text_model() const {
    const auto part = object_.find("text_config");
    if (part == object_.end() || !part->is_object()) return "";
    const auto type = part->find("model_type");
    if (type == part->end() || !type->is_string()) return "";
    const auto name = type->get<std::string>();
    if (family_named(name) == nullptr) return "";
    return text("its model of text alone, text_config, has the type ", name,
                ", which is computed: expected a folder of that; ");
  }

  void read_positions() {
    const std::string key = config_.family->positions_key;
    const std::int64_t missing = config_.family->missing_positions;
    config_.positions = reading_.positions;
    config_.shown_positions =
        reading_.has(key)
            ? reading_.is(key)
            : text(key, " is missing (", config_.family->model_type, ": ", missing, ")");
  }

  /// Checks the class: some models use the type of another model, and differ only in their class.
  void check_architectures() {
    const Json& names = reading_.at("architectures");
    if (names.is_null()) return;
    const Family& family = *config_.family;
    const auto is_known = [&](const Json& name) {
      if (!name.is_string()) return false;
      for (const char* what :
           {"Model", "LMHeadModel", "DoubleHeadsModel", "ForCausalLM", "ForSequenceClassification",
            "ForTokenClassification", "ForQuestionAnswering"})
        if (name == family.class_prefix + what) return true;
      return family.other_classes.count(name.get<std::string>()) > 0;
    };
    if (!names.is_array() || !std::all_of(names.begin(), names.end(), is_known))
      reading_.problem("architectures", text("expected classes of ", family.model_type, ": ",
                                             family.causal_class()));
  }

  void check_unknown() {
    for (const auto& item : object_.items()) {
      const std::string& key = item.key();
      // Null means that the file does not use the key.
      if (item.value().is_null() || config_.family->no_effect.count(key) > 0 || is_known(key))
        continue;
      if (key == "quantization_config" || key == "compression_config") {
        const std::string problem = quantization_problem(item.value());
        if (!problem.empty()) reading_.problem(key, problem);
      } else {
        reading_.problem(key,
                         "this program does not know the key; remove it from the file where it "
                         "changes nothing in what is computed");
      }
    }
  }

  bool is_known(const std::string& name) const {
    for (const Key& key : config_.family->keys)
      if (std::find(key.names.begin(), key.names.end(), name) != key.names.end()) return true;
    return name == "model_type" || name == "architectures" || name == config_.family->positions_key;
  }

  void keep() {
    Json kept = Json::object();
    for (const auto& item : object_.items()) {
      const bool is_long = item.value().is_structured() && !is_known(item.key());
      const bool is_ids = item.value().is_array() && item.key() == "eos_token_id";
      if (!is_long || is_ids) kept[item.key()] = item.value();
    }
    for (const char* of_the_file : {folder_key, "name_or_path", "transformers_version"})
      kept.erase(of_the_file);
    if (!folder_.empty()) kept[folder_key] = folder_;
    config_.text = kept.dump(-1, ' ', true, Json::error_handler_t::replace);
    require(config_.text.size() <= most_kept_bytes, config_kind, " '", config_.name, "' has ",
            config_.text.size(), " bytes in its keys; expected at most ", most_kept_bytes);
  }

  std::optional<DType> dtype() const {
    for (const char* key : {"dtype", "torch_dtype"}) {
      const Json& value = reading_.at(key);
      if (value == "bfloat16") return DType::bf16;
      if (value == "float16") return DType::fp16;
      if (value == "float32") return DType::fp32;
    }
    return std::nullopt;
  }

  Json object_;
  std::string folder_;
  ConfigReading reading_;
  HuggingFaceConfig config_;
};

}  // namespace

std::string huggingface_config_next_to(const std::string& path) {
  namespace fs = std::filesystem;
  const std::string folder = is_folder(path) ? path : parent_folder(path);
  const std::string config = (fs::path(folder) / "config.json").string();
  return is_there(config) ? config : "";
}

HuggingFaceConfig load_huggingface_config(const std::string& path) {
  const std::string folder = std::filesystem::absolute(parent_folder(path)).lexically_normal();
  return Reader(path, read_json_object(path, config_kind, most_bytes), folder).read();
}

HuggingFaceConfig parse_huggingface_config(const std::string& text, const std::string& name) {
  return Reader(name, parse_json_object(text, config_kind, name), "").read();
}

std::string source_folder_of(const std::string& kept_config) {
  if (kept_config.empty()) return "";
  const Json kept = parse_json_object(kept_config, config_kind, "config.json kept with weights");
  const auto folder = kept.find(folder_key);
  return folder != kept.end() && folder->is_string() ? folder->get<std::string>() : "";
}

}  // namespace ostrakon::checkpoint
