// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/model/layer_settings.hpp>
#include <string>
#include <vector>

namespace ostrakon::checkpoint {

constexpr const char* peft_config_name = "adapter_config.json";
constexpr const char* peft_tensors_name = "adapter_model.safetensors";

/// What PEFT's adapter_config.json says of adapters.
struct PeftConfig {
  std::string path;
  std::int64_t rank = 0;
  double alpha = 0.0;    ///< as LoraSettings has it: of rank-stabilized adapters times sqrt(rank)
  double dropout = 0.0;  ///< in PEFT's training
  bool rank_stabilized = false;  ///< use_rslora
  /// target_modules: names of modules, or ends of them after a dot. Empty: a pattern, or missing.
  std::vector<std::string> targets;
};

/// Reads the file of a folder. Throws Error, naming it and the key, if it is missing or damaged, or
/// the adapters are none that a Decoder computes with the weights of the base model: not of LoRA,
/// or with biases, DoRA, ranks of single layers, further trained parameters, an initialization that
/// changes the base model (PiSSA), or a key that is unknown and not null, false or empty.
PeftConfig read_peft_config(const std::string& folder);

/// Returns the text of such a file. `targets`: last parts of the names of adapted modules,
/// "q_proj". `base`: of the model without adapters, a folder or a name; empty: unknown.
std::string write_peft_config(const model::LoraSettings& lora, const std::set<std::string>& targets,
                              const std::string& base);

}  // namespace ostrakon::checkpoint
