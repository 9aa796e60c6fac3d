// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/checkpoint/adapters/adapted_rows.hpp>
#include <ostrakon/checkpoint/adapters/peft_config.hpp>
#include <ostrakon/checkpoint/families/family.hpp>
#include <ostrakon/checkpoint/huggingface/safetensors.hpp>
#include <string>
#include <vector>

namespace ostrakon::checkpoint {

/// Finds which layers have adapters in a folder of PEFT, of which rank and alpha. Throws Error
/// where layers of one block have adapters and those of another not, or what has an adapter is no
/// layer that may have one, or target_modules is a list of other modules than those of the tensors.
model::LoraSettings lora_of_peft(const std::string& folder, const Family& family,
                                 const model::DecoderSettings& settings);

/// Reads adapters from a folder of PEFT.
class PeftReader {
 public:
  /// `settings`: with the adapters that are expected. Throws Error that names the key or tensor in
  /// which the folder's are others. An alpha is the same within 1e-6 of it: the settings' is used.
  PeftReader(const std::string& folder, const Family& family,
             const model::DecoderSettings& settings);

  /// Returns a parameter of a block, such as "attention.q.lora_b.weight", in fp32.
  std::vector<float> read(const std::string& owner, const std::string& parameter);

  const PeftConfig& config() const { return config_; }

 private:
  const Family& family_;
  model::DecoderSettings settings_;
  PeftConfig config_;
  SafetensorsReader file_;
};

}  // namespace ostrakon::checkpoint
