// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/checkpoint/families/family.hpp>
#include <ostrakon/checkpoint/parameter_source.hpp>
#include <ostrakon/model/decoder.hpp>
#include <string>

namespace ostrakon::checkpoint {

/// Writes the adapters of a model into an existing folder as PEFT reads them: adapter_config.json
/// and adapter_model.safetensors, in fp32. `base`: the model without adapters, for the config.
void write_peft(const std::string& folder, const Family& family,
                const model::DecoderSettings& settings, const std::string& base,
                ParameterSource& source);

}  // namespace ostrakon::checkpoint
