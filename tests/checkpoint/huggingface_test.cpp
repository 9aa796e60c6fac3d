// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/huggingface_model.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <ostrakon/checkpoint/folder.hpp>
#include <ostrakon/checkpoint/huggingface_source.hpp>
#include <ostrakon/checkpoint/huggingface_writer.hpp>
#include <ostrakon/checkpoint/open_parameters.hpp>
#include <ostrakon/checkpoint/reader.hpp>
#include <ostrakon/checkpoint/shard_writer.hpp>
#include <ostrakon/checkpoint/weights_file.hpp>
#include <random>

#include "model/model_run.hpp"
#include "support/scratch_folder.hpp"

namespace ostrakon::checkpoint {
namespace {

using model::DecoderSettings;
using test::ModelCase;
using test::ModelRun;
using test::huggingface::Tensor;
using test::huggingface::Tensors;
using testing::error_of;
using testing::ScratchFolder;

using Values = std::vector<float>;
using Shape = std::vector<std::int64_t>;

bool contains(const std::string& whole, const std::string& part) {
  return whole.find(part) != std::string::npos;
}

ModelCase gpt2_case() { return test::model_cases()[0]; }
ModelCase llama_case() { return test::model_cases()[1]; }

ModelCase gpt_bigcode_case() {
  ModelCase which = gpt2_case();
  which.name = "gpt_bigcode";
  which.settings.kv_heads = 1;
  return which;
}

ModelCase llama_bias_case() {
  ModelCase which = llama_case();
  which.name = "llama with biases";
  which.settings.bias = true;
  return which;
}

ModelCase starcoder2_case() {
  ModelCase which = llama_case();
  which.name = "starcoder2";
  which.settings.norm = math::NormKind::layernorm;
  which.settings.activation = model::Activation::gelu;
  which.settings.bias = true;
  return which;
}

/// Random tensors of these shapes, in numbers that fp32 holds.
Tensors random_tensors(const std::map<std::string, Shape>& shapes) {
  std::mt19937 generator(7);
  std::normal_distribution<double> normal(0.0, 0.4);
  Tensors tensors;
  for (const auto& [name, shape] : shapes) {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    Tensor& tensor = tensors[name] = {shape, {}};
    for (std::int64_t i = 0; i < count; ++i)
      tensor.values.push_back(static_cast<float>(normal(generator)));
  }
  return tensors;
}

using Shapes = std::map<std::string, Shape>;

/// A linear layer (out, in), or (in, out) where it is a Conv1D, with a bias.
void add_linear(Shapes& shapes, const std::string& name, std::int64_t out, std::int64_t in,
                bool bias = true, bool conv1d = false) {
  shapes[name + ".weight"] = conv1d ? Shape{in, out} : Shape{out, in};
  if (bias) shapes[name + ".bias"] = {out};
}

void add_norm(Shapes& shapes, const std::string& name, std::int64_t width, bool bias) {
  shapes[name + ".weight"] = {width};
  if (bias) shapes[name + ".bias"] = {width};
}

/// The tensors of GPT-2 and GPT-BigCode, written down from Hugging Face's files.
Tensors gpt2_tensors(const ModelCase& which) {
  const DecoderSettings& s = which.settings;
  const std::int64_t w = s.width, f = s.ffn_width, kv = s.kv_heads * s.head_width();
  const bool conv1d = family_of(s) == Family::gpt2;
  Shapes shapes = {{"transformer.wte.weight", {s.vocabulary, w}},
                   {"transformer.wpe.weight", {which.leaf.tokens, w}}};
  add_norm(shapes, "transformer.ln_f", w, true);
  for (std::int64_t layer = 0; layer < s.layers; ++layer) {
    const std::string block = "transformer.h." + std::to_string(layer) + ".";
    add_norm(shapes, block + "ln_1", w, true);
    add_norm(shapes, block + "ln_2", w, true);
    add_linear(shapes, block + "attn.c_attn", w + 2 * kv, w, true, conv1d);
    add_linear(shapes, block + "attn.c_proj", w, w, true, conv1d);
    add_linear(shapes, block + "mlp.c_fc", f, w, true, conv1d);
    add_linear(shapes, block + "mlp.c_proj", w, f, true, conv1d);
  }
  return random_tensors(shapes);
}

/// The tensors of Llama 3 and Starcoder2, written down from Hugging Face's files.
Tensors llama_tensors(const ModelCase& which) {
  const DecoderSettings& s = which.settings;
  const std::int64_t w = s.width, f = s.ffn_width, kv = s.kv_heads * s.head_width();
  const bool starcoder2 = family_of(s) == Family::starcoder2;
  Shapes shapes = {{"model.embed_tokens.weight", {s.vocabulary, w}}};
  add_norm(shapes, "model.norm", w, starcoder2);
  if (!s.tie_embeddings) shapes["lm_head.weight"] = {s.vocabulary, w};
  for (std::int64_t layer = 0; layer < s.layers; ++layer) {
    const std::string block = "model.layers." + std::to_string(layer) + ".";
    add_norm(shapes, block + "input_layernorm", w, starcoder2);
    add_norm(shapes, block + "post_attention_layernorm", w, starcoder2);
    add_linear(shapes, block + "self_attn.q_proj", w, w, s.bias);
    add_linear(shapes, block + "self_attn.k_proj", kv, w, s.bias);
    add_linear(shapes, block + "self_attn.v_proj", kv, w, s.bias);
    add_linear(shapes, block + "self_attn.o_proj", w, w, s.bias);
    if (starcoder2) {
      add_linear(shapes, block + "mlp.c_fc", f, w);
      add_linear(shapes, block + "mlp.c_proj", w, f);
    } else {
      add_linear(shapes, block + "mlp.gate_proj", f, w, s.bias);
      add_linear(shapes, block + "mlp.up_proj", f, w, s.bias);
      add_linear(shapes, block + "mlp.down_proj", w, f, s.bias);
    }
  }
  return random_tensors(shapes);
}

Tensors tensors_of(const ModelCase& which) {
  return which.settings.positions == model::Positions::learned ? gpt2_tensors(which)
                                                               : llama_tensors(which);
}

/// One of each kind of tensors.
std::vector<ModelCase> all_cases() {
  return {gpt2_case(), gpt_bigcode_case(), llama_case(), llama_bias_case(), starcoder2_case()};
}

HuggingFaceOutput output_of(const ModelCase& which, Number number) {
  return {family_of(which.settings), which.leaf.tokens, number, {{"a", "b"}}};
}

void write_tensors(const std::string& path, const Tensors& tensors, Number number = Number::fp32) {
  std::vector<SafetensorsWriter::Tensor> list;
  for (const auto& [name, tensor] : tensors) list.push_back({name, tensor.shape});
  SafetensorsWriter writer(path, number, list, {});
  for (const auto& [name, tensor] : tensors) {
    const Values values(tensor.values.begin(), tensor.values.end());
    writer.write(name, values.data(), static_cast<std::int64_t>(values.size()));
  }
  writer.finish();
}

/// The same without the beginning of names.
Tensors without(const std::string& prefix, const Tensors& tensors) {
  Tensors shorter;
  for (const auto& [name, tensor] : tensors)
    shorter[name.rfind(prefix, 0) == 0 ? name.substr(prefix.size()) : name] = tensor;
  return shorter;
}

Values read_whole(ParameterSource& source, const model::Parameter& p) {
  Values values(static_cast<std::size_t>(p.elements()));
  source.read(p.owner, p.name, p.shape, 0, p.elements(), values.data());
  return values;
}

/// Losses of our model with the parameters of `source`, in double.
std::vector<double> our_losses(ModelRun<double>& run, ParameterSource& source) {
  for (int u = 0; u < run.units(); ++u)
    for (const model::Parameter& p : run.decoder.unit(u).parameters()) {
      const Values values = read_whole(source, p);
      std::vector<double> flat = run.segment(u, p).values();
      std::copy(values.begin(), values.end(), flat.begin() + p.offset);
      run.segment(u, p).assign(flat);
    }
  run.forward();
  return run.losses();
}

/// Compares our model, run on what `path` holds, with theirs in plain loops.
void expect_same_losses(const ModelCase& which, const std::string& path, const Tensors& tensors) {
  const DecoderSettings& s = which.settings;
  ModelRun<double> run(which);
  HuggingFaceSource source(path, s);
  const std::vector<double> found = our_losses(run, source);
  const test::huggingface::Model theirs(
      {static_cast<int>(s.layers), static_cast<int>(s.width), static_cast<int>(s.heads),
       static_cast<int>(s.kv_heads), s.norm_epsilon, s.rotary_base},
      tensors);
  for (std::int64_t b = 0; b < which.leaf.batch; ++b) {
    const auto begin = b * which.leaf.tokens, end = begin + which.leaf.tokens;
    const std::vector<int> tokens(run.token_ids.begin() + begin, run.token_ids.begin() + end);
    const std::vector<int> targets(run.target_ids.begin() + begin, run.target_ids.begin() + end);
    const auto expected = s.positions == model::Positions::learned ? theirs.gpt2(tokens, targets)
                                                                   : theirs.llama(tokens, targets);
    for (std::int64_t t = 0; t < which.leaf.tokens; ++t)
      EXPECT_NEAR(found[begin + t], expected[t], 1e-12 * (1 + std::abs(expected[t])))
          << which.name << ", sequence " << b << ", token " << t;
  }
}

TEST(HuggingFace, Gpt2ComputesWhatTheirsDoes) {
  const ScratchFolder folder;
  const ModelCase which = gpt2_case();
  const Tensors tensors = gpt2_tensors(which);
  write_tensors(folder.file("model.safetensors"), tensors);
  expect_same_losses(which, folder.file(""), tensors);
  write_tensors(folder.file("model.safetensors"), without("transformer.", tensors));
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
  for (ModelCase which : {gpt_bigcode_case(), llama_bias_case(), starcoder2_case()})
    for (const bool tied : {false, true}) {
      which.settings.tie_embeddings = tied || which.name == "gpt_bigcode";
      const Tensors tensors = tensors_of(which);
      write_tensors(path, tensors);
      expect_same_losses(which, path, tensors);
    }
}

/// Phi-3 has the matrices of Llama in one.
TEST(HuggingFace, Phi3IsLlamaInFewerTensors) {
  const ScratchFolder folder;
  const std::string path = folder.file("m.safetensors"), fused = folder.file("phi3.safetensors");
  const ModelCase which = llama_case();
  write_tensors(path, llama_tensors(which));
  HuggingFaceSource llama(path, which.settings);
  HuggingFaceOutput output = output_of(which, Number::fp32);
  output.family = Family::phi3;
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
  Values found(stacked.size());
  file.read("model.layers.1.self_attn.qkv_proj.weight", 0, static_cast<std::int64_t>(found.size()),
            found.data());
  EXPECT_EQ(std::vector<double>(found.begin(), found.end()), stacked);
  HuggingFaceConfig config;
  config.family = Family::phi3;
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
  // Neighbours for halves, as in Meta's own files.
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
  Values qkv(static_cast<std::size_t>(3 * w * w));
  source.read("block.1", "attention.qkv.weight", {3 * w, w}, 0, 3 * w * w, qkv.data());
  const auto& c_attn = theirs.at("transformer.h.1.attn.c_attn.weight").values;
  for (std::int64_t o = 0; o < 3 * w; ++o)
    for (std::int64_t i = 0; i < w; ++i) EXPECT_EQ(qkv[o * w + i], c_attn[i * 3 * w + o]);

  const Tensors more = llama_tensors(llama);
  write_tensors(path, more);
  HuggingFaceSource second(path, llama.settings);
  const std::int64_t rows = (6 + 2 * 2) * llama.settings.head_width();
  Values fused(static_cast<std::size_t>(rows * w));
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
      const Values whole = read_whole(source, p);
      for (int trial = 0; trial < 60; ++trial) {
        const auto first = static_cast<std::int64_t>(generator() % (p.elements() + 1));
        std::int64_t count = static_cast<std::int64_t>(generator() % (p.elements() - first + 1));
        if (trial % 2 == 0) count = std::min<std::int64_t>(count, 1 + trial);
        Values part(static_cast<std::size_t>(count) + 2, 77.0f);
        source.read(p.owner, p.name, p.shape, first, count, part.data() + 1);
        EXPECT_EQ(part.front(), 77.0f);
        EXPECT_EQ(part.back(), 77.0f);
        EXPECT_TRUE(std::equal(part.begin() + 1, part.end() - 1, whole.begin() + first))
            << p.full_name() << " from " << first << ", " << count;
      }
      float value = 0.0f;
      EXPECT_TRUE(contains(
          error_of([&] { source.read(p.owner, p.name, p.shape, p.elements(), 1, &value); }),
          "asked for"));
    }
  }
}

/// Random values for all parameters, in a weights file.
void write_weights(const std::string& path, const ModelCase& which) {
  std::mt19937 generator(3);
  WeightsWriter writer(path, "a deck", 5, "byte");
  for (const model::Parameter& p : parameters_of(which.settings, which.leaf.tokens)) {
    Values values(static_cast<std::size_t>(p.elements()));
    for (float& value : values) value = static_cast<float>(generator()) * 1e-9f - 2.0f;
    writer.write(p.owner, p.name, p.shape, values.data());
  }
  writer.finish();
}

TEST(HuggingFace, ExportThenImportKeepsTheBits) {
  const ScratchFolder folder;
  const std::string weights = folder.file("weights.h5"), out = folder.file("out.safetensors");
  for (const ModelCase& which : all_cases()) {
    write_weights(weights, which);
    const auto source = open_parameters(weights, which.settings, which.leaf.tokens);
    source->verify();
    for (const Number number : {Number::fp32, Number::bf16}) {
      write_huggingface(out, which.settings, output_of(which, number), *source);
      const auto back = open_parameters(out, which.settings, which.leaf.tokens);
      for (const model::Parameter& p : parameters_of(which.settings, which.leaf.tokens)) {
        Values expected = read_whole(*source, p);
        if (number == Number::bf16)
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

/// Files in `folder` hold `most` bytes at most, or one tensor; and the index tells of all of them.
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
  EXPECT_TRUE(contains(index, "\"total_size\": " + std::to_string(bytes))) << index;
  EXPECT_TRUE(contains(index, "\"weight_map\""));
}

TEST(HuggingFace, ShardsHoldWhatOneFileDoes) {
  const ScratchFolder folder;
  const std::string weights = folder.file("weights.h5"), single = folder.file("one.safetensors");
  for (const ModelCase& which : all_cases()) {
    write_weights(weights, which);
    const auto source = open_parameters(weights, which.settings, which.leaf.tokens);
    for (const Number number : {Number::fp32, Number::bf16})
      for (const std::int64_t most : {1, 5'000, 1'000'000}) {
        const std::string out = folder.file("shards");
        std::filesystem::remove_all(out);
        std::filesystem::create_directory(out);
        const HuggingFaceOutput how = output_of(which, number);
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
  EXPECT_EQ(family_of(gpt2_case().settings), Family::gpt2);
  EXPECT_EQ(family_of(gpt_bigcode_case().settings), Family::gpt_bigcode);
  EXPECT_EQ(family_of(llama_case().settings), Family::llama);
  EXPECT_EQ(family_of(llama_bias_case().settings), Family::llama);
  EXPECT_EQ(family_of(starcoder2_case().settings), Family::starcoder2);
  const auto error = [](const DecoderSettings& settings) {
    return error_of([&] { family_of(settings); });
  };
  DecoderSettings s = gpt2_case().settings;
  s.kv_heads = 2;
  s.heads = 4;
  EXPECT_TRUE(contains(error(s), "has no counterpart at Hugging Face"));
  s = gpt2_case().settings;
  s.bias = false;
  EXPECT_TRUE(contains(error(s), "norm layernorm, positions learned, activation gelu, bias false"));
  s = starcoder2_case().settings;
  s.bias = false;
  EXPECT_TRUE(contains(error(s), "positions rotary, activation gelu, bias false"));
  s = llama_case().settings;
  s.positions = model::Positions::learned;
  EXPECT_TRUE(contains(error(s), "positions learned"));
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
  EXPECT_TRUE(contains(error(good, gpt2.settings),
                       "is no GPT-2, which the model's settings describe: it has no tensor "
                       "wte.weight or transformer.wte.weight"));
  Tensors changed = good;
  changed.erase("model.layers.1.mlp.up_proj.weight");
  EXPECT_TRUE(contains(error(changed, llama.settings),
                       "has no tensor \"model.layers.1.mlp.up_proj.weight\""));
  changed = good;
  changed["model.layers.1.self_attn.rotary_emb.inv_freq"] = {{1}, {1.0}};
  EXPECT_EQ(error(changed, llama.settings), "no error");
  changed["model.layers.1.self_attn.q_proj.bias"] = {{1}, {1.0}};
  EXPECT_TRUE(contains(error(changed, llama.settings),
                       "tensor model.layers.1.self_attn.q_proj.bias (1) is no part of the model"));
  DecoderSettings other = llama.settings;
  other.layers = 1;
  EXPECT_TRUE(contains(error(good, other), "is no part of the model that the settings describe"));
  other = llama.settings;
  other.kv_heads = 3;
  EXPECT_TRUE(contains(error(good, other),
                       "self_attn.k_proj.weight has the shape (8, 24); expected (12, 24)"));
  other = llama.settings;
  other.tie_embeddings = true;
  EXPECT_TRUE(contains(error(good, other), "but the model's tie_embeddings is true"));
  changed = good;
  changed["lm_head.weight"] = changed["model.embed_tokens.weight"];
  EXPECT_EQ(error(changed, other), "no error");
  other.tie_embeddings = false;
  changed.erase("lm_head.weight");
  EXPECT_TRUE(contains(error(changed, other), "has no tensor \"lm_head.weight\""));

  write_tensors(path, gpt2_tensors(gpt2));
  HuggingFaceSource source(path, gpt2.settings);
  Values values(10'000);
  EXPECT_EQ(source.positions(), gpt2.leaf.tokens);
  EXPECT_TRUE(contains(error_of([&] {
                         source.read("embedding", "position.weight", {5, 24}, 0, 5, values.data());
                       }),
                       "tensor transformer.wpe.weight has the shape (7, 24); expected (5, 24)"));
  EXPECT_TRUE(contains(error_of([&] {
                         source.read("block.0", "mlp.gate.weight", {5, 24}, 0, 5, values.data());
                       }),
                       "has no name in Hugging Face's models"));
}

TEST(OpenParameters, TellsByContent) {
  const ScratchFolder folder;
  const ModelCase which = llama_case();
  write_weights(folder.file("weights.safetensors"), which);
  EXPECT_NE(dynamic_cast<WeightsReader*>(open_parameters(folder.file("weights.safetensors"),
                                                         which.settings, which.leaf.tokens)
                                             .get()),
            nullptr);
  write_tensors(folder.file("model.h5"), llama_tensors(which));
  EXPECT_NE(dynamic_cast<HuggingFaceSource*>(
                open_parameters(folder.file("model.h5"), which.settings, which.leaf.tokens).get()),
            nullptr);
  EXPECT_TRUE(contains(
      error_of([&] { open_parameters(folder.file("none"), which.settings, which.leaf.tokens); }),
      "does not exist"));
  ASSERT_EQ(mkfifo(folder.file("pipe").c_str(), 0600), 0);
  EXPECT_TRUE(contains(
      error_of([&] { open_parameters(folder.file("pipe"), which.settings, which.leaf.tokens); }),
      "is not a plain file"));
  for (const int more : {-1, 1}) {
    DecoderSettings other = which.settings;
    other.layers += more;
    EXPECT_TRUE(
        contains(error_of([&] {
                   open_parameters(folder.file("weights.safetensors"), other, which.leaf.tokens);
                 }),
                 more > 0 ? "is not in it" : "is no part of the model that the settings describe"));
  }
}

/// A checkpoint of one rank with these parameters and first moments.
std::string save_checkpoint(const std::string& folder, const ModelCase& which,
                            ParameterSource& source) {
  ShardMap map;
  map.nodes = {0};
  map.slices.resize(1);
  for (const model::Parameter& p : parameters_of(which.settings, which.leaf.tokens)) {
    for (const State state : {State::parameters, State::first_moment})
      map.slices[0].push_back({state, static_cast<int>(map.parameters.size()), 0, p.elements()});
    map.parameters.push_back({p.owner, p.name, p.shape, p.owner, false});
  }
  const FileLayout layout = lay_out(map, Files::single, 0);
  const Folder checkpoints(folder);
  const std::string partial = checkpoints.begin(1);
  Values values;
  Manifest manifest;
  manifest.ranks = 1;
  manifest.parameters = map.parameters;
  manifest.numbers = map.numbers;
  manifest.files = {
      write_shard(partial, layout, 0,
                  [&](std::size_t piece, std::int64_t first, std::int64_t bytes) {
                    const ParameterEntry& p = map.parameters[layout.pieces[piece].slice.parameter];
                    values.resize(static_cast<std::size_t>(bytes / 4));
                    source.read(p.owner, p.name, p.shape, first / 4, bytes / 4, values.data());
                    return values.data();
                  },
                  {})};
  return checkpoints.commit(1, write_manifest(manifest)).path;
}

TEST(OpenParameters, TakesCheckpoints) {
  const ScratchFolder folder;
  for (const ModelCase& which : {gpt2_case(), llama_case()}) {
    write_weights(folder.file("weights.h5"), which);
    const auto weights =
        open_parameters(folder.file("weights.h5"), which.settings, which.leaf.tokens);
    const std::string path = save_checkpoint(folder.file("checkpoints"), which, *weights);
    const auto checkpoint = open_parameters(path, which.settings, which.leaf.tokens);
    checkpoint->verify();
    EXPECT_TRUE(checkpoint->checks_what_it_reads());
    EXPECT_FALSE(weights->checks_what_it_reads());
    for (const model::Parameter& p : parameters_of(which.settings, which.leaf.tokens))
      EXPECT_EQ(read_whole(*checkpoint, p), read_whole(*weights, p)) << p.full_name();

    const auto error = [&](const DecoderSettings& settings) {
      return error_of([&] { open_parameters(path, settings, which.leaf.tokens); });
    };
    DecoderSettings other = which.settings;
    ++other.layers;
    EXPECT_TRUE(contains(error(other), "the model's parameter block.")) << error(other);
    other = which.settings;
    --other.layers;
    EXPECT_TRUE(contains(error(other), "is no part of the model that the settings describe"));
    other = which.settings;
    ++other.vocabulary;
    EXPECT_TRUE(contains(error(other), "embedding.token.weight has the shape")) << error(other);

    // Only parameters are read.
    for (const State state : {State::first_moment, State::parameters}) {
      const Manifest manifest = CheckpointReader(path).manifest();
      const std::string file = path + "/" + manifest.files[0].name;
      std::string bytes = testing::read_bytes(file);
      for (const PieceEntry& piece : manifest.files[0].pieces)
        if (piece.slice.state == state) bytes[static_cast<std::size_t>(piece.offset)] += 1;
      testing::write_bytes(file, bytes);
      const auto damaged = open_parameters(path, which.settings, which.leaf.tokens);
      const std::string said = error_of([&] { damaged->verify(); });
      if (state == State::parameters) {
        EXPECT_TRUE(contains(said, file)) << said;
      } else {
        EXPECT_EQ(said, "no error");
      }
    }
  }
}

TEST(WeightsSource, SlicesAndChecksums) {
  const ScratchFolder folder;
  const std::string path = folder.file("weights.h5");
  const Shape shape = {5, 7, 3};
  Values values(105);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) + 0.5f;
  WeightsWriter writer(path, "", 0, "byte");
  writer.write("a/b", "p", shape, values.data());
  writer.write("a", "q", {105}, values.data());
  writer.finish();
  WeightsReader reader(path);
  for (std::int64_t first = 0; first <= 105; ++first)
    for (std::int64_t count = 0; first + count <= 105; count += 1 + count / 8) {
      Values part(static_cast<std::size_t>(count) + 1, -1.0f);
      reader.read("a/b", "p", shape, first, count, part.data());
      EXPECT_TRUE(std::equal(part.begin(), part.end() - 1, values.begin() + first));
      EXPECT_EQ(part.back(), -1.0f);
    }
  EXPECT_TRUE(contains(error_of([&] { reader.read("a", "q", {105}, 100, 6, values.data()); }),
                       "asked for"));
  const auto entries = reader.parameters();
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[1].unit + " " + entries[1].parameter, "a/b p");
  EXPECT_EQ(entries[1].shape, shape);
  reader.verify();

  std::string bytes = testing::read_bytes(path);
  const float number = 52.5f;
  const std::size_t at = bytes.find(std::string(reinterpret_cast<const char*>(&number), 4));
  ASSERT_NE(at, std::string::npos);
  bytes[at] = static_cast<char>(bytes[at] ^ 1);
  testing::write_bytes(path, bytes);
  WeightsReader damaged(path);
  EXPECT_TRUE(contains(error_of([&] { damaged.verify(); }), "is damaged: its checksum is"));
}

}  // namespace
}  // namespace ostrakon::checkpoint
