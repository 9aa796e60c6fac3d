// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <ostrakon/checkpoint/parameter_source.hpp>
#include <ostrakon/model/decoder.hpp>
#include <string>

namespace ostrakon::checkpoint {

/// Throws Error if a deck describes another model. If not set, decks are not compared.
using RequireDeck = std::function<void(const std::string& deck)>;

/// What is read of a checkpoint as the values of parameters.
enum class Weights { parameters, averages };

/// Opens a weights file, a checkpoint's folder (only what `weights` names, also in verify()) or
/// safetensors with Hugging Face's names, depending on `path`. `tokens`: sequence length in
/// training, or context length. Throws Error if its parameters are not those of the model, or if
/// the config.json next to safetensors, or kept in the file, describes another computation: see
/// require_same_model. `require_deck` is called before shapes are compared, with the deck that is
/// stored with the weights: it can name all differing keys, where a shape names one parameter.
/// Throws Error where averages are wanted of something else than a checkpoint that has them.
///
/// A file of a model with adapters (`settings.lora`) may have all parameters, or all but
/// adapters, which then are missing: ParameterSource::contains.
std::unique_ptr<ParameterSource> open_parameters(const std::string& path,
                                                 const model::DecoderSettings& settings,
                                                 std::int64_t tokens,
                                                 const RequireDeck& require_deck = {},
                                                 Weights weights = Weights::parameters);

/// Returns weights of a model without adapters together with the adapters of a folder of PEFT.
/// `settings`: of the model with adapters. Throws Error where the folder's are others: see
/// PeftReader.
std::unique_ptr<ParameterSource> add_adapters(std::unique_ptr<ParameterSource> base,
                                              const std::string& folder,
                                              const model::DecoderSettings& settings,
                                              std::int64_t tokens);

/// Returns the settings of the model without adapters.
model::DecoderSettings without_adapters(model::DecoderSettings settings);

/// Whether a path is a plain file that begins with HDF5's signature.
bool looks_like_hdf5(const std::string& path);

}  // namespace ostrakon::checkpoint
