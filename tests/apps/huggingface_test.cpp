// SPDX-License-Identifier: Apache-2.0

// Weights of Hugging Face as a user takes them: the config.json next to them counts.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <ostrakon/checkpoint/huggingface/safetensors.hpp>
#include <sstream>
#include <string>
#include <support/scratch_folder.hpp>
#include <vector>

#include "command.hpp"
#include "fixtures.hpp"

namespace ostrakon::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Texts = std::vector<std::string>;

/// Models, by the deck that makes them.
struct Deck {
  std::string name, model;
};

const std::vector<Deck>& decks() {
  static const std::string sizes = "layers: 2, width: 24, heads: 6, ffn_width: 40, vocabulary: 61";
  static const std::vector<Deck> all = {
      {"gpt2", sizes + ", norm: layernorm, positions: learned, activation: gelu, bias: true"},
      {"gpt_bigcode", sizes + ", norm: layernorm, positions: learned, activation: gelu, "
                              "bias: true, kv_heads: 1"},
      {"llama", sizes + ", kv_heads: 2, rotary_base: 7000, tie_embeddings: false"},
      {"llama-bias", sizes + ", kv_heads: 3, bias: true, norm_epsilon: 3e-4"},
      {"llama-attention-bias", sizes + ", kv_heads: 3, bias: true, mlp_bias: false"},
      {"mixtral", sizes + ", kv_heads: 2, experts: 5, expert_width: 16"},
      {"starcoder2", sizes + ", norm: layernorm, activation: gelu, bias: true, kv_heads: 2"}};
  return all;
}

std::string deck_text(const std::string& model, const std::string& rest) {
  return "ostrakon:\n  model: {" + model +
         "}\n  training: {steps: 1, global_batch_size: 2, sequence_length: 16}\n"
         "  schedule: {warmup_steps: 0}\n" +
         rest;
}

class HuggingFace : public SharedFolder<HuggingFace> {
 protected:
  static void SetUpTestSuite() {
    for (const Deck& deck : decks()) {
      write_bytes(path(deck.name + ".yaml"),
                  deck_text(deck.model,
                            "  data: {dataset: synthetic}\n  checkpoint: {every: 1}\n"
                            "  output: {directory: made-" +
                                deck.name + "}\n"));
      // What describes a model needs no data.
      write_bytes(path(deck.name + "-model.yaml"), deck_text(deck.model, ""));
      must("ostrakon-train", {deck.name + ".yaml", "--set", "training.steps=3"});
      must("ostrakon-checkpoint",
           {"export", "made-" + deck.name + "/weights.h5", deck.name, "--shard-size", "1GB"});
    }
  }

  static Json config_of(const std::string& folder) {
    return Json::parse(read_bytes(path(folder + "/config.json")));
  }

  /// A copy of the model's files with these keys of config.json changed; null: without it.
  static std::string variant(const std::string& model, const std::string& name,
                             const Json& changes) {
    const std::string folder = model + "-" + name;
    fs::copy(path(model), path(folder));
    Json config = config_of(model);
    for (const auto& item : changes.items()) {
      if (item.value() == "missing")
        config.erase(item.key());
      else
        config[item.key()] = item.value();
    }
    fs::remove(path(folder + "/config.json"));
    if (!changes.is_null()) write_bytes(path(folder + "/config.json"), config.dump());
    return folder;
  }

  static Outcome train_from(const std::string& model, const std::string& weights) {
    return start("ostrakon-train",
                 {model + ".yaml", "--set", "checkpoint.initial_weights=" + weights, "--set",
                  "output.directory=from-" + fs::path(weights).parent_path().string() +
                      fs::path(weights).filename().string()});
  }
  /// The loss of the first step, with all of its digits.
  static std::string loss_from(const std::string& model, const std::string& weights) {
    const Outcome outcome = train_from(model, weights);
    EXPECT_EQ(outcome.status, 0) << weights << "\n" << outcome.err;
    std::istringstream lines(read_bytes(path("from-" + weights + "/metrics.jsonl")));
    std::string line;
    std::getline(lines, line);
    return Json::parse(line).at("loss").dump();
  }
};

TEST_F(HuggingFace, AConfigThatAgreesChangesNoBit) {
  struct Agrees {
    std::string model;
    Json changes;
  };
  const Json mistral = {{"model_type", "mistral"},
                        {"architectures", {"MistralForCausalLM"}},
                        {"sliding_window", 16},
                        {"attention_bias", "missing"},
                        {"mlp_bias", "missing"}};
  const std::vector<Agrees> all = {
      {"gpt2", Json::object()},
      {"gpt2", {{"activation_function", "gelu_fast"}, {"n_ctx", 1024}, {"resid_pdrop", 0.1}}},
      {"gpt2", {{"layer_norm_epsilon", "missing"}, {"tie_word_embeddings", "missing"}}},
      {"gpt_bigcode", Json::object()},
      {"llama", Json::object()},
      {"llama",
       {{"max_position_embeddings", 4096}, {"eos_token_id", {1, 2}}, {"dtype", "float32"}}},
      {"llama", {{"rope_theta", "missing"}, {"rope_parameters", {{"rope_theta", 7000.0}}}}},
      {"llama", {{"head_dim", nullptr}, {"hidden_act", "missing"}, {"pretraining_tp", 1}}},
      {"llama", mistral},
      {"llama", {{"some_new_feature", nullptr}}},
      {"llama-bias", Json::object()},
      {"llama-attention-bias", {{"mlp_bias", "missing"}}},
      {"mixtral", Json::object()},
      {"mixtral", {{"num_experts_per_tok", "missing"}, {"router_jitter_noise", 0.0}}},
      {"starcoder2", Json::object()},
      {"starcoder2", {{"hidden_act", "gelu_new"}, {"rope_theta", "missing"}}}};
  std::vector<std::string> expected(decks().size());
  in_parallel(static_cast<int>(decks().size()), [&](int i) {
    const std::string& model = decks()[i].name;
    expected[i] = loss_from(model, variant(model, "without", nullptr));
  });
  in_parallel(static_cast<int>(all.size()), [&](int i) {
    const Agrees& one = all[i];
    const std::string found =
        loss_from(one.model, variant(one.model, "agrees" + std::to_string(i), one.changes));
    for (std::size_t d = 0; d < decks().size(); ++d) {
      if (decks()[d].name == one.model) {
        EXPECT_EQ(found, expected[d]) << one.changes;
      }
    }
  });
}

TEST_F(HuggingFace, AConfigThatDiffersIsRefusedWhereverWeightsAreRead) {
  struct Differs {
    std::string model, key;
    Json value;
    std::string said;
  };
  const std::vector<Differs> all = {
      {"llama", "rms_norm_eps", 1e-6, "rms_norm_eps is 1e-06, but model.norm_epsilon is 1e-05"},
      {"llama", "rope_theta", 1e4, "rope_theta is 10000.0, but model.rotary_base is 7000.0"},
      {"llama", "model_type", "mamba", "model_type is \"mamba\""},
      {"llama", "rope_scaling", {{"type", "linear"}, {"factor", 2.0}}, "rope_scaling is {"},
      {"llama", "logits_scaling", 8.0, "logits_scaling is 8.0"},
      {"gpt2", "n_head", 3, "n_head is 3, but model.heads is 6"},
      {"mixtral", "num_local_experts", 4, "num_local_experts is 4, but model.experts is 5"},
      {"starcoder2", "sliding_window", 8, "sliding_window is 8, but model.attention_window is 0"},
      {"llama-bias", "mlp_bias", false, "mlp_bias is false, but model.mlp_bias is true"}};
  in_parallel(static_cast<int>(all.size()), [&](int i) {
    const Differs& one = all[i];
    const std::string number = std::to_string(i);
    const std::string folder = variant(one.model, "differs" + number, {{one.key, one.value}});
    const std::string deck = one.model + "-model.yaml";
    for (const std::string& weights : {folder, folder + "/model.safetensors"}) {
      const Outcome train = train_from(one.model, weights);
      EXPECT_EQ(train.status, 1);
      expect_in(train.err, {"ostrakon-train: error: ", folder + "/config.json'", one.said});
      EXPECT_FALSE(fs::exists(path("from-" + folder + "/metrics.jsonl")));
      const Outcome import =
          start("ostrakon-checkpoint", {"import", weights, "no" + number + ".h5", "--deck", deck});
      EXPECT_EQ(import.status, 1);
      expect_in(import.err, {"ostrakon-checkpoint: error: ", one.said});
      EXPECT_FALSE(fs::exists(path("no" + number + ".h5")));
      const Outcome generate = start("ostrakon-generate", {weights, "--deck", deck});
      EXPECT_EQ(generate.status, 1);
      expect_in(generate.err, {"ostrakon-generate: error: ", one.said});
      const Outcome diff =
          start("ostrakon-checkpoint", {"diff", "made-" + one.model + "/weights.h5", weights});
      EXPECT_EQ(diff.status, 1);
      expect_in(diff.out + diff.err, {one.said});
    }
  });
}

TEST_F(HuggingFace, WithoutAConfigOneLineSaysWhatIsNotChecked) {
  const std::string folder = variant("llama", "alone", nullptr);
  const std::string note =
      "no config.json next to the tensors: not checked are model.heads = 6, model.norm_epsilon = "
      "1e-05, model.rotary_base = 7000.0, and that the model is a plain llama\n";
  expect_in(train_from("llama", folder).out, {note});
  expect_in(
      must("ostrakon-checkpoint", {"import", folder, "alone.h5", "--deck", "llama-model.yaml"}),
      {"note: " + note, "wrote alone.h5"});
  expect_in(must("ostrakon-checkpoint", {"diff", "alone.h5", folder}), {"note: " + note, "equal"});
}

/// Through weights.h5, a run, its checkpoint, and a run that resumes from it.
TEST_F(HuggingFace, WhatConfigSaysComesOutAgain) {
  const Json changes = {{"model_type", "mistral"},  {"architectures", {"MistralForCausalLM"}},
                        {"sliding_window", 32},     {"attention_bias", "missing"},
                        {"mlp_bias", "missing"},    {"max_position_embeddings", 4096},
                        {"bos_token_id", 11},       {"eos_token_id", {12, 13}},
                        {"attention_dropout", 0.25}};
  const std::string folder = variant("llama", "mistral", changes);
  must("ostrakon-checkpoint", {"import", folder, "in.h5", "--deck", "llama-model.yaml"});
  must("ostrakon-checkpoint", {"import", folder, "in-alone.h5"});
  expect_in(must("ostrakon-checkpoint", {"inspect", "in.h5"}), {"began as    mistral"});
  const auto train = [&](const Texts& more) {
    Texts arguments = {"llama.yaml", "--set", "output.directory=on"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    must("ostrakon-train", arguments);
  };
  train({"--set", "checkpoint.initial_weights=in.h5"});
  for (const std::string& from :
       {std::string("in.h5"), std::string("in-alone.h5"), std::string("on/weights.h5"),
        std::string("on/checkpoints/latest"), std::string("on/checkpoints/step-00000002")}) {
    if (from == "on/checkpoints/step-00000002")
      train({"--resume", "auto", "--set", "training.steps=2"});
    const std::string out = "out-" + fs::path(from).filename().string();
    expect_in(must("ostrakon-checkpoint", {"export", from, out, "--shard-size", "1GB"}),
              {" as mistral"});
    Json expected = config_of(folder), found = config_of(out);
    EXPECT_EQ(found, expected) << from;
    must("ostrakon-checkpoint", {"verify", out});
  }

  // The model is the same after each conversion.
  const Outcome other =
      start("ostrakon-train", {"llama.yaml", "--set", "checkpoint.initial_weights=in.h5", "--set",
                               "model.rotary_base=9000", "--set", "output.directory=other"});
  EXPECT_EQ(other.status, 1);
  expect_in(other.err, {"in.h5", "model.rotary_base is 7000 in it, but 9000 in the deck"});
  const Outcome longer = start(
      "ostrakon-train", {"llama.yaml", "--resume", "auto", "--set", "output.directory=on", "--set",
                         "training.steps=3", "--set", "training.sequence_length=64"});
  EXPECT_EQ(longer.status, 1);
  expect_in(longer.err, {"sliding_window is 32, but model.attention_window is 0"});
}

/// The ids are those of the tokenizer that the weights know, wherever its name comes from.
TEST_F(HuggingFace, AModelTrainsOnIdsOfItsTokenizer) {
  std::string ids;
  for (int i = 0; i < 1000; ++i) ids += {static_cast<char>(i * i % 50), '\0'};
  write_bytes(path("ids"), ids);
  const auto import_ids = [&](const std::string& tokenizer) {
    Texts arguments = {"import", "--overwrite", "--vocabulary", "50", "--output", "ids.h5", "ids"};
    if (!tokenizer.empty()) arguments.insert(arguments.end(), {"--tokenizer", tokenizer});
    must("ostrakon-data", arguments);
  };
  // The folder is as transformers writes it: without the tokenizer that `export` names.
  const std::string folder = variant("llama", "of-ids", Json::object());
  const std::string tensors = path(folder + "/model.safetensors");
  std::string bytes = read_bytes(tensors);
  const std::size_t at = bytes.find("\"tokenizer\"");
  ASSERT_NE(at, std::string::npos);
  bytes.replace(at, 11, "\"made_with\"");
  write_bytes(tensors, bytes);
  const auto train = [&](const std::string& weights, const Texts& more = {}) {
    Texts arguments = {"llama.yaml",
                       "--set",
                       "data.dataset=tokens",
                       "--set",
                       "data.path=ids.h5",
                       "--set",
                       "checkpoint.initial_weights=" + weights,
                       "--set",
                       "output.directory=of-ids-run"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    fs::remove_all(path("of-ids-run"));
    return start("ostrakon-train", arguments);
  };
  import_ids("");
  EXPECT_EQ(train(folder).status, 0);  // nothing says that they differ
  import_ids("mine");
  Outcome refused = train(folder);
  EXPECT_EQ(refused.status, 1);
  expect_in(refused.err, {"does not say whose tokens it knows; the data's is 'mine'",
                          "`ostrakon-checkpoint import --tokenizer mine`"});
  must("ostrakon-checkpoint", {"import", folder, "mine.h5", "--tokenizer", "mine"});
  EXPECT_EQ(train("mine.h5").status, 0);

  write_bytes(path(folder + "/tokenizer.json"), "{}");
  import_ids("");
  refused = train(folder);
  EXPECT_EQ(refused.status, 1);
  expect_in(refused.err,
            {"checkpoint.initial_weights", "trained on tokens of the tokenizer 'tokenizer.json-",
             "the data's is 'external', which is not known", "`ostrakon-data import --tokenizer "});
  EXPECT_EQ(train(folder, {"--allow-changes", "tokenizer"}).status, 0);
  import_ids(folder);
  EXPECT_EQ(train(folder).status, 0);
  must("ostrakon-checkpoint", {"import", folder, "of-ids.h5"});
  EXPECT_EQ(train("of-ids.h5").status, 0);
  // Synthetic data have no tokenizer of their own: the weights' remains, also where a run resumes.
  const Texts synthetic = {"--set", "data.dataset=synthetic", "--set", "checkpoint.every=1"};
  EXPECT_EQ(train(folder, synthetic).status, 0);
  const auto expect_kept = [&] {
    expect_in(must("ostrakon-checkpoint", {"inspect", "of-ids-run/weights.h5"}),
              {"tokenizer   tokenizer.json-"});
  };
  expect_kept();
  must("ostrakon-train",
       {"llama.yaml", "--set", "data.dataset=synthetic", "--set", "output.directory=of-ids-run",
        "--set", "training.steps=9", "--resume", "auto"});
  expect_kept();
  fs::rename(path("of-ids-run/weights.h5"), path("synthetic.h5"));
  import_ids("mine");
  refused = train("synthetic.h5");
  EXPECT_EQ(refused.status, 1);
  expect_in(refused.err, {"trained on tokens of the tokenizer 'tokenizer.json-"});
}

/// What no config.json has, as there is no such MLP, is not compared.
TEST_F(HuggingFace, AMixtureImportedWithoutADeckIsTheDecksModel) {
  must("ostrakon-checkpoint", {"import", "mixtral", "mixtral-alone.h5"});
  EXPECT_EQ(loss_from("mixtral", "mixtral-alone.h5"), loss_from("mixtral", "mixtral"));
}

/// Rows of wpe, whose table is the model's, whatever it is trained on.
TEST_F(HuggingFace, SequencesMayBeShorterThanTheTableOfPositions) {
  const auto train = [](const std::string& weights, const std::string& output, const Texts& more) {
    Texts arguments = {"gpt2.yaml",
                       "--set",
                       "checkpoint.initial_weights=" + weights,
                       "--set",
                       "output.directory=" + output,
                       "--set",
                       "training.sequence_length=8",
                       "--set",
                       "optimizer.weight_decay=0"};
    for (const std::string& one : more) arguments.insert(arguments.end(), {"--set", one});
    return start("ostrakon-train", arguments);
  };
  const Outcome refused = train("gpt2", "short", {});
  EXPECT_EQ(refused.status, 1);
  expect_in(refused.err, {"n_positions is 16, but training.sequence_length is 8; expected "
                          "model.max_positions = 16, the rows of its table"});
  const Outcome of_weights = train("made-gpt2/weights.h5", "short", {});
  EXPECT_EQ(of_weights.status, 1);
  expect_in(of_weights.err, {"model.max_positions is 16 in it, but 8 in the deck"});
  const Outcome too_few = train("gpt2", "short", {"model.max_positions=7"});
  EXPECT_EQ(too_few.status, 1);
  expect_in(too_few.err, {"model.max_positions = 7 is less than training.sequence_length = 8",
                          "expected "
                          "a sequence_length of 7 or less"});

  for (const std::string weights : {"gpt2", "made-gpt2/weights.h5"}) {
    const std::string run = "short-from-" + fs::path(weights).filename().string();
    const Outcome trained = train(weights, run, {"model.max_positions=16"});
    ASSERT_EQ(trained.status, 0) << trained.err;
    must("ostrakon-checkpoint", {"export", run + "/weights.h5", run + "-hf"});
    EXPECT_EQ(config_of(run + "-hf")["n_positions"], 16);
    checkpoint::SafetensorsReader before(path("gpt2/model.safetensors")),
        after(path(run + "-hf/model.safetensors"));
    const std::string wpe = "transformer.wpe.weight";
    ASSERT_EQ(after.tensor(wpe).shape, (std::vector<std::int64_t>{16, 24}));
    std::vector<float> was(16 * 24), is(16 * 24);
    before.read(wpe, 0, 16 * 24, was.data());
    after.read(wpe, 0, 16 * 24, is.data());
    const auto half = was.size() / 2;
    EXPECT_TRUE(std::equal(was.begin() + half, was.end(), is.begin() + half));
    for (std::size_t row = 0; row < 8; ++row)
      EXPECT_FALSE(
          std::equal(was.begin() + row * 24, was.begin() + (row + 1) * 24, is.begin() + row * 24))
          << row;
    must("ostrakon-generate", {run + "-hf", "--ids", "--prompt", "1,2,3", "--context", "12"});
    must("ostrakon-generate",
         {run + "/weights.h5", "--ids", "--prompt", "1,2,3", "--context", "16"});
  }
}

TEST_F(HuggingFace, ModelsMadeHereGoOutAsWhatTheyAre) {
  const std::vector<std::pair<std::string, std::string>> classes = {
      {"gpt2", "GPT2LMHeadModel"},
      {"gpt_bigcode", "GPTBigCodeForCausalLM"},
      {"llama", "LlamaForCausalLM"},
      {"llama-bias", "LlamaForCausalLM"},
      {"llama-attention-bias", "LlamaForCausalLM"},
      {"mixtral", "MixtralForCausalLM"},
      {"starcoder2", "Starcoder2ForCausalLM"}};
  for (const auto& [model, name] : classes) {
    const Json config = config_of(model);
    EXPECT_EQ(config["architectures"], Json({name}));
    const bool has_biases = model.rfind("llama-", 0) == 0;
    EXPECT_EQ(config.value("attention_bias", false), has_biases) << config;
    EXPECT_EQ(config.value("mlp_bias", false), model == "llama-bias") << config;
    const std::string back = model + "-back.h5";
    must("ostrakon-checkpoint", {"import", model, back, "--deck", model + "-model.yaml"});
    expect_in(must("ostrakon-checkpoint", {"diff", back, "made-" + model + "/weights.h5"}),
              {"equal"});
  }
}

/// Files of the tokenizer come with weights through a run, as long as their folder is there and
/// they are those of the tokenizer of the weights.
TEST_F(HuggingFace, FilesOfTheTokenizerComeWithWeights) {
  const std::string folder = variant("llama", "with-tokenizer", Json::object());
  const std::string tensors = path(folder + "/model.safetensors");
  std::string bytes = read_bytes(tensors);
  bytes.replace(bytes.find("\"tokenizer\""), 11, "\"made_with\"");
  write_bytes(tensors, bytes);
  const std::vector<std::string> names = {"tokenizer.json", "tokenizer_config.json",
                                          "generation_config.json", "chat_template.jinja"};
  for (const std::string& name : names)
    write_bytes(path(folder + "/" + name), "{\"" + name + "\"}");
  write_bytes(path(folder + "/README.md"), "not copied");
  must("ostrakon-checkpoint", {"import", folder, "with-tokenizer.h5"});
  must("ostrakon-train", {"llama.yaml", "--set", "checkpoint.initial_weights=" + folder, "--set",
                          "output.directory=with-tokenizer-run"});
  for (const std::string from : {"with-tokenizer.h5", "with-tokenizer-run/weights.h5",
                                 "with-tokenizer-run/checkpoints/latest"}) {
    fs::remove_all(path("with-tokenizer-out"));
    expect_in(must("ostrakon-checkpoint", {"export", from, "with-tokenizer-out"}),
              {"copied tokenizer.json, tokenizer_config.json, "});
    for (const std::string& name : names)
      EXPECT_EQ(read_bytes(path("with-tokenizer-out/" + name)), "{\"" + name + "\"}");
    EXPECT_FALSE(fs::exists(path("with-tokenizer-out/README.md")));
    EXPECT_FALSE(config_of("with-tokenizer-out").contains("_name_or_path"));
  }
  write_bytes(path(folder + "/tokenizer.json"), "{\"another\": 1}");
  expect_in(must("ostrakon-checkpoint", {"export", "with-tokenizer.h5", "with-other"}),
            {"note: the tokenizer of the weights is tokenizer.json-", "its files are not copied"});
  EXPECT_FALSE(fs::exists(path("with-other/tokenizer.json")));
  fs::rename(path(folder), path(folder + "-moved"));
  expect_in(must("ostrakon-checkpoint", {"export", "with-tokenizer.h5", "without-tokenizer"}),
            {"note: the weights came from '", folder, "', which is not there"});
}

TEST_F(HuggingFace, AdaptersOfAFolderAreSaidOrRefusedByTheirKey) {
  const auto train = [](const std::string& weights, const std::string& initial) {
    fs::remove_all(path("adapted-run"));
    return start(
        "ostrakon-train",
        {"llama.yaml", "--set", "lora.rank=2", "--set", "checkpoint.initial_weights=" + weights,
         "--set", "lora.initial=" + initial, "--set", "output.directory=adapted-run"});
  };
  const Outcome made = train("llama", "");
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_EQ(made.out.find("adapters as in"), std::string::npos);
  must("ostrakon-checkpoint", {"export", "adapted-run/weights.h5", "adapters", "--adapters"});
  fs::copy(path("adapted-run/weights.h5"), path("adapted.h5"));
  const Outcome more = train("llama", "adapters");
  ASSERT_EQ(more.status, 0) << more.err;
  expect_in(more.out, {"weights\n  begin as in            " + path("llama") +
                       "\n  adapters as in         " + path("adapters") + "\n"});
  // A resumed run has the checkpoint's adapters, which compute what they did.
  const auto resume = [](const std::string& alpha) {
    return start(
        "ostrakon-train",
        {"llama.yaml", "--resume", "auto", "--set", "training.steps=5", "--set", "lora.rank=2",
         "--set", "lora.alpha=" + alpha, "--set", "checkpoint.initial_weights=llama", "--set",
         "lora.initial=adapters", "--set", "output.directory=adapted-run"});
  };
  const Outcome changed = resume("160");
  EXPECT_EQ(changed.status, 1);
  expect_in(changed.err, {"lora.alpha is 16 in it, but 160 in the deck"});
  const Outcome resumed = resume("16");
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  expect_in(resumed.out, {"resumes from"});

  // Programs that compute with a deck and a folder read them, too.
  const auto deck = [](const std::string& name, const std::string& lora) {
    const std::string text = read_bytes(path("llama-model.yaml"));
    write_bytes(path(name),
                text + "  checkpoint: {initial_weights: llama}\n  lora: {" + lora + "}\n");
  };
  const auto evaluate = [](const Texts& model) {
    Texts arguments = model;
    arguments.insert(arguments.end(), {"--requests", "ids.jsonl"});
    return start("ostrakon-evaluate", arguments);
  };
  const auto import_as = [](const std::string& with, const Texts& options) {
    Texts arguments = {"import", "llama", "both.h5", "--overwrite", "--deck", with};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return start("ostrakon-checkpoint", arguments);
  };
  write_bytes(path("ids.jsonl"), R"({"context": [5, 9, 3], "continuation": [60, 7, 2, 11, 30]})");
  deck("with.yaml", "rank: 2, initial: adapters");
  deck("new.yaml", "rank: 2");
  deck("other.yaml", "rank: 2, alpha: 160");
  ASSERT_EQ(import_as("new.yaml", {"--adapters", "adapters"}).status, 0);
  const Outcome of_file = evaluate({"both.h5"}),
                of_deck = evaluate({"llama", "--deck", "with.yaml"});
  ASSERT_EQ(of_file.status, 0) << of_file.err;
  ASSERT_EQ(of_deck.status, 0) << of_deck.err;
  const auto results = [](const Outcome& of) {
    return of.out.substr(of.out.find("log_probability"));
  };
  EXPECT_EQ(results(of_deck), results(of_file));
  EXPECT_NE(results(of_deck), results(evaluate({"llama"})));
  ASSERT_EQ(import_as("with.yaml", {}).status, 0);
  EXPECT_EQ(results(evaluate({"both.h5"})), results(of_file));
  const std::string none = "llama' has no adapters, but lora.rank is 2 in the deck";
  for (const Outcome& refused :
       {evaluate({"llama", "--deck", "new.yaml"}), import_as("new.yaml", {})}) {
    EXPECT_EQ(refused.status, 1);
    expect_in(refused.err, {none});
  }
  const Outcome differs = import_as("other.yaml", {"--adapters", "adapters"});
  EXPECT_EQ(differs.status, 1);
  expect_in(differs.err, {"lora.alpha is 16 there, but 160 in the deck"});

  const Outcome nowhere = train("llama", "nowhere");
  EXPECT_EQ(nowhere.status, 1);
  expect_in(nowhere.err, {"--set lora.initial=\"nowhere\"", "nowhere' has no adapter_config.json"});
  EXPECT_EQ(nowhere.err.find("checkpoint.initial_weights"), std::string::npos) << nowhere.err;
  const Outcome both = train("adapted.h5", "adapters");
  EXPECT_EQ(both.status, 1);
  expect_in(both.err, {"checkpoint.initial_weights",
                       "adapted.h5' has adapters, of rank 2, which those of lora.initial",
                       "lora.initial = " + path("adapters") + " would replace"});
  fs::remove(path("adapters/adapter_model.safetensors"));
  const Outcome half = train("llama", "adapters");
  EXPECT_EQ(half.status, 1);
  expect_in(half.err, {"--set lora.initial=\"adapters\"", "adapter_model.safetensors"});
}

/// `deck` writes what trains the model of a config.json, or says what it lacks.
TEST_F(HuggingFace, ADeckOfAConfigTrainsItsModel) {
  for (const std::string model : {"llama", "gpt2", "mixtral", "starcoder2"}) {
    const std::string deck = "of-" + model + ".yaml", run = "by-" + deck;
    expect_in(
        must("ostrakon-checkpoint", {"deck", model, "--output", deck}),
        {"wrote " + deck, "sequence_length 16, of the model's 16 positions", "edit its data.path"});
    EXPECT_EQ(must("ostrakon-checkpoint", {"deck", model, "--output", "-"}),
              read_bytes(path(deck)));
    EXPECT_EQ(must("ostrakon-checkpoint", {"deck", model}), read_bytes(path(deck)));
    const Outcome unedited = start("ostrakon-train", {deck});
    EXPECT_EQ(unedited.status, 1);
    expect_in(unedited.err, {"your-text-train.h5"});
    must("ostrakon-train", {deck, "--set", "data.dataset=synthetic", "--set", "training.steps=1",
                            "--set", "output.directory=" + run});
    must("ostrakon-checkpoint", {"export", run + "/weights.h5", run + "-hf"});
    EXPECT_EQ(config_of(run + "-hf"), config_of(model));
  }
  expect_in(start("ostrakon-checkpoint", {"deck", "nosuch"}).err, {"'nosuch' does not exist"});
  Outcome longer =
      start("ostrakon-train", {"of-llama.yaml", "--dry-run", "--set", "data.dataset=synthetic",
                               "--set", "training.sequence_length=24"});
  EXPECT_EQ(longer.status, 0) << longer.err;
  expect_in(longer.out, {"training.sequence_length is 24, and in the weights' config.json "
                         "max_position_embeddings is 16: positions after it are new"});
  expect_in(start("ostrakon-checkpoint", {"deck", "llama", "--output", "of-llama.yaml"}).err,
            {"of-llama.yaml"});
  const std::string scaled =
      variant("llama", "scaled", {{"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}}});
  const Outcome refused = start("ostrakon-checkpoint", {"deck", scaled});
  EXPECT_EQ(refused.status, 1);
  expect_in(refused.err, {"rope_scaling is {\"factor\":2.0,\"type\":\"dynamic\"}"});
}

}  // namespace
}  // namespace ostrakon::testing
