// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <ostrakon/checkpoint/huggingface/huggingface_source.hpp>
#include <ostrakon/checkpoint/huggingface/huggingface_writer.hpp>
#include <ostrakon/checkpoint/weights_file.hpp>
#include <random>
#include <string>
#include <vector>

#include "checkpoint/huggingface_model.hpp"
#include "model/model_run.hpp"
#include "support/scratch_folder.hpp"

// Models of Hugging Face's types with random values, and their files.

namespace ostrakon::checkpoint {

using model::DecoderSettings;
using test::ModelCase;
using test::ModelRun;
using test::huggingface::Tensor;
using test::huggingface::Tensors;
using testing::contains;
using testing::error_of;
using testing::ScratchFolder;

using Floats = std::vector<float>;
using Shape = std::vector<std::int64_t>;

inline ModelCase gpt2_case() { return test::model_cases()[0]; }
inline ModelCase llama_case() { return test::model_cases()[1]; }

inline ModelCase gpt_bigcode_case() {
  ModelCase which = gpt2_case();
  which.name = "gpt_bigcode";
  which.settings.kv_heads = 1;
  return which;
}

inline ModelCase llama_bias_case() {
  ModelCase which = llama_case();
  which.name = "llama with biases";
  which.settings.bias = true;
  return which;
}

inline ModelCase llama_attention_bias_case() {
  ModelCase which = llama_bias_case();
  which.name = "llama with biases of attention alone";
  which.settings.own_mlp_bias = false;
  return which;
}

/// A model whose sequences are shorter than its position table.
inline ModelCase gpt2_short_case() {
  ModelCase which = gpt2_case();
  which.name = "gpt2 on short sequences";
  which.settings.max_positions = 2 * which.leaf.tokens;
  return which;
}

inline ModelCase mixtral_case() {
  ModelCase which = llama_case();
  which.name = "mixtral";
  which.settings.experts.count = 12;
  which.settings.experts.per_token = 3;
  which.settings.experts.width = 10;
  return which;
}

inline ModelCase qwen3_case() {
  ModelCase which = llama_case();
  which.name = "qwen3";
  which.settings.query_key_norm = model::QueryKeyNorm::head;
  which.settings.head_dim = 6;
  return which;
}

inline ModelCase qwen3_moe_case(bool normalizes) {
  ModelCase which = qwen3_case();
  which.name = text("qwen3_moe, norm_topk_prob ", normalizes);
  which.settings.experts = mixtral_case().settings.experts;
  which.settings.experts.normalize = normalizes;
  return which;
}

inline ModelCase starcoder2_case() {
  ModelCase which = llama_case();
  which.name = "starcoder2";
  which.settings.norm = math::NormKind::layernorm;
  which.settings.activation = model::Activation::gelu;
  which.settings.bias = true;
  return which;
}

/// Returns random tensors of these shapes, with values that fp32 holds exactly.
inline Tensors random_tensors(const std::map<std::string, Shape>& shapes) {
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

/// Adds the shapes of a linear layer (out, in), or of a Conv1D (in, out), with a bias.
inline void add_linear(Shapes& shapes, const std::string& name, std::int64_t out, std::int64_t in,
                       bool bias = true, bool conv1d = false) {
  shapes[name + ".weight"] = conv1d ? Shape{in, out} : Shape{out, in};
  if (bias) shapes[name + ".bias"] = {out};
}

inline void add_norm(Shapes& shapes, const std::string& name, std::int64_t width, bool bias) {
  shapes[name + ".weight"] = {width};
  if (bias) shapes[name + ".bias"] = {width};
}

/// Returns tensors of GPT-2 and GPT-BigCode, named as in Hugging Face's files.
inline Tensors gpt2_tensors(const ModelCase& which) {
  const DecoderSettings& s = which.settings;
  const std::int64_t w = s.width, f = s.ffn_width, kv = s.kv_heads * s.head_width();
  const bool conv1d = family_of(s).model_type == "gpt2";
  Shapes shapes = {{"transformer.wte.weight", {s.vocabulary, w}},
                   {"transformer.wpe.weight", {s.position_rows(which.leaf.tokens), w}}};
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

/// Returns tensors of Llama 3, Mixtral, Qwen3, Qwen3-MoE and Starcoder2, named as in Hugging Face's
/// files.
inline Tensors llama_tensors(const ModelCase& which) {
  const DecoderSettings& s = which.settings;
  const std::int64_t w = s.width, f = s.ffn_width, d = s.head_width();
  const std::int64_t q = s.heads * d, kv = s.kv_heads * d;
  const bool starcoder2 = family_of(s).model_type == "starcoder2";
  Shapes shapes = {{"model.embed_tokens.weight", {s.vocabulary, w}}};
  add_norm(shapes, "model.norm", w, starcoder2);
  if (!s.tie_embeddings) shapes["lm_head.weight"] = {s.vocabulary, w};
  for (std::int64_t layer = 0; layer < s.layers; ++layer) {
    const std::string block = "model.layers." + std::to_string(layer) + ".";
    add_norm(shapes, block + "input_layernorm", w, starcoder2);
    add_norm(shapes, block + "post_attention_layernorm", w, starcoder2);
    add_linear(shapes, block + "self_attn.q_proj", q, w, s.bias);
    add_linear(shapes, block + "self_attn.k_proj", kv, w, s.bias);
    add_linear(shapes, block + "self_attn.v_proj", kv, w, s.bias);
    add_linear(shapes, block + "self_attn.o_proj", w, q, s.bias);
    if (s.query_key_norm != model::QueryKeyNorm::none)
      for (const char* name : {"self_attn.q_norm", "self_attn.k_norm"})
        add_norm(shapes, block + name, d, false);
    if (starcoder2) {
      add_linear(shapes, block + "mlp.c_fc", f, w);
      add_linear(shapes, block + "mlp.c_proj", w, f);
    } else if (s.experts.exist()) {
      const bool is_mixtral = s.query_key_norm == model::QueryKeyNorm::none;
      const std::string mixture = block + (is_mixtral ? "block_sparse_moe." : "mlp.");
      add_linear(shapes, mixture + "gate", s.experts.count, w, false);
      for (std::int64_t e = 0; e < s.experts.count; ++e) {
        const std::string expert = mixture + "experts." + std::to_string(e) + ".";
        const std::int64_t inner = s.experts.width;
        add_linear(shapes, expert + (is_mixtral ? "w1" : "gate_proj"), inner, w, false);
        add_linear(shapes, expert + (is_mixtral ? "w2" : "down_proj"), w, inner, false);
        add_linear(shapes, expert + (is_mixtral ? "w3" : "up_proj"), inner, w, false);
      }
    } else {
      add_linear(shapes, block + "mlp.gate_proj", f, w, s.mlp_bias());
      add_linear(shapes, block + "mlp.up_proj", f, w, s.mlp_bias());
      add_linear(shapes, block + "mlp.down_proj", w, f, s.mlp_bias());
    }
  }
  return random_tensors(shapes);
}

inline Tensors tensors_of(const ModelCase& which) {
  return which.settings.positions == model::Positions::learned ? gpt2_tensors(which)
                                                               : llama_tensors(which);
}

/// Returns one case of each kind of tensors.
inline std::vector<ModelCase> all_cases() {
  return {gpt2_case(),          gpt2_short_case(),           gpt_bigcode_case(), llama_case(),
          llama_bias_case(),    llama_attention_bias_case(), mixtral_case(),     qwen3_case(),
          qwen3_moe_case(true), qwen3_moe_case(false),       starcoder2_case()};
}

inline HuggingFaceOutput output_of(const ModelCase& which, DType dtype) {
  return {&family_of(which.settings), which.leaf.tokens, dtype, {{"a", "b"}}};
}

inline void write_tensors(const std::string& path, const Tensors& tensors,
                          DType dtype = DType::fp32) {
  std::vector<SafetensorsWriter::Tensor> list;
  for (const auto& [name, tensor] : tensors) list.push_back({name, tensor.shape});
  SafetensorsWriter writer(path, dtype, list, {});
  for (const auto& [name, tensor] : tensors) {
    const Floats values(tensor.values.begin(), tensor.values.end());
    writer.write(name, values.data(), static_cast<std::int64_t>(values.size()));
  }
  writer.finish();
}

/// Returns the tensors with a prefix of their names removed.
inline Tensors without(const std::string& prefix, const Tensors& tensors) {
  Tensors shorter;
  for (const auto& [name, tensor] : tensors)
    shorter[name.rfind(prefix, 0) == 0 ? name.substr(prefix.size()) : name] = tensor;
  return shorter;
}

inline Floats read_whole(ParameterSource& source, const model::Parameter& p) {
  Floats values(static_cast<std::size_t>(p.elements()));
  source.read(p.owner, p.name, p.shape, 0, p.elements(), values.data());
  return values;
}

/// Returns losses of our model with the parameters of `source`, in double.
inline std::vector<double> our_losses(ModelRun<double>& run, ParameterSource& source) {
  for (int u = 0; u < run.units(); ++u)
    for (const model::Parameter& p : run.decoder.unit(u).parameters()) {
      const Floats values = read_whole(source, p);
      std::vector<double> flat = run.segment(u, p).values();
      std::copy(values.begin(), values.end(), flat.begin() + p.offset);
      run.segment(u, p).assign(flat);
    }
  run.forward();
  return run.losses();
}

/// Compares our model, with the parameters in `path`, with Hugging Face's model in plain loops.
inline void expect_same_losses(const ModelCase& which, const std::string& path,
                               const Tensors& tensors) {
  const DecoderSettings& s = which.settings;
  ModelRun<double> run(which);
  HuggingFaceSource source(path, s);
  const std::vector<double> found = our_losses(run, source);
  const test::huggingface::Model theirs(
      {static_cast<int>(s.layers), static_cast<int>(s.width), static_cast<int>(s.heads),
       static_cast<int>(s.kv_heads), s.norm_epsilon, s.rotary.base,
       static_cast<int>(s.experts.per_token), static_cast<int>(s.head_width()),
       s.experts.normalize},
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

/// Writes random values for all parameters to a weights file.
inline void write_weights(const std::string& path, const ModelCase& which) {
  std::mt19937 generator(3);
  WeightsWriter writer(path, "a deck", 5, "byte");
  for (const model::Parameter& p : parameters_of(which.settings, which.leaf.tokens)) {
    Floats values(static_cast<std::size_t>(p.elements()));
    for (float& value : values) value = static_cast<float>(generator()) * 1e-9f - 2.0f;
    writer.write(p.owner, p.name, p.shape, values.data());
  }
  writer.finish();
}

}  // namespace ostrakon::checkpoint
