// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <ostrakon/model/decoder.hpp>
#include <string>
#include <vector>

namespace ostrakon::checkpoint {

/// Model types of Hugging Face that Decoder computes. huggingface_names.cpp has a table of each
/// type's tensor names, huggingface_keys.hpp of its keys of config.json.
///
/// GPT-2's linear layers (Conv1D) have shape (in, out), the transpose of ours; those of all other
/// types have (out, in). If one of our matrices corresponds to several of theirs (queries, keys and
/// values; gate and up), theirs are rows of ours, in that order. Both sides rotate element i of a
/// head with element i + head_width / 2, so rows of queries and keys keep their order.
///
/// Names begin with "transformer." or "model." (except lm_head.weight), or have no such prefix.
enum class Family {
  gpt2,
  gpt_bigcode,
  llama,
  mistral,
  mixtral,
  phi3,
  qwen3,
  qwen3_moe,
  starcoder2
};

constexpr Family all_families[] = {Family::gpt2,    Family::gpt_bigcode, Family::llama,
                                   Family::mistral, Family::mixtral,     Family::phi3,
                                   Family::qwen3,   Family::qwen3_moe,   Family::starcoder2};

/// Returns the value of model_type in config.json: "gpt2".
const char* model_type(Family family);
std::optional<Family> family_named(const std::string& model_type);
/// Returns the name for people: "GPT-2".
const char* title(Family family);
/// Returns "gpt2, gpt_bigcode, llama, mistral, mixtral, phi3, qwen3, qwen3_moe or starcoder2".
std::string all_model_types();

/// Returns the prefix of transformers' Python classes: "GPT2".
const char* class_prefix(Family family);
/// Returns the class of a model with a head: "GPT2LMHeadModel".
std::string causal_class(Family family);

/// Lists settings that differ from every model of the family, whatever its config.json has: "norm
/// is rmsnorm, but model.norm is layernorm".
std::vector<std::string> structure_differences(Family family,
                                               const model::DecoderSettings& settings);

/// Sets the settings that every model of the family has.
void set_structure(Family family, model::DecoderSettings& settings);

/// Returns the family of a model from its deck's section `model` alone. Throws Error, naming the
/// settings, if there is none.
Family family_of(const model::DecoderSettings& settings);

/// Returns the prefix of tensor names in a model with a head: "transformer.".
const char* prefix_of(Family family);
/// Returns the name of the embedding: "wte.weight".
std::string embedding_name(Family family);
/// Returns the name of the position table: "wpe.weight"; empty if positions are not learned.
std::string positions_name(Family family);
/// The name of the head in all families, if it is not tied to the embedding.
constexpr const char* output_head = "lm_head.weight";

/// Some rows of one of our parameters, as a tensor of Hugging Face.
struct HuggingFaceTensor {
  std::string name;
  std::vector<std::int64_t> shape;  ///< shape of the tensor
  std::int64_t first_row = 0;       ///< row in our parameter
  std::int64_t rows = 0;            ///< elements if ours is a vector
  bool transposed = false;
};

/// Returns the tensors that a parameter consists of, in the order of its rows. `prefix`: prefix of
/// the names.
std::vector<HuggingFaceTensor> huggingface_tensors(
    Family family, const model::DecoderSettings& settings, const std::string& prefix,
    const std::string& owner, const std::string& parameter, const std::vector<std::int64_t>& shape);

}  // namespace ostrakon::checkpoint
