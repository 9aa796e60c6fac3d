// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <ostrakon/checkpoint/parameter_source.hpp>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/data/tokenizer.hpp>
#include <string>

namespace ostrakon::apps {

/// What a path turns out to be.
enum class FileKind { weights, checkpoint, checkpoints, safetensors };

/// Throws Error where there is nothing. A file that is no HDF5 counts as safetensors; a folder too,
/// unless there are checkpoints in it, or it has a manifest or the name of a checkpoint.
FileKind kind_of(const std::string& path);

/// The same, but for folders of checkpoints: throws Error that says to name one of them.
FileKind one_model_kind(const std::string& path);

/// The file or folder to read where a user names one: see checkpoint::follow_latest. Says so, to
/// stderr, where it is not what has the name. Throws Error where that can't be known.
std::string meant_file(const std::string& named);

/// A model, and who reads its parameters.
struct ModelFile {
  config::Settings settings;  ///< `model` and training.sequence_length count
  std::string tokenizer;      ///< "external" where nothing says it
  std::int64_t step = 0;
  std::unique_ptr<checkpoint::ParameterSource> parameters;
};

/// A weights file or a checkpoint, which have a deck in them. Throws Error, also where they don't
/// have the parameters of their deck's model.
ModelFile open_with_deck(const std::string& path);

/// Safetensors with Hugging Face's names. `deck`: a file whose section model, and sequence_length,
/// describe them; where there is none the config.json next to them does. Where there are both, they
/// have to agree. `context`: tokens to look back on, where config.json describes them and positions
/// are rotary; none: as many as its positions, or its window if that is shorter.
ModelFile open_safetensors(const std::string& path, const std::optional<std::string>& deck,
                           std::optional<std::int64_t> context);

/// The settings alone: see open_safetensors.
config::Settings settings_of_safetensors(const std::string& path,
                                         const std::optional<std::string>& deck,
                                         std::optional<std::int64_t> context);

/// A deck's settings, of which `model` and training.sequence_length count.
config::Settings settings_of_deck(const std::string& path);

using data::unknown_tokenizer;

}  // namespace ostrakon::apps
