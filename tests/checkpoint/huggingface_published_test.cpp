// SPDX-License-Identifier: Apache-2.0

// The config.json of published models, key by key, compared with their decks.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <ostrakon/checkpoint/huggingface/huggingface_config.hpp>
#include <string>
#include <vector>

#include "support/scratch_folder.hpp"

namespace ostrakon::checkpoint {
namespace {

using Json = nlohmann::json;
using model::DecoderSettings;
using testing::error_of;

struct Sizes {
  int layers, width, heads, kv_heads, ffn_width, vocabulary;
};

DecoderSettings sized(const Sizes& sizes) {
  DecoderSettings deck;
  deck.layers = sizes.layers;
  deck.width = sizes.width;
  deck.heads = sizes.heads;
  deck.kv_heads = sizes.kv_heads;
  deck.ffn_width = sizes.ffn_width;
  deck.vocabulary = sizes.vocabulary;
  deck.norm_epsilon = 1e-5;
  return deck;
}

DecoderSettings gpt2_deck(const Sizes& sizes) {
  DecoderSettings deck = sized(sizes);
  deck.norm = math::NormKind::layernorm;
  deck.positions = model::Positions::learned;
  deck.activation = model::Activation::gelu;
  deck.bias = true;
  deck.tie_embeddings = true;
  return deck;
}

DecoderSettings mixtral_deck() {
  DecoderSettings deck = sized({32, 4096, 32, 8, 14336, 32000});
  deck.tie_embeddings = false;
  deck.rotary.base = 1e6;
  deck.experts.count = 8;
  deck.experts.per_token = 2;
  deck.experts.width = 14336;
  return deck;
}

DecoderSettings qwen3_deck(const Sizes& sizes, std::int64_t head_width, bool tied) {
  DecoderSettings deck = sized(sizes);
  deck.tie_embeddings = tied;
  deck.rotary.base = 1e6;
  deck.norm_epsilon = 1e-6;
  deck.query_key_norm = model::QueryKeyNorm::head;
  deck.head_dim = head_width;
  return deck;
}

DecoderSettings qwen3_moe_deck() {
  DecoderSettings deck = qwen3_deck({48, 2048, 32, 4, 6144, 151936}, 128, false);
  deck.experts.count = 128;
  deck.experts.per_token = 8;
  deck.experts.width = 768;
  return deck;
}

DecoderSettings starcoder2_deck(const Sizes& sizes, double base) {
  DecoderSettings deck = gpt2_deck(sizes);
  deck.positions = model::Positions::rotary;
  deck.rotary.base = base;
  return deck;
}

DecoderSettings llama_deck(const Sizes& sizes, double base, bool tied = false) {
  DecoderSettings deck = sized(sizes);
  deck.norm = math::NormKind::rmsnorm;
  deck.positions = model::Positions::rotary;
  deck.activation = model::Activation::swiglu;
  deck.bias = false;
  deck.rotary.base = base;
  deck.tie_embeddings = tied;
  return deck;
}

Json joined(Json object, const char* more) {
  object.update(Json::parse(more));
  return object;
}

/// Returns the config.json that the four GPT-2 models and distilgpt2 have in common.
Json gpt2_file(const char* more) {
  return joined(Json::parse(R"({
        "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"],
        "attn_pdrop": 0.1, "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256,
        "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "model_type": "gpt2",
        "n_ctx": 1024, "n_positions": 1024, "resid_pdrop": 0.1, "summary_activation": null,
        "summary_first_dropout": 0.1, "summary_proj_to_labels": true,
        "summary_type": "cls_index", "summary_use_proj": true,
        "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}},
        "vocab_size": 50257})"),
                more);
}

Json llama_file(const char* more) {
  return joined(Json::parse(R"({
        "architectures": ["LlamaForCausalLM"], "bos_token_id": 1, "eos_token_id": 2,
        "hidden_act": "silu", "initializer_range": 0.02, "model_type": "llama",
        "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null,
        "tie_word_embeddings": false, "use_cache": true})"),
                more);
}

Json mistral_file(const char* more) {
  return joined(Json::parse(R"({
        "architectures": ["MistralForCausalLM"], "bos_token_id": 1, "eos_token_id": 2,
        "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
        "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mistral",
        "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
        "rms_norm_eps": 1e-05, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
        "use_cache": true})"),
                more);
}

/// The class reads hidden_act, not the legacy activation_function.
Json starcoder2_file(const char* more) {
  return joined(Json::parse(R"({
        "activation_function": "gelu", "architectures": ["Starcoder2ForCausalLM"],
        "attention_dropout": 0.1, "attention_softmax_in_fp32": true, "bos_token_id": 0,
        "embedding_dropout": 0.1, "eos_token_id": 0, "hidden_act": "gelu_pytorch_tanh",
        "initializer_range": 0.018042, "layer_norm_epsilon": 1e-05,
        "max_position_embeddings": 16384, "mlp_type": "default", "model_type": "starcoder2",
        "norm_epsilon": 1e-05, "norm_type": "layer_norm", "residual_dropout": 0.1,
        "scale_attention_softmax_in_fp32": true, "scale_attn_weights": true,
        "sliding_window": 4096, "transformers_version": "4.37.0.dev0", "use_bias": true,
        "use_cache": true, "vocab_size": 49152})"),
                more);
}

struct Published {
  std::string name;
  Json file;
  DecoderSettings deck;
  std::int64_t tokens;
};

std::vector<Published> gpt2_models() {
  return {{"gpt2", gpt2_file(R"({"n_embd": 768, "n_head": 12, "n_layer": 12})"),
           gpt2_deck({12, 768, 12, 12, 3072, 50257}), 1024},
          {"gpt2-medium", gpt2_file(R"({"n_embd": 1024, "n_head": 16, "n_layer": 24, "n_special": 0,
                                    "predict_special_tokens": true})"),
           gpt2_deck({24, 1024, 16, 16, 4096, 50257}), 1024},
          {"gpt2-large", gpt2_file(R"({"n_embd": 1280, "n_head": 20, "n_layer": 36})"),
           gpt2_deck({36, 1280, 20, 20, 5120, 50257}), 1024},
          {"gpt2-xl",
           gpt2_file(R"({"n_embd": 1600, "n_head": 25, "n_layer": 48, "output_past": true})"),
           gpt2_deck({48, 1600, 25, 25, 6400, 50257}), 1024},
          {"distilgpt2", gpt2_file(R"({"n_embd": 768, "n_head": 12, "n_layer": 6, "_num_labels": 1,
                     "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}})"),
           gpt2_deck({6, 768, 12, 12, 3072, 50257}), 1024},
          {"gpt_bigcode-santacoder", Json::parse(R"({
         "activation_function": "gelu_pytorch_tanh", "architectures": ["GPTBigCodeForCausalLM"],
         "attention_softmax_in_fp32": true, "multi_query": true, "attn_pdrop": 0.1,
         "bos_token_id": 49152, "embd_pdrop": 0.1, "eos_token_id": 49152,
         "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "model_type": "gpt_bigcode",
         "n_embd": 2048, "n_head": 16, "n_inner": 8192, "n_layer": 24, "n_positions": 2048,
         "resid_pdrop": 0.1, "runner_max_sequence_length": null,
         "scale_attention_softmax_in_fp32": true, "scale_attn_weights": true,
         "summary_activation": null, "summary_first_dropout": 0.1,
         "summary_proj_to_labels": true, "summary_type": "cls_index", "summary_use_proj": true,
         "transformers_version": "4.28.0.dev0", "use_cache": true, "vocab_size": 49280})"),
           gpt2_deck({24, 2048, 16, 1, 8192, 49280}), 2048}};
}

std::vector<Published> llama_models() {
  return {{"Llama-2-7b-hf",
           llama_file(R"({"_name_or_path": "meta-llama/Llama-2-7b-hf", "hidden_size": 4096,
                      "intermediate_size": 11008, "max_position_embeddings": 4096,
                      "num_attention_heads": 32, "num_hidden_layers": 32,
                      "num_key_value_heads": 32, "torch_dtype": "float16",
                      "transformers_version": "4.31.0.dev0", "vocab_size": 32000})"),
           llama_deck({32, 4096, 32, 32, 11008, 32000}, 1e4), 4096},
          {"Meta-Llama-3-8B",
           llama_file(R"({"attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 128000,
                      "eos_token_id": 128001, "hidden_size": 4096, "intermediate_size": 14336,
                      "max_position_embeddings": 8192, "num_attention_heads": 32,
                      "num_hidden_layers": 32, "num_key_value_heads": 8,
                      "rope_theta": 500000.0, "torch_dtype": "bfloat16",
                      "transformers_version": "4.40.0.dev0", "vocab_size": 128256})"),
           llama_deck({32, 4096, 32, 8, 14336, 128256}, 5e5), 8192},
          {"TinyLlama-1.1B-Chat-v1.0",
           llama_file(R"({"attention_bias": false, "hidden_size": 2048, "intermediate_size": 5632,
                      "max_position_embeddings": 2048, "num_attention_heads": 32,
                      "num_hidden_layers": 22, "num_key_value_heads": 4, "rope_theta": 10000.0,
                      "torch_dtype": "bfloat16", "transformers_version": "4.35.0",
                      "vocab_size": 32000})"),
           llama_deck({22, 2048, 32, 4, 5632, 32000}, 1e4), 2048},
          {"SmolLM-135M",
           llama_file(R"({"attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 0,
                      "eos_token_id": 0, "hidden_size": 576, "intermediate_size": 1536,
                      "max_position_embeddings": 2048, "num_attention_heads": 9,
                      "num_hidden_layers": 30, "num_key_value_heads": 3, "rope_theta": 10000.0,
                      "tie_word_embeddings": true, "torch_dtype": "float32",
                      "transformers_version": "4.42.3", "vocab_size": 49152})"),
           llama_deck({30, 576, 9, 3, 1536, 49152}, 1e4, true), 2048}};
}

std::vector<Published> windowed_models() {
  return {
      {"Mistral-7B-v0.1", mistral_file(R"({"rope_theta": 10000.0, "sliding_window": 4096,
                        "transformers_version": "4.34.0.dev0", "vocab_size": 32000})"),
       llama_deck({32, 4096, 32, 8, 14336, 32000}, 1e4), 4096},
      {"Mistral-7B-v0.3",
       mistral_file(R"({"attention_dropout": 0.0, "rope_theta": 1000000.0, "sliding_window": null,
                        "transformers_version": "4.42.0.dev0", "vocab_size": 32768})"),
       llama_deck({32, 4096, 32, 8, 14336, 32768}, 1e6), 32768},
      {"Mixtral-8x7B-v0.1", Json::parse(R"({
         "architectures": ["MixtralForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1,
         "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
         "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mixtral",
         "num_attention_heads": 32, "num_experts_per_tok": 2, "num_hidden_layers": 32,
         "num_key_value_heads": 8, "num_local_experts": 8, "output_router_logits": false,
         "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.02,
         "sliding_window": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
         "transformers_version": "4.36.0.dev0", "use_cache": true, "vocab_size": 32000})"),
       mixtral_deck(), 32768},
      {"Qwen3-0.6B", Json::parse(R"({
         "architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
         "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu",
         "hidden_size": 1024, "initializer_range": 0.02, "intermediate_size": 3072,
         "max_position_embeddings": 40960, "max_window_layers": 28, "model_type": "qwen3",
         "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8,
         "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000,
         "sliding_window": null, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
         "transformers_version": "4.51.0", "use_cache": true, "use_sliding_window": false,
         "vocab_size": 151936})"),
       qwen3_deck({28, 1024, 16, 8, 3072, 151936}, 128, true), 40960},
      {"Qwen3-30B-A3B", Json::parse(R"({
         "architectures": ["Qwen3MoeForCausalLM"], "attention_bias": false,
         "attention_dropout": 0.0, "bos_token_id": 151643, "decoder_sparse_step": 1,
         "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 2048,
         "initializer_range": 0.02, "intermediate_size": 6144, "max_position_embeddings": 40960,
         "max_window_layers": 48, "mlp_only_layers": [], "model_type": "qwen3_moe",
         "moe_intermediate_size": 768, "norm_topk_prob": true, "num_attention_heads": 32,
         "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48,
         "num_key_value_heads": 4, "output_router_logits": false, "rms_norm_eps": 1e-06,
         "rope_scaling": null, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001,
         "sliding_window": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
         "transformers_version": "4.51.0", "use_cache": true, "use_sliding_window": false,
         "vocab_size": 151936})"),
       qwen3_moe_deck(), 40960},
      {"starcoder2-3b", starcoder2_file(R"({"hidden_size": 3072, "intermediate_size": 12288,
                           "num_attention_heads": 24, "num_hidden_layers": 30,
                           "num_key_value_heads": 2, "rope_theta": 999999.4420358813})"),
       starcoder2_deck({30, 3072, 24, 2, 12288, 49152}, 999999.4420358813), 4096},
      {"starcoder2-7b", starcoder2_file(R"({"hidden_size": 4608, "intermediate_size": 18432,
                           "num_attention_heads": 36, "num_hidden_layers": 32,
                           "num_key_value_heads": 4, "rope_theta": 1000000})"),
       starcoder2_deck({32, 4608, 36, 4, 18432, 49152}, 1e6), 4096},
      {"Phi-3-mini-4k-instruct", Json::parse(R"({
         "_name_or_path": "Phi-3-mini-4k-instruct", "architectures": ["Phi3ForCausalLM"],
         "attention_dropout": 0.0,
         "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config",
                      "AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM"},
         "bos_token_id": 1, "embd_pdrop": 0.0, "eos_token_id": 32000, "hidden_act": "silu",
         "hidden_size": 3072, "initializer_range": 0.02, "intermediate_size": 8192,
         "max_position_embeddings": 4096, "model_type": "phi3", "num_attention_heads": 32,
         "num_hidden_layers": 32, "num_key_value_heads": 32,
         "original_max_position_embeddings": 4096, "pad_token_id": 32000, "resid_pdrop": 0.0,
         "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 10000.0,
         "sliding_window": 2047, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
         "transformers_version": "4.40.2", "use_cache": true, "attention_bias": false,
         "vocab_size": 32064})"),
       llama_deck({32, 3072, 32, 32, 8192, 32064}, 1e4), 2047}};
}

std::vector<Published> published() {
  std::vector<Published> all = gpt2_models();
  for (const auto& more : {llama_models(), windowed_models()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

const Published& named(const std::string& name) {
  static const std::vector<Published> all = published();
  for (const Published& one : all)
    if (one.name == name) return one;
  throw std::runtime_error(name);
}

/// Returns "no error", or why a deck with these sequences does not match the file.
std::string compared(const Json& file, const DecoderSettings& deck, std::int64_t tokens) {
  return error_of([&] {
    require_same_model(parse_huggingface_config(file.dump(), "config.json"), deck, tokens);
  });
}

std::string with(const std::string& name, const char* more) {
  const Published& one = named(name);
  return compared(joined(one.file, more), one.deck, one.tokens);
}

TEST(HuggingFacePublished, IsAccepted) {
  EXPECT_GE(published().size(), 15U);
  for (const Published& one : published()) {
    EXPECT_EQ(compared(one.file, one.deck, one.tokens), "no error") << one.name;
    EXPECT_EQ(error_of([&] {
                require_computed(parse_huggingface_config(one.file.dump(), "config.json"),
                                 one.tokens);
              }),
              "no error")
        << one.name;
  }
}

/// They are accepted because they match: a changed deck is refused.
TEST(HuggingFacePublished, IsRefusedWhereTheDeckIsOther) {
  for (const Published& one : published()) {
    DecoderSettings deck = one.deck;
    deck.norm_epsilon = 2e-6;
    EXPECT_NE(compared(one.file, deck, one.tokens), "no error") << one.name;
    deck = one.deck;
    deck.layers += 1;
    EXPECT_NE(compared(one.file, deck, one.tokens), "no error") << one.name;
  }
  for (const char* name : {"Mistral-7B-v0.1", "starcoder2-3b", "Phi-3-mini-4k-instruct"}) {
    const Published& one = named(name);
    const std::string error = compared(one.file, one.deck, one.tokens + 1);
    EXPECT_HAS(error, "sliding_window is") << name << error;
  }
}

/// These are the fields that all configurations have in versions 2 to 5 of transformers.
TEST(HuggingFacePublished, FieldsOfAllConfigurationsChangeNothing) {
  for (const Published& one : published()) {
    const Json file = joined(one.file, R"({
        "_attn_implementation_internal": null, "_experts_implementation_internal": null,
        "_num_labels": 2, "_output_attentions": false, "add_cross_attention": false,
        "bad_words_ids": null, "chunk_size_feed_forward": 0, "cross_attention_hidden_size": null,
        "decoder_start_token_id": null, "do_sample": false, "dtype": "float32",
        "finetuning_task": null, "id2label": {"0": "LABEL_0"}, "is_causal": true,
        "is_decoder": true, "is_encoder_decoder": false, "label2id": {"LABEL_0": 0},
        "max_length": 20, "num_labels": 2, "output_attentions": false,
        "output_hidden_states": false, "output_past": false, "prefix": null,
        "problem_type": null, "pruned_heads": {}, "repetition_penalty": 1.0, "return_dict": true,
        "sep_token_id": null, "tf_legacy_loss": false, "tie_encoder_decoder": false,
        "tokenizer_class": null, "torchscript": false, "use_bfloat16": false,
        "xla_device": null})");
    EXPECT_EQ(compared(file, one.deck, one.tokens), "no error") << one.name;
  }
}

TEST(HuggingFacePublished, FieldsOfAllConfigurationsThatWouldMatterAreRefused) {
  const auto refused = [](const char* more, const std::string& said) {
    for (const char* name : {"gpt2", "gpt_bigcode-santacoder", "Llama-2-7b-hf", "starcoder2-3b"}) {
      const std::string error = with(name, more);
      EXPECT_HAS(error, said) << name << ": " << error;
    }
  };
  refused(R"({"pruned_heads": {"0": [1]}})",
          R"(pruned_heads is {"0":[1]}; this program has all heads of all layers; expected {})");
  refused(R"({"is_encoder_decoder": true})", "is_encoder_decoder is true; this program");
  refused(R"({"add_cross_attention": true})", "add_cross_attention is true; this program");
  refused(R"({"cross_attention_hidden_size": 8})", "cross_attention_hidden_size is 8; this");
  refused(R"({"tie_encoder_decoder": true})", "tie_encoder_decoder is true; this program");
  refused(R"({"is_causal": false})", "is_causal is false; this program");
}

TEST(HuggingFacePublished, OtherNamesOfAKeySayTheSame) {
  const auto refused = [](const char* name, const char* more, const std::string& said) {
    const std::string error = with(name, more);
    EXPECT_HAS(error, said) << name << ": " << error;
  };
  EXPECT_EQ(with("starcoder2-3b", R"({"activation_function": "gelu_pytorch_tanh"})"), "no error");
  refused("starcoder2-3b", R"({"activation_function": "relu"})", "activation_function is \"relu\"");
  refused("starcoder2-3b", R"({"hidden_act": "gelu"})",
          "hidden_act is \"gelu\", but model.activation is gelu");
  refused("starcoder2-3b", R"({"layer_norm_epsilon": 1e-6})",
          "layer_norm_epsilon is 1e-06; but norm_epsilon is 1e-05; expected the same");
  // transformers does not read that name.
  DecoderSettings deck = named("starcoder2-3b").deck;
  deck.norm_epsilon = 1e-6;
  EXPECT_NE(compared(joined(named("starcoder2-3b").file,
                            R"({"layer_norm_epsilon": 1e-6, "norm_epsilon": null})"),
                     deck, 4096),
            "no error");
  refused("starcoder2-3b", R"({"scale_attn_weights": false})", "scale_attn_weights is false");
  EXPECT_EQ(with("gpt2", R"({"hidden_size": 768, "num_hidden_layers": 12,
                             "num_attention_heads": 12})"),
            "no error");
  refused("gpt2", R"({"hidden_size": 1024})",
          "hidden_size is 1024; but n_embd is 768; expected the same");
}

TEST(HuggingFacePublished, NeutralValuesAreAccepted) {
  for (const char* name :
       {"Llama-2-7b-hf", "Mistral-7B-v0.1", "starcoder2-3b", "Phi-3-mini-4k-instruct"}) {
    EXPECT_EQ(with(name, R"({"use_sliding_window": false})"), "no error") << name;
    EXPECT_EQ(with(name, R"({"rope_scaling": {"type": "linear", "factor": 1.0}})"), "no error");
    EXPECT_EQ(with(name, R"({"rope_scaling": {"rope_type": "linear", "factor": 1}})"), "no error");
    for (const char* scaled :
         {R"({"rope_scaling": {"type": "linear", "factor": 2.0}})",
          R"({"rope_scaling": {"type": "linear"}})", R"({"rope_scaling": {"factor": 1.0}})",
          R"({"rope_scaling": {"type": "dynamic", "factor": 1.0}})"})
      EXPECT_NE(with(name, scaled), "no error") << scaled;
  }
  EXPECT_EQ(with("Llama-2-7b-hf", R"({"sliding_window": null})"), "no error");
  for (const char* name : {"Mistral-7B-v0.1", "Phi-3-mini-4k-instruct"}) {
    EXPECT_EQ(with(name, R"({"attention_bias": false, "mlp_bias": false})"), "no error");
    EXPECT_HAS(with(name, R"({"mlp_bias": true})"), "has no biases");
  }
  for (const char* window : {R"({"sliding_window": 8})", R"({"use_sliding_window": true})"})
    EXPECT_HAS(with("Llama-2-7b-hf", window), "sliding_window is");
}

}  // namespace
}  // namespace ostrakon::checkpoint
