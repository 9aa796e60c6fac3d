// SPDX-License-Identifier: Apache-2.0
// Settings of decks.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <ostrakon/base/error.hpp>
#include <ostrakon/config/value.hpp>
#include <ostrakon/model/decoder.hpp>
#include <ostrakon/optim/muon.hpp>
#include <ostrakon/optim/outlier_filter.hpp>
#include <ostrakon/plan/ir/step_plan.hpp>
#include <string>
#include <utility>

#include "config/bad_decks.hpp"
#include "config/decks.hpp"
#include "support/comma_locale.hpp"
#include "support/messages.hpp"

namespace ostrakon::config {
namespace {

TEST(Settings, NumbersOfDecksFollowNoLocale) {
  const std::pair<const char*, const char*> decks[] = {
      {"deck.yaml",
       "ostrakon:\n  data: {dataset: synthetic, synthetic_noise: 0.125}\n"
       "  model: {vocabulary: 1024}\n  optimizer: {learning_rate: 1.5e-3}\n"},
      {"deck.xml", R"(<ParameterList name="ostrakon">
  <ParameterList name="data">
    <Parameter name="dataset" type="string" value="synthetic"/>
    <Parameter name="synthetic_noise" type="double" value="0.125"/>
  </ParameterList>
  <ParameterList name="model"><Parameter name="vocabulary" type="int" value="1024"/></ParameterList>
  <ParameterList name="optimizer">
    <Parameter name="learning_rate" type="double" value="1.5e-3"/>
  </ParameterList>
</ParameterList>)"}};
  const testing::CommaLocale comma;
  const std::locale before;
  const std::string of_c = std::setlocale(LC_ALL, nullptr);
  for (const auto& [name, deck] : decks) {
    SCOPED_TRACE(name);
    const Settings settings = read_settings(deck, name, {{"optimizer.beta1", "0.25"}});
    EXPECT_EQ(settings.data.synthetic_noise, 0.125);
    EXPECT_EQ(settings.model.vocabulary, 1024);
    EXPECT_EQ(settings.optimizer.learning_rate, 1.5e-3);
    EXPECT_EQ(settings.optimizer.beta1, 0.25);
    EXPECT_EQ(write_deck(read(write_deck(settings))), write_deck(settings));
  }
  // With dots as thousands separators these would be 1 and 5.
  const std::string refused =
      message_of(synthetic, "deck.yaml",
                 {{"parallel.pipeline", "2"}, {"parallel.pipeline_units", "0.001 0.005"}});
  EXPECT_EQ(refused.rfind("--set parallel.pipeline_units=\"0.001 0.005\": expected auto", 0), 0u)
      << refused;
  EXPECT_TRUE(std::locale() == before) << "the program's own";
  EXPECT_EQ(std::setlocale(LC_ALL, nullptr), of_c);
}

TEST(Settings, EverythingThatADeckLeavesOutHasADefault) {
  const Settings settings = read(synthetic);
  EXPECT_EQ(settings.data.dataset, data::DatasetKind::synthetic);
  EXPECT_EQ(settings.model.layers, 4);
  EXPECT_EQ(settings.model.kv_heads, 4);
  EXPECT_EQ(settings.model.ffn_width, 704);  // 8/3 x 256 = 682.7, rounded up to a multiple of 64
  EXPECT_EQ(settings.training.global_batch_size, 8);
  EXPECT_EQ(policy_of(settings).leaves, 8);
  EXPECT_EQ(settings.optimizer.learning_rate, 3e-4);
  EXPECT_EQ(settings.output.directory, "output");
  EXPECT_EQ(settings.output.trace_steps, 0);
  EXPECT_EQ(settings.model.blocks_per_unit, 1);
  EXPECT_EQ(settings.runtime.streams, StreamsChoice::automatic);
  EXPECT_EQ(settings.runtime.threads, automatic_threads);
  EXPECT_TRUE(settings.parallel.reshard_after_forward == plan::Reshard());
  EXPECT_TRUE(settings.parallel.forward_prefetch == plan::Prefetch());
  EXPECT_TRUE(settings.parallel.backward_prefetch == plan::Prefetch());
  EXPECT_TRUE(settings.parallel.in_flight_gathers == plan::GatherLimit());
  EXPECT_EQ(settings.parallel.in_flight_reductions, 1);
  EXPECT_TRUE(settings.parallel.units.empty());
  EXPECT_EQ(settings.precision.gather, DType::fp32);
  EXPECT_FALSE(settings.precision.activations.has_value());
  EXPECT_EQ(settings.precision.loss_scale.initial, 65536.0);
  EXPECT_EQ(settings.parallel.reduce, DType::fp32);
  EXPECT_TRUE(settings.parallel.activation_checkpointing == plan::ActivationCheckpointing());
  EXPECT_FALSE(settings.recompute.attention || settings.recompute.norms || settings.recompute.mlp);
  EXPECT_EQ(settings.optimizer.kind, optim::OptimizerKind::adamw);
  EXPECT_EQ(settings.parallel.moments.dtype, DType::fp32);
  EXPECT_EQ(policy_of(settings).moment_count, 2);
  EXPECT_EQ(settings.parallel.offload, plan::Offload::none);
  EXPECT_FALSE(settings.parallel.offload_activations);
  EXPECT_FALSE(policy_of(settings).early_updates);
  EXPECT_TRUE(settings.pinned_host_memory);
  EXPECT_TRUE(settings.early_updates);
  EXPECT_EQ(settings.optimizer.muon_iterations, 5);
  EXPECT_EQ(settings.optimizer.muon_rate_factor, 1.0);
  EXPECT_TRUE(settings.optimizer.parameters.empty());
  EXPECT_EQ(settings.schedule.decay_steps, 0);
  EXPECT_FALSE(settings.stability.skip_non_finite);
  EXPECT_EQ(settings.stability.outlier_threshold, 0.0);
  EXPECT_EQ(settings.checkpoint.every, 0);
  EXPECT_EQ(settings.checkpoint.keep, 2);
  EXPECT_EQ(settings.checkpoint.keep_every, 0);
  EXPECT_EQ(settings.checkpoint.files, checkpoint::Files::rank);
  EXPECT_TRUE(settings.checkpoint.asynchronous);
  EXPECT_FALSE(settings.checkpoint.verify);
  EXPECT_EQ(settings.checkpoint.bandwidth, 0.0);
  EXPECT_EQ(settings.checkpoint.initial_weights, "");
  EXPECT_FALSE(policy_of(settings).checkpoint_staging);
  EXPECT_EQ(settings.runtime.wall_time, 0.0);
}

TEST(Settings, WhatDescribesAModelNeedsNoData) {
  const std::string deck = "ostrakon:\n  model: {width: 64}\n  training: {validate_every: 5}\n";
  const Settings settings = read_settings(deck, "deck.yaml", {}, DeckUse::model);
  EXPECT_EQ(settings.model.width, 64);
  EXPECT_EQ(settings.data.path, "");
  const std::string again = write_deck(settings);
  EXPECT_EQ(read_settings(again, "deck.yaml", {}, DeckUse::model).model.width, 64);
  EXPECT_THROW(read_settings(again, "deck.yaml", {}), Error);
}

TEST(Settings, ReadsWhenAndHowCheckpointsAreSaved) {
  const Settings settings = read(R"(ostrakon:
  data: {dataset: synthetic}
  checkpoint:
    every: 500
    keep: 3
    keep_every: 10000
    files: node
    async: no
    verify: yes
    bandwidth: 62.5
    initial_weights: /a/weights.h5
  runtime: {wall_time: "1-02:03:04"}
)");
  EXPECT_EQ(settings.checkpoint.every, 500);
  EXPECT_EQ(settings.checkpoint.keep, 3);
  EXPECT_EQ(settings.checkpoint.keep_every, 10000);
  EXPECT_EQ(settings.checkpoint.files, checkpoint::Files::node);
  EXPECT_FALSE(settings.checkpoint.asynchronous);
  EXPECT_TRUE(settings.checkpoint.verify);
  EXPECT_EQ(settings.checkpoint.bandwidth, 62.5);
  EXPECT_EQ(settings.checkpoint.initial_weights, "/a/weights.h5");
  EXPECT_EQ(settings.runtime.wall_time, 93784.0);
  expect_equal(read(write_deck(settings)), settings);
  const auto files = [](const char* text) {
    return read(synthetic, {{"checkpoint.files", text}}).checkpoint.files;
  };
  EXPECT_EQ(files("rank"), checkpoint::Files::rank);
  EXPECT_EQ(files("single"), checkpoint::Files::single);
}

TEST(Settings, HostMemoryHasSpaceForACheckpointThatIsWrittenDuringTraining) {
  for (const char* every : {"0", "1", "500"})
    for (const char* async : {"true", "false"}) {
      const Settings settings =
          read(synthetic, {{"checkpoint.every", every}, {"checkpoint.async", async}});
      EXPECT_EQ(policy_of(settings).checkpoint_staging,
                every != std::string("0") && async == std::string("true"))
          << every << " " << async;
      expect_equal(read(write_deck(settings)), settings);
    }
}

TEST(Settings, ReadsPrecisionOptimizerAndStability) {
  const Settings settings = read(R"(ostrakon:
  data: {dataset: synthetic}
  training: {steps: 100, on_non_finite: skip, skip_outliers: 6, outlier_window: 64}
  precision: {parameters: fp32, gather: bf16, activations: bf16, reduce: fp16, loss_scale: 1024}
  memory: {activation_checkpointing: every 3, offload: none}
  optimizer: {name: sgd, momentum: 0.5, nesterov: no, moments: bf16}
  schedule: {tail: warmup_stable_decay, warmup_steps: 60, decay_steps: 40}
)");
  EXPECT_TRUE(settings.stability.skip_non_finite);
  EXPECT_EQ(settings.stability.outlier_threshold, 6.0);
  EXPECT_EQ(settings.stability.outlier_window, 64);
  EXPECT_EQ(settings.precision.gather, DType::bf16);
  EXPECT_EQ(settings.precision.activations, DType::bf16);
  EXPECT_EQ(settings.precision.loss_scale.initial, 1024.0);
  EXPECT_EQ(settings.parallel.reduce, DType::fp16);
  EXPECT_EQ(settings.parallel.activation_checkpointing.every, 3);
  EXPECT_EQ(settings.optimizer.kind, optim::OptimizerKind::sgd);
  EXPECT_EQ(settings.optimizer.momentum, 0.5);
  EXPECT_FALSE(settings.optimizer.nesterov);
  EXPECT_EQ(settings.parallel.moments.dtype, DType::bf16);
  EXPECT_EQ(policy_of(settings).moment_count, 1);
  EXPECT_EQ(settings.schedule.tail, optim::Tail::warmup_stable_decay);
  EXPECT_EQ(settings.schedule.decay_steps, 40);
  expect_equal(read(write_deck(settings)), settings);

  EXPECT_EQ(policy_of(read(synthetic, {{"optimizer.name", "lion"}})).moment_count, 1);
  EXPECT_EQ(policy_of(read(synthetic, {{"optimizer.name", "sgd"}, {"optimizer.momentum", "0"}}))
                .moment_count,
            0);
  EXPECT_EQ(read(synthetic, {{"schedule.tail", "inverse_square_root"}}).schedule.tail,
            optim::Tail::inverse_square_root);
  EXPECT_FALSE(read(synthetic, {{"precision.gather", "fp16"}, {"precision.activations", "auto"}})
                   .precision.activations.has_value());
}

TEST(Settings, ReadsOffloadAndMuon) {
  const Settings settings = read(R"(ostrakon:
  data: {dataset: synthetic}
  memory: {offload: optimizer, pinned: no, activations: host}
  optimizer: {name: muon, momentum: 0.9, nesterov: no, muon_iterations: 7, muon_rate_factor: 2.5}
)");
  EXPECT_EQ(settings.parallel.offload, plan::Offload::optimizer);
  EXPECT_TRUE(settings.parallel.offload_activations);
  EXPECT_FALSE(settings.pinned_host_memory);
  EXPECT_EQ(settings.optimizer.kind, optim::OptimizerKind::muon);
  EXPECT_EQ(settings.optimizer.momentum, 0.9);
  EXPECT_FALSE(settings.optimizer.nesterov);
  EXPECT_EQ(settings.optimizer.muon_iterations, 7);
  EXPECT_EQ(settings.optimizer.muon_rate_factor, 2.5);
  // AdamW's moments count, as AdamW updates parameters other than matrices of blocks.
  EXPECT_EQ(policy_of(settings).moment_count, 2);
  expect_equal(read(write_deck(settings)), settings);
  EXPECT_EQ(read(synthetic, {{"memory.offload", "parameters"}}).parallel.offload,
            plan::Offload::parameters);
  EXPECT_EQ(read(synthetic, {{"memory.offload", "all"}}).parallel.offload, plan::Offload::all);
  EXPECT_FALSE(read(synthetic, {{"memory.activations", "device"}}).parallel.offload_activations);
  EXPECT_EQ(policy_of(read(synthetic, {{"optimizer.name", "muon"}, {"optimizer.momentum", "0"}}))
                .moment_count,
            2);
}

TEST(Settings, UpdatesAreEarlyWhereEveryGradientIsTakenAsItIs) {
  const auto early = [](const std::vector<Override>& overrides) {
    return policy_of(read(synthetic, overrides)).early_updates;
  };
  for (const char* offload : {"none", "optimizer", "parameters", "all"}) {
    SCOPED_TRACE(offload);
    const bool on_host = offload == std::string("optimizer") || offload == std::string("all");
    std::vector<Override> overrides = {{"memory.offload", offload}};
    EXPECT_FALSE(early(overrides));  // with clipping
    overrides.emplace_back("optimizer.clip_norm", "0");
    EXPECT_EQ(early(overrides), on_host);
    for (const Override& harmless :
         {Override{"precision.gather", "bf16"}, Override{"precision.reduce", "bf16"},
          Override{"precision.loss_scale", "8"}, Override{"training.outlier_window", "9"}}) {
      std::vector<Override> more = overrides;
      more.push_back(harmless);
      EXPECT_EQ(early(more), on_host) << harmless.first;
    }
    for (const Override& hindering :
         {Override{"optimizer.clip_norm", "1e-9"}, Override{"precision.gather", "fp16"},
          Override{"parallel.pipeline", "2"}, Override{"precision.reduce", "fp16"},
          Override{"training.on_non_finite", "skip"}, Override{"training.skip_outliers", "6"},
          Override{"memory.early_updates", "false"}}) {
      std::vector<Override> more = overrides;
      more.push_back(hindering);
      EXPECT_FALSE(early(more)) << hindering.first;
    }
  }
}

TEST(Settings, PolicyFollowsFromThemAsTheyAre) {
  Settings settings = read(synthetic);
  settings.training.global_batch_size = 64;
  settings.training.micro_batch_size = 4;
  settings.optimizer.kind = optim::OptimizerKind::lion;
  settings.optimizer.clip_norm = 0.0;
  settings.parallel.offload = plan::Offload::all;
  settings.checkpoint.every = 10;
  EXPECT_EQ(policy_of(settings).leaves, 16);
  EXPECT_EQ(policy_of(settings).moment_count, 1);
  EXPECT_TRUE(policy_of(settings).early_updates);
  EXPECT_TRUE(policy_of(settings).checkpoint_staging);
  expect_equal(read(write_deck(settings)), settings);
  settings.parallel.offload = plan::Offload::none;
  settings.optimizer.kind = optim::OptimizerKind::muon;
  settings.checkpoint.asynchronous = false;
  EXPECT_EQ(policy_of(settings).moment_count, 2);
  EXPECT_FALSE(policy_of(settings).early_updates);
  EXPECT_FALSE(policy_of(settings).checkpoint_staging);
}

TEST(Settings, NumbersAreWrittenShortAndReadBack) {
  const std::pair<double, const char*> numbers[] = {
      {0.0, "0"},      {-0.0, "-0"},   {-5.0, "-5"},   {999999999999999.0, "999999999999999"},
      {1e15, "1e+15"}, {-0.1, "-0.1"}, {1e-5, "1e-5"}, {1.0 / 3.0, "0.3333333333333333"}};
  for (const auto& [number, words] : numbers) {
    EXPECT_EQ(format_number(number), words);
    EXPECT_EQ(parse_scalar(words).number, number);
  }
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const std::pair<const char*, double> digits[] = {{"007", 7.0},
                                                   {"123456789012345", 123456789012345.0},
                                                   {"1234567890123456", 1234567890123456.0},
                                                   {"12345678901234567", 12345678901234568.0},
                                                   {"0x10", 16.0},
                                                   {"0o10", 8.0},
                                                   {"1e999", infinity},
                                                   {"-.inf", -infinity}};
  for (const auto& [words, number] : digits) EXPECT_EQ(parse_scalar(words).number, number);
  for (const char* words : {"1e-400", "-2.5e-999", ".nan"}) {
    EXPECT_EQ(parse_scalar(words).kind, Value::Kind::number) << words;
    EXPECT_TRUE(std::isnan(parse_scalar(words).number)) << words;
  }
  for (const char* words :
       {"", "+", "1 ", "0x", "0x1g", "0o8", "nan", "inf", "--1", ".", "1e", "1.2.3"})
    EXPECT_EQ(parse_scalar(words).kind, Value::Kind::text) << words;
}

TEST(Settings, WhatADeckTakesIsTakenByThatWhichItIsFor) {
  for (double scale = 1.0; scale <= 16777216.0; scale *= 2.0) {
    const Settings settings = read(synthetic, {{"precision.loss_scale", format_number(scale)}});
    EXPECT_EQ(optim::LossScale(settings.precision.loss_scale).value(), scale);
  }
  const Settings settings =
      read(synthetic, {{"training.outlier_window", "2"}, {"training.skip_outliers", "1e-3"}});
  EXPECT_NO_THROW(optim::OutlierFilter(
      {settings.stability.outlier_window, settings.stability.outlier_threshold}));
}

TEST(Settings, ReadsEveryKindOfValue) {
  const Settings settings = read(R"(# a comment
ostrakon:
  model:      # another
    norm: layernorm
    positions: learned
    activation: gelu
    width: 96
    heads: 6
    bias: yes
    tie_embeddings: False
  data:
    dataset: "synthetic"
    synthetic_noise: 1          # an integer where a number is meant
  training:
    steps: 1e3                  # a number that is an integer
    global_batch_size: 12.0
    micro_batch_size: 3
    sum_grain: 2

  parallel: {sharding: none, accumulation: reduce_last, leaf_order: shuffled}
  optimizer:
    learning_rate: 6E-4
    beta1: 0
    epsilon: .00000001
  schedule:
    tail: 'linear'
)");
  EXPECT_EQ(settings.model.norm, math::NormKind::layernorm);
  EXPECT_EQ(settings.model.positions, model::Positions::learned);
  EXPECT_EQ(settings.model.activation, model::Activation::gelu);
  EXPECT_EQ(settings.model.kv_heads, 6);
  EXPECT_EQ(settings.model.ffn_width, 4 * 96);
  EXPECT_TRUE(settings.model.bias);
  EXPECT_FALSE(settings.model.tie_embeddings);
  EXPECT_EQ(settings.data.synthetic_noise, 1.0);
  EXPECT_EQ(settings.training.steps, 1000);
  EXPECT_EQ(settings.training.global_batch_size, 12);
  EXPECT_EQ(policy_of(settings).leaves, 4);
  EXPECT_EQ(policy_of(settings).sum_grain, 2);
  EXPECT_EQ(settings.parallel.sharding, plan::Sharding::none);
  EXPECT_EQ(settings.parallel.accumulation, plan::Accumulation::reduce_last);
  EXPECT_EQ(settings.parallel.leaf_order, plan::LeafOrder::shuffled);
  EXPECT_EQ(settings.optimizer.learning_rate, 6e-4);
  EXPECT_EQ(settings.optimizer.beta1, 0.0);
  EXPECT_EQ(settings.optimizer.epsilon, 1e-8);
  EXPECT_EQ(settings.schedule.tail, optim::Tail::linear);
}

TEST(Settings, TextIsReadWhateverItsLineEnds) {
  std::string windows;
  for (const char c : synthetic) windows += c == '\n' ? std::string("\r\n") : std::string(1, c);
  for (const std::string& deck :
       {synthetic.substr(0, synthetic.size() - 1), windows, "\xEF\xBB\xBF" + synthetic,
        "\n\n" + synthetic + "\n\n# the end", "%YAML 1.1\n---\n" + synthetic + "...\n",
        std::string("ostrakon:\n\tdata:\n\t\tdataset: synthetic\t\n"),
        std::string("ostrakon:\n  model:\n  data:\n# first column\n    dataset: synthetic #x\n"),
        std::string("\"ostrakon\": {data: {'dataset': 'synthetic'}}\n")}) {
    EXPECT_NO_THROW(expect_equal(read(deck), read(synthetic))) << deck;
  }
}

TEST(Settings, BigIntegersAreExact) {
  EXPECT_EQ(read(synthetic + "  training:\n    seed: 9007199254740991\n").training.seed,
            9007199254740991u);
  EXPECT_EQ(read(synthetic + "  training:\n    seed: 2147483648\n").training.seed, 2147483648u);
  EXPECT_EQ(read(synthetic, {{"training.seed", "9007199254740991"}}).training.seed,
            9007199254740991u);
}

TEST(Settings, OfTwoOverridesOfAKeyTheLastCounts) {
  EXPECT_EQ(read(synthetic, {{"training.steps", "3"}, {"training.steps", "5"}}).training.steps, 5);
}

TEST(Settings, AZeroStandsForTheUsualWidth) {
  const std::string deck = synthetic +
                           "  model:\n    width: 768\n    heads: 12\n    kv_heads: 0\n"
                           "    ffn_width: 0\n";
  EXPECT_EQ(read(deck).model.kv_heads, 12);
  EXPECT_EQ(read(deck).model.ffn_width, 2048);
  EXPECT_EQ(read(deck + "    activation: gelu\n").model.ffn_width, 3072);
  EXPECT_EQ(read(deck, {{"model.width", "4096"}, {"model.heads", "32"}}).model.ffn_width, 10944);
}

TEST(Settings, ReadsXml) {
  const std::string deck = R"(<?xml version="1.0"?>
<ParameterList name="ostrakon">
  <!-- a comment -->
  <ParameterList name="data">
    <Parameter name="dataset" type="string" value="tokens"/>
    <Parameter name="path" type="string" value="a &amp; b #1.h5"/>
    <Parameter name="verify" type="bool" value="false"/>
  </ParameterList>
  <ParameterList name="training">
    <Parameter name="steps" type="int" value="12"/>
    <Parameter name="time_limit_minutes" type="double" value="1.5"/>
  </ParameterList>
</ParameterList>)";
  const Settings settings = read_settings(deck, "some/deck.XML", {});
  EXPECT_EQ(settings.data.path, "some/a & b #1.h5");
  EXPECT_FALSE(settings.data.verify);
  EXPECT_EQ(settings.training.steps, 12);
  EXPECT_EQ(settings.training.time_limit_minutes, 1.5);
}

TEST(Settings, OverridesTakeTheDecksPlace) {
  const Settings settings = read(synthetic, {{"training.steps", "5"},
                                             {"training.steps", "2e1"},
                                             {"model.bias", "true"},
                                             {"schedule.tail", "constant"},
                                             {"output.directory", "a=b #c: d"}});
  EXPECT_EQ(settings.training.steps, 20);
  EXPECT_TRUE(settings.model.bias);
  EXPECT_EQ(settings.schedule.tail, optim::Tail::constant);
  EXPECT_EQ(settings.output.directory, "a=b #c: d");
  EXPECT_EQ(read(synthetic, {{"output.directory", "2026"}}).output.directory, "2026");
  EXPECT_EQ(parse_override("output.directory=a=b"), Override("output.directory", "a=b"));
  EXPECT_EQ(parse_override("data.validation_path="), Override("data.validation_path", ""));
}

TEST(Settings, PathsAreRelativeToTheDeckAndOverridesToTheWorkingDirectory) {
  const std::string deck =
      "ostrakon:\n  data:\n    path: ../data/x.h5\n    validation_path: /abs/y.h5\n";
  const Settings settings = read_settings(deck, "decks/mine/a.yaml", {});
  EXPECT_EQ(settings.data.path, "decks/data/x.h5");
  EXPECT_EQ(settings.data.validation_path, "/abs/y.h5");
  EXPECT_EQ(settings.output.directory, "decks/mine/output");
  EXPECT_EQ(path_origin(settings, "data.path"),
            "decks/mine/a.yaml: data.path = \"../data/x.h5\", relative to the deck's folder");
  EXPECT_EQ(path_origin(settings, "data.validation_path"),
            "decks/mine/a.yaml: data.validation_path = \"/abs/y.h5\"");
  EXPECT_EQ(path_origin(settings, "output.directory"),
            "decks/mine/a.yaml: output.directory = \"output\", the default, relative to the deck's "
            "folder");
  EXPECT_EQ(path_origin(Settings{}, "data.path"), "data.path");
  EXPECT_EQ(read_settings(deck, "a.yaml", {}).data.path, "../data/x.h5");
  EXPECT_EQ(read_settings(deck, "/a/b.yaml", {}).data.path, "/data/x.h5");
  const Settings overridden =
      read_settings(deck, "decks/a.yaml", {{"data.path", "z.h5"}, {"data.validation_path", ""}});
  EXPECT_EQ(overridden.data.path, "z.h5");
  EXPECT_EQ(overridden.data.validation_path, "");
  EXPECT_EQ(path_origin(overridden, "data.path"),
            "--set data.path=\"z.h5\", relative to the working directory");
  EXPECT_EQ(overridden.output.directory, "decks/output");
}

TEST(Settings, DataMayBeAMixtureOfFiles) {
  const std::string mixed = "0.7 decks/x.h5; 1 /abs/y z.h5; 0 decks/w.h5";
  const std::string rows[] = {"\n      - 0.7 x.h5\n      - /abs/y z.h5\n      - 0 ./w.h5\n",
                              " [0.7 x.h5, /abs/y z.h5, \"0 w.h5\"]\n",
                              " 0.7 x.h5; /abs/y z.h5; 0 w.h5\n",
                              " >\n      0.7 x.h5;\n      /abs/y z.h5;\n      0 w.h5\n"};
  for (const std::string& row : rows) {
    const Settings settings =
        read_settings("ostrakon:\n  data:\n    path:" + row, "decks/a.yaml", {});
    const std::string folder = std::filesystem::current_path().string();
    EXPECT_EQ(settings.data.path, mixed) << row;
    if (row == rows[0]) {
      EXPECT_EQ(path_origin(settings, "data.path"),
                "decks/a.yaml: data.path = a list [\"0.7 x.h5\", \"/abs/y z.h5\", \"0 ./w.h5\"], "
                "relative to the deck's folder");
    }
    EXPECT_EQ(with_absolute_paths(settings).data.path,
              "0.7 " + folder + "/decks/x.h5; 1 /abs/y z.h5; 0 " + folder + "/decks/w.h5");
    expect_equal(read_settings(write_deck(settings), "other.yaml", {}), settings);
  }
  const std::string xml =
      "<ParameterList name=\"ostrakon\"><ParameterList name=\"data\"><Parameter name=\"path\" "
      "type=\"string\" value=\"0.7 x.h5; /abs/y z.h5; 0 w.h5\"/></ParameterList></ParameterList>";
  EXPECT_EQ(read_settings(xml, "decks/a.xml", {}).data.path, mixed);
  EXPECT_EQ(read_settings("ostrakon:\n", "decks/a.yaml", {{"data.path", "2 b.h5; c.h5"}}).data.path,
            "2 b.h5; 1 c.h5");
  const auto error = [](const std::string& value, const std::string& key) {
    return testing::error_of([&] {
      read_settings("ostrakon:\n  data:\n    " + key + ": " + value + "\n", "a.yaml", {});
    });
  };
  EXPECT_HAS(error("[a; b, c]", "path"), "data.path: \"a; b\" has a ';', which separates files");
  EXPECT_HAS(error("[a, b]", "validation_path"), "found a list [\"a\", \"b\"]");
  EXPECT_HAS(error("[a, [b]]", "path"), "data.path: expected a path as text");
  EXPECT_HAS(error("[]", "path"), "found a list");
  EXPECT_HAS(error("0 a; 0 b", "path"), "a.yaml: data.path: the weights of all files are 0");
  EXPECT_HAS(error("[a, b]", "validation_path"), "expected a path as text");
}

TEST(Settings, PathsMayBeRelativeToTheWorkingDirectory) {
  const std::string deck =
      "ostrakon:\n  data:\n    path: data/x.h5\n    validation_path: /abs/y.h5\n"
      "  runtime:\n    paths_from: working_directory\n";
  for (const char* name : {"a.yaml", "decks/mine/a.yaml", "/usr/share/a.yaml"}) {
    const Settings settings = read_settings(deck, name, {});
    EXPECT_EQ(settings.data.path, "data/x.h5") << name;
    EXPECT_EQ(settings.data.validation_path, "/abs/y.h5") << name;
    EXPECT_EQ(settings.output.directory, "output") << name;
  }
  EXPECT_EQ(read_settings(deck, "decks/a.yaml", {{"runtime.paths_from", "deck"}}).data.path,
            "decks/data/x.h5");
}

TEST(Settings, AbsolutePathsNameTheSameFilesFromElsewhere) {
  Settings settings = read("ostrakon:\n  data:\n    path: x/../y.h5\n");
  settings = with_absolute_paths(settings);
  EXPECT_EQ(settings.data.path, (std::filesystem::current_path() / "y.h5").string());
  EXPECT_EQ(settings.data.validation_path, "");
  expect_equal(read_settings(write_deck(settings), "/other/deck.yaml", {}), settings);
}

}  // namespace
}  // namespace ostrakon::config
