// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <ostrakon/checkpoint/huggingface/huggingface_names.hpp>
#include <ostrakon/model/decoder.hpp>
#include <set>
#include <string>
#include <vector>

namespace ostrakon::checkpoint {

// The meaning of the keys of a config.json for Decoder. A key is compared with a setting of the
// deck, or must have a value that Decoder computes, or has no effect on what is computed. A key
// that is in no table is refused, as it may mean anything. Missing keys have the default values of
// transformers (its classes <Prefix>Config, versions 4 and 5), and keys of all types are those of
// its PretrainedConfig, versions 2 to 5.

/// A key with a counterpart in the deck.
struct ComparedKey {
  enum class Type { whole, number, flag };

  const char* name;
  const char* deck_key;
  Type type;
  /// Default if the file lacks the key; none: as null_means.
  std::optional<double> missing;
  /// Returns the meaning of null from keys above this one in the table. If not set, null means
  /// `missing`.
  double (*null_means)(const model::DecoderSettings& theirs);
  double (*get)(const model::DecoderSettings& settings);
  /// Not set if the value follows from other keys.
  void (*set)(model::DecoderSettings& settings, double value);
  bool in_float = false;  ///< compare as fp32, in which it is used
  /// Another name, in some files, of a key above this one in the table; both must agree.
  bool is_alias = false;
  bool stands_in = false;  ///< an alias that replaces that key if it is missing
};

/// Formats a value of a key as JSON: "6", "true", "1e-06".
std::string json_text(const ComparedKey& key, double value);

/// A key that Decoder computes only for some of its values, including the default.
struct RequiredKey {
  const char* name;
  std::vector<std::string> computed;  ///< values as JSON; the first is written
  const char* why;
  bool is_written = false;  ///< whether a config.json without a source gets it
};

struct ConfigKeys {
  std::vector<ComparedKey> compared;
  std::vector<RequiredKey> required;
  const char* positions;  ///< key of the longest context
  std::int64_t missing_positions;
  bool has_window = false;  ///< sliding_window: the window of attention, in tokens
  std::optional<std::int64_t> missing_window;  ///< default; none: unlimited
  bool has_rope = false;                       ///< has rope_theta, rope_scaling and rope_parameters
  double missing_rope_theta = 10000.0;         ///< default rope_theta
  std::set<std::string> no_effect;
};

const ConfigKeys& keys_of(Family family);

}  // namespace ostrakon::checkpoint
