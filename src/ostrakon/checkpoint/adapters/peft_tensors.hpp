// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/checkpoint/adapters/adapted_rows.hpp>
#include <ostrakon/checkpoint/families/family.hpp>
#include <ostrakon/checkpoint/huggingface/huggingface_tensors.hpp>
#include <string>

namespace ostrakon::checkpoint {

/// Returns the module of Hugging Face's model that a layer of block `owner` is, as a tensor of
/// rows: its name ends with ".weight". Throws Error where that type of models has the layer in one
/// tensor with others, or turned.
HuggingFaceTensor adapted_module(const Family& family, const model::DecoderSettings& settings,
                                 const std::string& owner, const AdaptedRows& layer);

/// Returns PEFT's name of a module's A or B: `which` is "lora_A" or "lora_B".
std::string peft_name(const HuggingFaceTensor& module, const std::string& which);

/// Returns the last part of a module's name, such as "q_proj".
std::string target_of(const HuggingFaceTensor& module);

}  // namespace ostrakon::checkpoint
