// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/adapters/peft_config.hpp>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/checkpoint/json_file.hpp>

namespace ostrakon::checkpoint {
namespace {

using nlohmann::json;

/// Keys that are read, or say nothing of what adapters compute. Every other key has to be null,
/// false or empty: those of later versions of PEFT, too.
constexpr const char* known_keys[] = {
    "peft_type", "r", "lora_alpha", "lora_dropout", "target_modules", "use_rslora",
    "init_lora_weights",
    // These are about the file, the base model's name, or training in PEFT.
    "peft_version", "auto_mapping", "base_model_name_or_path", "revision", "task_type",
    "inference_mode", "eva_config", "loftq_config", "megatron_config", "megatron_core",
    "qalora_group_size", "runtime_config"};

/// Values of init_lora_weights besides true and false. With others, such as "pissa", PEFT subtracts
/// the first adapters from the base model's weights, to which the adapters can't be added then.
constexpr const char* plain_starts[] = {"gaussian", "eva", "orthogonal"};

bool is_empty(const json& value) {
  return value.is_null() || value == json(false) ||
         ((value.is_structured() || value.is_string()) && value.empty());
}

template <std::size_t count>
bool is_among(const json& value, const char* const (&names)[count]) {
  return std::any_of(std::begin(names), std::end(names),
                     [&](const char* name) { return value == json(name); });
}

/// Throws Error unless the adapters are those that a Decoder computes.
void require_plain(const json& config, const std::string& path) {
  for (const auto& [key, value] : config.items()) {
    const bool is_plain =
        is_among(key, known_keys) || is_empty(value) || (key == "bias" && value == json("none"));
    require(is_plain, "'", path, "': ", key, " is ", value.dump(),
            ", which is not computed; expected adapters of A and B alone, of one rank");
  }
  const json start = config.value("init_lora_weights", json());
  require(start.is_null() || start.is_boolean() || is_among(start, plain_starts), "'", path,
          "': init_lora_weights is ", start.dump(),
          ", with which PEFT may change the weights of the base model; expected true, false, "
          "\"gaussian\", \"eva\" or \"orthogonal\" (save_pretrained makes such adapters plain ones "
          "if path_initial_model_for_weight_conversion is given)");
  const json stabilized = config.value("use_rslora", json());
  require(stabilized.is_null() || stabilized.is_boolean(), "'", path, "': use_rslora is ",
          stabilized.dump(), "; expected true or false");
}

/// A number of a key that must be there.
double number_of(const json& config, const std::string& path, const char* key) {
  const auto found = config.find(key);
  require(found != config.end() && found->is_number(), "'", path, "': ", key, " is ",
          found == config.end() ? "missing" : found->dump(), "; expected a number");
  return found->get<double>();
}

}  // namespace

PeftConfig read_peft_config(const std::string& folder) {
  PeftConfig read;
  read.path = folder + "/" + peft_config_name;
  require(is_there(read.path), "'", folder, "' has no ", peft_config_name,
          "; expected a folder that PEFT's save_pretrained wrote");
  constexpr std::int64_t most_bytes = std::int64_t{1} << 20;
  const json config = read_json_object(read.path, "adapter configuration", most_bytes);
  const auto type = config.find("peft_type");
  require(type != config.end() && *type == json("LORA"), "'", read.path, "': peft_type is ",
          type == config.end() ? "missing" : type->dump(), "; expected \"LORA\"");
  require_plain(config, read.path);
  const double rank = number_of(config, read.path, "r");
  require(rank >= 1.0 && rank <= 65536.0 && rank == std::floor(rank), "'", read.path, "': r is ",
          rank, "; expected an integer from 1 to 65536");
  read.rank = static_cast<std::int64_t>(rank);
  read.alpha = number_of(config, read.path, "lora_alpha");
  require(std::isfinite(read.alpha) && read.alpha > 0.0, "'", read.path, "': lora_alpha is ",
          read.alpha, "; expected a number above 0");
  read.rank_stabilized = config.value("use_rslora", json(false)) == json(true);
  if (read.rank_stabilized) read.alpha *= std::sqrt(rank);
  const json targets = config.value("target_modules", json());
  for (const json& target : targets.is_array() ? targets : json::array()) {
    require(target.is_string(), "'", read.path, "': target_modules has ", target.dump(),
            "; expected names of modules");
    read.targets.push_back(target.get<std::string>());
  }
  if (config.contains("lora_dropout")) read.dropout = number_of(config, read.path, "lora_dropout");
  return read;
}

std::string write_peft_config(const model::LoraSettings& lora, const std::set<std::string>& targets,
                              const std::string& base) {
  nlohmann::ordered_json config;
  config["alpha_pattern"] = nlohmann::ordered_json::object();
  config["base_model_name_or_path"] = base;
  config["bias"] = "none";
  config["fan_in_fan_out"] = false;
  config["inference_mode"] = true;
  config["init_lora_weights"] = true;
  config["lora_alpha"] = lora.alpha;
  if (lora.alpha == std::floor(lora.alpha) && lora.alpha < 1e15)
    config["lora_alpha"] = static_cast<std::int64_t>(lora.alpha);
  config["lora_dropout"] = 0.0;
  config["modules_to_save"] = nullptr;
  config["peft_type"] = "LORA";
  config["r"] = lora.rank;
  config["rank_pattern"] = nlohmann::ordered_json::object();
  config["target_modules"] = targets;
  config["task_type"] = "CAUSAL_LM";
  config["use_dora"] = false;
  config["use_rslora"] = false;
  return config.dump(2) + "\n";
}

}  // namespace ostrakon::checkpoint
