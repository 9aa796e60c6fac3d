// SPDX-License-Identifier: Apache-2.0

// Where the elements of our parameters are in Hugging Face's tensors.

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <ostrakon/checkpoint/families/family.hpp>
#include <ostrakon/checkpoint/huggingface/huggingface_tensors.hpp>

#include "checkpoint/huggingface_files.hpp"

namespace ostrakon::checkpoint {
namespace {

/// Parameters in memory whose elements are all different.
class Numbered : public ParameterSource {
 public:
  explicit Numbered(const DecoderSettings& settings) {
    float next = 0.0f;
    for (const model::Parameter& p : parameters_of(settings, 4))
      for (std::int64_t i = 0; i < p.elements(); ++i)
        values_[p.full_name()].push_back(next += 1.0f);
  }
  void read(const std::string& owner, const std::string& parameter, const Shape&,
            std::int64_t first, std::int64_t count, float* values) override {
    std::copy_n(values_.at(owner + "." + parameter).begin() + first, count, values);
  }
  void verify() override {}

 private:
  std::map<std::string, Floats> values_;
};

DecoderSettings small(std::int64_t kv_heads, double share) {
  DecoderSettings s = llama_case().settings;
  s.layers = 2;
  s.width = 24;
  s.heads = 6;
  s.kv_heads = kv_heads;
  s.head_dim = 8;
  s.rotary.share = share;
  s.own_qkv_bias = true;
  s.query_key_norm = model::QueryKeyNorm::head;
  s.tie_embeddings = true;
  return s;
}

Family family_with(const TensorNames& names, const DecoderSettings& settings) {
  Family family;
  family.model_type = family.title = family.class_prefix = "test";
  family.structure = settings;
  family.names = names;
  return family;
}

TensorNames llama_names() { return family_named("qwen3")->names; }

/// Writes all parameters as tensors of these names, and reads them back, also in slices. Returns
/// the file.
std::string expect_round_trip(const ScratchFolder& folder, const TensorNames& names,
                              const DecoderSettings& settings) {
  const std::string path = folder.file("m.safetensors");
  const Family family = family_with(names, settings);
  Numbered numbered(settings);
  HuggingFaceOutput output;
  output.family = &family;
  output.positions = 4;
  write_huggingface(path, settings, output, numbered);
  HuggingFaceConfig config;
  config.family = &family;
  HuggingFaceSource back(path, settings, config);
  for (const model::Parameter& p : parameters_of(settings, 4)) {
    const Floats expected = read_whole(numbered, p);
    EXPECT_EQ(read_whole(back, p), expected) << p.full_name();
    Floats part(static_cast<std::size_t>(p.elements() / 2 + 1), 0.0f);
    const std::int64_t first = p.elements() / 3, count = p.elements() / 2;
    back.read(p.owner, p.name, p.shape, first, count, part.data());
    EXPECT_TRUE(std::equal(part.begin(), part.end() - 1, expected.begin() + first))
        << p.full_name();
  }
  return path;
}

/// Checks rows of a tensor: row `theirs(r)` is row r of our parameter.
void expect_rows(const std::string& path, const std::string& tensor, const Floats& ours,
                 std::int64_t rows, const std::function<std::int64_t(std::int64_t)>& theirs) {
  SafetensorsReader file(path);
  const std::int64_t elements = file.tensor(tensor).elements(), columns = elements / rows;
  Floats found(static_cast<std::size_t>(elements));
  file.read(tensor, 0, elements, found.data());
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t c = 0; c < columns; ++c)
      ASSERT_EQ(found[theirs(row) * columns + c], ours[row * columns + c])
          << tensor << " row " << row;
}

Floats ours(const DecoderSettings& settings, const std::string& parameter) {
  Numbered numbered(settings);
  for (const model::Parameter& p : parameters_of(settings, 4))
    if (p.full_name() == parameter) return read_whole(numbered, p);
  throw std::runtime_error(parameter);
}

Floats rows_from(const Floats& all, std::int64_t first, std::int64_t count) {
  return {all.begin() + first, all.begin() + first + count};
}

/// Of norms that each head has files have a tensor for each, or one matrix.
TEST(HuggingFaceTensors, NormsOfEachHead) {
  const ScratchFolder folder;
  DecoderSettings s = small(2, 0.5);
  s.query_key_norm = model::QueryKeyNorm::each_head;
  const std::string block = "model.layers.1.self_attn.";
  const Floats keys = ours(s, "block.1.attention.key_norm.weight");
  std::string path = expect_round_trip(folder, family_named("stablelm")->names_for(s), s);
  for (std::int64_t head = 0; head < 2; ++head)
    expect_rows(path, text(block, "k_layernorm.norms.", head, ".weight"),
                rows_from(keys, head * 8, 8), 8, [](std::int64_t row) { return row; });
  EXPECT_FALSE(SafetensorsReader(path).has(block + "k_layernorm.norms.2.weight"));

  TensorNames cohere = family_named("cohere")->names_for(s);
  cohere.layers["mlp.norm"] = {{"post_attention_layernorm"}};
  path = expect_round_trip(folder, cohere, s);
  const std::vector<std::int64_t> pairs = {0, 2, 1, 3, 4, 5, 6, 7};  // of the rotated elements
  expect_rows(path, block + "k_norm.weight", keys, 16, [&](std::int64_t row) {
    return row - row % 8 + pairs[static_cast<std::size_t>(row % 8)];
  });
  EXPECT_EQ(SafetensorsReader(path).tensor(block + "q_norm.weight").shape, (Shape{6, 8}));
}

TEST(HuggingFaceTensors, PairsOfNeighbours) {
  const ScratchFolder folder;
  TensorNames names = llama_names();
  names.pairs = RotaryPairs::neighbours;
  for (const double share : {1.0, 0.5}) {
    const DecoderSettings s = small(2, share);
    const std::string path = expect_round_trip(folder, names, s);
    const std::int64_t half = share == 1.0 ? 4 : 2;
    // Elements 0, 1, 2, ... of a head there are 0, half, 1, half + 1, ... here.
    const auto theirs = [&](std::int64_t row) {
      const std::int64_t i = row % 8;
      return i >= 2 * half ? row : row - i + (i < half ? 2 * i : 2 * (i - half) + 1);
    };
    const std::string block = "model.layers.1.self_attn.";
    const Floats qkv = ours(s, "block.1.attention.qkv.weight");
    expect_rows(path, block + "q_proj.weight", rows_from(qkv, 0, 48 * 24), 48, theirs);
    expect_rows(path, block + "k_proj.weight", rows_from(qkv, 48 * 24, 16 * 24), 16, theirs);
    expect_rows(path, block + "v_proj.weight", rows_from(qkv, 64 * 24, 16 * 24), 16,
                [](std::int64_t row) { return row; });
    const Floats bias = ours(s, "block.1.attention.qkv.bias");
    expect_rows(path, block + "k_proj.bias", rows_from(bias, 48, 16), 16, theirs);
    expect_rows(path, block + "q_norm.weight", ours(s, "block.1.attention.query_norm.weight"), 8,
                theirs);
  }
}

TEST(HuggingFaceTensors, HalvesSwapped) {
  const ScratchFolder folder;
  TensorNames names = llama_names();
  names.pairs = RotaryPairs::swapped;
  const DecoderSettings s = small(6, 1.0);
  const std::string path = expect_round_trip(folder, names, s);
  const Floats qkv = ours(s, "block.0.attention.qkv.weight");
  expect_rows(path, "model.layers.0.self_attn.q_proj.weight", rows_from(qkv, 0, 48 * 24), 48,
              [](std::int64_t row) { return row / 8 * 8 + (row % 8 + 4) % 8; });
}

/// Queries, keys and values side by side in each head, or in each group of heads.
TEST(HuggingFaceTensors, HeadsAndGroups) {
  const ScratchFolder folder;
  TensorNames names = llama_names();
  names.layers["attention.qkv"] = {{"self_attn.qkv", Rows::all, RowOrder::grouped}};
  for (const std::int64_t kv_heads : {1, 2, 6}) {
    const DecoderSettings s = small(kv_heads, 1.0);
    const std::string path = expect_round_trip(folder, names, s);
    std::vector<std::int64_t> heads_there;  // numbers of our heads: queries, keys, values
    const std::int64_t queries = 6 / kv_heads;
    for (std::int64_t group = 0; group < kv_heads; ++group) {
      for (std::int64_t q = 0; q < queries; ++q) heads_there.push_back(group * queries + q);
      heads_there.push_back(6 + group);
      heads_there.push_back(6 + kv_heads + group);
    }
    const auto theirs = [&](std::int64_t row) {
      const auto at = std::find(heads_there.begin(), heads_there.end(), row / 8);
      return (at - heads_there.begin()) * 8 + row % 8;
    };
    const std::int64_t rows = (6 + 2 * kv_heads) * 8;
    const std::string name = "model.layers.1.self_attn.qkv.";
    expect_rows(path, name + "weight", ours(s, "block.1.attention.qkv.weight"), rows, theirs);
    expect_rows(path, name + "bias", ours(s, "block.1.attention.qkv.bias"), rows, theirs);
  }
}

/// Tensors of all experts: gate and up in turns and matrices (in, out), or as ours.
TEST(HuggingFaceTensors, ExpertsInOneTensor) {
  const ScratchFolder folder;
  DecoderSettings s = small(2, 1.0);
  s.experts.count = 3;
  s.experts.per_token = 2;
  s.experts.width = 5;
  s.own_mlp_bias = true;
  for (const bool turns : {false, true}) {
    TensorNames names = family_named("qwen3_moe")->names;
    TensorPart up = {"mlp.experts.gate_up_proj"}, down = {"mlp.experts.down_proj"};
    for (TensorPart* part : {&up, &down}) {
      part->weight = "";
      part->bias = "_bias";
      part->is_stacked = true;
      part->is_transposed = turns;
    }
    if (turns) up.order = RowOrder::interleaved;
    names.layers["mlp.experts.*.gate_up"] = {up};
    names.layers["mlp.experts.*.down"] = {down};
    const std::string path = expect_round_trip(folder, names, s);
    SafetensorsReader file(path);
    const std::string name = "model.layers.1.mlp.experts.gate_up_proj";
    EXPECT_EQ(file.tensor(name).shape, turns ? (Shape{3, 24, 10}) : (Shape{3, 10, 24}));
    EXPECT_EQ(file.tensor(name + "_bias").shape, (Shape{3, 10}));
    Floats all(3 * 240), biases(30);
    file.read(name, 0, 720, all.data());
    file.read(name + "_bias", 0, 30, biases.data());
    for (std::int64_t e = 0; e < 3; ++e) {
      const std::string expert = "block.1.mlp.experts." + std::to_string(e) + ".gate_up.";
      const Floats mine = ours(s, expert + "weight"), bias = ours(s, expert + "bias");
      for (std::int64_t row = 0; row < 10; ++row) {
        const std::int64_t there = !turns ? row : row < 5 ? 2 * row : 2 * (row - 5) + 1;
        EXPECT_EQ(biases[e * 10 + there], bias[row]);
        for (std::int64_t c = 0; c < 24; ++c)
          EXPECT_EQ(all[e * 240 + (turns ? c * 10 + there : there * 24 + c)], mine[row * 24 + c]);
      }
    }
  }
}

/// Latent attention: heads have their rotated elements behind the others, as pairs of neighbours,
/// and keys and values of a head are side by side.
TEST(HuggingFaceTensors, Latents) {
  const ScratchFolder folder;
  for (const std::int64_t query_rank : {0, 10}) {
    DecoderSettings s = family_named("deepseek_v3")->structure;
    s.layers = 2;
    s.width = 24;
    s.heads = s.kv_heads = 3;
    s.head_dim = 10;
    s.latent = {query_rank, 7, 4, 5, 1e-6};
    s.experts.count = 4;
    s.experts.width = 5;
    s.experts.shared = 2;
    s.expert_layers = *model::LayerPattern::parse("1");
    s.ffn_width = 9;
    const TensorNames names = family_named("deepseek_v3")->names_for(s);
    const std::string path = expect_round_trip(folder, names, s);
    // Elements 0 to 5 of a head there, then the rotated ones in the order 0, 2, 1, 3 of ours.
    const std::vector<std::int64_t> of_head = {6, 8, 7, 9, 0, 1, 2, 3, 4, 5};
    const std::string ours_in = "block.1.attention.", in = "model.layers.1.self_attn.";
    expect_rows(path, in + (query_rank > 0 ? "q_b_proj.weight" : "q_proj.weight"),
                ours(s, ours_in + "q.weight"), 30, [&](std::int64_t row) {
                  return row / 10 * 10 + of_head[static_cast<std::size_t>(row % 10)];
                });
    expect_rows(path, in + "kv_a_proj_with_mqa.weight", ours(s, ours_in + "kv_down.weight"), 11,
                [](std::int64_t row) { return row == 8   ? 9
                                              : row == 9 ? 8
                                                         : row; });
    // A head there has 6 elements of its key, then 5 of its value.
    expect_rows(path, in + "kv_b_proj.weight", ours(s, ours_in + "kv_up.weight"), 33,
                [](std::int64_t row) {
                  return row < 18 ? row / 6 * 11 + row % 6 : (row - 18) / 5 * 11 + 6 + row % 18 % 5;
                });
    SafetensorsReader file(path);
    EXPECT_EQ(file.has(in + "q_a_layernorm.weight"), query_rank > 0);
    EXPECT_EQ(file.tensor("model.layers.1.mlp.shared_experts.up_proj.weight").shape,
              (Shape{10, 24}));
    EXPECT_EQ(file.tensor("model.layers.1.mlp.gate.e_score_correction_bias").shape, (Shape{4}));
    EXPECT_EQ(file.tensor("model.layers.0.mlp.gate_proj.weight").shape, (Shape{9, 24}));
  }
}

/// What gpt-oss and Qwen2-MoE have besides.
TEST(HuggingFaceTensors, SinksBiasOfTheRouterAndGateOfASharedExpert) {
  const ScratchFolder folder;
  for (const char* type : {"gpt_oss", "qwen2_moe"}) {
    DecoderSettings s = small(2, 1.0);
    s.query_key_norm = model::QueryKeyNorm::none;
    s.experts = family_named(type)->structure.experts;
    s.experts.count = 3;
    s.experts.width = 5;
    s.attention_sinks = s.experts.router_bias;
    s.own_mlp_bias = s.experts.router_bias;
    s.experts.shared = s.experts.shared_gate ? 1 : 0;
    s.experts.own_shared_width = 7;
    const std::string path = expect_round_trip(folder, family_named(type)->names_for(s), s);
    SafetensorsReader file(path);
    const std::string in = "model.layers.1.";
    const std::map<std::string, Shape> shapes =
        s.attention_sinks
            ? std::map<std::string, Shape>{{"self_attn.sinks", {6}},
                                           {"mlp.router.weight", {3, 24}},
                                           {"mlp.router.bias", {3}},
                                           {"mlp.experts.gate_up_proj", {3, 24, 10}},
                                           {"mlp.experts.down_proj", {3, 5, 24}},
                                           {"mlp.experts.down_proj_bias", {3, 24}}}
            : std::map<std::string, Shape>{{"mlp.shared_expert_gate.weight", {1, 24}},
                                           {"mlp.shared_expert.gate_proj.weight", {7, 24}},
                                           {"mlp.shared_expert.down_proj.weight", {24, 7}},
                                           {"mlp.experts.2.up_proj.weight", {5, 24}}};
    for (const auto& [name, shape] : shapes) EXPECT_EQ(file.tensor(in + name).shape, shape) << name;
  }
}

/// Blocks after the last one are passed over in files of families that may have them.
TEST(HuggingFaceTensors, BlocksForFurtherTokensAreNotRead) {
  const ScratchFolder folder;
  TensorNames names = llama_names();
  const DecoderSettings s = small(2, 1.0);
  const std::string path = expect_round_trip(folder, names, s);
  DecoderSettings shorter = s;
  shorter.layers = 1;
  for (const bool may_have_more : {false, true}) {
    names.module_norm = may_have_more ? "shared_head.norm" : "";
    const Family family = family_with(names, shorter);
    HuggingFaceConfig config;
    config.family = &family;
    const std::string error =
        error_of([&] { const HuggingFaceSource source(path, shorter, config); });
    EXPECT_EQ(error == "no error", may_have_more) << error;
  }
}

/// Files of a model of text and images have another prefix, and tensors for images.
TEST(HuggingFaceTensors, TheModelOfTextIsReadFromFilesOfTextAndImages) {
  const ScratchFolder folder;
  const DecoderSettings s = small(2, 1.0);
  TensorNames names = llama_names();
  names.prefix = "model.language_model.";
  const std::string path = expect_round_trip(folder, names, s);
  SafetensorsReader file(path);
  Tensors tensors;
  for (const auto& [name, tensor] : file.tensors()) {
    Floats values(static_cast<std::size_t>(tensor.elements()));
    file.read(name, 0, tensor.elements(), values.data());
    tensors[name] = {tensor.shape, {values.begin(), values.end()}};
  }
  tensors["model.visual.blocks.0.norm1.weight"] = tensors["mtp.norm.weight"] = {{1}, {1.0}};
  const std::string whole = folder.file("whole.safetensors");
  write_tensors(whole, tensors);
  names.prefix = llama_names().prefix;
  const TensorNames of_both = family_named("qwen3_5_text")->names;
  names.further_tokens = of_both.further_tokens;
  names.text_prefix = of_both.text_prefix;
  names.image_prefix = of_both.image_prefix;
  const Family family = family_with(names, s);
  HuggingFaceConfig config;
  config.family = &family;
  HuggingFaceSource source(whole, s, config);
  Numbered numbered(s);
  for (const model::Parameter& p : parameters_of(s, 4))
    EXPECT_EQ(read_whole(source, p), read_whole(numbered, p)) << p.full_name();
  tensors["model.audio.norm.weight"] = {{1}, {1.0}};
  write_tensors(whole, tensors);
  EXPECT_HAS(error_of([&] { const HuggingFaceSource other(whole, s, config); }),
             "tensor model.audio.norm.weight (1) is no part of the model");
}

/// A module's block is the one behind the last, with copies of what it shares with the model.
TEST(HuggingFaceTensors, AModuleOfMultiTokenPrediction) {
  const ScratchFolder folder;
  for (const char* type : {"deepseek_v3", "glm4_moe"}) {
    DecoderSettings s = family_named(type)->structure;
    s.layers = 2;
    s.width = 24;
    s.heads = s.kv_heads = 3;
    s.head_dim = 10;
    if (std::string(type) == "deepseek_v3") s.latent = {0, 7, 4, 5, 1e-6};
    s.vocabulary = 31;
    s.experts.count = 4;
    s.experts.width = 5;
    s.experts.shared = 2;
    s.expert_layers = *model::LayerPattern::parse("1");
    s.ffn_width = 9;
    s.tie_embeddings = false;
    s.multi_token_depth = 1;
    const TensorNames names = family_named(type)->names_for(s);
    const std::string path = expect_round_trip(folder, names, s), in = "model.layers.2.";
    const auto same = [](std::int64_t row) { return row; };
    for (const auto& [theirs, of_ours, rows] :
         {std::tuple{"enorm.weight", "block.2.embedding_norm.weight", 24},
          std::tuple{"hnorm.weight", "block.2.hidden_norm.weight", 24},
          std::tuple{"eh_proj.weight", "block.2.projection.weight", 24},
          std::tuple{"input_layernorm.weight", "block.2.attention.norm.weight", 24},
          std::tuple{"mlp.experts.3.down_proj.weight", "block.2.mlp.experts.3.down.weight", 24},
          std::tuple{"shared_head.norm.weight", "head.multi_token_norm.weight", 24},
          std::tuple{"shared_head.head.weight", "head.output.weight", 31},
          std::tuple{"embed_tokens.weight", "embedding.token.weight", 31}})
      expect_rows(path, in + theirs, ours(s, of_ours), rows, same);
    EXPECT_EQ(SafetensorsReader(path).tensor(in + "eh_proj.weight").shape, (Shape{24, 48}));

    // Without a module it is passed over; with one there is nothing behind it but copies.
    const Family family = family_with(names, s);
    HuggingFaceConfig config;
    config.family = &family;
    DecoderSettings without = s;
    without.multi_token_depth = 0;
    EXPECT_EQ(error_of([&] { const HuggingFaceSource source(path, without, config); }), "no error");
    const auto error_with = [&](const std::string& tensor, const std::string& becomes) {
      std::string bytes = testing::read_bytes(path);
      bytes.replace(bytes.find(tensor), tensor.size(), becomes);
      const std::string changed = folder.file("changed.safetensors");
      testing::write_bytes(changed, bytes);
      return error_of([&] { const HuggingFaceSource source(changed, s, config); });
    };
    EXPECT_HAS(error_with("2.enorm.", "3.enorm."), "model.layers.2.enorm.weight\"");
    EXPECT_HAS(error_with("2.shared_head.head.", "2.shared_head.Head."),
               "is no part of the model that the settings describe");
    // The last tensor is the copy of the head.
    std::string bytes = testing::read_bytes(path);
    bytes.back() = static_cast<char>(bytes.back() ^ 0x40);
    testing::write_bytes(path, bytes);
    EXPECT_HAS(error_of([&] { const HuggingFaceSource source(path, s, config); }),
               "row 30 of model.layers.2.shared_head.head.weight is not that of lm_head.weight, "
               "which a module of multi-token prediction takes; expected one matrix for both");
  }
}

}  // namespace
}  // namespace ostrakon::checkpoint
