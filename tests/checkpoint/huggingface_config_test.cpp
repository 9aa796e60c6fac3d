// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostrakon/checkpoint/huggingface/huggingface_config.hpp>
#include <string>

#include "../support/scratch_folder.hpp"

namespace ostrakon::checkpoint {
namespace {

using model::DecoderSettings;
using testing::error_of;
using testing::ScratchFolder;

/// Returns a JSON object's text with another line at its beginning.
std::string with(const std::string& line, const std::string& json) {
  return "{" + line + ",\n" + json.substr(1);
}

/// Returns the JSON text with another value of an existing key.
std::string changed(std::string json, const std::string& from, const std::string& to) {
  const std::size_t at = json.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return json.replace(at, from.size(), to);
}

class HuggingFaceConfigFile : public ::testing::Test {
 protected:
  /// Reads the file as programs without a deck do.
  HuggingFaceConfig read(const std::string& json) const {
    testing::write_bytes(folder_.file("config.json"), json);
    HuggingFaceConfig config = load_huggingface_config(folder_.file("config.json"));
    require_computed(config, config.positions);
    return config;
  }
  void expect_refused(const std::string& json, const std::string& message) const {
    const std::string error = error_of([&] { read(json); });
    EXPECT_HAS(error, message);
    EXPECT_HAS(error, "config.json'");
  }

  ScratchFolder folder_;
};

const char* const gpt2_json = R"({
  "model_type": "gpt2", "activation_function": "gelu_new", "n_layer": 12, "n_embd": 768,
  "n_head": 6, "n_positions": 1024, "n_ctx": 1024, "vocab_size": 50257,
  "layer_norm_epsilon": 2e-05, "attn_pdrop": 0.1, "bos_token_id": 50256,
  "task_specific_params": {"text-generation": {"do_sample": true}}
})";

const char* const llama_json = R"({
  "model_type": "llama", "hidden_act": "silu", "num_hidden_layers": 32, "hidden_size": 4096,
  "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
  "max_position_embeddings": 8192, "vocab_size": 128256, "rms_norm_eps": 1e-05,
  "rope_theta": 500000.0, "rope_scaling": null, "attention_bias": false,
  "tie_word_embeddings": false
})";

TEST_F(HuggingFaceConfigFile, Gpt2) {
  const HuggingFaceConfig config = read(gpt2_json);
  const DecoderSettings& model = config.model;
  EXPECT_EQ(model.norm, math::NormKind::layernorm);
  EXPECT_EQ(model.positions, model::Positions::learned);
  EXPECT_EQ(model.activation, model::Activation::gelu);
  EXPECT_TRUE(model.bias);
  EXPECT_TRUE(model.tie_embeddings);
  EXPECT_EQ(model.layers, 12);
  EXPECT_EQ(model.width, 768);
  EXPECT_EQ(model.heads, 6);
  EXPECT_EQ(model.kv_heads, 6);
  EXPECT_EQ(model.ffn_width, 4 * 768);
  EXPECT_EQ(model.vocabulary, 50257);
  EXPECT_EQ(model.norm_epsilon, 2e-5);
  EXPECT_EQ(config.positions, 1024);
  EXPECT_EQ(read(with("\"n_inner\": 100", gpt2_json)).model.ffn_width, 100);
  EXPECT_EQ(read(with("\"n_inner\": null", gpt2_json)).model.ffn_width, 4 * 768);
  EXPECT_FALSE(read(with("\"tie_word_embeddings\": false", gpt2_json)).model.tie_embeddings);
}

TEST_F(HuggingFaceConfigFile, Llama) {
  const HuggingFaceConfig config = read(llama_json);
  const DecoderSettings& model = config.model;
  EXPECT_EQ(model.norm, math::NormKind::rmsnorm);
  EXPECT_EQ(model.positions, model::Positions::rotary);
  EXPECT_EQ(model.activation, model::Activation::swiglu);
  EXPECT_FALSE(model.bias);
  EXPECT_FALSE(model.tie_embeddings);
  EXPECT_EQ(model.layers, 32);
  EXPECT_EQ(model.width, 4096);
  EXPECT_EQ(model.heads, 32);
  EXPECT_EQ(model.kv_heads, 8);
  EXPECT_EQ(model.ffn_width, 14336);
  EXPECT_EQ(model.vocabulary, 128256);
  EXPECT_EQ(model.norm_epsilon, 1e-5);
  EXPECT_EQ(model.rotary.base, 500000.0);
  EXPECT_EQ(config.positions, 8192);
  EXPECT_EQ(read(changed(llama_json, "\"num_key_value_heads\": 8,", "")).model.kv_heads, 32);
  EXPECT_EQ(read(changed(llama_json, "\"rope_theta\": 500000.0,", "")).model.rotary.base, 10000.0);
  const std::string newer =
      changed(llama_json, "\"rope_theta\": 500000.0, \"rope_scaling\": null",
              R"("rope_parameters": {"rope_theta": 7000, "rope_type": "default"})");
  EXPECT_EQ(read(newer).model.rotary.base, 7000.0);
}

TEST_F(HuggingFaceConfigFile, MissingKeysAreTheirDefaults) {
  const DecoderSettings bare_gpt2 = read(R"({"model_type": "gpt2"})").model;
  EXPECT_EQ(bare_gpt2.layers, 12);
  EXPECT_EQ(bare_gpt2.ffn_width, 4 * 768);
  EXPECT_EQ(bare_gpt2.norm_epsilon, 1e-5);
  EXPECT_TRUE(bare_gpt2.tie_embeddings);
  const HuggingFaceConfig bare_llama = read(R"({"model_type": "llama"})");
  EXPECT_EQ(bare_llama.model.kv_heads, 32);
  EXPECT_EQ(bare_llama.model.norm_epsilon, 1e-6);
  EXPECT_EQ(bare_llama.model.rotary.base, 10000.0);
  EXPECT_EQ(bare_llama.positions, 2048);
  EXPECT_FALSE(bare_llama.model.bias);
  EXPECT_EQ(bare_llama.model.attention_window, 0);
  const auto mistral = [&](const std::string& more) {
    return read(R"({"model_type": "mistral", "max_position_embeddings": 4096)" + more + "}");
  };
  EXPECT_EQ(mistral("").model.kv_heads, 8);
  EXPECT_EQ(mistral(R"(, "num_key_value_heads": null)").model.kv_heads, 32);
  EXPECT_EQ(mistral("").model.attention_window, 4096);
  EXPECT_EQ(mistral(R"(, "sliding_window": null)").model.attention_window, 0);
  const DecoderSettings phi3 = read(R"({"model_type": "phi3"})").model;
  EXPECT_EQ(phi3.norm_epsilon, 1e-5);
  EXPECT_EQ(phi3.vocabulary, 32064);
  const HuggingFaceConfig mixtral = read(R"({"model_type": "mixtral"})");
  EXPECT_EQ(mixtral.model.kv_heads, 8);
  EXPECT_EQ(mixtral.model.rotary.base, 1e6);
  EXPECT_EQ(mixtral.model.experts.count, 8);
  EXPECT_EQ(mixtral.model.experts.per_token, 2);
  EXPECT_EQ(mixtral.model.experts.width, 14336);
  EXPECT_TRUE(mixtral.model.experts.normalize);
  EXPECT_EQ(mixtral.model.attention_window, 0);
  const HuggingFaceConfig qwen3_moe = read(R"({"model_type": "qwen3_moe"})");
  EXPECT_EQ(qwen3_moe.model.experts.count, 128);
  EXPECT_EQ(qwen3_moe.model.experts.width, 768);
  EXPECT_FALSE(qwen3_moe.model.experts.normalize);
  EXPECT_EQ(qwen3_moe.model.query_key_norm, model::QueryKeyNorm::head);
  EXPECT_EQ(qwen3_moe.model.head_width(), 64);
  EXPECT_EQ(read(R"({"model_type": "qwen3"})").model.head_width(), 128);
  const DecoderSettings starcoder2 = read(R"({"model_type": "starcoder2"})").model;
  EXPECT_EQ(starcoder2.norm, math::NormKind::layernorm);
  EXPECT_EQ(starcoder2.positions, model::Positions::rotary);
  EXPECT_EQ(starcoder2.kv_heads, 2);
  EXPECT_TRUE(starcoder2.bias && starcoder2.tie_embeddings);
  const DecoderSettings bigcode = read(R"({"model_type": "gpt_bigcode"})").model;
  EXPECT_EQ(bigcode.heads, 12);
  EXPECT_EQ(bigcode.kv_heads, 1);
}

/// Attention and MLPs may have biases independently; older files have no mlp_bias, and no MLP
/// biases.
TEST_F(HuggingFaceConfigFile, BiasesOfAttentionAndMlps) {
  const auto both = [&](const char* attention, const char* mlp) {
    const std::string json = changed(llama_json, "\"attention_bias\": false",
                                     std::string("\"attention_bias\": ") + attention);
    const DecoderSettings model =
        read(mlp == nullptr ? json : with(std::string("\"mlp_bias\": ") + mlp, json)).model;
    return std::pair(model.bias, model.mlp_bias());
  };
  EXPECT_EQ(both("true", nullptr), std::pair(true, false));
  EXPECT_EQ(both("true", "null"), std::pair(true, false));
  EXPECT_EQ(both("true", "false"), std::pair(true, false));
  EXPECT_EQ(both("true", "true"), std::pair(true, true));
  EXPECT_EQ(both("false", nullptr), std::pair(false, false));
  EXPECT_EQ(both("null", "true"), std::pair(false, true));
  const DecoderSettings same = read(with("\"mlp_bias\": false", llama_json)).model;
  EXPECT_FALSE(same.own_mlp_bias) << "decks say what they said before";
}

TEST_F(HuggingFaceConfigFile, AKeyThatIsNullIsNotUsed) {
  EXPECT_EQ(read(with("\"some_new_feature\": null", llama_json)).model.layers, 32);
  EXPECT_EQ(read(with("\"quantization_config\": null", llama_json)).model.layers, 32);
  expect_refused(with("\"some_new_feature\": false", llama_json),
                 "some_new_feature is false; this program does not know the key");
}

TEST_F(HuggingFaceConfigFile, WhatIsNotComputedIsRefused) {
  expect_refused(changed(gpt2_json, "gelu_new", "quick_gelu"),
                 "activation_function is \"quick_gelu\"; expected one of \"gelu_new\", "
                 "\"gelu_pytorch_tanh\"");
  EXPECT_EQ(read(changed(gpt2_json, "gelu_new", "relu")).model.activation, model::Activation::relu);
  expect_refused(with("\"scale_attn_weights\": false", gpt2_json), "scale_attn_weights is false");
  expect_refused(with("\"scale_attn_by_inverse_layer_idx\": true", gpt2_json),
                 "alike in all layers");
  expect_refused(with("\"add_cross_attention\": true", gpt2_json), "cross-attention");
  expect_refused(changed(llama_json, "silu", "relu"), "hidden_act is \"relu\"");
  EXPECT_EQ(read(with("\"head_dim\": 64", llama_json)).model.head_width(), 64);
  EXPECT_EQ(read(with("\"head_dim\": 128", llama_json)).model.heads, 32);
  const auto scaled = [](const std::string& rope) {
    return changed(llama_json, "\"rope_scaling\": null", rope);
  };
  expect_refused(
      scaled(R"("rope_scaling": {"rope_type": "llama3", "factor": 8.0})"),
      R"(rope_scaling is {"factor":8.0,"rope_type":"llama3"}; it has no low_freq_factor, which llama3 needs)");
  expect_refused(scaled(R"("rope_scaling": {"type": "dynamic", "factor": 2.0})"),
                 R"(rope_scaling is {"factor":2.0,"type":"dynamic"}; this program scales)");
  expect_refused(scaled(R"("rope_scaling": {"factor": 2.0})"), "rope_scaling is {\"factor\":2.0}");
  expect_refused(scaled(R"("rope_parameters": {"rope_type": "yarn", "factor": 2, "mscal": 1})"),
                 "this program does not know its mscal with yarn");
  expect_refused(scaled(R"("rope_parameters": {"rope_theta": 7000})"),
                 "rope_theta is 500000.0, rope_parameters.rope_theta is 7000.0; expected one base");
  expect_refused(with("\"partial_rotary_factor\": 0.5", llama_json), "rotates whole heads");
  expect_refused(with("\"quantization_config\": {\"bits\": 4}", llama_json), "quantization_config");
  expect_refused(with("\"architectures\": [\"BitnetForCausalLM\"]", llama_json),
                 "expected classes of llama: LlamaForCausalLM");
  EXPECT_EQ(read(with("\"architectures\": [\"LlamaModel\"]", llama_json)).model.heads, 32);
  expect_refused(changed(llama_json, "\"llama\"", "\"mamba\""),
                 "model_type is \"mamba\"; this program computes arcee, bloom, cohere, ");
}

TEST_F(HuggingFaceConfigFile, DamageIsSaid) {
  expect_refused("", "is not JSON");
  expect_refused("[]", "is array; expected an object");
  expect_refused("{}", "model_type is missing");
  expect_refused("{\"model_type\": 7}", "model_type is 7; expected text");
  expect_refused(with("\"n_layer\": 1", gpt2_json), "the key \"n_layer\" is there twice");
  expect_refused(changed(gpt2_json, "768", "-768"), "n_embd is -768; expected a whole number");
  expect_refused(changed(gpt2_json, "768", "768.5"), "n_embd is 768.5; expected a whole number");
  expect_refused(changed(gpt2_json, "768", "\"768\""),
                 "n_embd is \"768\"; expected a whole number");
  expect_refused(changed(gpt2_json, "768", "18446744073709551615"), "expected a whole number");
  expect_refused(
      changed(gpt2_json, "768", "9223372036854775807"),
      "n_embd is 9223372036854775807; expected a whole number from 1 to 9007199254740991");
  expect_refused(changed(llama_json, "500000.0", "true"), "rope_theta is true; expected a number");
  expect_refused(changed(llama_json, "500000.0", "1e999"), "is not JSON");
  expect_refused(changed(llama_json, "\"rope_scaling\": null", "\"rope_scaling\": 4"),
                 "rope_scaling is 4; expected an object");
  expect_refused(changed(llama_json, "\"num_attention_heads\": 32", "\"num_attention_heads\": 0"),
                 "num_attention_heads is 0; expected a whole number from 1 to");
  expect_refused(changed(llama_json, "\"num_key_value_heads\": 8", "\"num_key_value_heads\": 0"),
                 "num_key_value_heads is 0; expected a whole number from 1 to");
  expect_refused(std::string(2 << 20, ' '), "expected at most");
  expect_refused("{\"a\":" + std::string(100000, '['), "nested too deeply");
  for (std::size_t bytes = 1; bytes < std::string(llama_json).size(); bytes += 7)
    expect_refused(std::string(llama_json, bytes), "is not JSON");
}

void expect_equal(const DecoderSettings& a, const DecoderSettings& b) {
  EXPECT_EQ(a.norm, b.norm);
  EXPECT_EQ(a.positions, b.positions);
  EXPECT_EQ(a.activation, b.activation);
  EXPECT_EQ(a.bias, b.bias);
  EXPECT_EQ(a.mlp_bias(), b.mlp_bias());
  EXPECT_EQ(a.layers, b.layers);
  EXPECT_EQ(a.width, b.width);
  EXPECT_EQ(a.heads, b.heads);
  EXPECT_EQ(a.kv_heads, b.kv_heads);
  EXPECT_EQ(a.ffn_width, b.ffn_width);
  EXPECT_EQ(a.vocabulary, b.vocabulary);
  EXPECT_EQ(a.tie_embeddings, b.tie_embeddings);
  EXPECT_EQ(a.norm_epsilon, b.norm_epsilon);
  EXPECT_EQ(a.rotary.base, b.rotary.base);
  EXPECT_EQ(a.experts.count, b.experts.count);
  EXPECT_EQ(a.experts.per_token, b.experts.per_token);
  EXPECT_EQ(a.experts.width, b.experts.width);
  EXPECT_EQ(a.experts.shared, b.experts.shared);
  EXPECT_EQ(a.experts.score, b.experts.score);
  EXPECT_EQ(a.experts.normalize, b.experts.normalize);
  EXPECT_EQ(a.experts.scale, b.experts.scale);
}

TEST_F(HuggingFaceConfigFile, WhatIsWrittenIsReadBack) {
  for (const std::string type : {"gpt2", "gpt_bigcode", "llama", "mixtral", "starcoder2"})
    for (const bool changes : {false, true}) {
      HuggingFaceConfig config = read("{\"model_type\": \"" + type + "\"}");
      if (changes) {
        config.model.norm_epsilon = 1.0 / 3.0;
        config.model.tie_embeddings = !config.model.tie_embeddings;
        if (type == "llama") {
          config.model.bias = true;
          config.model.own_mlp_bias = false;
        }
        if (config.model.positions == model::Positions::rotary)
          config.model.rotary.base = 12345.678;
      }
      const std::string written =
          write_huggingface_config({config.model, config.positions, DType::bf16, 256, ""});
      EXPECT_HAS(written, "\"torch_dtype\": \"bfloat16\"");
      EXPECT_HAS(written, "\"eos_token_id\": 256");
      const HuggingFaceConfig back = read(written);
      EXPECT_EQ(back.family->model_type, type);
      EXPECT_EQ(back.positions, config.positions);
      expect_equal(back.model, config.model);
      EXPECT_HAS(write_huggingface_config({config.model, config.positions, DType::fp32, {}, ""}),
                 "\"bos_token_id\": null");
    }
  DecoderSettings other;
  other.positions = model::Positions::learned;
  EXPECT_HAS(error_of([&] {
               write_huggingface_config({other, 4, DType::fp32, {}, ""});
             }),
             "has no counterpart");
}

TEST_F(HuggingFaceConfigFile, ASourceComesOutAgain) {
  const HuggingFaceConfig source = read(R"({
    "architectures": ["MistralModel"], "model_type": "mistral", "_name_or_path": "there",
    "transformers_version": "4.40.0", "torch_dtype": "bfloat16", "sliding_window": 4096,
    "max_position_embeddings": 4096, "bos_token_id": 11, "eos_token_id": [12, 13],
    "pad_token_id": null, "attention_dropout": 0.25, "task_specific_params": {"a": {"b": 1}},
    "rope_parameters": {"rope_type": "default", "rope_theta": 77.0}})");
  HuggingFaceModel model = {source.model, 512, DType::fp32, 256, source.text};
  const std::string written = write_huggingface_config(model);
  for (const char* part :
       {"\"MistralForCausalLM\"", "\"bos_token_id\": 11", "\"pad_token_id\": null",
        "\"torch_dtype\": \"float32\"", "\"max_position_embeddings\": 4096",
        "\"sliding_window\": 4096", "\"attention_dropout\": 0.25", "\"rope_theta\": 77.0"})
    EXPECT_HAS(written, part);
  for (const char* part : {"there", "4.40.0", "task_specific_params", "MistralModel"})
    EXPECT_LACKS(written, part);
  const HuggingFaceConfig back = read(written);
  EXPECT_EQ(back.family->model_type, "mistral");
  expect_equal(back.model, source.model);
  EXPECT_EQ(family_of(model).model_type, "mistral");

  // It is not written if it no longer describes the model.
  model.tokens = 5000;
  model.settings.attention_window = 0;
  EXPECT_HAS(error_of([&] { write_huggingface_config(model); }), "sliding_window is");
  model.tokens = 512;
  model.settings.norm_epsilon = 1e-3;
  EXPECT_HAS(error_of([&] { write_huggingface_config(model); }), "rms_norm_eps is");

  // A model that was trained on longer sequences than its source.
  const HuggingFaceConfig short_source = read(llama_json);
  const std::string longer =
      write_huggingface_config({short_source.model, 10000, DType::fp32, {}, short_source.text});
  EXPECT_HAS(longer, "\"max_position_embeddings\": 10000");
}

TEST_F(HuggingFaceConfigFile, IsFoundNextToTensors) {
  EXPECT_EQ(huggingface_config_next_to(folder_.file("")), "");
  testing::write_bytes(folder_.file("config.json"), llama_json);
  EXPECT_EQ(huggingface_config_next_to(folder_.file("model.safetensors")),
            folder_.file("config.json"));
  EXPECT_HAS(huggingface_config_next_to(folder_.file("")), "config.json");
}

}  // namespace
}  // namespace ostrakon::checkpoint
