// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <ostrakon/base/dtype.hpp>
#include <ostrakon/checkpoint/families/family.hpp>
#include <ostrakon/model/decoder.hpp>
#include <string>
#include <vector>

namespace ostrakon::checkpoint {

/// A model as described by the config.json next to Hugging Face's tensors.
struct HuggingFaceConfig {
  std::string name;  ///< name of the file, for messages
  const Family* family = nullptr;
  model::DecoderSettings model;        ///< without modules of multi-token prediction
  std::int64_t multi_token_depth = 0;  ///< those that files have; a deck may ask for them
  std::int64_t positions = 1;          ///< longest context in tokens
  std::string shown_positions;
  /// What the file says of keys of a deck, for messages.
  std::vector<ConfigReading::Said> said;
  /// Keys that are unknown or that Decoder does not support, each with its value and the reason.
  std::vector<std::string> problems;
  /// The part of the file that is kept with weights, as JSON: every key except nested ones without
  /// an effect. _name_or_path is the absolute path of the file's folder.
  std::string text;
  std::optional<DType> dtype;  ///< of the tensors, if the file says it
};

/// Returns the config.json in the folder of a path that SafetensorsReader takes. Empty if there is
/// none.
std::string huggingface_config_next_to(const std::string& path);

/// Reads a config.json. Throws Error, naming the file and the key, if it is damaged, or its type of
/// model is none of all_families(). Other properties that Decoder does not compute are listed in
/// `problems`. Sizes are not checked for consistency.
HuggingFaceConfig load_huggingface_config(const std::string& path);
/// Reads a config.json from its text. `name`: the file's name, for messages.
HuggingFaceConfig parse_huggingface_config(const std::string& text, const std::string& name);

/// Throws Error that lists every difference between the models that changes what is computed: keys
/// whose values differ from `ours`, trained on sequences of `tokens` tokens, keys that Decoder does
/// not compute, and unknown keys.
void require_same_model(const HuggingFaceConfig& theirs, const model::DecoderSettings& ours,
                        std::int64_t tokens);

/// Throws Error if Decoder does not compute the model with a context of `tokens` tokens.
void require_computed(const HuggingFaceConfig& config, std::int64_t tokens);

/// Describes in one line the settings of a deck that can't be checked without a config.json.
std::string unverified_settings(const Family& family, const model::DecoderSettings& settings);

/// Returns the family as which a model is written, from its settings alone: the first that has such
/// models. Throws Error, naming the settings that differ from the nearest family, if there is none.
const Family& family_of(const model::DecoderSettings& settings);

/// A model for which a config.json is written.
struct HuggingFaceModel {
  model::DecoderSettings settings;
  std::int64_t tokens = 1;  ///< context length in training
  DType dtype = DType::fp32;
  std::optional<std::int64_t> end_of_text;  ///< id that begins and ends documents, if known
  std::string source;  ///< HuggingFaceConfig::text of its original model; empty: none
};

/// Returns the family to write a model as: its source's, or else that of its settings.
const Family& family_of(const HuggingFaceModel& model);

/// Returns the text of a config.json. With a source, all of the source's keys are kept, including
/// those without an effect and token ids; its positions are raised to the model's if needed. Throws
/// Error if the model is of no family, or not of its source's.
std::string write_huggingface_config(const HuggingFaceModel& model);

/// Returns the folder that weights came from, from what is kept of its config.json; empty: unknown.
std::string source_folder_of(const std::string& kept_config);

}  // namespace ostrakon::checkpoint
