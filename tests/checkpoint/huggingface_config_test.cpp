// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostrakon/checkpoint/huggingface_config.hpp>
#include <string>

#include "../support/scratch_folder.hpp"

namespace ostrakon::checkpoint {
namespace {

using model::DecoderSettings;
using testing::error_of;
using testing::ScratchFolder;

bool contains(const std::string& whole, const std::string& part) {
  return whole.find(part) != std::string::npos;
}

/// A JSON object's text with this line in front of its others.
std::string with(const std::string& line, const std::string& json) {
  return "{" + line + ",\n" + json.substr(1);
}

/// The one with another value of a key that it has.
std::string changed(std::string json, const std::string& from, const std::string& to) {
  const std::size_t at = json.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return json.replace(at, from.size(), to);
}

class HuggingFaceConfigFile : public ::testing::Test {
 protected:
  HuggingFaceConfig read(const std::string& json) const {
    testing::write_bytes(folder_.file("config.json"), json);
    return read_huggingface_config(folder_.file("config.json"));
  }
  void expect_refused(const std::string& json, const std::string& message) const {
    const std::string error = error_of([&] { read(json); });
    EXPECT_TRUE(contains(error, message)) << error << "\nwithout\n" << message;
    EXPECT_TRUE(contains(error, "config.json'")) << error;
  }

  ScratchFolder folder_;
};

const char* const gpt2 = R"({
  "model_type": "gpt2", "activation_function": "gelu_new", "n_layer": 12, "n_embd": 768,
  "n_head": 6, "n_positions": 1024, "n_ctx": 1024, "vocab_size": 50257,
  "layer_norm_epsilon": 2e-05, "attn_pdrop": 0.1, "bos_token_id": 50256,
  "task_specific_params": {"text-generation": {"do_sample": true}}
})";

const char* const llama = R"({
  "model_type": "llama", "hidden_act": "silu", "num_hidden_layers": 32, "hidden_size": 4096,
  "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
  "max_position_embeddings": 8192, "vocab_size": 128256, "rms_norm_eps": 1e-05,
  "rope_theta": 500000.0, "rope_scaling": null, "attention_bias": false,
  "tie_word_embeddings": false
})";

TEST_F(HuggingFaceConfigFile, Gpt2) {
  const HuggingFaceConfig config = read(gpt2);
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
  EXPECT_EQ(read(with("\"n_inner\": 100", gpt2)).model.ffn_width, 100);
  EXPECT_EQ(read(with("\"n_inner\": null", gpt2)).model.ffn_width, 4 * 768);
  EXPECT_FALSE(read(with("\"tie_word_embeddings\": false", gpt2)).model.tie_embeddings);
}

TEST_F(HuggingFaceConfigFile, Llama) {
  const HuggingFaceConfig config = read(llama);
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
  EXPECT_EQ(model.rotary_base, 500000.0);
  EXPECT_EQ(config.positions, 8192);
  EXPECT_EQ(read(changed(llama, "\"num_key_value_heads\": 8,", "")).model.kv_heads, 32);
  EXPECT_EQ(read(changed(llama, "\"rope_theta\": 500000.0,", "")).model.rotary_base, 10000.0);
  const std::string newer =
      changed(llama, "\"rope_theta\": 500000.0, \"rope_scaling\": null",
              R"("rope_parameters": {"rope_theta": 7000, "rope_type": "default"})");
  EXPECT_EQ(read(newer).model.rotary_base, 7000.0);
}

TEST_F(HuggingFaceConfigFile, WhatIsNotComputedIsRefused) {
  expect_refused(changed(gpt2, "gelu_new", "relu"),
                 "activation_function is \"relu\"; this program computes gelu_new or "
                 "gelu_pytorch_tanh");
  expect_refused(with("\"scale_attn_weights\": false", gpt2), "scale_attn_weights is false");
  expect_refused(with("\"scale_attn_by_inverse_layer_idx\": true", gpt2), "alike in all layers");
  expect_refused(with("\"add_cross_attention\": true", gpt2), "cross-attention");
  expect_refused(changed(llama, "silu", "gelu"), "hidden_act is \"gelu\"");
  expect_refused(changed(llama, "\"attention_bias\": false", "\"attention_bias\": true"),
                 "attention_bias is true");
  expect_refused(with("\"mlp_bias\": true", llama), "mlp_bias is true");
  expect_refused(with("\"head_dim\": 64", llama), "head_dim is 64; this program's heads divide");
  EXPECT_EQ(read(with("\"head_dim\": 128", llama)).model.heads, 32);
  const auto scaled = [](const std::string& rope) {
    return changed(llama, "\"rope_scaling\": null", rope);
  };
  expect_refused(scaled(R"("rope_scaling": {"rope_type": "llama3", "factor": 8.0})"),
                 "rope_scaling.rope_type is \"llama3\"; this program does not scale");
  expect_refused(scaled(R"("rope_scaling": {"type": "linear", "factor": 2.0})"),
                 "rope_scaling.type is \"linear\"");
  expect_refused(scaled(R"("rope_scaling": {"factor": 2.0})"), "rope_scaling.factor is 2.0");
  expect_refused(scaled(R"("rope_parameters": {"rope_type": "yarn"})"),
                 "rope_parameters.rope_type is \"yarn\"");
  expect_refused(with("\"partial_rotary_factor\": 0.5", llama), "rotates whole heads");
  expect_refused(with("\"quantization_config\": {\"bits\": 4}", llama), "quantization_config");
  expect_refused(changed(llama, "\"llama\"", "\"mistral\""),
                 "model_type is \"mistral\"; this program computes gpt2 or llama");
}

TEST_F(HuggingFaceConfigFile, DamageIsSaid) {
  expect_refused("", "is not JSON");
  expect_refused("[]", "is array; expected an object");
  expect_refused("{}", "model_type is missing");
  expect_refused("{\"model_type\": 7}", "model_type is 7; expected text");
  expect_refused("{\"model_type\": \"gpt2\"}", "has no n_layer");
  expect_refused(with("\"n_layer\": 1", gpt2), "the key \"n_layer\" is there twice");
  expect_refused(changed(gpt2, "768", "-768"), "n_embd is -768; expected a whole number");
  expect_refused(changed(gpt2, "768", "768.5"), "n_embd is 768.5; expected a whole number");
  expect_refused(changed(gpt2, "768", "\"768\""), "n_embd is \"768\"; expected a whole number");
  expect_refused(changed(gpt2, "768", "18446744073709551615"), "expected a whole number");
  expect_refused(changed(gpt2, "768", "9223372036854775807"), "n_embd is 9223372036854775807");
  expect_refused(changed(llama, "500000.0", "true"), "rope_theta is true; expected a number");
  expect_refused(changed(llama, "500000.0", "1e999"), "is not JSON");
  expect_refused(changed(llama, "\"rope_scaling\": null", "\"rope_scaling\": 4"),
                 "rope_scaling is 4; expected an object");
  expect_refused(changed(llama, "\"num_attention_heads\": 32", "\"num_attention_heads\": 0"),
                 "num_attention_heads is 0; expected a whole number from 1 on");
  expect_refused(changed(llama, "\"num_key_value_heads\": 8", "\"num_key_value_heads\": 0"),
                 "num_key_value_heads is 0; expected a whole number from 1 on");
  expect_refused(std::string(2 << 20, ' '), "expected at most");
  expect_refused("{\"a\":" + std::string(100000, '['), "nested too deeply");
  for (std::size_t bytes = 1; bytes < std::string(llama).size(); bytes += 7)
    expect_refused(std::string(llama, bytes), "is not JSON");
}

TEST_F(HuggingFaceConfigFile, WhatIsWrittenIsReadBack) {
  for (const char* json : {gpt2, llama}) {
    HuggingFaceConfig config = read(json);
    config.model.norm_epsilon = 1.0 / 3.0;
    config.model.tie_embeddings = !config.model.tie_embeddings;
    if (json == llama) config.model.rotary_base = 12345.678;
    const std::string written = write_huggingface_config(config, Number::bf16, 256);
    EXPECT_TRUE(contains(written, "\"torch_dtype\": \"bfloat16\""));
    EXPECT_TRUE(contains(written, "\"eos_token_id\": 256"));
    const HuggingFaceConfig back = read(written);
    EXPECT_EQ(back.positions, config.positions);
    EXPECT_EQ(back.model.layers, config.model.layers);
    EXPECT_EQ(back.model.width, config.model.width);
    EXPECT_EQ(back.model.heads, config.model.heads);
    EXPECT_EQ(back.model.kv_heads, config.model.kv_heads);
    EXPECT_EQ(back.model.ffn_width, config.model.ffn_width);
    EXPECT_EQ(back.model.vocabulary, config.model.vocabulary);
    EXPECT_EQ(back.model.tie_embeddings, config.model.tie_embeddings);
    EXPECT_EQ(back.model.norm_epsilon, config.model.norm_epsilon);
    EXPECT_EQ(back.model.rotary_base, config.model.rotary_base);
    EXPECT_EQ(back.model.positions, config.model.positions);
    EXPECT_TRUE(contains(write_huggingface_config(config, Number::fp32, std::nullopt),
                         "\"bos_token_id\": null"));
  }
  DecoderSettings other;
  other.bias = true;
  EXPECT_TRUE(contains(error_of([&] {
                         write_huggingface_config({other, 4}, Number::fp32, std::nullopt);
                       }),
                       "has no counterpart"));
}

}  // namespace
}  // namespace ostrakon::checkpoint
