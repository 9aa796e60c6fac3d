// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <ostrakon/base/dtype.hpp>
#include <ostrakon/checkpoint/huggingface_keys.hpp>
#include <ostrakon/model/decoder.hpp>
#include <string>
#include <vector>

namespace ostrakon::checkpoint {

/// What the config.json next to Hugging Face's tensors says of a model.
struct HuggingFaceConfig {
  /// A key that has a counterpart in a deck.
  struct Value {
    const ComparedKey* key;
    double value;
    std::string shown;  ///< "1e-06", or "missing (llama: 1e-06)"
  };

  std::string name;  ///< of the file, for messages
  Family family = Family::llama;
  model::DecoderSettings model;
  std::int64_t positions = 1;  ///< tokens that it looks back on, at most
  std::string shown_positions;
  std::optional<std::int64_t> window;  ///< tokens that attention looks back on; none: all
  std::string shown_window;
  std::vector<Value> values;
  std::vector<std::string> rotary_bases;  ///< keys that say what model.rotary_base is, with values
  /// Keys that Decoder does not support, or that are unknown, each with its value and why.
  std::vector<std::string> problems;
  /// What of the file is kept with weights: JSON, every key but nested ones without an effect.
  std::string text;
};

/// The config.json of a path that SafetensorsReader takes: in the same folder. Empty where there is
/// none.
std::string huggingface_config_next_to(const std::string& path);

/// Reads a config.json. Throws Error, naming the file and the key, where it is damaged or of
/// another type of model than Family. What else Decoder does not compute is in `problems`. Sizes
/// are as the file has them: whether they go together is not checked.
HuggingFaceConfig load_huggingface_config(const std::string& path);
/// Reads it from the file's text. `name`: the file's, for messages.
HuggingFaceConfig parse_huggingface_config(const std::string& text, const std::string& name);

/// Throws Error that lists every key which changes what is computed and that `ours`, trained on
/// sequences of `tokens` tokens, does not have: keys whose values differ, keys that Decoder does
/// not compute, and unknown keys.
void require_same_model(const HuggingFaceConfig& theirs, const model::DecoderSettings& ours,
                        std::int64_t tokens);

/// Throws Error where Decoder does not compute the model, with `tokens` tokens to look back on.
void require_computed(const HuggingFaceConfig& config, std::int64_t tokens);

/// What of a deck is not checked where there is no config.json: one line.
std::string taken_on_trust(Family family, const model::DecoderSettings& settings);

/// A model to write a config.json of.
struct HuggingFaceModel {
  model::DecoderSettings settings;
  std::int64_t tokens = 1;  ///< that it was trained to look back on
  DType dtype = DType::fp32;
  std::optional<std::int64_t> end_of_text;  ///< begins and ends documents, where it is known
  std::string source;  ///< HuggingFaceConfig::text of what its weights began as; empty: nothing
};

/// The family as which a model is written: its source's, or else family_of().
Family family_of(const HuggingFaceModel& model);

/// The text of a config.json. With a source it is that, keys without an effect and ids of tokens
/// included, with as many positions as the model has if that is more. Throws Error where the model
/// is of no family, or not of its source's.
std::string write_huggingface_config(const HuggingFaceModel& model);

}  // namespace ostrakon::checkpoint
