// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <ostrakon/model/decoder.hpp>
#include <string>
#include <vector>

namespace ostrakon::checkpoint {

/// The types of models of Hugging Face's that Decoder computes. Each has names of tensors, a table
/// of which is in huggingface_names.cpp, and keys of config.json, see huggingface_keys.hpp.
///
/// GPT-2's linear layers (Conv1D) are (in, out): ours, (out, in), are their transposes. All others
/// are (out, in). Where ours is one matrix and theirs are several (queries, keys and values; gate
/// and up), theirs are rows of ours, in that order. Both sides rotate element i of a head with
/// element i + head_width / 2: rows of queries and keys stay in order.
///
/// Names begin with "transformer." or "model." (but for lm_head.weight), or with neither.
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

/// The key model_type of config.json: "gpt2".
const char* model_type(Family family);
std::optional<Family> family_named(const std::string& model_type);
/// For people: "GPT-2".
const char* title(Family family);
/// "gpt2, gpt_bigcode, llama, mistral, mixtral, phi3, qwen3, qwen3_moe or starcoder2"
std::string all_model_types();

/// What the names of the library's Python classes begin with: "GPT2".
const char* class_prefix(Family family);
/// The class of a model with a head: "GPT2LMHeadModel".
std::string causal_class(Family family);

/// Settings that are not those of every model of the family, whatever its config.json says:
/// "norm is rmsnorm, but model.norm is
/// layernorm".
std::vector<std::string> structure_differences(Family family,
                                               const model::DecoderSettings& settings);

/// The settings that every model of the family has.
void set_structure(Family family, model::DecoderSettings& settings);

/// The family of a model of which nothing but the deck's section `model` is known. Throws Error,
/// naming the settings, where there is none.
Family family_of(const model::DecoderSettings& settings);

/// What names begin with in a model with a head: "transformer."
const char* prefix_of(Family family);
/// "wte.weight"
std::string embedding_name(Family family);
/// "wpe.weight"; empty where positions are not learned.
std::string positions_name(Family family);
/// The name of the head in all families, where the head is not tied to the embedding.
constexpr const char* output_head = "lm_head.weight";

/// Some rows of one of our parameters as their tensor.
struct HuggingFaceTensor {
  std::string name;
  std::vector<std::int64_t> shape;  ///< theirs
  std::int64_t first_row = 0;       ///< of our parameter
  std::int64_t rows = 0;            ///< elements, where ours is a vector
  bool transposed = false;
};

/// What a parameter is made of, row after row. `prefix`: what their names begin with.
std::vector<HuggingFaceTensor> huggingface_tensors(
    Family family, const model::DecoderSettings& settings, const std::string& prefix,
    const std::string& owner, const std::string& parameter, const std::vector<std::int64_t>& shape);

}  // namespace ostrakon::checkpoint
