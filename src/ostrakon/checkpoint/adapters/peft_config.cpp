// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/adapters/peft_config.hpp>

#include <cmath>
#include <nlohmann/json.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/checkpoint/json_file.hpp>

namespace ostrakon::checkpoint {
namespace {

using nlohmann::json;

/// Keys of adapters that compute something else, unless their values are null, false, empty, or
/// this one.
constexpr std::pair<const char*, const char*> plain_values[] = {{"bias", "none"},
                                                                {"lora_bias", ""},
                                                                {"use_dora", ""},
                                                                {"rank_pattern", ""},
                                                                {"alpha_pattern", ""},
                                                                {"modules_to_save", ""},
                                                                {"layers_to_transform", ""},
                                                                {"layers_pattern", ""},
                                                                {"layer_replication", ""},
                                                                {"target_parameters", ""},
                                                                {"exclude_modules", ""},
                                                                {"trainable_token_indices", ""},
                                                                {"use_qalora", ""},
                                                                {"fan_in_fan_out", ""},
                                                                {"alora_invocation_tokens", ""}};

bool is_plain(const json& value, const std::string& plain) {
  return value.is_null() || value == json(false) || value == json(plain) ||
         ((value.is_structured() || value.is_string()) && value.empty());
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
  for (const auto& [key, plain] : plain_values) {
    const auto found = config.find(key);
    require(found == config.end() || is_plain(*found, plain), "'", read.path, "': ", key, " is ",
            found == config.end() ? "" : found->dump(),
            ", which is not computed; expected adapters of A and B alone, of one rank");
  }
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
