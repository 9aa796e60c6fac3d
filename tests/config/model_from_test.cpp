// SPDX-License-Identifier: Apache-2.0
// model.from: a deck's model is that of a folder's config.json.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "config/decks.hpp"
#include "support/messages.hpp"
#include "support/scratch_folder.hpp"

namespace ostrakon::config {
namespace {

const char* const llama = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
  "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-5,
  "rope_theta": 500000.0, "tie_word_embeddings": true, "vocab_size": 199})";

class ModelFrom : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(folder_.file("hf"));
    testing::write_bytes(folder_.file("hf/config.json"), llama);
  }
  Settings read_with(const std::string& model, const std::vector<Override>& overrides = {}) const {
    return read_settings("ostrakon:\n  model: {" + model +
                             "}\n  data: {dataset: synthetic}\n  training: {sequence_length: 64}\n",
                         folder_.file("deck.yaml"), overrides);
  }
  std::string refusal(const std::string& model, const std::vector<Override>& overrides = {}) const {
    return testing::error_of([&] { read_with(model, overrides); });
  }

  testing::ScratchFolder folder_;
};

TEST_F(ModelFrom, SetsWhatTheConfigSays) {
  const Settings settings = read_with("from: hf");
  EXPECT_EQ(settings.model.layers, 2);
  EXPECT_EQ(settings.model.width, 64);
  EXPECT_EQ(settings.model.kv_heads, 2);
  EXPECT_EQ(settings.model.ffn_width, 96);
  EXPECT_EQ(settings.model.vocabulary, 199);
  EXPECT_EQ(settings.model.rotary.base, 500000.0);
  EXPECT_TRUE(settings.model.tie_embeddings);
  EXPECT_FALSE(settings.model.bias);
  // The folder may be gone when a run resumes: the deck that it keeps says all of it.
  EXPECT_EQ(settings.model_from, "");
  EXPECT_EQ(settings.model_folder, folder_.file("hf"));
  expect_equal(read(write_deck(settings)), settings);
}

TEST_F(ModelFrom, TakesKeysThatAgreeOrThatItLacks) {
  const Settings settings =
      read_with("from: hf, layers: 2, blocks_per_unit: 2, initializer_deviation: 0.1");
  EXPECT_EQ(settings.model.blocks_per_unit, 2);
  EXPECT_EQ(settings.model.initializer_deviation, 0.1);
  EXPECT_EQ(read_with("", {{"model.from", folder_.file("hf")}}).model.width, 64)
      << "--set is relative to the working directory";
}

TEST_F(ModelFrom, RefusesOthersByKey) {
  EXPECT_HAS(refusal("from: hf, width: 128"), "hidden_size is 64, but model.width is 128");
  EXPECT_HAS(refusal("from: hf", {{"model.rotary_base", "10000"}}),
             "rope_theta is 500000.0, but model.rotary_base is 10000.0");
  EXPECT_HAS(refusal("from: hf, positions: learned"), "positions of llama is rotary");
  EXPECT_HAS(refusal("from: nowhere"),
             "model.from = \"nowhere\", relative to the deck's folder: no config.json in \"" +
                 folder_.file("nowhere"));
  testing::write_bytes(folder_.file("hf/config.json"),
                       std::string(llama, std::strlen(llama) - 1) +
                           R"(, "rope_scaling": {"type": "dynamic", "factor": 2.0}})");
  EXPECT_HAS(refusal("from: hf"), "is of a model that Ostrakon does not support")
      << "a deck that says nothing is not blamed";
}

}  // namespace
}  // namespace ostrakon::config
