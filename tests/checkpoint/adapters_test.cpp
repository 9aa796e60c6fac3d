// SPDX-License-Identifier: Apache-2.0
// Files of PEFT that are refused, and adapters merged into weights. What is computed with adapters:
// tests/transformers/adapters_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <ostrakon/checkpoint/adapters/adapted_source.hpp>
#include <ostrakon/checkpoint/adapters/peft_tensors.hpp>
#include <ostrakon/checkpoint/adapters/peft_writer.hpp>

#include "../support/scratch_folder.hpp"

namespace ostrakon::checkpoint {
namespace {

using nlohmann::json;
using ostrakon::testing::error_of;
using ostrakon::testing::ScratchFolder;
using ostrakon::testing::write_bytes;

model::DecoderSettings small_model() {
  model::DecoderSettings settings;
  settings.layers = 2;
  settings.width = 8;
  settings.heads = 2;
  settings.kv_heads = 1;
  settings.ffn_width = 12;
  settings.vocabulary = 11;
  settings.lora.rank = 3;
  settings.lora.alpha = 6.0;
  settings.lora.layers = {"attention.q", "attention.v", "mlp.up"};
  return settings;
}

/// Every element has a value of its own, by its parameter and index.
class Numbers : public ParameterSource {
 public:
  void read(const std::string& owner, const std::string& parameter,
            const std::vector<std::int64_t>&, std::int64_t first, std::int64_t count,
            float* values) override {
    for (std::int64_t i = 0; i < count; ++i) values[i] = of(owner, parameter, first + i);
  }
  void verify() override {}
  static float of(const std::string& owner, const std::string& parameter, std::int64_t i) {
    const auto start = static_cast<double>(std::hash<std::string>()(owner + parameter) % 1000);
    return static_cast<float>(std::sin(start + static_cast<double>(i)));
  }
};

TEST(Peft, RefusesWhatIsNotComputed) {
  const ScratchFolder scratch;
  const std::string folder = scratch.file("adapters"), path = folder + "/adapter_config.json";
  const json plain = {{"peft_type", "LORA"}, {"r", 8}, {"lora_alpha", 16}, {"bias", "none"}};
  std::filesystem::create_directories(folder);
  const auto refusal = [&](const json& changed) {
    json config = plain;
    config.update(changed);
    write_bytes(path, config.dump());
    return error_of([&] { read_peft_config(folder); });
  };
  write_bytes(path, plain.dump());
  EXPECT_EQ(read_peft_config(folder).rank, 8);
  EXPECT_EQ(read_peft_config(folder).alpha, 16.0);
  for (const auto& [changed, said] : std::map<std::string, std::string>{
           {R"({"peft_type": "IA3"})", R"(peft_type is "IA3"; expected "LORA")"},
           {R"({"use_dora": true})", "use_dora is true, which is not computed"},
           {R"({"bias": "all"})", R"(bias is "all", which is not computed)"},
           {R"({"rank_pattern": {"q_proj": 4}})", "rank_pattern is {"},
           {R"({"modules_to_save": ["lm_head"]})", "modules_to_save is ["},
           {R"({"layers_to_transform": [0]})", "layers_to_transform is [0]"},
           {R"({"fan_in_fan_out": true})", "fan_in_fan_out is true"},
           {R"({"init_lora_weights": "pissa"})",
            R"(init_lora_weights is "pissa", with which PEFT may change the weights of the base)"},
           {R"({"init_lora_weights": "pissa_niter_16"})", "init_lora_weights is "},
           {R"({"init_lora_weights": "olora"})", "init_lora_weights is "},
           {R"({"init_lora_weights": "corda"})", "init_lora_weights is "},
           {R"({"init_lora_weights": "loftq"})", "init_lora_weights is "},
           {R"({"init_lora_weights": 1})", "init_lora_weights is 1"},
           {R"({"use_rslora": "true"})", R"(use_rslora is "true"; expected true or false)"},
           {R"({"kasa_config": {"beta": 1}})", R"(kasa_config is {"beta":1}, which is not)"},
           {R"({"of_a_later_version": 5})", "of_a_later_version is 5, which is not computed"},
           {R"({"r": 0})", "r is 0; expected an integer from 1"},
           {R"({"r": "8"})", R"(r is "8"; expected a number)"},
           {R"({"lora_alpha": -1})", "lora_alpha is -1; expected a number above 0"}})
    EXPECT_NE(refusal(json::parse(changed)).find(path + "': " + said), std::string::npos)
        << refusal(json::parse(changed));
  for (const json& plainly :
       std::vector<json>{nullptr, true, false, "gaussian", "eva", "orthogonal"})
    EXPECT_EQ(refusal({{"init_lora_weights", plainly}}), "no error") << plainly;
  // PEFT 0.21 writes these keys of every LoraConfig.
  EXPECT_EQ(refusal(json::parse(R"({
    "task_type": "CAUSAL_LM", "peft_type": "LORA", "auto_mapping": {"parent_library": "m"},
    "peft_version": "0.21.2", "base_model_name_or_path": "base", "revision": "main",
    "inference_mode": true, "r": 8, "target_modules": ["q_proj"], "exclude_modules": null,
    "lora_alpha": 8, "lora_dropout": 0.0, "fan_in_fan_out": false, "bias": "none",
    "use_rslora": false, "modules_to_save": null, "init_lora_weights": true,
    "layers_to_transform": null, "layers_pattern": null, "rank_pattern": {}, "alpha_pattern": {},
    "megatron_config": null, "megatron_core": "megatron.core", "trainable_token_indices": null,
    "loftq_config": {}, "eva_config": null, "corda_config": null, "lora_ga_config": null,
    "use_dora": false, "velora_config": null, "alora_invocation_tokens": null,
    "use_qalora": false, "qalora_group_size": 16, "monteclora_config": null,
    "layer_replication": null, "lora_bias": false, "target_parameters": null, "use_bdlora": null,
    "arrow_config": null, "kasa_config": null, "ensure_weight_tying": false})")),
            "no error");
  // The scale of rank-stabilized adapters is alpha / sqrt(rank).
  refusal({{"use_rslora", true}, {"r", 4}});
  EXPECT_EQ(read_peft_config(folder).alpha / 4.0, 16.0 / 2.0);
  EXPECT_NE(
      refusal({{"target_modules", {"q_proj", 5}}}).find("target_modules has 5; expected names"),
      std::string::npos);
  EXPECT_EQ(refusal({{"target_modules", ".*_proj"}}), "no error");
  refusal({{"lora_dropout", 0.1}, {"modules_to_save", nullptr}, {"alpha_pattern", json::object()}});
  EXPECT_EQ(read_peft_config(folder).dropout, 0.1);
}

TEST(Peft, ComesBackAsItWasWritten) {
  const ScratchFolder scratch;
  const model::DecoderSettings settings = small_model();
  const Family& llama = *family_named("llama");
  std::filesystem::create_directories(scratch.file("out"));
  Numbers numbers;
  write_peft(scratch.file("out"), llama, settings, "base", numbers);
  const model::LoraSettings read = lora_of_peft(scratch.file("out"), llama, settings);
  EXPECT_EQ(read.rank, 3);
  EXPECT_EQ(read.alpha, 6.0);
  EXPECT_EQ(read.layers, settings.lora.layers);
  const std::vector<float> b =
      PeftReader(scratch.file("out"), llama, settings).read("block.1", "mlp.up.lora_b.weight");
  ASSERT_EQ(b.size(), 36u);
  for (std::size_t i = 0; i < b.size(); ++i)
    EXPECT_EQ(b[i], Numbers::of("block.1", "mlp.up.lora_b.weight", static_cast<std::int64_t>(i)));
  for (const auto& [key, change] : std::map<std::string, void (*)(model::LoraSettings&)>{
           {"lora.rank is 3 there, but 4", [](auto& lora) { lora.rank = 4; }},
           {"lora.alpha is 6 there, but 5", [](auto& lora) { lora.alpha = 5.0; }},
           {"lora.targets is q_proj, v_proj, up_proj there, but q_proj",
            [](auto& lora) { lora.layers = {"attention.q"}; }}}) {
    model::DecoderSettings other = settings;
    change(other.lora);
    EXPECT_NE(error_of([&] { PeftReader(scratch.file("out"), llama, other); }).find(key),
              std::string::npos)
        << key;
  }
}

/// Writes adapters of small_model(), with changes of the configuration.
void write_changed(const std::string& folder, const json& changed) {
  std::filesystem::create_directories(folder);
  Numbers numbers;
  write_peft(folder, *family_named("llama"), small_model(), "base", numbers);
  const std::string path = folder + "/adapter_config.json";
  json config = json::parse(ostrakon::testing::read_bytes(path));
  config.update(changed);
  write_bytes(path, config.dump());
}

TEST(Peft, TakesAnAlphaThatDiffersByRounding) {
  const ScratchFolder scratch;
  const std::string folder = scratch.file("adapters");
  write_changed(folder, {{"use_rslora", true}, {"lora_alpha", 16}});  // 16 sqrt(3) = 27.712812921
  const auto refusal = [&](double alpha) {
    model::DecoderSettings settings = small_model();
    settings.lora.alpha = alpha;
    return error_of([&] { PeftReader(folder, *family_named("llama"), settings); });
  };
  for (const double alpha : {27.712812921102035, 27.7128, 27.712813})
    EXPECT_EQ(refusal(alpha), "no error") << alpha;
  EXPECT_NE(refusal(16.0).find("lora.alpha is 27.71281292 (use_rslora: lora_alpha sqrt(r)) there, "
                               "but 16 in the deck"),
            std::string::npos)
      << refusal(16.0);
  EXPECT_NE(refusal(27.7127).find("but 27.7127 in the deck"), std::string::npos);
}

TEST(Peft, HasTheModulesThatItsConfigurationNames) {
  const ScratchFolder scratch;
  const auto refusal = [&](const json& targets) {
    write_changed(scratch.file("adapters"), {{"target_modules", targets}});
    return error_of(
        [&] { lora_of_peft(scratch.file("adapters"), *family_named("llama"), small_model()); });
  };
  for (const json& fits : std::vector<json>{{"q_proj", "v_proj", "up_proj"},
                                            {"self_attn.q_proj", "self_attn.v_proj", "mlp.up_proj"},
                                            ".*_proj",
                                            nullptr})
    EXPECT_EQ(refusal(fits), "no error") << fits;
  EXPECT_NE(
      refusal({"q_proj", "v_proj", "up_proj", "k_proj"})
          .find("target_modules has k_proj, of which adapter_model.safetensors has no tensor"),
      std::string::npos);
  EXPECT_NE(refusal({"q_proj", "v_proj"})
                .find("target_modules has no name of the module of tensor "
                      "base_model.model.model.layers.0.mlp.up_proj"),
            std::string::npos);
}

TEST(Peft, HasNoModuleOfOneOfSeveralLayersInATensor) {
  model::DecoderSettings settings = small_model();
  settings.kv_heads = settings.heads;
  const AdaptedRows queries = adapted_rows(settings).front();
  for (const char* type : {"phi3", "gpt_neox", "gpt2"})
    EXPECT_NE(error_of([&] {
                adapted_module(*family_named(type), settings, "block.0", queries);
              }).find("have no module of attention.q alone"),
              std::string::npos)
        << type;
  EXPECT_EQ(
      peft_name(adapted_module(*family_named("llama"), settings, "block.1", queries), "lora_A"),
      "base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight");
}

/// It may be read in parts of rows, and one parameter has several layers.
TEST(Merged, IsTheSumOfWeightAndAdapter) {
  const model::DecoderSettings settings = small_model();
  Numbers numbers;
  MergedSource merged(numbers, settings);
  const std::vector<std::string> parameters = {"attention.qkv.weight", "attention.out.weight",
                                               "mlp.gate_up.weight"};
  for (const std::string& parameter : parameters) {
    const std::int64_t rows = parameter == "attention.qkv.weight"   ? 16
                              : parameter == "attention.out.weight" ? 8
                                                                    : 24;
    std::vector<double> expected;
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t column = 0; column < 8; ++column) {
        double value = Numbers::of("block.1", parameter, 8 * row + column);
        for (const AdaptedRows& layer : adapted_rows(settings))
          for (std::int64_t r = 0; r < 3; ++r)
            if (layer.parameter == parameter && row >= layer.first &&
                row < layer.first + layer.rows)
              value += 2.0 *
                       double{Numbers::of("block.1", layer.lora_b(), 3 * (row - layer.first) + r)} *
                       double{Numbers::of("block.1", layer.lora_a(), 8 * r + column)};
        expected.push_back(value);
      }
    for (const std::int64_t at_once : {8 * rows, std::int64_t{5}, std::int64_t{8}})
      for (std::int64_t first = 0; first < 8 * rows; first += at_once) {
        const std::int64_t count = std::min(at_once, 8 * rows - first);
        std::vector<float> values(static_cast<std::size_t>(count));
        merged.read("block.1", parameter, {rows, 8}, first, count, values.data());
        for (std::int64_t i = 0; i < count; ++i)
          EXPECT_NEAR(values[static_cast<std::size_t>(i)],
                      expected[static_cast<std::size_t>(first + i)], 1e-6)
              << parameter << ", element " << first + i;
      }
  }
  float table = 0.0F;
  merged.read("embedding", "token.weight", {11, 8}, 3, 1, &table);
  EXPECT_EQ(table, Numbers::of("embedding", "token.weight", 3));
}

}  // namespace
}  // namespace ostrakon::checkpoint
