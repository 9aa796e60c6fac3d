// SPDX-License-Identifier: Apache-2.0
// Weights with Hugging Face's names: reading, computing with them, and writing.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <ostrakon/checkpoint/open_parameters.hpp>

#include "checkpoint/huggingface_files.hpp"
#include "support/messages.hpp"

namespace ostrakon::checkpoint {
namespace {

TEST(HuggingFace, Gpt2ComputesWhatTheirsDoes) {
  const ScratchFolder folder;
  const ModelCase which = gpt2_case();
  const Tensors tensors = gpt2_tensors(which);
  write_tensors(folder.file("model.safetensors"), tensors);
  expect_same_losses(which, folder.file(""), tensors);
  write_tensors(folder.file("model.safetensors"), without("transformer.", tensors));
  expect_same_losses(which, folder.file(""), tensors);
}

TEST(HuggingFace, Gpt2ComputesWhatTheirsDoesOnShorterSequences) {
  const ScratchFolder folder;
  const ModelCase which = gpt2_short_case();
  const Tensors tensors = gpt2_tensors(which);
  write_tensors(folder.file("model.safetensors"), tensors);
  expect_same_losses(which, folder.file(""), tensors);
}

TEST(HuggingFace, LlamaComputesWhatTheirsDoes) {
  const ScratchFolder folder;
  const std::string path = folder.file("llama.safetensors");
  ModelCase which = llama_case();
  ASSERT_LT(which.settings.kv_heads, which.settings.heads);
  ASSERT_GT(which.settings.head_width(), 2) << "pairs and halves would be the same";
  for (const bool tied : {false, true}) {
    which.settings.tie_embeddings = tied;
    const Tensors tensors = llama_tensors(which);
    write_tensors(path, tensors);
    expect_same_losses(which, path, tensors);
    write_tensors(path, without("model.", tensors));
    expect_same_losses(which, path, tensors);
  }
  which.settings.kv_heads = which.settings.heads;
  const Tensors tensors = llama_tensors(which);
  write_tensors(path, tensors);
  expect_same_losses(which, path, tensors);
}

TEST(HuggingFace, OthersComputeWhatTheirsDo) {
  const ScratchFolder folder;
  const std::string path = folder.file("m.safetensors");
  for (ModelCase which :
       {gpt_bigcode_case(), llama_bias_case(), llama_attention_bias_case(), mixtral_case(),
        qwen3_case(), qwen3_moe_case(true), qwen3_moe_case(false), starcoder2_case()})
    for (const bool tied : {false, true}) {
      which.settings.tie_embeddings = tied || which.name == "gpt_bigcode";
      const Tensors tensors = tensors_of(which);
      write_tensors(path, tensors);
      expect_same_losses(which, path, tensors);
    }
}

/// Phi-3 has the matrices of Llama, concatenated.
TEST(HuggingFace, Phi3IsLlamaInFewerTensors) {
  const ScratchFolder folder;
  const std::string path = folder.file("m.safetensors"), fused = folder.file("phi3.safetensors");
  const ModelCase which = llama_case();
  write_tensors(path, llama_tensors(which));
  HuggingFaceSource llama(path, which.settings);
  HuggingFaceOutput output = output_of(which, DType::fp32);
  output.family = family_named("phi3");
  write_huggingface(fused, which.settings, output, llama);
  SafetensorsReader file(fused);
  const std::int64_t w = which.settings.width, f = which.settings.ffn_width;
  EXPECT_EQ(file.tensor("model.layers.1.mlp.gate_up_proj.weight").shape, (Shape{2 * f, w}));
  EXPECT_FALSE(file.has("model.layers.1.mlp.gate_proj.weight"));
  const Tensors theirs = llama_tensors(which);
  std::vector<double> stacked;
  for (const char* name : {"q_proj", "k_proj", "v_proj"}) {
    const auto& part = theirs.at(std::string("model.layers.1.self_attn.") + name + ".weight");
    stacked.insert(stacked.end(), part.values.begin(), part.values.end());
  }
  Floats found(stacked.size());
  file.read("model.layers.1.self_attn.qkv_proj.weight", 0, static_cast<std::int64_t>(found.size()),
            found.data());
  EXPECT_EQ(std::vector<double>(found.begin(), found.end()), stacked);
  HuggingFaceConfig config;
  config.family = family_named("phi3");
  HuggingFaceSource back(fused, which.settings, config);
  for (const model::Parameter& p : parameters_of(which.settings, which.leaf.tokens))
    EXPECT_EQ(read_whole(back, p), read_whole(llama, p)) << p.full_name();
}

TEST(HuggingFace, RowsOfQueriesAndKeysInAnotherOrderWouldShow) {
  const ScratchFolder folder;
  const std::string path = folder.file("llama.safetensors");
  const ModelCase which = llama_case();
  Tensors tensors = llama_tensors(which);
  write_tensors(path, tensors);
  HuggingFaceSource ours(path, which.settings);
  ModelRun<double> run(which);
  const std::vector<double> expected = our_losses(run, ours);
  // Rotary pairs are neighbours instead of halves, as in Meta's own files.
  const std::int64_t d = which.settings.head_width(), w = which.settings.width;
  for (auto& [name, tensor] : tensors) {
    if (!contains(name, "q_proj") && !contains(name, "k_proj")) continue;
    const std::vector<double> before = tensor.values;
    for (std::int64_t row = 0; row < tensor.shape[0]; ++row) {
      const std::int64_t i = row % d;
      const std::int64_t from = row - i + (i % 2) * (d / 2) + i / 2;
      std::copy_n(before.begin() + from * w, w, tensor.values.begin() + row * w);
    }
  }
  write_tensors(path, tensors);
  HuggingFaceSource permuted(path, which.settings);
  const std::vector<double> found = our_losses(run, permuted);
  double difference = 0;
  for (std::size_t i = 0; i < found.size(); ++i)
    difference = std::max(difference, std::abs(found[i] - expected[i]));
  EXPECT_GT(difference, 1e-3);
}

TEST(HuggingFace, EveryNumberComesFromItsPlace) {
  const ScratchFolder folder;
  const std::string path = folder.file("m.safetensors");
  const ModelCase gpt2 = gpt2_case(), llama = llama_case();
  const Tensors theirs = gpt2_tensors(gpt2);
  write_tensors(path, theirs);
  HuggingFaceSource source(path, gpt2.settings);
  const std::int64_t w = gpt2.settings.width;
  Floats qkv(static_cast<std::size_t>(3 * w * w));
  source.read("block.1", "attention.qkv.weight", {3 * w, w}, 0, 3 * w * w, qkv.data());
  const auto& c_attn = theirs.at("transformer.h.1.attn.c_attn.weight").values;
  for (std::int64_t o = 0; o < 3 * w; ++o)
    for (std::int64_t i = 0; i < w; ++i) EXPECT_EQ(qkv[o * w + i], c_attn[i * 3 * w + o]);

  const Tensors more = llama_tensors(llama);
  write_tensors(path, more);
  HuggingFaceSource second(path, llama.settings);
  const std::int64_t rows = (6 + 2 * 2) * llama.settings.head_width();
  Floats fused(static_cast<std::size_t>(rows * w));
  second.read("block.0", "attention.qkv.weight", {rows, w}, 0, rows * w, fused.data());
  std::vector<double> stacked;
  for (const char* name : {"q_proj", "k_proj", "v_proj"}) {
    const auto& part = more.at(std::string("model.layers.0.self_attn.") + name + ".weight").values;
    stacked.insert(stacked.end(), part.begin(), part.end());
  }
  EXPECT_EQ(std::vector<double>(fused.begin(), fused.end()), stacked);
}

TEST(HuggingFace, SlicesAreThoseOfTheWhole) {
  const ScratchFolder folder;
  std::mt19937 generator(5);
  for (const ModelCase& which : all_cases()) {
    const std::string path = folder.file("m.safetensors");
    write_tensors(path, tensors_of(which));
    HuggingFaceSource source(path, which.settings);
    for (const model::Parameter& p : parameters_of(which.settings, which.leaf.tokens)) {
      const Floats whole = read_whole(source, p);
      for (int trial = 0; trial < 60; ++trial) {
        const auto first = static_cast<std::int64_t>(generator() % (p.elements() + 1));
        std::int64_t count = static_cast<std::int64_t>(generator() % (p.elements() - first + 1));
        if (trial % 2 == 0) count = std::min<std::int64_t>(count, 1 + trial);
        Floats part(static_cast<std::size_t>(count) + 2, 77.0f);
        source.read(p.owner, p.name, p.shape, first, count, part.data() + 1);
        EXPECT_EQ(part.front(), 77.0f);
        EXPECT_EQ(part.back(), 77.0f);
        EXPECT_TRUE(std::equal(part.begin() + 1, part.end() - 1, whole.begin() + first))
            << p.full_name() << " from " << first << ", " << count;
      }
      float value = 0.0f;
      EXPECT_HAS(error_of([&] { source.read(p.owner, p.name, p.shape, p.elements(), 1, &value); }),
                 "asked for");
    }
  }
}

TEST(HuggingFace, ExportThenImportKeepsTheBits) {
  const ScratchFolder folder;
  const std::string weights = folder.file("weights.h5"), out = folder.file("out.safetensors");
  for (const ModelCase& which : all_cases()) {
    write_weights(weights, which);
    const auto source = open_parameters(weights, which.settings, which.leaf.tokens);
    source->verify();
    for (const DType dtype : {DType::fp32, DType::bf16}) {
      write_huggingface(out, which.settings, output_of(which, dtype), *source);
      const auto back = open_parameters(out, which.settings, which.leaf.tokens);
      for (const model::Parameter& p : parameters_of(which.settings, which.leaf.tokens)) {
        Floats expected = read_whole(*source, p);
        if (dtype == DType::bf16)
          for (float& value : expected) value = bf16(value);
        EXPECT_EQ(read_whole(*back, p), expected) << p.full_name();
      }
      const SafetensorsReader file(out);
      EXPECT_EQ(file.metadata().at("format"), "pt");
      EXPECT_EQ(file.metadata().at("a"), "b");
      const Tensors theirs = tensors_of(which);
      EXPECT_EQ(file.tensors().size(), theirs.size());
      for (const auto& [name, tensor] : theirs)
        EXPECT_EQ(file.tensor(name).shape, tensor.shape) << name;
    }
  }
}

/// Checks that files in `folder` have at most `most` bytes, or one tensor, and that the index lists
/// all.
void expect_shards(const std::string& folder, int files, std::int64_t most,
                   const std::string& single) {
  const SafetensorsReader all(single), read(folder);
  EXPECT_EQ(read.tensors().size(), all.tensors().size());
  EXPECT_EQ(read.metadata(), all.metadata());
  std::int64_t bytes = 0;
  for (const auto& [name, tensor] : all.tensors()) bytes += tensor.bytes;
  if (bytes <= most) {
    EXPECT_EQ(files, 1);
    EXPECT_TRUE(std::filesystem::exists(folder + "/model.safetensors"));
    EXPECT_FALSE(std::filesystem::exists(folder + "/model.safetensors.index.json"));
    return;
  }
  EXPECT_GT(files, 1);
  std::int64_t before = most;
  for (int i = 1; i <= files; ++i) {
    char name[64];
    std::snprintf(name, sizeof name, "/model-%05d-of-%05d.safetensors", i, files);
    const SafetensorsReader file(folder + name);
    std::int64_t held = 0;
    for (const auto& [tensor_name, tensor] : file.tensors()) held += tensor.bytes;
    EXPECT_TRUE(held <= most || file.tensors().size() == 1) << held;
    EXPECT_GT(before + held, most) << "two files would fit into one";
    before = held;
  }
  const std::string index = testing::read_bytes(folder + "/model.safetensors.index.json");
  EXPECT_HAS(index, "\"total_size\": " + std::to_string(bytes));
  EXPECT_HAS(index, "\"weight_map\"");
}

TEST(HuggingFace, ShardsHoldWhatOneFileDoes) {
  const ScratchFolder folder;
  const std::string weights = folder.file("weights.h5"), single = folder.file("one.safetensors");
  for (const ModelCase& which : all_cases()) {
    write_weights(weights, which);
    const auto source = open_parameters(weights, which.settings, which.leaf.tokens);
    for (const DType dtype : {DType::fp32, DType::bf16})
      for (const std::int64_t most : {1, 5'000, 1'000'000}) {
        const std::string out = folder.file("shards");
        std::filesystem::remove_all(out);
        std::filesystem::create_directory(out);
        const HuggingFaceOutput how = output_of(which, dtype);
        write_huggingface(single, which.settings, how, *source);
        const int files = write_huggingface_shards(out, which.settings, most, how, *source);
        expect_shards(out, files, most, single);
        const auto back = open_parameters(out, which.settings, which.leaf.tokens);
        const auto expected = open_parameters(single, which.settings, which.leaf.tokens);
        for (const model::Parameter& p : parameters_of(which.settings, which.leaf.tokens))
          EXPECT_EQ(read_whole(*back, p), read_whole(*expected, p)) << p.full_name();
      }
  }
}

TEST(HuggingFace, OtherModelsAreRefused) {
  EXPECT_EQ(family_of(gpt2_case().settings).model_type, "gpt2");
  EXPECT_EQ(family_of(gpt_bigcode_case().settings).model_type, "gpt_bigcode");
  EXPECT_EQ(family_of(llama_case().settings).model_type, "llama");
  EXPECT_EQ(family_of(llama_bias_case().settings).model_type, "llama");
  EXPECT_EQ(family_of(starcoder2_case().settings).model_type, "starcoder2");
  const auto error = [](const DecoderSettings& settings) {
    return error_of([&] { family_of(settings); });
  };
  DecoderSettings s = gpt2_case().settings;
  s.kv_heads = 2;
  s.heads = 4;
  EXPECT_HAS(error(s), "has no counterpart at Hugging Face");
  s = gpt2_case().settings;
  s.bias = false;
  EXPECT_HAS(error(s), "of the nearest one, ");
  s = starcoder2_case().settings;
  s.bias = false;
  EXPECT_HAS(error(s), "norm_bias of ");
  s = llama_case().settings;
  s.positions = model::Positions::learned;
  EXPECT_HAS(error(s), "model.positions is learned");
}

TEST(HuggingFace, FilesThatAreNotTheModelAreRefused) {
  const ScratchFolder folder;
  const std::string path = folder.file("m.safetensors");
  const ModelCase llama = llama_case(), gpt2 = gpt2_case();
  const Tensors good = llama_tensors(llama);
  const auto error = [&](const Tensors& tensors, const DecoderSettings& settings) {
    write_tensors(path, tensors);
    return error_of([&] { HuggingFaceSource source(path, settings); });
  };
  EXPECT_EQ(error(good, llama.settings), "no error");
  EXPECT_HAS(error(good, gpt2.settings),
             "is no GPT-2, which the model's settings describe: it has no tensor "
             "wte.weight or transformer.wte.weight");
  Tensors changed = good;
  changed.erase("model.layers.1.mlp.up_proj.weight");
  EXPECT_HAS(error(changed, llama.settings), "has no tensor \"model.layers.1.mlp.up_proj.weight\"");
  changed = good;
  changed["model.layers.1.self_attn.rotary_emb.inv_freq"] = {{1}, {1.0}};
  EXPECT_EQ(error(changed, llama.settings), "no error");
  changed["model.layers.1.self_attn.q_proj.bias"] = {{1}, {1.0}};
  EXPECT_HAS(error(changed, llama.settings),
             "tensor model.layers.1.self_attn.q_proj.bias (1) is no part of the model");
  DecoderSettings other = llama.settings;
  other.layers = 1;
  EXPECT_HAS(error(good, other), "is no part of the model that the settings describe");
  other = llama.settings;
  other.kv_heads = 3;
  EXPECT_HAS(error(good, other),
             "self_attn.k_proj.weight has the shape (8, 24); expected (12, 24)");
  const std::string all = error(good, other);
  const std::string end =
      "_proj.weight has the shape (8, 24); expected (12, 24) (and 1 more like it)";
  EXPECT_EQ(all, "'" + path + "' is not of the model that the settings describe:\n" +
                     "  tensor model.layers.0.self_attn.k" + end +
                     "\n  tensor model.layers.0.self_attn.v" + end);
  other = llama.settings;
  other.layers = 3;
  changed = good;
  changed["lm_head.bias"] = changed["model.layers.0.more.weight"] = {{1}, {1.0}};
  changed["model.layers.1.more.weight"] = {{1}, {1.0}};
  const std::string more = error(changed, other);
  EXPECT_HAS(more, "\n  it has no tensor \"model.layers.2.mlp.up_proj.weight\"\n");
  EXPECT_HAS(more,
             "\n  tensor lm_head.bias (1) is no part of the model that the settings "
             "describe\n");
  EXPECT_HAS(more,
             "\n  tensor model.layers.0.more.weight (1) is no part of the model that "
             "the settings describe (and 1 more like it)");
  other = llama.settings;
  other.tie_embeddings = true;
  EXPECT_HAS(error(good, other), "but the model's tie_embeddings is true");
  changed = good;
  changed["lm_head.weight"] = changed["model.embed_tokens.weight"];
  EXPECT_EQ(error(changed, other), "no error");
  other.tie_embeddings = false;
  changed.erase("lm_head.weight");
  EXPECT_HAS(error(changed, other), "has no tensor \"lm_head.weight\"");

  write_tensors(path, gpt2_tensors(gpt2));
  HuggingFaceSource source(path, gpt2.settings);
  Floats values(10'000);
  EXPECT_EQ(source.positions(), gpt2.leaf.tokens);
  EXPECT_HAS(error_of([&] {
               source.read("embedding", "position.weight", {5, 24}, 0, 5, values.data());
             }),
             "tensor transformer.wpe.weight has the shape (7, 24); expected (5, 24)");
  EXPECT_HAS(error_of([&] {
               source.read("block.0", "mlp.gate.weight", {5, 24}, 0, 5, values.data());
             }),
             "has no name in Hugging Face's models");
}

}  // namespace
}  // namespace ostrakon::checkpoint
