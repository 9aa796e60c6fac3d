// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <ostrakon/checkpoint/open_parameters.hpp>
#include <ostrakon/checkpoint/parameter_source.hpp>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/data/tokenizer.hpp>
#include <string>

namespace ostrakon::apps {

/// The kind of model file at a path.
enum class FileKind { weights, checkpoint, checkpoints, safetensors };

/// Returns the kind of a path; throws Error if it does not exist, or is weights of another format
/// (see checkpoint::require_no_other_weights). A file that is not HDF5 counts as
/// safetensors. So does a folder, unless it contains checkpoints, or has a manifest or the name of
/// a checkpoint.
FileKind kind_of(const std::string& path);

/// Returns kind_of a single model; throws Error for a folder of checkpoints, saying to name one of
/// them.
FileKind single_model_kind(const std::string& path);

/// Returns the file or folder to read for a path: of a run's folder the first of
/// checkpoint::models_of_run, else see checkpoint::follow_latest. Prints a note to stderr if it is
/// another path. Throws Error if it can't be determined.
std::string resolve_model_path(const std::string& named);

/// A model, and the source of its parameters.
struct ModelFile {
  config::Settings settings;  ///< only `model` and training.sequence_length are used
  std::string tokenizer;      ///< "external" if unknown
  std::int64_t step = 0;
  std::unique_ptr<checkpoint::ParameterSource> parameters;
};

/// Opens a weights file or a checkpoint, which contain a deck. Throws Error, also if they don't
/// have the parameters of their deck's model, or where averages are wanted and it has none.
ModelFile open_with_deck(const std::string& path,
                         checkpoint::Weights weights = checkpoint::Weights::parameters);

/// Opens safetensors with Hugging Face's names. `deck`: a file whose section model, and
/// sequence_length, describe them; without it the config.json next to them does. If there are both,
/// they must agree. A deck with adapters names them in lora.initial. `context`: context length, if
/// config.json describes them and positions are rotary; none: the number of positions.
ModelFile open_safetensors(const std::string& path, const std::optional<std::string>& deck,
                           std::optional<std::int64_t> context);

/// Adds the adapters of lora.initial to weights without any. Throws Error where the settings have
/// adapters, and neither the weights in `path` nor lora.initial do: only training begins with new
/// ones.
void add_initial_adapters(std::unique_ptr<checkpoint::ParameterSource>& weights,
                          const config::Settings& settings, const std::string& path);

/// Returns only the settings: see open_safetensors.
config::Settings settings_of_safetensors(const std::string& path,
                                         const std::optional<std::string>& deck,
                                         std::optional<std::int64_t> context);

/// Returns a deck's settings, of which `model` and training.sequence_length are used.
config::Settings settings_of_deck(const std::string& path);

using data::unknown_tokenizer;

}  // namespace ostrakon::apps
