// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <ostrakon/checkpoint/parameter_source.hpp>
#include <ostrakon/model/decoder.hpp>
#include <string>

namespace ostrakon::checkpoint {

/// Throws Error where a deck describes another model. Empty: nothing is compared.
using RequireDeck = std::function<void(const std::string& deck)>;

/// A weights file, a checkpoint's folder (its parameters; verify() reads these alone) or
/// safetensors with Hugging Face's names, whichever `path` turns out to be. `tokens`: of the
/// sequences that the model is trained on, or looks back on. Throws Error where it has not the
/// parameters of the model, or others, or where the config.json that came with them, next to
/// safetensors or kept in the file, says that another model is computed: see require_same_model.
/// `require_deck` is called before shapes are compared, with the deck that is stored with the
/// weights: it can name all keys that differ, where a shape names one parameter.
std::unique_ptr<ParameterSource> open_parameters(const std::string& path,
                                                 const model::DecoderSettings& settings,
                                                 std::int64_t tokens,
                                                 const RequireDeck& require_deck = {});

/// Whether it is a plain file that begins as HDF5 files do.
bool looks_like_hdf5(const std::string& path);

}  // namespace ostrakon::checkpoint
