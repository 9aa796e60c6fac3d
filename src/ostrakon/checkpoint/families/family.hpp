// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <ostrakon/checkpoint/families/key.hpp>
#include <ostrakon/model/decoder.hpp>
#include <set>
#include <string>
#include <vector>

namespace ostrakon::checkpoint {

// A family is a type of models of Hugging Face (`model_type` in config.json) that Decoder computes.
// All that is known of it is data in one Family: what every model of it has (`structure`), what
// keys of its config.json set (`keys`), and how its tensors are named and ordered (`names`). What
// reads, compares and writes config.json and tensors knows no family by name. A family is added by
// a function in the file of its relatives, which is listed in families.cpp.

/// Says which rows of one of our parameters a tensor holds.
enum class Rows {
  all,
  queries,  ///< with attention_gate the gates, too
  keys,
  values,
  head,  ///< one head
  half,
  half_of_expert,
  half_of_shared,
  // What the first layer of a delta net makes:
  delta_qkv,    ///< queries, keys and values
  delta_gate,   ///< gates of outputs
  delta_qkvz,   ///< both
  delta_rates,  ///< for each head of values one of the two numbers of its rate and step
  delta_both    ///< both of them
};

/// The order of rows in a tensor, compared with ours.
enum class RowOrder {
  same,
  grouped,       ///< each group of heads, one of keys and values in each: its queries, key, value
  interleaved,   ///< row i of the gate, row i of up, and so on
  gated,         ///< each head: its query, its gate
  of_key_heads,  ///< each head of keys of a delta net: what it and its heads of values have
  // Latent attention, whose rotated elements are the first ones of a head in ours:
  rotated_last,  ///< each head: elements without positions, then the rotated ones
  latent_first,  ///< the latent, then the rotated elements of all heads' keys, in their pairs
  of_heads       ///< each head: its key without the rotated elements, its value
};

/// Says which elements of a head's rotated share are turned as a pair. Ours are (i, i + half).
enum class RotaryPairs {
  halves,      ///< as ours
  neighbours,  ///< (2 i, 2 i + 1), as in Meta's own files
  swapped      ///< (i + half, i): it turns the other way
};

/// A tensor that one of our layers has rows in.
struct TensorPart {
  std::string name;  ///< * stands for the number of an expert
  Rows rows = Rows::all;
  RowOrder order = RowOrder::same;
  /// What follows the name.
  const char* weight = ".weight";
  const char* bias = ".bias";
  /// Whether the tensor has those of all experts, along its first dimension.
  bool is_stacked = false;
  bool is_transposed = false;   ///< matrices are (in, out)
  bool is_convolution = false;  ///< it is (rows, 1, columns)
  bool is_by_head = false;      ///< a vector is a matrix (heads, head width)
};

/// Maps our name of a layer in a block to its tensors, ordered by rows of ours.
using Layers = std::map<std::string, std::vector<TensorPart>>;

/// Names of tensors. They begin with `prefix` (except the head's), or have no such prefix.
struct TensorNames {
  std::string prefix = "model.";
  std::string token = "embed_tokens";
  std::string position;        ///< empty: no learned positions
  std::string embedding_norm;  ///< empty: none
  std::string head_norm = "norm";
  std::string head = "lm_head";
  std::string block = "layers.";
  Layers layers;
  RotaryPairs pairs = RotaryPairs::halves;
  /// Files of some families have a further block behind the last one, a module of multi-token
  /// prediction. Names in it: the norm behind the block, and copies of the embedding and of the
  /// head. Empty: there is no such block.
  std::string module_norm, module_embedding, module_head;
  /// How names of tensors for predictions of further tokens begin that are not read; empty: there
  /// are none.
  std::string further_tokens;
  /// Files of a model of text and images have `text_prefix` in place of `prefix`, and names that
  /// begin with `image_prefix`, which are not read. Empty: there are no such files.
  std::string text_prefix, image_prefix;
};

/// A type of models.
struct Family {
  std::string model_type;                     ///< in config.json: "gpt2"
  std::string title;                          ///< for people: "GPT-2"
  std::string class_prefix;                   ///< of transformers' Python classes: "GPT2"
  std::string causal_ending = "ForCausalLM";  ///< of the class with a head
  std::set<std::string> other_classes;        ///< in published files

  model::DecoderSettings structure;  ///< what no key sets
  TensorNames names;
  std::vector<Key> keys;  ///< a key may read what those before it have set
  std::set<std::string> no_effect;
  const char* positions_key = "max_position_embeddings";
  std::int64_t missing_positions = 2048;

  /// Sets what follows from other settings; null: nothing does.
  void (*derive)(model::DecoderSettings& settings) = nullptr;
  /// Changes names that follow from settings; null: none does.
  void (*adapt)(const model::DecoderSettings& settings, TensorNames& names) = nullptr;

  /// The class of a model with a head: "GPT2LMHeadModel".
  std::string causal_class() const { return class_prefix + causal_ending; }
  TensorNames names_for(const model::DecoderSettings& settings) const;
};

/// Reads all keys of a family into reading.model and reading.positions, and sets what follows from
/// them.
void read_keys(const Family& family, ConfigReading& reading);

/// All families, those first as which a model is written if several can say it.
const std::vector<Family>& all_families();

/// Returns null if there is none.
const Family* family_named(const std::string& model_type);

/// Returns the keys of a deck, "model.width", that hold what config.json says by the name `key`, in
/// the first family that has it; empty if none has.
std::vector<std::string> deck_keys_of(const std::string& key);

/// Lists all model types in alphabetical order: "bloom, cohere, ... or starcoder2".
std::string all_model_types();

}  // namespace ostrakon::checkpoint
