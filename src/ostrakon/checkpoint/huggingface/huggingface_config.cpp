// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/huggingface/huggingface_config.hpp>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/checkpoint/json_file.hpp>
#include <utility>

namespace ostrakon::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr const char* config_kind = "model configuration";
constexpr std::int64_t most_bytes = 1 << 20;
constexpr std::size_t most_kept_bytes = 32 << 10;
/// Largest integer of a deck: doubles represent all integers up to it exactly.
constexpr std::uint64_t most_whole = (std::uint64_t{1} << 53) - 1;

std::string shown(const Json& value) {
  constexpr std::size_t most = 300;
  const std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() <= most ? text : text.substr(0, most) + "...";
}

/// The keys of a JSON object, with typed access to optional ones.
class Keys {
 public:
  Keys(std::string name, Json object) : name_(std::move(name)), object_(std::move(object)) {}

  const Json& object() const { return object_; }
  bool has(const std::string& key) const { return object_.contains(key); }
  /// Returns the value of a key; null if the key is missing.
  Json at(const std::string& key) const { return has(key) ? object_[key] : Json(); }

  /// Returns an integer of at least 1.
  std::int64_t whole(const std::string& key) const {
    const Json value = at(key);
    const bool fits = value.is_number_unsigned() && value.get<std::uint64_t>() >= 1 &&
                      value.get<std::uint64_t>() <= most_whole;
    if (!fits) refuse(key, text("expected a whole number from 1 to ", most_whole));
    return value.get<std::int64_t>();
  }
  double number(const std::string& key) const {
    if (!at(key).is_number()) refuse(key, "expected a number");
    return at(key).get<double>();
  }
  bool flag(const std::string& key) const {
    if (!at(key).is_boolean()) refuse(key, "expected true or false");
    return at(key).get<bool>();
  }
  std::string words(const std::string& key) const {
    if (!at(key).is_string()) refuse(key, "expected text");
    return at(key).get<std::string>();
  }
  double value(const std::string& key, ComparedKey::Type type) const {
    if (type == ComparedKey::Type::whole) return static_cast<double>(whole(key));
    return type == ComparedKey::Type::flag ? (flag(key) ? 1.0 : 0.0) : number(key);
  }

  [[noreturn]] void refuse(const std::string& key, const std::string& why) const {
    const std::string found = has(key) ? shown(object_[key]) : std::string("missing");
    throw Error(text(config_kind, " '", name_, "': ", key, " is ", found, "; ", why));
  }

 private:
  std::string name_;
  Json object_;
};

/// Reads one config.json by the tables of its family's keys.
class Reader {
 public:
  Reader(std::string name, Json object) : file_(name, std::move(object)) {
    config_.name = std::move(name);
  }

  HuggingFaceConfig read() {
    const std::string type = file_.has("model_type") ? file_.words("model_type") : "";
    const std::optional<Family> family = family_named(type);
    if (!family) file_.refuse("model_type", "this program computes " + all_model_types());
    config_.family = *family;
    keys_ = &keys_of(*family);
    read_compared();
    if (keys_->has_rope) read_rope();
    read_positions();
    if (keys_->has_window) read_window();
    check_required();
    check_architectures();
    check_unknown();
    keep();
    return std::move(config_);
  }

 private:
  void problem(const std::string& key, const std::string& why) {
    config_.problems.push_back(text(key, " is ", shown(file_.at(key)), "; ", why));
  }

  /// Shows the default of a missing key: "missing (llama: 1e-06)".
  std::string missing(const std::string& value) const {
    return text("missing (", model_type(config_.family), ": ", value, ")");
  }

  /// Returns an alias that the file has for a key that it lacks.
  const ComparedKey* alias_in_file(const ComparedKey& key) const {
    for (const ComparedKey& other : keys_->compared)
      if (other.stands_in && std::string(other.deck_key) == key.deck_key &&
          !file_.at(other.name).is_null())
        return &other;
    return nullptr;
  }

  void read_compared() {
    for (const ComparedKey& key : keys_->compared) {
      const bool is_null = file_.at(key.name).is_null();
      if (key.is_alias && is_null) continue;
      if (const ComparedKey* other = is_null ? alias_in_file(key) : nullptr) {
        if (key.set != nullptr) key.set(config_.model, file_.value(other->name, other->type));
        continue;
      }
      const bool means = key.null_means != nullptr && (file_.has(key.name) || !key.missing);
      const double value = !is_null ? file_.value(key.name, key.type)
                           : means  ? key.null_means(config_.model)
                                    : *key.missing;
      if (key.set != nullptr) key.set(config_.model, value);
      std::string words = shown(file_.at(key.name));
      if (is_null)
        words = file_.has(key.name) ? text("null (", json_text(key, value), ")")
                                    : missing(json_text(key, value));
      config_.values.push_back({&key, value, words});
    }
    set_structure(config_.family, config_.model);
  }

  /// Older files have rope_theta and rope_scaling as separate keys; newer ones have both in
  /// rope_parameters.
  void read_rope() {
    if (!file_.at("rope_theta").is_null()) add_base("rope_theta", file_.number("rope_theta"));
    if (!file_.at("partial_rotary_factor").is_null() &&
        file_.number("partial_rotary_factor") != 1.0)
      problem("partial_rotary_factor", "this program rotates whole heads");
    for (const char* name : {"rope_scaling", "rope_parameters"}) {
      const Json rope = file_.at(name);
      if (rope.is_null()) continue;
      if (!rope.is_object()) file_.refuse(name, "expected an object");
      if (const char* why = why_not_computed(rope)) problem(name, why);
      if (rope.contains("rope_theta") && !rope["rope_theta"].is_null()) {
        if (!rope["rope_theta"].is_number())
          file_.refuse(name, "expected a number as its rope_theta");
        add_base(text(name, ".rope_theta"), rope["rope_theta"].get<double>());
      }
    }
    if (config_.rotary_bases.empty()) {
      const double base = keys_->missing_rope_theta;
      config_.model.rotary.base = base;
      config_.rotary_bases.push_back("rope_theta is " + missing(shown(base)));
      bases_.push_back(base);
    }
    // All keys that set the base must agree.
    for (const double base : bases_)
      if (base != bases_.front()) {
        std::string all;
        for (const std::string& one : config_.rotary_bases) all += (all.empty() ? "" : ", ") + one;
        config_.problems.push_back(all + "; expected one base");
        break;
      }
  }

  void add_base(const std::string& key, double base) {
    config_.model.rotary.base = base;
    bases_.push_back(base);
    config_.rotary_bases.push_back(text(key, " is ", shown(base)));
  }

  /// Returns why Decoder does not compute these rotary frequencies; null if they follow from
  /// rope_theta alone.
  static const char* why_not_computed(const Json& rope) {
    constexpr const char* scales = "this program does not scale rotary frequencies";
    const auto has = [&](const char* key, const Json& value) {
      return rope.contains(key) && rope[key] == value;
    };
    // Linear scaling divides frequencies by the factor, so 1 has no effect.
    const bool linear = has("rope_type", "linear") || has("type", "linear");
    if (linear && !has("factor", 1.0)) return scales;
    for (const auto& [key, value] : rope.items()) {
      if (key == "rope_theta" || value.is_null()) continue;
      const bool is_type = key == "rope_type" || key == "type";
      if (is_type && (value == "default" || value == "linear")) continue;
      if (key == "factor" && linear) continue;
      if (key == "partial_rotary_factor" && value == 1.0) continue;
      return key == "partial_rotary_factor" ? "this program rotates whole heads" : scales;
    }
    return nullptr;
  }

  void read_positions() {
    const bool is_null = file_.at(keys_->positions).is_null();
    config_.positions = is_null ? keys_->missing_positions : file_.whole(keys_->positions);
    config_.shown_positions =
        text(keys_->positions, " is ",
             is_null ? missing(text(config_.positions)) : shown(file_.at(keys_->positions)));
  }

  void read_window() {
    if (!file_.at("sliding_window").is_null())
      config_.window = file_.whole("sliding_window");
    else if (!file_.has("sliding_window"))
      config_.window = keys_->missing_window;
    if (!config_.window) return;
    config_.shown_window =
        text("sliding_window is ", file_.has("sliding_window") ? shown(file_.at("sliding_window"))
                                                               : missing(text(*config_.window)));
  }

  void check_required() {
    for (const RequiredKey& key : keys_->required) {
      const Json value = file_.at(key.name);
      const bool is_computed =
          value.is_null() ||
          std::find(key.computed.begin(), key.computed.end(), value.dump()) != key.computed.end();
      if (is_computed) continue;
      std::string expected;
      for (const std::string& one : key.computed) expected += (expected.empty() ? "" : ", ") + one;
      problem(
          key.name,
          text(key.why, key.computed.size() > 1 ? "; expected one of " : "; expected ", expected));
    }
  }

  /// Checks the class: some models use the type of another model, and differ only in their class.
  void check_architectures() {
    const Json names = file_.at("architectures");
    if (names.is_null()) return;
    const std::string prefix = class_prefix(config_.family);
    const auto is_known = [&](const Json& name) {
      for (const char* what :
           {"Model", "LMHeadModel", "DoubleHeadsModel", "ForCausalLM", "ForSequenceClassification",
            "ForTokenClassification", "ForQuestionAnswering"})
        if (name == prefix + what) return true;
      return false;
    };
    if (!names.is_array() || !std::all_of(names.begin(), names.end(), is_known))
      problem("architectures", text("expected classes of ", model_type(config_.family), ": ",
                                    causal_class(config_.family)));
  }

  void check_unknown() {
    for (const auto& item : file_.object().items()) {
      const std::string& key = item.key();
      // Null means that the file does not use the key.
      if (item.value().is_null() || keys_->no_effect.count(key) > 0 || is_known(key)) continue;
      if (key == "quantization_config" || key == "compression_config")
        problem(key, "this program reads F32, BF16 and F16");
      else if (key == "layer_types")
        check_layer_types();
      else
        problem(key,
                "this program does not know the key; remove it from the file where it changes "
                "nothing in what is computed");
    }
  }

  void check_layer_types() {
    const Json types = file_.at("layer_types");
    const auto is_full = [](const Json& type) { return type == "full_attention"; };
    if (types.is_null()) return;
    if (!types.is_array() || !std::all_of(types.begin(), types.end(), is_full))
      problem("layer_types", "all attention of this program is full_attention");
  }

  bool is_known(const std::string& name) const {
    const auto is_it = [&](const auto& key) { return name == key.name; };
    if (std::any_of(keys_->compared.begin(), keys_->compared.end(), is_it)) return true;
    if (std::any_of(keys_->required.begin(), keys_->required.end(), is_it)) return true;
    for (const char* rope :
         {"rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor"})
      if (keys_->has_rope && name == rope) return true;
    return name == "model_type" || name == "architectures" || name == keys_->positions ||
           (keys_->has_window && name == "sliding_window");
  }

  void keep() {
    Json kept = Json::object();
    for (const auto& item : file_.object().items()) {
      const bool is_long = item.value().is_structured() && !is_known(item.key());
      const bool is_ids = item.value().is_array() && item.key() == "eos_token_id";
      if (!is_long || is_ids) kept[item.key()] = item.value();
    }
    for (const char* of_the_file : {"_name_or_path", "name_or_path", "transformers_version"})
      kept.erase(of_the_file);
    config_.text = kept.dump(-1, ' ', true, Json::error_handler_t::replace);
    require(config_.text.size() <= most_kept_bytes, config_kind, " '", config_.name, "' has ",
            config_.text.size(), " bytes in its keys; expected at most ", most_kept_bytes);
  }

  Keys file_;
  const ConfigKeys* keys_ = nullptr;
  HuggingFaceConfig config_;
  std::vector<double> bases_;
};

}  // namespace

std::string huggingface_config_next_to(const std::string& path) {
  namespace fs = std::filesystem;
  const std::string folder = is_folder(path) ? path : parent_folder(path);
  const std::string config = (fs::path(folder) / "config.json").string();
  return is_there(config) ? config : "";
}

HuggingFaceConfig load_huggingface_config(const std::string& path) {
  return Reader(path, read_json_object(path, config_kind, most_bytes)).read();
}

HuggingFaceConfig parse_huggingface_config(const std::string& text, const std::string& name) {
  return Reader(name, parse_json_object(text, config_kind, name)).read();
}

}  // namespace ostrakon::checkpoint
