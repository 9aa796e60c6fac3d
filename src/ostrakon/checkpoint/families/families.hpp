// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/checkpoint/families/family.hpp>
#include <vector>

// The groups of families, each in a file of its name. Only families/*.cpp include this file.

namespace ostrakon::checkpoint::families {

std::vector<Family> gpt();    ///< GPT-2 and models of its names
std::vector<Family> llama();  ///< Llama, Mistral, Phi-3 and models that are built like them
std::vector<Family> qwen();   ///< Qwen 2 and 3
std::vector<Family> gemma();  ///< Gemma 1 to 3
std::vector<Family> olmo();   ///< OLMo 1 to 3, and EXAONE 4, which has its norms in the same places
std::vector<Family> cohere();    ///< Command R and R7B
std::vector<Family> glm();       ///< GLM-4, 4-0414 and 4.5
std::vector<Family> deepseek();  ///< DeepSeek-V2 and V3, Moonlight, Kimi K2
std::vector<Family> gpt_oss();   ///< gpt-oss
std::vector<Family> neox();      ///< Pythia, Falcon, Phi 1 and 2, GPT-J, Bloom and MPT
std::vector<Family> others();    ///< families without relatives

// What several groups begin with.

/// Returns the names of self_attn.q_proj, k_proj, v_proj.
std::vector<TensorPart> apart_qkv();
/// Returns the layers of Llama.
Layers llama_layers();
/// Replaces the gated MLP of Llama by one without a gate.
Layers without_gate(Layers layers, const char* up, const char* down);
/// Adds self_attn.q_norm and k_norm.
Layers with_head_norms(Layers layers);
/// Replaces the MLP of Llama by experts: mlp.gate, mlp.experts.*.gate_proj, up_proj, down_proj.
Layers with_experts(Layers layers);
/// Adds a gated MLP that computes all tokens beside experts, of this name.
Layers with_shared_expert(Layers layers, const std::string& name);

/// Adds names of a module of multi-token prediction to a family whose keys are complete, and the
/// key num_nextn_predict_layers, which has an effect then.
void add_module(Family& family);

/// Returns a family with the names of Llama and these words.
Family llama_like(const char* model_type, const char* title, const char* class_prefix);
/// Returns the keys of sizes that most families have, by the names of Llama. `missing`: defaults
/// of layers, width, heads, ffn_width, vocabulary.
struct Sizes {
  int layers, width, heads, ffn_width, vocabulary;
};
std::vector<Key> llama_sizes(const Sizes& missing);
void add(std::vector<Key>& keys, std::vector<Key> more);
/// Ignores the keys of the router's auxiliary loss, and of its logits as an output.
void ignore_router_loss(Family& family);
/// Adds keys that a family with rotary positions refuses or ignores.
void add_rotary_family(Family& family);

}  // namespace ostrakon::checkpoint::families
