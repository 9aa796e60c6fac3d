// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <ostrakon/checkpoint/huggingface_names.hpp>
#include <ostrakon/model/decoder.hpp>
#include <set>
#include <string>
#include <vector>

namespace ostrakon::checkpoint {

// What the keys of a config.json mean to Decoder. A key is compared with a setting of the deck,
// or must have a value that Decoder computes, or changes nothing in what is computed. There are no
// others: a key that is in no table may mean anything. Values of keys that are missing are those
// that transformers takes (its classes <Prefix>Config, versions 4 and 5), and keys of all types are
// those of its PretrainedConfig, versions 2 to 5.

/// A key with a counterpart in a deck.
struct ComparedKey {
  enum class Type { whole, number, flag };

  const char* name;
  const char* deck_key;
  Type type;
  /// What is taken where the file has no such key; none: what null means.
  std::optional<double> missing;
  /// From the keys above it in the table; where there is none, null is `missing`.
  double (*null_means)(const model::DecoderSettings& theirs);
  double (*get)(const model::DecoderSettings& settings);
  /// Null where the value follows from others.
  void (*set)(model::DecoderSettings& settings, double value);
  bool in_float = false;  ///< counts as it is in fp32, in which it is computed with
  /// Another name of a key above it in the table, that files may have: it has to say the same.
  bool is_alias = false;
  bool stands_in = false;  ///< an alias that counts where files lack that key
};

/// A value of a key as JSON: "6", "true", "1e-06".
std::string json_text(const ComparedKey& key, double value);

/// A key that Decoder computes for some of its values only, the default among them.
struct RequiredKey {
  const char* name;
  std::vector<std::string> computed;  ///< as JSON; the first one is written
  const char* why;
  bool is_written = false;  ///< into a config.json without a source
};

struct ConfigKeys {
  std::vector<ComparedKey> compared;
  std::vector<RequiredKey> required;
  const char* positions;  ///< the key of how many tokens a model looks back on, at most
  std::int64_t missing_positions;
  bool has_window = false;  ///< sliding_window: tokens that attention looks back on
  std::optional<std::int64_t> missing_window;  ///< none: all
  bool has_rope = false;                       ///< rope_theta, rope_scaling and rope_parameters
  double missing_rope_theta = 10000.0;         ///< where no key says
  std::set<std::string> no_effect;
};

const ConfigKeys& keys_of(Family family);

}  // namespace ostrakon::checkpoint
