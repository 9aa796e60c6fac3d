// SPDX-License-Identifier: Apache-2.0

// Folders of models with quantized weights, read as parameters.

#include <gtest/gtest.h>

#include <filesystem>
#include <ostrakon/checkpoint/huggingface/huggingface_source.hpp>
#include <set>

#include "checkpoint/huggingface_files.hpp"
#include "checkpoint/stored_tensors.hpp"

namespace ostrakon::checkpoint {
namespace {

using test::stored::random_bytes;
using test::stored::Stored;

constexpr std::int64_t block_rows = 3, block_columns = 5;

Stored stored_floats(const std::string& name, const Shape& shape, const Floats& values) {
  return {name, "F32", shape,
          std::string(reinterpret_cast<const char*>(values.data()), 4 * values.size())};
}

/// A model in two forms: as it is published, and as plain numbers, dequantized by plain loops.
struct TwoForms {
  std::vector<Stored> quantized, plain;

  void add_floats(const std::string& name, const Shape& shape) {
    Floats values;
    for (const char byte : random_bytes(test::stored::elements_in(shape)))
      values.push_back(static_cast<float>(byte) / 7.0f);
    quantized.push_back(stored_floats(name, shape, values));
    plain.push_back(quantized.back());
  }

  void add_fp8(const std::string& name, const Shape& shape) {
    std::string codes = random_bytes(shape[0] * shape[1]);
    for (char& code : codes)
      if ((code & 127) == 127) code = 1;  // instead of NaN
    const std::int64_t wide = (shape[1] + block_columns - 1) / block_columns;
    const std::int64_t high = (shape[0] + block_rows - 1) / block_rows;
    Floats scales, values;
    for (std::int64_t i = 0; i < high * wide; ++i)
      scales.push_back(static_cast<float>(i + 1) / 3.0f);
    for (std::int64_t i = 0; i < shape[0] * shape[1]; ++i) {
      const std::int64_t block = i / shape[1] / block_rows * wide + i % shape[1] / block_columns;
      const double number = test::stored::e4m3(codes[static_cast<std::size_t>(i)] & 255);
      values.push_back(static_cast<float>(
          number * static_cast<double>(scales[static_cast<std::size_t>(block)])));
    }
    quantized.push_back({name, "F8_E4M3", shape, codes});
    quantized.push_back(stored_floats(name + "_scale_inv", {high, wide}, scales));
    plain.push_back(stored_floats(name, shape, values));
  }

  /// `shape`: experts, columns, rows.
  void add_mxfp4(const std::string& name, const Shape& shape) {
    const std::int64_t experts = shape[0], columns = shape[1], rows = shape[2];
    ASSERT_EQ(columns % 32, 0) << name;
    Stored blocks = {name + "_blocks",
                     "U8",
                     {experts, rows, columns / 32, 16},
                     random_bytes(experts * rows * columns / 2)};
    Stored scales = {name + "_scales",
                     "U8",
                     {experts, rows, columns / 32},
                     random_bytes(experts * rows * columns / 32)};
    for (char& scale : scales.bytes) scale = static_cast<char>(120 + (scale & 7));
    Floats values;
    for (std::int64_t e = 0; e < experts; ++e)
      for (std::int64_t c = 0; c < columns; ++c)
        for (std::int64_t r = 0; r < rows; ++r) {
          const std::int64_t row = e * rows + r;
          const int byte = test::stored::byte_at(blocks, (row * columns + c) / 2);
          const int scale = test::stored::byte_at(scales, (row * columns + c) / 32);
          values.push_back(
              std::ldexp(test::stored::e2m1[c % 2 == 0 ? byte % 16 : byte / 16], scale - 127));
        }
    quantized.push_back(std::move(blocks));
    quantized.push_back(std::move(scales));
    plain.push_back(stored_floats(name, shape, values));
  }
};

/// Writes a folder with config.json for these settings, and `more` keys.
std::string write_folder(const ScratchFolder& scratch, const char* name,
                         const DecoderSettings& settings, const std::vector<Stored>& tensors,
                         const std::string& more) {
  const std::string folder = scratch.file(name);
  std::filesystem::create_directories(folder);
  HuggingFaceModel model;
  model.settings = settings;
  model.tokens = 8;
  nlohmann::json config = nlohmann::json::parse(write_huggingface_config(model));
  config.update(nlohmann::json::parse(more));
  testing::write_bytes(folder + "/config.json", config.dump());
  test::stored::write_stored(folder + "/model.safetensors", tensors);
  return folder;
}

struct QuantizedCase {
  DecoderSettings settings;
  std::string type, quantization;
  void (*add)(TwoForms& files, const HuggingFaceTensor& tensor);
};

DecoderSettings small_deepseek() {
  DecoderSettings s = family_named("deepseek_v3")->structure;
  s.layers = 2;
  s.width = 12;
  s.heads = s.kv_heads = 2;
  s.head_dim = 10;
  s.latent = {8, 7, 4, 5, 1e-6};
  s.experts.count = 4;
  s.experts.width = 6;
  s.experts.shared = 1;
  s.expert_layers = *model::LayerPattern::parse("1");
  s.ffn_width = 9;
  s.vocabulary = 11;
  s.tie_embeddings = false;
  return s;
}

DecoderSettings small_gpt_oss() {
  DecoderSettings s = family_named("gpt_oss")->structure;
  s.layers = 2;
  s.width = 32;
  s.heads = 4;
  s.kv_heads = 2;
  s.head_dim = 6;
  s.experts.count = 3;
  s.experts.width = 32;
  s.vocabulary = 11;
  s.tie_embeddings = false;
  return s;
}

/// All matrices of blocks but the router's.
void add_of_deepseek(TwoForms& files, const HuggingFaceTensor& tensor) {
  const bool is_float = tensor.shape.size() < 2 || contains(tensor.name, "mlp.gate.") ||
                        !contains(tensor.name, "layers.");
  is_float ? files.add_floats(tensor.name, tensor.shape) : files.add_fp8(tensor.name, tensor.shape);
}

void add_of_gpt_oss(TwoForms& files, const HuggingFaceTensor& tensor) {
  const bool is_packed = tensor.shape.size() == 3;
  is_packed ? files.add_mxfp4(tensor.name, tensor.shape)
            : files.add_floats(tensor.name, tensor.shape);
}

TEST(QuantizedFolder, HasTheParametersOfItsDequantizedNumbers) {
  const std::vector<QuantizedCase> cases = {
      {small_deepseek(), "deepseek_v3",
       R"({"quantization_config": {"activation_scheme": "dynamic", "fmt": "e4m3",
           "quant_method": "fp8", "weight_block_size": [3, 5]}})",
       add_of_deepseek},
      {small_gpt_oss(), "gpt_oss",
       R"({"quantization_config": {"modules_to_not_convert": ["lm_head"],
           "quant_method": "mxfp4"}})",
       add_of_gpt_oss}};
  for (const QuantizedCase& which : cases) {
    const ScratchFolder scratch;
    const Family& family = *family_named(which.type);
    TwoForms files;
    std::set<std::string> known;
    for (const model::Parameter& p : parameters_of(which.settings, 1))
      for (const HuggingFaceTensor& tensor :
           huggingface_tensors(family.names_for(which.settings), which.settings,
                               family.names.prefix, p.owner, p.name, p.shape))
        if (known.insert(tensor.name).second) which.add(files, tensor);
    ASSERT_GT(files.quantized.size(), files.plain.size()) << which.type;
    const std::string published =
        write_folder(scratch, "published", which.settings, files.quantized, which.quantization);
    const std::string plain = write_folder(scratch, "plain", which.settings, files.plain, "{}");
    const auto config = [](const std::string& folder) {
      return load_huggingface_config(folder + "/config.json");
    };
    require_same_model(config(published), which.settings, 8);
    EXPECT_EQ(config(published).family, &family);
    EXPECT_FALSE(contains(config(published).text, "quantization_config"));
    HuggingFaceSource a(published, which.settings, config(published));
    HuggingFaceSource b(plain, which.settings, config(plain));
    for (const model::Parameter& p : parameters_of(which.settings, 1)) {
      const Floats expected = read_whole(b, p);
      EXPECT_EQ(read_whole(a, p), expected) << which.type << " " << p.full_name();
      Floats part(static_cast<std::size_t>(p.elements() / 2));
      const std::int64_t first = p.elements() / 3;
      a.read(p.owner, p.name, p.shape, first, static_cast<std::int64_t>(part.size()), part.data());
      EXPECT_TRUE(std::equal(part.begin(), part.end(), expected.begin() + first)) << p.full_name();
    }
  }
}

}  // namespace
}  // namespace ostrakon::checkpoint
