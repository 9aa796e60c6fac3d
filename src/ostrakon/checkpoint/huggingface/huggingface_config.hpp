// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <ostrakon/base/dtype.hpp>
#include <ostrakon/checkpoint/huggingface/huggingface_keys.hpp>
#include <ostrakon/model/decoder.hpp>
#include <string>
#include <vector>

namespace ostrakon::checkpoint {

/// A model as described by the config.json next to Hugging Face's tensors.
struct HuggingFaceConfig {
  /// A key that has a counterpart in the deck.
  struct Value {
    const ComparedKey* key;
    double value;
    std::string shown;  ///< "1e-06", or "missing (llama: 1e-06)"
  };

  std::string name;  ///< name of the file, for messages
  Family family = Family::llama;
  model::DecoderSettings model;
  std::int64_t positions = 1;  ///< longest context in tokens
  std::string shown_positions;
  std::optional<std::int64_t> window;  ///< sliding window in tokens; none: unlimited
  std::string shown_window;
  std::vector<Value> values;
  std::vector<std::string> rotary_bases;  ///< keys that set model.rotary_base, with values
  /// Keys that are unknown or that Decoder does not support, each with its value and the reason.
  std::vector<std::string> problems;
  /// The part of the file that is kept with weights, as JSON: every key except nested ones without
  /// an effect.
  std::string text;
};

/// Returns the config.json in the folder of a path that SafetensorsReader takes. Empty if there is
/// none.
std::string huggingface_config_next_to(const std::string& path);

/// Reads a config.json. Throws Error, naming the file and the key, if it is damaged, or its type of
/// model is not in Family. Other properties that Decoder does not compute are listed in `problems`.
/// Sizes are not checked for consistency.
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
std::string unverified_settings(Family family, const model::DecoderSettings& settings);

/// A model for which a config.json is written.
struct HuggingFaceModel {
  model::DecoderSettings settings;
  std::int64_t tokens = 1;  ///< context length in training
  DType dtype = DType::fp32;
  std::optional<std::int64_t> end_of_text;  ///< id that begins and ends documents, if known
  std::string source;  ///< HuggingFaceConfig::text of its original model; empty: none
};

/// Returns the family to write a model as: its source's, or else family_of().
Family family_of(const HuggingFaceModel& model);

/// Returns the text of a config.json. With a source, all of the source's keys are kept, including
/// those without an effect and token ids; its positions are raised to the model's if needed. Throws
/// Error if the model is of no family, or not of its source's.
std::string write_huggingface_config(const HuggingFaceModel& model);

}  // namespace ostrakon::checkpoint
