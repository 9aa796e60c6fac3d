// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <ostrakon/checkpoint/huggingface/quantization_config.hpp>

#include "../support/scratch_folder.hpp"

namespace ostrakon::checkpoint {
namespace {

using Json = nlohmann::json;

/// DeepSeek-V3.1 has this one.
const char* const fp8 = R"({"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
  "scale_fmt": "ue8m0", "weight_block_size": [128, 128]})";
/// gpt-oss has this one.
const char* const mxfp4 = R"({"modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"],
  "quant_method": "mxfp4"})";
/// llm-compressor writes this one.
const char* const compressed = R"({"config_groups": {"group_0": {
  "input_activations": {"dynamic": true, "num_bits": 8, "strategy": "token", "type": "float"},
  "output_activations": null, "targets": ["Linear"],
  "weights": {"actorder": null, "block_structure": null, "dynamic": false, "group_size": null,
    "num_bits": 8, "observer": "minmax", "observer_kwargs": {}, "strategy": "channel",
    "symmetric": true, "type": "float"}}},
  "format": "float-quantized", "global_compression_ratio": 1.4, "ignore": ["lm_head"],
  "kv_cache_scheme": null, "quant_method": "compressed-tensors",
  "quantization_status": "compressed", "sparsity_config": {}, "transform_config": {},
  "version": "0.10"})";

Json with(const char* config, const std::string& pointer, const Json& value) {
  Json changed = Json::parse(config);
  changed[Json::json_pointer(pointer)] = value;
  return changed;
}

TEST(QuantizationConfig, SaysWhichBlocksShareAScale) {
  EXPECT_EQ(read_quantization(Json::parse(fp8)).blocks->rows, 128);
  EXPECT_EQ(read_quantization(with(fp8, "/weight_block_size", {1, 32})).blocks->columns, 32);
  EXPECT_FALSE(read_quantization(with(fp8, "/weight_block_size", nullptr)).blocks);
  EXPECT_EQ(read_quantization({{"quant_method", "fp8"}}).blocks->columns, 128);
  EXPECT_EQ(quantization_problem(Json::parse(mxfp4)), "");
  EXPECT_FALSE(read_quantization(Json::parse(compressed)).blocks);
  Json blocks = with(compressed, "/config_groups/group_0/weights/strategy", "block");
  EXPECT_HAS(quantization_problem(blocks),
             "config_groups.group_0.weights.block_structure is null; expected rows and columns");
  blocks["config_groups"]["group_0"]["weights"]["block_structure"] = {64, 32};
  EXPECT_EQ(read_quantization(blocks).blocks->rows, 64);
  blocks["config_groups"]["group_1"] = blocks["config_groups"]["group_0"];
  EXPECT_EQ(read_quantization(blocks).blocks->rows, 64);
  blocks["config_groups"]["group_1"]["weights"]["block_structure"] = {64, 64};
  EXPECT_HAS(quantization_problem(blocks), "expected one block_structure in all groups");
}

TEST(QuantizationConfig, RefusesOthersByName) {
  for (const char* const method : {"gptq", "awq", "bitsandbytes", "fbgemm_fp8", "modelopt"}) {
    const std::string problem = quantization_problem({{"quant_method", method}, {"bits", 4}});
    EXPECT_HAS(problem, text("quant_method is \"", method, "\"; expected weights of fp8, mxfp4"));
    EXPECT_HAS(problem, "model.dequantize(), model.save_pretrained(");
  }
  const std::string weights = "/config_groups/group_0/weights/";
  const std::vector<std::pair<Json, std::string>> rows = {
      {Json{{"bits", 4}}, "quant_method is missing"},
      {Json(4), "it is 4; expected an object"},
      {with(fp8, "/weight_block_size", {128}), "weight_block_size is [128]; expected rows and"},
      {with(fp8, "/weight_block_size", {0, 1}), "weight_block_size is [0,1]; expected rows and"},
      {with(fp8, "/expert_dtype", "fp4"), "expert_dtype is \"fp4\"; expected \"fp8\" or none"},
      {with(fp8, "/fmt", "e3m4"), "fmt is \"e3m4\"; expected \"e4m3\" or none"},
      {with(fp8, "/rotation", true), "rotation is true, a key that this program does not know"},
      {with(mxfp4, "/weight_block_size", {1, 32}), "weight_block_size is [1,32], a key that"},
      {with(compressed, "/format", "pack-quantized"),
       "format is \"pack-quantized\"; expected \"float-quantized\""},
      {with(compressed, "/config_groups", Json::object()), "config_groups is {}; expected"},
      {with(compressed, "/kv_cache_scheme", {{"num_bits", 8}}), "kv_cache_scheme is {"},
      {with(compressed, "/transform_config", {{"a", 1}}), "transform_config is {"},
      {with(compressed, "/sparsity_config", {{"format", "sparse-24-bitmask"}}), "sparsity_config"},
      {with(compressed, weights + "num_bits", 4),
       "config_groups.group_0.weights.num_bits is 4; expected 8"},
      {with(compressed, weights + "type", "int"), "weights.type is \"int\"; expected \"float\""},
      {with(compressed, weights + "symmetric", false), "weights.symmetric is false; expected true"},
      {with(compressed, weights + "strategy", "group"), "weights.strategy is \"group\"; expected"},
      {with(compressed, weights + "group_size", 32), "weights.group_size is 32; expected none"},
      {with(compressed, weights + "more", 1), "weights.more is 1, a key that"},
  };
  for (const auto& [config, message] : rows) EXPECT_HAS(quantization_problem(config), message);
}

}  // namespace
}  // namespace ostrakon::checkpoint
