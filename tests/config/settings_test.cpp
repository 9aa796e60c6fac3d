// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <ostrakon/base/error.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/config/keys.hpp>
#include <ostrakon/config/nearest.hpp>
#include <ostrakon/config/policy_text.hpp>
#include <ostrakon/config/rule_text.hpp>
#include <ostrakon/config/value.hpp>
#include <ostrakon/model/decoder.hpp>
#include <ostrakon/optim/muon.hpp>
#include <ostrakon/optim/outlier_filter.hpp>
#include <ostrakon/plan/step_plan.hpp>
#include <random>
#include <sstream>
#include <stdexcept>

#include "support/device_array.hpp"

namespace ostrakon::config {
namespace {

const std::string synthetic = "ostrakon:\n  data:\n    dataset: synthetic\n";

Settings read(const std::string& deck, const std::vector<Override>& overrides = {}) {
  return read_settings(deck, "deck.yaml", overrides);
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream stream(path);
  std::ostringstream out;
  out << stream.rdbuf();
  return out.str();
}

void expect_equal(const std::optional<plan::Prefetch>& a, const std::optional<plan::Prefetch>& b) {
  ASSERT_EQ(a.has_value(), b.has_value());
  if (!a) return;
  EXPECT_EQ(a->depth, b->depth);
  EXPECT_EQ(a->units, b->units);
}

void expect_equal(const std::vector<plan::UnitRule>& a, const std::vector<plan::UnitRule>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].pattern, b[i].pattern);
    EXPECT_TRUE(a[i].reshard_after_forward == b[i].reshard_after_forward);
    expect_equal(a[i].forward_prefetch, b[i].forward_prefetch);
    expect_equal(a[i].backward_prefetch, b[i].backward_prefetch);
  }
}

void expect_equal(const std::vector<optim::ParameterRule>& a,
                  const std::vector<optim::ParameterRule>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].pattern, b[i].pattern);
    EXPECT_EQ(a[i].frozen, b[i].frozen);
    EXPECT_EQ(a[i].learning_rate, b[i].learning_rate);
    EXPECT_EQ(a[i].weight_decay, b[i].weight_decay);
  }
}

/// Bit for bit: every key's value, written so that it reads back exactly.
void expect_equal(const Settings& a, const Settings& b) {
  for (const Section& section : sections()) {
    for (const Key& key : section.keys) {
      EXPECT_EQ(key.get(a).shown(), key.get(b).shown()) << section.name << "." << key.name;
      EXPECT_EQ(key.get(a).number, key.get(b).number) << section.name << "." << key.name;
      EXPECT_EQ(key.get(a).text, key.get(b).text) << section.name << "." << key.name;
    }
  }
  EXPECT_EQ(a.parallel.leaves, b.parallel.leaves);
  EXPECT_TRUE(a.parallel.reshard_after_forward == b.parallel.reshard_after_forward);
  EXPECT_TRUE(a.parallel.in_flight_gathers == b.parallel.in_flight_gathers);
  expect_equal(a.parallel.forward_prefetch, b.parallel.forward_prefetch);
  expect_equal(a.parallel.backward_prefetch, b.parallel.backward_prefetch);
  expect_equal(a.parallel.units, b.parallel.units);
  EXPECT_EQ(a.parallel.reduce, b.parallel.reduce);
  EXPECT_TRUE(a.parallel.activation_checkpointing == b.parallel.activation_checkpointing);
  EXPECT_EQ(a.parallel.moments.count, b.parallel.moments.count);
  EXPECT_EQ(a.parallel.moments.number, b.parallel.moments.number);
  EXPECT_EQ(a.parallel.offload, b.parallel.offload);
  EXPECT_EQ(a.parallel.offload_activations, b.parallel.offload_activations);
  EXPECT_EQ(a.parallel.early_updates, b.parallel.early_updates);
  EXPECT_EQ(a.parallel.checkpoint_staging, b.parallel.checkpoint_staging);
  EXPECT_EQ(a.pinned_host_memory, b.pinned_host_memory);
  EXPECT_EQ(a.early_updates, b.early_updates);
  EXPECT_EQ(a.precision.gather, b.precision.gather);
  EXPECT_EQ(a.precision.activations, b.precision.activations);
  EXPECT_EQ(a.precision.loss_scale.initial, b.precision.loss_scale.initial);
  EXPECT_EQ(a.recompute.attention, b.recompute.attention);
  EXPECT_EQ(a.recompute.norms, b.recompute.norms);
  EXPECT_EQ(a.recompute.mlp, b.recompute.mlp);
  EXPECT_EQ(a.stability.skip_non_finite, b.stability.skip_non_finite);
  EXPECT_EQ(a.stability.outlier_threshold, b.stability.outlier_threshold);
  EXPECT_EQ(a.stability.outlier_window, b.stability.outlier_window);
  EXPECT_EQ(a.optimizer.kind, b.optimizer.kind);
  EXPECT_EQ(a.optimizer.momentum, b.optimizer.momentum);
  EXPECT_EQ(a.optimizer.nesterov, b.optimizer.nesterov);
  EXPECT_EQ(a.optimizer.muon_iterations, b.optimizer.muon_iterations);
  EXPECT_EQ(a.optimizer.muon_rate_factor, b.optimizer.muon_rate_factor);
  expect_equal(a.optimizer.parameters, b.optimizer.parameters);
  EXPECT_EQ(a.schedule.tail, b.schedule.tail);
  EXPECT_EQ(a.schedule.decay_steps, b.schedule.decay_steps);
}

plan::Reshard kept_in(int parts) {
  plan::Reshard reshard;
  reshard.kind = plan::Reshard::partly;
  reshard.ranks = parts;
  return reshard;
}

TEST(Settings, EverythingThatADeckLeavesOutHasADefault) {
  const Settings settings = read(synthetic);
  EXPECT_EQ(settings.data.dataset, data::DatasetKind::synthetic);
  EXPECT_EQ(settings.model.layers, 4);
  EXPECT_EQ(settings.model.kv_heads, 4);
  EXPECT_EQ(settings.model.ffn_width, 704);  // 8/3 x 256 = 682.7, rounded up to 64s
  EXPECT_EQ(settings.training.global_batch_size, 8);
  EXPECT_EQ(settings.parallel.leaves, 8);
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
  EXPECT_EQ(settings.precision.gather, Number::fp32);
  EXPECT_FALSE(settings.precision.activations.has_value());
  EXPECT_EQ(settings.precision.loss_scale.initial, 65536.0);
  EXPECT_EQ(settings.parallel.reduce, Number::fp32);
  EXPECT_TRUE(settings.parallel.activation_checkpointing == plan::Checkpointing());
  EXPECT_FALSE(settings.recompute.attention || settings.recompute.norms || settings.recompute.mlp);
  EXPECT_EQ(settings.optimizer.kind, optim::OptimizerKind::adamw);
  EXPECT_EQ(settings.parallel.moments.number, Number::fp32);
  EXPECT_EQ(settings.parallel.moments.count, 2);
  EXPECT_EQ(settings.parallel.offload, plan::Offload::none);
  EXPECT_FALSE(settings.parallel.offload_activations);
  EXPECT_FALSE(settings.parallel.early_updates);
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
  EXPECT_FALSE(settings.parallel.checkpoint_staging);
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

TEST(Settings, HostMemoryHasRoomForACheckpointThatIsWrittenBesideTraining) {
  for (const char* every : {"0", "1", "500"})
    for (const char* async : {"true", "false"}) {
      const Settings settings =
          read(synthetic, {{"checkpoint.every", every}, {"checkpoint.async", async}});
      EXPECT_EQ(settings.parallel.checkpoint_staging,
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
  EXPECT_EQ(settings.precision.gather, Number::bf16);
  EXPECT_EQ(settings.precision.activations, Number::bf16);
  EXPECT_EQ(settings.precision.loss_scale.initial, 1024.0);
  EXPECT_EQ(settings.parallel.reduce, Number::fp16);
  EXPECT_EQ(settings.parallel.activation_checkpointing.every, 3);
  EXPECT_EQ(settings.optimizer.kind, optim::OptimizerKind::sgd);
  EXPECT_EQ(settings.optimizer.momentum, 0.5);
  EXPECT_FALSE(settings.optimizer.nesterov);
  EXPECT_EQ(settings.parallel.moments.number, Number::bf16);
  EXPECT_EQ(settings.parallel.moments.count, 1);
  EXPECT_EQ(settings.schedule.tail, optim::Tail::warmup_stable_decay);
  EXPECT_EQ(settings.schedule.decay_steps, 40);
  expect_equal(read(write_deck(settings)), settings);

  EXPECT_EQ(read(synthetic, {{"optimizer.name", "lion"}}).parallel.moments.count, 1);
  EXPECT_EQ(read(synthetic, {{"optimizer.name", "sgd"}, {"optimizer.momentum", "0"}})
                .parallel.moments.count,
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
  // Those of adamw, which updates what is no matrix of a block.
  EXPECT_EQ(settings.parallel.moments.count, 2);
  expect_equal(read(write_deck(settings)), settings);
  EXPECT_EQ(read(synthetic, {{"memory.offload", "parameters"}}).parallel.offload,
            plan::Offload::parameters);
  EXPECT_EQ(read(synthetic, {{"memory.offload", "all"}}).parallel.offload, plan::Offload::all);
  EXPECT_FALSE(read(synthetic, {{"memory.activations", "device"}}).parallel.offload_activations);
  EXPECT_EQ(read(synthetic, {{"optimizer.name", "muon"}, {"optimizer.momentum", "0"}})
                .parallel.moments.count,
            2);
}

TEST(Settings, UpdatesAreEarlyWhereEveryGradientIsTakenAsItIs) {
  const auto early = [](const std::vector<Override>& overrides) {
    return read(synthetic, overrides).parallel.early_updates;
  };
  for (const char* offload : {"none", "optimizer", "parameters", "all"}) {
    SCOPED_TRACE(offload);
    const bool on_host = offload == std::string("optimizer") || offload == std::string("all");
    std::vector<Override> overrides = {{"memory.offload", offload}};
    EXPECT_FALSE(early(overrides));  // clips
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
          Override{"precision.reduce", "fp16"}, Override{"training.on_non_finite", "skip"},
          Override{"training.skip_outliers", "6"}, Override{"memory.early_updates", "false"}}) {
      std::vector<Override> more = overrides;
      more.push_back(hindering);
      EXPECT_FALSE(early(more)) << hindering.first;
    }
  }
}

TEST(Settings, AreCompletedAnew) {
  Settings settings = read(synthetic);
  settings.training.global_batch_size = 64;
  settings.training.micro_batch_size = 4;
  settings.optimizer.kind = optim::OptimizerKind::lion;
  settings.optimizer.clip_norm = 0.0;
  settings.parallel.offload = plan::Offload::all;
  settings.checkpoint.every = 10;
  complete(settings);
  EXPECT_EQ(settings.parallel.leaves, 16);
  EXPECT_EQ(settings.parallel.moments.count, 1);
  EXPECT_TRUE(settings.parallel.early_updates);
  EXPECT_TRUE(settings.parallel.checkpoint_staging);
  expect_equal(read(write_deck(settings)), settings);
  settings.parallel.offload = plan::Offload::none;
  settings.optimizer.kind = optim::OptimizerKind::muon;
  settings.checkpoint.asynchronous = false;
  complete(settings);
  EXPECT_EQ(settings.parallel.moments.count, 2);
  EXPECT_FALSE(settings.parallel.early_updates);
  EXPECT_FALSE(settings.parallel.checkpoint_staging);
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

TEST(Settings, ReadsWhatIsComputedAgain) {
  struct Written {
    const char* text;
    int every;
    bool attention, norms, mlp;
    const char* again;
  };
  for (const Written& written :
       {Written{"none", 0, false, false, false, "none"},
        Written{"full", 1, false, false, false, "full"},
        Written{"every 1", 1, false, false, false, "full"},
        Written{"every 2", 2, false, false, false, "every 2"},
        Written{"every  2.0", 2, false, false, false, "every 2"},
        Written{"every 1e5", 100000, false, false, false, "every 100000"},
        Written{"selective attention", 0, true, false, false, "selective attention"},
        Written{"selective norms", 0, false, true, false, "selective norms"},
        Written{"selective mlp", 0, false, false, true, "selective mlp"},
        Written{"selective mlp attention", 0, true, false, true, "selective attention mlp"},
        Written{"selective norms  mlp attention", 0, true, true, true,
                "selective attention norms mlp"}}) {
    SCOPED_TRACE(written.text);
    for (const Settings& settings :
         {read(synthetic, {{"memory.activation_checkpointing", written.text}}),
          read(synthetic + "  memory:\n    activation_checkpointing: " + written.text + "\n")}) {
      EXPECT_EQ(settings.parallel.activation_checkpointing.every, written.every);
      EXPECT_EQ(settings.recompute.attention, written.attention);
      EXPECT_EQ(settings.recompute.norms, written.norms);
      EXPECT_EQ(settings.recompute.mlp, written.mlp);
      EXPECT_EQ(
          write_checkpointing({settings.parallel.activation_checkpointing, settings.recompute})
              .text,
          written.again);
      expect_equal(read(write_deck(settings)), settings);
    }
  }
  // What comes later takes the place of all that was said before.
  const std::string key = "memory.activation_checkpointing";
  for (const char* before : {"none", "full", "every 2", "selective mlp", "selective attention"})
    for (const char* after : {"none", "full", "every 2", "selective mlp", "selective attention"})
      expect_equal(read(synthetic, {{key, before}, {key, after}}), read(synthetic, {{key, after}}));
  ActivationCheckpointing both;
  both.units.every = 1;
  both.within_blocks.norms = true;
  EXPECT_THROW(write_checkpointing(both), std::logic_error);
}

TEST(Settings, ReadsWhatIsGatheredWhen) {
  const Settings settings = read(R"(ostrakon:
  model: {blocks_per_unit: auto}
  data: {dataset: synthetic}
  parallel:
    reshard_after_forward: 4
    forward_prefetch: 0
    backward_prefetch: 1000
    in_flight_gathers: 8 GiB
    in_flight_reductions: 3
    units: "block.*: backward_prefetch 2"
  output: {trace: 2}
  runtime: {streams: inline}
)");
  EXPECT_EQ(settings.model.blocks_per_unit, 0);
  EXPECT_TRUE(settings.parallel.reshard_after_forward == kept_in(4));
  EXPECT_EQ(settings.parallel.forward_prefetch.depth, 0);
  EXPECT_EQ(settings.parallel.backward_prefetch.depth, 1000);
  EXPECT_EQ(settings.parallel.in_flight_gathers.units, 0);
  EXPECT_EQ(settings.parallel.in_flight_gathers.bytes, std::int64_t{8} << 30);
  EXPECT_EQ(settings.parallel.in_flight_reductions, 3);
  EXPECT_EQ(settings.parallel.units.size(), 1u);
  EXPECT_EQ(settings.output.trace_steps, 2);
  EXPECT_EQ(settings.runtime.streams, StreamsChoice::in_plan_order);
  EXPECT_EQ(read(synthetic, {{"model.blocks_per_unit", "4"}}).model.blocks_per_unit, 4);
  EXPECT_EQ(read(synthetic, {{"runtime.streams", "threads"}}).runtime.streams,
            StreamsChoice::threads);
  const auto reshard = [](const char* text) {
    return read(synthetic, {{"parallel.reshard_after_forward", text}})
        .parallel.reshard_after_forward;
  };
  EXPECT_EQ(reshard("default").kind, plan::Reshard::automatic);
  EXPECT_EQ(reshard("always").kind, plan::Reshard::always);
  EXPECT_EQ(reshard("never").kind, plan::Reshard::never);
  EXPECT_TRUE(reshard("2") == kept_in(2));
}

TEST(Settings, ReadsThreadsOfTheMatrixLibrary) {
  const auto threads = [](const char* text) {
    return read(synthetic, {{"runtime.threads", text}}).runtime.threads;
  };
  EXPECT_EQ(threads("auto"), automatic_threads);
  EXPECT_EQ(threads("1"), 1);
  EXPECT_EQ(threads("4096"), 4096);
  for (const char* text : {"auto", "2"})
    EXPECT_NE(write_deck(read(synthetic, {{"runtime.threads", text}}))
                  .find(std::string("threads: ") + text),
              std::string::npos);
}

TEST(Settings, ReadsLimitsOfGathers) {
  const auto limit = [](const std::string& text) {
    return read(synthetic, {{"parallel.in_flight_gathers", text}}).parallel.in_flight_gathers;
  };
  struct Written {
    const char* text;
    std::int64_t bytes;
    const char* again;
  };
  for (const Written& written :
       {Written{"1 B", 1, "1 B"}, Written{"123456B", 123456, "123456 B"},
        Written{"1 kB", 1000, "1 kB"}, Written{"1KiB", 1024, "1 KiB"},
        Written{"500 MB", 500000000, "500 MB"}, Written{"1.5 MiB", 1572864, "1536 KiB"},
        Written{"0.5GB", 500000000, "500 MB"}, Written{"2.500 GiB", 2684354560, "2560 MiB"},
        Written{".25 TB", 250000000000, "250 GB"}, Written{"3. TiB", 3298534883328, "3 TiB"},
        Written{"0.3 MB", 300000, "300 kB"}, Written{"0.1 MiB", 104858, "104858 B"},
        Written{"1024000 kB", 1024000000, "1024 MB"}, Written{"007 B", 7, "7 B"},
        Written{"4096 TiB", std::int64_t{1} << 52, "4096 TiB"},
        Written{"4503599627370495 B", (std::int64_t{1} << 52) - 1, "4503599627370495 B"}}) {
    SCOPED_TRACE(written.text);
    EXPECT_EQ(limit(written.text).bytes, written.bytes);
    EXPECT_EQ(limit(written.text).units, 0);
    EXPECT_EQ(write_gather_limit(limit(written.text)).text, written.again);
    EXPECT_EQ(limit(written.again).bytes, written.bytes);
  }
  EXPECT_TRUE(limit("unlimited") == plan::GatherLimit());
  EXPECT_EQ(limit("2").units, 2);
  EXPECT_EQ(limit("2").bytes, 0);
  EXPECT_EQ(limit("1e6").units, 1000000);
  plan::GatherLimit both;
  both.units = both.bytes = 1;
  EXPECT_THROW(write_gather_limit(both), std::logic_error);
}

TEST(Settings, ReadsRulesForUnits) {
  const std::string text =
      "block.*: reshard_after_forward never, backward_prefetch 2; block.0: forward_prefetch "
      "block.1 block.2";
  for (const Settings& settings :
       {read(synthetic, {{"parallel.units", text}}),
        read(synthetic + "  parallel:\n    units: \"" + text + "\"\n"),
        read(synthetic + "  parallel:\n    units: '" + text + "'\n"),
        read(synthetic, {{"parallel.units",
                          " ;block.* :backward_prefetch  2.0,reshard_after_forward never;;"
                          "block.0:forward_prefetch   block.1  block.2 ; "}})}) {
    const std::vector<plan::UnitRule>& rules = settings.parallel.units;
    ASSERT_EQ(rules.size(), 2u);
    EXPECT_EQ(rules[0].pattern, "block.*");
    EXPECT_EQ(rules[0].reshard_after_forward->kind, plan::Reshard::never);
    EXPECT_FALSE(rules[0].forward_prefetch.has_value());
    EXPECT_EQ(rules[0].backward_prefetch->depth, 2);
    EXPECT_TRUE(rules[0].backward_prefetch->units.empty());
    EXPECT_EQ(rules[1].pattern, "block.0");
    EXPECT_FALSE(rules[1].reshard_after_forward.has_value());
    EXPECT_EQ(rules[1].forward_prefetch->units, (std::vector<std::string>{"block.1", "block.2"}));
    EXPECT_FALSE(rules[1].backward_prefetch.has_value());
    EXPECT_EQ(write_unit_rules(rules), text);
  }
  // A unit among those that its own rule names: one of many to which the rule holds.
  EXPECT_EQ(read_unit_rules("block.*: forward_prefetch block.1 head")[0].forward_prefetch->units,
            (std::vector<std::string>{"block.1", "head"}));
  EXPECT_TRUE(read_unit_rules("").empty());
  EXPECT_TRUE(read_unit_rules(" ; ").empty());
  EXPECT_TRUE(read_unit_rules("*: reshard_after_forward 8")[0].reshard_after_forward == kept_in(8));
  EXPECT_EQ(write_unit_rules(std::vector<plan::UnitRule>(2)), "");
}

TEST(Settings, ReadsRulesForParameters) {
  const std::string text =
      "embedding.*: frozen; *.norm.*: learning_rate 0.0001, weight_decay 0; block.0.*: frozen; "
      "block.0.mlp.*: trained, weight_decay 1e-20";
  for (const Settings& settings :
       {read(synthetic, {{"optimizer.parameters", text}}),
        read(synthetic + "  optimizer:\n    parameters: \"" + text + "\"\n"),
        read(synthetic + "  optimizer:\n    parameters: '" + text + "'\n"),
        read(synthetic, {{"optimizer.parameters",
                          ";embedding.*  :frozen ;; *.norm.*:weight_decay   0.0,learning_rate 1e-4;"
                          "block.0.*:frozen;block.0.mlp.*: weight_decay .1E-19 ,trained; "}})}) {
    const std::vector<optim::ParameterRule>& rules = settings.optimizer.parameters;
    ASSERT_EQ(rules.size(), 4u);
    EXPECT_EQ(rules[0].pattern, "embedding.*");
    EXPECT_EQ(rules[0].frozen, true);
    EXPECT_FALSE(rules[0].learning_rate || rules[0].weight_decay);
    EXPECT_EQ(rules[1].pattern, "*.norm.*");
    EXPECT_FALSE(rules[1].frozen.has_value());
    EXPECT_EQ(rules[1].learning_rate, 1e-4);
    EXPECT_EQ(rules[1].weight_decay, 0.0);
    EXPECT_EQ(rules[3].frozen, false);
    EXPECT_FALSE(rules[3].learning_rate.has_value());
    EXPECT_EQ(rules[3].weight_decay, 1e-20);
    EXPECT_EQ(write_parameter_rules(rules), text);
    expect_equal(read(write_deck(settings)), settings);
  }
  EXPECT_TRUE(read_parameter_rules("").empty());
  EXPECT_TRUE(read_parameter_rules(" ; ").empty());
  EXPECT_EQ(write_parameter_rules(std::vector<optim::ParameterRule>(2)), "");
  // Names are those of the model of the deck, however its blocks are grouped. A rule for what is
  // frozen in the end, or for what others have said all of, is no mistake.
  const std::vector<Override> gpt = {
      {"model.norm", "layernorm"},       {"model.positions", "learned"},
      {"model.activation", "gelu"},      {"model.bias", "true"},
      {"model.tie_embeddings", "false"}, {"model.blocks_per_unit", "3"}};
  for (const char* rules :
       {"embedding.position.weight: frozen", "block.3.mlp.up.bias: weight_decay 1",
        "head.output.weight: learning_rate 0",
        "block.2.attention.norm.bias: frozen, learning_rate 1", "*: frozen; *.bias: trained",
        "*: learning_rate 1; *: learning_rate 2"}) {
    std::vector<Override> overrides = gpt;
    overrides.emplace_back("optimizer.parameters", rules);
    EXPECT_EQ(write_parameter_rules(read(synthetic, overrides).optimizer.parameters), rules);
  }
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
  EXPECT_EQ(settings.parallel.leaves, 4);
  EXPECT_EQ(settings.parallel.sum_grain, 2);
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

TEST(WriteDeck, DefaultsReadBack) {
  const std::string deck = default_deck();
  const Settings settings = read(deck);
  EXPECT_EQ(settings.data.path, "tokens.h5");
  expect_equal(settings, read("ostrakon:\n  data:\n    path: tokens.h5\n"));
  EXPECT_EQ(write_deck(read(write_deck(settings))), write_deck(settings));
  std::istringstream lines(deck);
  std::string unfolded;  // comments that go on below are on one line
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 100u) << line;
    const std::size_t first = line.find_first_not_of(' ');
    unfolded += first > 4 && line[first] == '#' ? line.substr(first + 1) : '\n' + line;
  }
  for (const Section& section : sections()) {
    EXPECT_NE(unfolded.find("\n  " + section.name + ":  # " + section.meaning + '\n'),
              std::string::npos)
        << section.name;
    for (const Key& key : section.keys) {
      EXPECT_NE(unfolded.find("\n    " + key.name + ": "), std::string::npos) << key.name;
      EXPECT_NE(unfolded.find("# " + key.meaning), std::string::npos) << key.name;
    }
  }
}

TEST(WriteDeck, SaysWhereToReadOnAndWhatIsForFullShardingOnly) {
  const std::string deck = default_deck();
  const std::size_t pointer = deck.find("docs/strategies.md");
  EXPECT_NE(pointer, std::string::npos);
  EXPECT_EQ(deck.find("docs/strategies.md", pointer + 1), std::string::npos);
  for (const char* name :
       {"reshard_after_forward", "backward_prefetch", "in_flight_gathers", "units"}) {
    EXPECT_EQ(find_key(*find_section("parallel"), name)->meaning.rfind("full only: ", 0), 0u)
        << name;
  }
  // The example is one that can be taken.
  const std::string meaning = find_key(*find_section("parallel"), "units")->meaning;
  const std::size_t begin = meaning.find('"') + 1;
  EXPECT_EQ(read_unit_rules(meaning.substr(begin, meaning.rfind('"') - begin)).size(), 2u);
}

TEST(WriteDeck, TheExampleOfRulesForParametersCanBeTaken) {
  const std::string meaning = find_key(*find_section("optimizer"), "parameters")->meaning;
  const std::size_t begin = meaning.find('"') + 1;
  const std::string example = meaning.substr(begin, meaning.rfind('"') - begin);
  EXPECT_EQ(read(synthetic, {{"optimizer.parameters", example}}).optimizer.parameters.size(), 2u);
}

TEST(WriteDeck, RulesOnSeveralLinesAreReadAsOnOne) {
  const Settings settings = read(synthetic +
                                 "  parallel:\n"
                                 "    units: >\n"
                                 "      block.*: forward_prefetch 2;\n"
                                 "      head: forward_prefetch block.0\tblock.1\n"
                                 "  optimizer:\n"
                                 "    parameters: |\n"
                                 "      embedding.*:\n"
                                 "         frozen;\n"
                                 "      block.0.*: learning_rate\n"
                                 "                   1e-3,\tweight_decay 0;\n"
                                 "    name: lion\n");
  const char* const units = "block.*: forward_prefetch 2; head: forward_prefetch block.0 block.1";
  const char* const parameters =
      "embedding.*: frozen; block.0.*: learning_rate 0.001, weight_decay 0";
  EXPECT_EQ(write_unit_rules(settings.parallel.units), units);
  EXPECT_EQ(write_parameter_rules(settings.optimizer.parameters), parameters);
  const Settings again = read(write_deck(settings));
  expect_equal(again.parallel.units, settings.parallel.units);
  expect_equal(again.optimizer.parameters, settings.optimizer.parameters);
  const Settings given = read(synthetic, {{"optimizer.parameters", "embedding.*:\n\tfrozen;\r\n"}});
  EXPECT_EQ(write_parameter_rules(given.optimizer.parameters), "embedding.*: frozen");
}

TEST(WriteDeck, NumbersReadBackBitForBit) {
  Settings settings = read(synthetic);
  for (const double x : {1.0 / 3.0, 0.1, 1e-5, 6.02214076e23, 1e22, 123456789.125, 1e300, 5e-324,
                         0.1 + 0.2, std::numeric_limits<double>::max(), 4503599627370497.5}) {
    settings.training.time_limit_minutes = x;
    settings.runtime.peak_gflops = x;
    const Settings again = read(write_deck(settings));
    EXPECT_EQ(again.training.time_limit_minutes, x);
    EXPECT_EQ(again.runtime.peak_gflops, x);
  }
}

TEST(WriteDeck, OddPathsReadBack) {
  Settings settings = read(synthetic);
  std::string printable;
  for (char c = 0x20; c < 0x7F; ++c) printable += c;
  for (const std::string& path : {printable,
                                  std::string("a b"),
                                  std::string("a # b"),
                                  std::string("a#b"),
                                  std::string("C: \\d\\"),
                                  std::string("\"quoted\" 'twice'"),
                                  std::string("~/x~23~7E~"),
                                  std::string("/home/jos\xC3\xA9/\xE6\x96\x87"),
                                  std::string("yes"),
                                  std::string("12"),
                                  std::string("1e5"),
                                  std::string("{a: [b, c]}"),
                                  std::string("- x"),
                                  std::string("..."),
                                  std::string("!!int 5"),
                                  std::string(" ends with a blank "),
                                  std::string("'"),
                                  std::string("\\\\\\"),
                                  std::string("true"),
                                  std::string("| >-")}) {
    settings.data.path = path;
    settings.output.directory = path;
    const Settings again = read(write_deck(settings));
    EXPECT_EQ(again.data.path, path);
    EXPECT_EQ(again.output.directory, path);
  }
}

TEST(WriteDeck, EveryChoiceReadsBack) {
  for (const Section& section : sections()) {
    for (const Key& key : section.keys) {
      for (const char* word : {"layernorm",
                               "rmsnorm",
                               "learned",
                               "rotary",
                               "gelu",
                               "swiglu",
                               "synthetic",
                               "none",
                               "full",
                               "auto",
                               "reduce_each",
                               "reduce_last",
                               "ascending",
                               "descending",
                               "shuffled",
                               "default",
                               "always",
                               "never",
                               "cosine",
                               "linear",
                               "constant",
                               "inline",
                               "threads",
                               "deck",
                               "working_directory",
                               "unlimited",
                               "fp32",
                               "bf16",
                               "fp16",
                               "adamw",
                               "sgd",
                               "lion",
                               "muon",
                               "optimizer",
                               "parameters",
                               "all",
                               "device",
                               "host",
                               "stop",
                               "skip",
                               "every 2",
                               "warmup_stable_decay",
                               "inverse_square_root",
                               "rank",
                               "node",
                               "single",
                               "selective norms"}) {
        Settings settings = read(synthetic);
        if (key.is_text || !key.set(settings, Value::of(std::string(word)))) continue;
        if (settings.precision.activations)
          settings.precision.gather = *settings.precision.activations;
        complete(settings);
        expect_equal(read(write_deck(settings)), settings);
        EXPECT_EQ(key.get(settings).text, word);
      }
    }
  }
}

/// Policies of every kind that a deck can hold.
class RandomPolicies {
 public:
  std::int64_t pick(std::int64_t below) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(below));
  }

  void fill(plan::Policy& policy) {
    policy.reshard_after_forward = reshard();
    policy.forward_prefetch.depth = depth();
    policy.backward_prefetch.depth = depth();
    policy.in_flight_reductions = depth();
    policy.in_flight_gathers = limit();
    for (std::int64_t rules = pick(4); rules > 0; --rules) policy.units.push_back(rule());
    policy.reduce = static_cast<Number>(pick(3));
    policy.moments.number = static_cast<Number>(pick(2));
    policy.offload = static_cast<plan::Offload>(pick(4));
    policy.offload_activations = pick(2) == 0;
  }

  /// What is computed again, and in which numbers.
  void fill(Settings& settings) {
    fill(settings.parallel);
    settings.precision.gather = static_cast<Number>(pick(3));
    if (pick(2) == 0) settings.precision.activations = settings.precision.gather;
    settings.precision.loss_scale.initial = static_cast<double>(1 << pick(25));
    if (pick(2) == 0) {
      settings.parallel.activation_checkpointing.every = static_cast<int>(pick(most_units_apart));
    } else {
      settings.recompute = {pick(2) == 0, pick(2) == 0, pick(2) == 0};
    }
    settings.pinned_host_memory = pick(2) == 0;
    settings.early_updates = pick(2) == 0;
    settings.optimizer.kind = static_cast<optim::OptimizerKind>(pick(4));
    settings.optimizer.clip_norm = static_cast<double>(pick(2));
    settings.optimizer.muon_iterations = static_cast<int>(1 + pick(1000));
    settings.optimizer.muon_rate_factor = number() + 1e-30;
    for (std::int64_t rules = pick(4); rules > 0; --rules)
      settings.optimizer.parameters.push_back(parameter_rule());
    complete(settings);
  }

 private:
  std::string name() {
    static const std::string characters = "abcXYZ_*.#'\"\\~%{}[]|>!&@()=?/<-+0123456789\xC3\xA9";
    std::string out = "b";
    for (std::int64_t i = pick(12); i > 0; --i) {
      const auto at = pick(static_cast<std::int64_t>(characters.size()));
      out += characters[static_cast<std::size_t>(at)];
    }
    return out;
  }

  plan::Reshard reshard() {
    plan::Reshard out;
    out.kind = static_cast<plan::Reshard::Kind>(pick(4));
    if (out.kind == plan::Reshard::partly) out.ranks = static_cast<int>(2 + pick(most_ranks - 1));
    return out;
  }

  int depth() { return static_cast<int>(pick(most_units_ahead + 1)); }

  /// For a rule for `unit`, which can't be in its own list.
  plan::Prefetch prefetch(const std::string& unit) {
    plan::Prefetch out;
    for (std::int64_t i = pick(4); i > 0; --i) {
      out.units.push_back(name());
      if (out.units.back() == unit) out.units.pop_back();
    }
    if (out.units.empty()) out.depth = depth();
    return out;
  }

  plan::GatherLimit limit() {
    plan::GatherLimit out;
    const std::int64_t kind = pick(3);
    if (kind == 0) out.units = 1 + pick(most_units_gathered);
    // Bytes of every size, some of them whole units of bytes.
    const std::int64_t unit = pick(2) == 0 ? std::int64_t{1} << (10 * pick(4)) : 1000000;
    if (kind == 1) out.bytes = (1 + pick(std::int64_t{1} << pick(22))) * unit;
    return out;
  }

  plan::UnitRule rule() {
    plan::UnitRule out;
    out.pattern = name();
    const std::int64_t set = 1 + pick(7);
    if ((set & 1) != 0) out.reshard_after_forward = reshard();
    if ((set & 2) != 0) out.forward_prefetch = prefetch(out.pattern);
    if ((set & 4) != 0) out.backward_prefetch = prefetch(out.pattern);
    return out;
  }

  /// Of every size.
  double number() {
    return static_cast<double>(pick(std::int64_t{1} << 31)) *
           std::ldexp(1.0, -static_cast<int>(pick(100)));
  }

  optim::ParameterRule parameter_rule() {
    static const std::vector<std::string> patterns = {
        "*", "*.norm.*", "block.*", "block.3.*", "embedding.token.weight", "head.norm*", "*a*e*"};
    optim::ParameterRule out;
    out.pattern = patterns[static_cast<std::size_t>(pick(7))];
    const std::int64_t set = 1 + pick(7);
    if ((set & 1) != 0) out.frozen = out.pattern != "*" && pick(2) == 0;
    if ((set & 2) != 0) out.learning_rate = number();
    if ((set & 4) != 0) out.weight_decay = number();
    return out;
  }

  std::mt19937 random_{7};  // the standard fixes what it yields, on every machine
};

TEST(WriteDeck, PoliciesReadBack) {
  RandomPolicies policies;
  for (int i = 0; i < 500 && !HasFailure(); ++i) {
    Settings settings = read(synthetic);
    policies.fill(settings);
    settings.model.blocks_per_unit = policies.pick(5);
    settings.output.trace_steps = policies.pick(100);
    settings.runtime.streams = static_cast<StreamsChoice>(policies.pick(3));
    const std::string deck = write_deck(settings);
    SCOPED_TRACE(deck);
    const Settings again = read(deck);
    expect_equal(again, settings);
    EXPECT_EQ(again.model.blocks_per_unit, settings.model.blocks_per_unit);
    EXPECT_EQ(again.runtime.streams, settings.runtime.streams);
    EXPECT_EQ(write_deck(again), deck);
    const Override rules = {"parallel.units", write_unit_rules(settings.parallel.units)};
    expect_equal(read(synthetic, {rules}).parallel.units, settings.parallel.units);
    const Override of_parameters = {"optimizer.parameters",
                                    write_parameter_rules(settings.optimizer.parameters)};
    expect_equal(read(synthetic, {of_parameters}).optimizer.parameters,
                 settings.optimizer.parameters);
  }
}

// ---- settings without effect

/// The keys that matter for gathers, each with a value that changes a plan where they do.
const std::vector<Override> of_gathers = {
    {"parallel.reshard_after_forward", "never"},
    {"parallel.forward_prefetch", "3"},
    {"parallel.backward_prefetch", "0"},
    {"parallel.in_flight_gathers", "1"},
    {"parallel.units", "block.*: backward_prefetch 3, forward_prefetch 0"}};

std::uint64_t plan_of(Settings settings, int ranks) {
  settings.parallel.shard_group =
      settings.shard_group == mesh::world_group ? ranks : settings.shard_group;
  const model::Decoder<float> decoder(settings.model, {1, settings.training.sequence_length});
  plan::ModelDescription model = decoder.description();
  for (int u = 0; u < decoder.units(); ++u)
    for (const model::Parameter& one : decoder.unit(u).parameters())
      if (optim::rule_of(settings.optimizer, one) == optim::OptimizerKind::muon)
        model.units[u].whole_matrices.push_back({one.offset, one.elements(), 1.0});
  std::uint64_t hash = 0;
  for (plan::Purpose purpose : {plan::Purpose::train, plan::Purpose::evaluate})
    hash = 31 * hash + plan::build_step_plan(model, ranks, settings.parallel, purpose).hash();
  return hash;
}

/// How many of of_gathers have no effect beside `first`, over all shardings.
int gathers_without_effect(const std::vector<Override>& first) {
  constexpr int ranks = 8;
  int without = 0;
  for (const char* sharding : {"none", "optimizer", "gradients", "full"})
    for (const char* group : {"world", "2"})
      for (const char* over : {"shard_group", "world"}) {
        if (sharding == std::string("none") && over == std::string("world")) continue;
        std::vector<Override> common = first;
        common.insert(common.end(), {{"parallel.sharding", sharding},
                                     {"parallel.shard_group", group},
                                     {"parallel.shard_optimizer_over", over},
                                     {"model.tie_embeddings", "false"}});
        const Settings base = read(synthetic, common);
        const std::uint64_t plain = plan_of(base, ranks);
        for (const plan::Setting& setting : strategy(base, plan::Accumulation::shard_each))
          EXPECT_TRUE(setting.has_effect) << setting.key << " was not given";
        for (const Override& one : of_gathers) {
          SCOPED_TRACE(text(sharding, ' ', group, ' ', over, ' ', one.first));
          std::vector<Override> overrides = common;
          overrides.push_back(one);
          const Settings settings = read(synthetic, overrides);
          bool has_effect = true;
          for (const plan::Setting& setting : strategy(settings, plan::Accumulation::shard_each))
            if ("parallel." + setting.key == one.first) {
              has_effect = setting.has_effect;
            } else {
              EXPECT_TRUE(setting.has_effect) << setting.key;
            }
          EXPECT_EQ(plan_of(settings, ranks) != plain, has_effect);
          const std::string line = text("without effect with sharding ", sharding, ": ",
                                        one.first.substr(one.first.find('.') + 1), '\n');
          EXPECT_EQ(summary(settings).find(line) == std::string::npos, has_effect)
              << summary(settings);
          without += has_effect ? 0 : 1;
        }
      }
  return without;
}

TEST(Strategy, SettingsHaveNoEffectWhereThePlanIsTheSameWithoutThem) {
  struct Case {
    std::vector<Override> first;
    int without;
  };
  const Override no_clipping = {"optimizer.clip_norm", "0"};
  constexpr int all_but_forward_prefetch = (2 + 8) * 4;
  for (const Case& one :
       {Case{{}, 2 * 4 + 2 * (3 * 5 + 4)}, Case{{no_clipping}, 2 * 4 + 2 * (3 * 5 + 4)},
        Case{{{"optimizer.name", "muon"}}, all_but_forward_prefetch},
        Case{{{"memory.offload", "optimizer"}}, all_but_forward_prefetch},
        // Updated early, nothing is fetched ahead.
        Case{{{"memory.offload", "optimizer"}, no_clipping}, (2 + 8) * 5},
        Case{{{"memory.offload", "parameters"}}, 0}, Case{{{"memory.offload", "all"}}, 0},
        Case{{{"memory.offload", "all"}, no_clipping}, 0}}) {
    SCOPED_TRACE(one.first.empty() ? "" : one.first.front().second);
    EXPECT_EQ(gathers_without_effect(one.first), one.without);
  }
}

/// The rates of a whole run.
std::vector<double> rates_of(const Settings& settings) {
  std::vector<double> rates;
  for (std::int64_t step = 1; step <= settings.training.steps; ++step)
    rates.push_back(optim::learning_rate(settings.schedule, settings.optimizer.learning_rate, step,
                                         settings.training.steps));
  return rates;
}

/// A matrix of a block and a vector, one after the other, after some updates with gradients of
/// either sign and many sizes.
std::vector<float> updates_of(const Settings& settings) {
  constexpr std::int64_t side = 8, count = side * side;
  const optim::OptimizerSettings& optimizer = settings.optimizer;
  model::Parameter matrix;
  matrix.owner = "block.0";
  matrix.shape = {side, side};
  const optim::OptimizerKind of_matrix = optim::rule_of(optimizer, matrix);
  const optim::OptimizerKind of_vector = optim::rule_of(optimizer, model::Parameter());
  const test::DeviceArray<unsigned char> workspace(
      optim::orthogonalize_workspace<float>(side, side));
  std::vector<float> parameters(2 * count, 1.0F), gradients(2 * count);
  std::mt19937 random(11);
  const auto run = [&](auto number) {
    using Moment = decltype(number);
    std::vector<Moment> first(2 * count, Moment(0.0F)), second(2 * count, Moment(0.0F));
    optim::UpdateStep step;
    step.learning_rate = 0.1;
    for (step.step = 1; step.step <= 32; ++step.step) {
      for (float& gradient : gradients)
        gradient = 1e-3F * (static_cast<float>(random() % 4096) - 2047.5F);
      optim::host::update(of_vector, optimizer, step, &parameters[count], &gradients[count],
                          &first[count], &second[count], count);
      if (of_matrix != optim::OptimizerKind::muon) {
        optim::host::update(of_matrix, optimizer, step, parameters.data(), gradients.data(),
                            first.data(), second.data(), count);
        continue;
      }
      optim::host::muon_direction(optimizer, step, gradients.data(), first.data(), count);
      const test::DeviceArray<float> direction(
          std::vector<float>(gradients.begin(), gradients.begin() + count));
      optim::orthogonalize(Exec(), Matrix<float>(direction.data(), side, side),
                           optimizer.muon_iterations, workspace.data());
      optim::host::muon_apply(optimizer, step, side, side, parameters.data(),
                              direction.host().data(), count);
    }
  };
  if (settings.parallel.moments.number == Number::bf16) {
    run(bf16());
  } else {
    run(0.0F);
  }
  return parameters;
}

/// Whether the summary says so.
bool is_idle(const Settings& settings, const std::string& line) {
  return summary(settings).find("               without effect with " + line + "\n") !=
         std::string::npos;
}

TEST(Strategy, KeysOfOptimizersHaveNoEffectWhereUpdatesAreTheSameWithoutThem) {
  int idle = 0;
  for (const char* optimizer : {"adamw", "sgd", "lion", "muon"})
    for (const char* momentum : {"0", "0.5"})
      for (const Override& one : {Override{"beta1", "0.5"}, Override{"beta2", "0.5"},
                                  Override{"epsilon", "1e-3"}, Override{"momentum", "0.75"},
                                  Override{"nesterov", "false"}, Override{"muon_iterations", "4"},
                                  Override{"muon_rate_factor", "2"}, Override{"moments", "bf16"}}) {
        SCOPED_TRACE(text(optimizer, ' ', momentum, ' ', one.first));
        const bool is_sgd = optimizer == std::string("sgd");
        const bool takes_momentum = is_sgd || optimizer == std::string("muon");
        std::vector<Override> overrides = {{"optimizer.name", optimizer}};
        if (takes_momentum) overrides.emplace_back("optimizer.momentum", momentum);
        const std::vector<float> plain = updates_of(read(synthetic, overrides));
        overrides.emplace_back("optimizer." + one.first, one.second);
        const Settings settings = read(synthetic, overrides);
        const bool is_same = updates_of(settings) == plain;
        const bool by_momentum =
            takes_momentum && (one.first == "nesterov" || one.first == "moments");
        EXPECT_EQ(is_idle(settings, by_momentum ? text("momentum ", momentum, ": ", one.first)
                                                : text("name ", optimizer, ": ", one.first)),
                  is_same)
            << summary(settings);
        EXPECT_EQ(summary(settings).find("without effect") != std::string::npos, is_same);
        idle += is_same ? 1 : 0;
      }
  EXPECT_EQ(idle, 2 * 4 + (7 + 5) + 2 * 5 + 1);
}

TEST(Strategy, KeysOfSchedulesHaveNoEffectWhereRatesAreTheSameWithoutThem) {
  int idle = 0;
  for (const char* tail :
       {"cosine", "linear", "constant", "warmup_stable_decay", "inverse_square_root"})
    for (const Override& one : {Override{"decay_steps", "20"}, Override{"final_fraction", "0.5"}}) {
      SCOPED_TRACE(text(tail, ' ', one.first));
      std::vector<Override> overrides = {{"schedule.tail", tail}, {"schedule.warmup_steps", "5"}};
      const std::vector<double> plain = rates_of(read(synthetic, overrides));
      overrides.emplace_back("schedule." + one.first, one.second);
      const Settings settings = read(synthetic, overrides);
      const bool is_same = rates_of(settings) == plain;
      const bool never_falls = settings.schedule.tail == optim::Tail::warmup_stable_decay;
      EXPECT_EQ(is_idle(settings, never_falls ? text("decay_steps 0: ", one.first)
                                              : text("tail ", tail, ": ", one.first)),
                is_same)
          << summary(settings);
      EXPECT_EQ(summary(settings).find("without effect") != std::string::npos, is_same);
      idle += is_same ? 1 : 0;
    }
  EXPECT_EQ(idle, 4 + 3);
  const Settings falls = read(synthetic, {{"schedule.tail", "warmup_stable_decay"},
                                          {"schedule.decay_steps", "20"},
                                          {"schedule.final_fraction", "0.5"}});
  EXPECT_EQ(summary(falls).find("without effect"), std::string::npos);
}

TEST(Strategy, ATrialOfAFewStepsNeedsNoOtherSchedule) {
  for (const char* tail :
       {"cosine", "linear", "constant", "warmup_stable_decay", "inverse_square_root"}) {
    SCOPED_TRACE(tail);
    const std::vector<Override> whole = {{"schedule.tail", tail}, {"schedule.warmup_steps", "30"}};
    std::vector<Override> trial = whole;
    trial.emplace_back("training.steps", "20");
    const Settings settings = read(synthetic, trial);
    EXPECT_NE(summary(settings).find("\n               the run of 20 steps ends in the warm-up, at "
                                     "20/30 of the peak learning rate\n"),
              std::string::npos)
        << summary(settings);
    EXPECT_EQ(summary(read(synthetic, whole)).find("warm-up"), std::string::npos);
    // What is written says what was used, and can be read, also to go on for longer.
    expect_equal(read(write_deck(settings)), settings);
    std::vector<double> first = rates_of(read(synthetic, whole));
    first.resize(20);
    EXPECT_EQ(rates_of(settings), first);
  }
  const Settings falls = read(synthetic, {{"schedule.tail", "warmup_stable_decay"},
                                          {"schedule.warmup_steps", "5"},
                                          {"schedule.decay_steps", "40"},
                                          {"training.steps", "20"}});
  EXPECT_NE(summary(falls).find("the learning rate falls in the 15 steps after the warm-up; "
                                "decay_steps 40 are more\n"),
            std::string::npos)
      << summary(falls);
  expect_equal(read(write_deck(falls)), falls);
}

TEST(Strategy, TheSummarySaysWhatIsForOtherSettings) {
  const Settings settings = read(synthetic, {{"precision.loss_scale", "8"},
                                             {"training.outlier_window", "9"},
                                             {"optimizer.name", "sgd"},
                                             {"optimizer.momentum", "0"},
                                             {"optimizer.beta1", "0.8"},
                                             {"optimizer.epsilon", "1e-6"},
                                             {"optimizer.moments", "bf16"},
                                             {"optimizer.nesterov", "false"}});
  EXPECT_TRUE(is_idle(settings, "gather fp32 and reduce fp32: loss_scale")) << summary(settings);
  EXPECT_TRUE(is_idle(settings, "skip_outliers 0: outlier_window")) << summary(settings);
  EXPECT_TRUE(
      is_idle(read(synthetic, {{"memory.early_updates", "false"}}), "offload none: early_updates"));
  EXPECT_TRUE(is_idle(read(synthetic, {{"checkpoint.async", "false"}}), "every 0: async"));
  EXPECT_TRUE(is_idle(settings, "name sgd: beta1, epsilon")) << summary(settings);
  EXPECT_TRUE(is_idle(settings, "momentum 0: nesterov, moments")) << summary(settings);
  // Of the build, not of another key.
  const Settings pageable = read(synthetic, {{"memory.pinned", "false"}});
  EXPECT_EQ(summary(pageable).find("               without effect in a build without a device: "
                                   "pinned\n") == std::string::npos,
            on_device)
      << summary(pageable);
  EXPECT_EQ(summary(read(synthetic)).find("without effect"), std::string::npos);
  const Settings others = read(synthetic, {{"precision.loss_scale", "8"},
                                           {"precision.gather", "fp16"},
                                           {"training.outlier_window", "9"},
                                           {"training.skip_outliers", "6"},
                                           {"checkpoint.async", "false"},
                                           {"checkpoint.every", "1"}});
  EXPECT_EQ(summary(others).find("without effect"), std::string::npos) << summary(others);
}

TEST(Strategy, TheSummarySaysWhereNoStepIsJudged) {
  for (const char* window : {"2", "3", "7", "40"}) {
    const std::int64_t unjudged = std::max(2, std::stoi(window) / 2);
    for (const std::int64_t steps : {unjudged, unjudged + 1}) {
      const Settings settings = read(synthetic, {{"training.skip_outliers", "1"},
                                                 {"training.outlier_window", window},
                                                 {"training.steps", std::to_string(steps)}});
      optim::OutlierFilter filter({settings.stability.outlier_window, 1.0});
      bool skips = false;
      for (std::int64_t step = 1; step <= steps; ++step)
        skips = filter.judge(step == steps ? 1e6 : 1.0, 1.0).skip;
      EXPECT_EQ(is_idle(settings,
                        text("steps ", steps, " and outlier_window ", window, ": skip_outliers")),
                !skips)
          << summary(settings);
    }
  }
}

TEST(Strategy, TheSummarySaysWhereMuonHasNoMatrices) {
  std::vector<Override> overrides = {
      {"optimizer.name", "muon"},      {"optimizer.momentum", "0.5"},
      {"optimizer.nesterov", "false"}, {"optimizer.muon_iterations", "4"},
      {"optimizer.beta1", "0.8"},      {"optimizer.muon_rate_factor", "2"}};
  EXPECT_EQ(summary(read(synthetic, overrides)).find("without effect"), std::string::npos);
  overrides.emplace_back("optimizer.parameters", "block.*: frozen; block.3.mlp.down.*: trained");
  const Settings some = read(synthetic, overrides);
  EXPECT_EQ(summary(some).find("without effect"), std::string::npos) << summary(some);
  overrides.back().second = "block.*.weight: frozen; *norm*: trained";
  const Settings none = read(synthetic, overrides);
  EXPECT_TRUE(is_idle(none,
                      "parameters block.*.weight: frozen; *norm*: trained: name, momentum, "
                      "nesterov, muon_iterations, muon_rate_factor"))
      << summary(none);
}

TEST(Strategy, TheSummarySaysWhatRulesSetForFrozenParametersOnly) {
  const auto idle = [](const std::string& rules) {
    const std::string shown = summary(read(synthetic, {{"optimizer.parameters", rules}}));
    const std::string begin = "               without effect on frozen parameters: ";
    const std::size_t at = shown.find(begin);
    if (at == std::string::npos) return std::string();
    return shown.substr(at + begin.size(), shown.find('\n', at) - at - begin.size());
  };
  EXPECT_EQ(idle("embedding.*: frozen; *: learning_rate 1"), "");
  EXPECT_EQ(idle("embedding.*: frozen, learning_rate 1; embedding.token.*: trained"), "");
  EXPECT_EQ(idle("embedding.*: frozen, learning_rate 1; *norm*: weight_decay 1"),
            "embedding.*: learning_rate 1");
  EXPECT_EQ(idle("block.1.*: weight_decay 0; block.0.*: learning_rate 1; "
                 "block.*: frozen; block.1.mlp.*: trained; block.2.*: learning_rate 2"),
            "block.0.*: learning_rate 1; block.2.*: learning_rate 2");
}

TEST(Strategy, GradientsTravelNowhereInGroupsOfOneRank) {
  const Settings settings = read(synthetic, {{"precision.reduce", "bf16"}});
  for (const int ranks : {0, 1, 2}) {
    EXPECT_EQ(summary(settings, OnRanks{ranks})
                      .find("               without effect in shard groups of one "
                            "rank: reduce\n") != std::string::npos,
              ranks == 1);
    const plan::Setting last =
        strategy(settings, plan::Accumulation::reduce_last, OnRanks{ranks}).back();
    EXPECT_EQ(last.key, "reduce");
    EXPECT_EQ(last.has_effect, ranks != 1);
  }
  EXPECT_EQ(summary(read(synthetic), OnRanks{1}).find("without effect"), std::string::npos);
}

TEST(Strategy, TwoLevelsTakeGroupsWithSeveralRanksOnEachOfSeveralNodes) {
  const std::string line =
      "               without effect as no group has several ranks on each of several nodes: "
      "hierarchical_collectives\n";
  for (const char* value : {"always", "never", "3 MiB"}) {
    const Settings settings = read(synthetic, {{"parallel.hierarchical_collectives", value}});
    for (const bool may : {false, true}) {
      const OnRanks ranks{4, may};
      EXPECT_EQ(summary(settings, ranks).find(line) == std::string::npos, may) << value;
      bool is_there = false;
      for (const plan::Setting& one : strategy(settings, plan::Accumulation::shard_each, ranks)) {
        if (one.key != "hierarchical_collectives") continue;
        is_there = true;
        EXPECT_EQ(one.value, value);
        EXPECT_EQ(one.has_effect, may);
      }
      EXPECT_TRUE(is_there);
    }
  }
  EXPECT_EQ(summary(read(synthetic), OnRanks{4, false}).find("without effect"), std::string::npos);
}

TEST(Settings, TwoLevelsAreChosenByNameOrSize) {
  using plan::Hierarchical;
  const auto hierarchical = [](const char* value) {
    return read(synthetic, {{"parallel.hierarchical_collectives", value}}).parallel.hierarchical;
  };
  EXPECT_EQ(read(synthetic).parallel.hierarchical, Hierarchical());
  EXPECT_EQ(hierarchical("auto"), Hierarchical());
  EXPECT_EQ(hierarchical("never").kind, Hierarchical::never);
  EXPECT_EQ(hierarchical("always").kind, Hierarchical::always);
  EXPECT_EQ(hierarchical("1.5 MiB"), (Hierarchical{Hierarchical::by_size, 3 << 19}));
  for (const char* value : {"sometimes", "2", "-1", "0 B", "1 mile", "true"}) {
    std::string message;
    try {
      hierarchical(value);
    } catch (const Error& error) {
      message = error.what();
    }
    EXPECT_NE(message.find(": expected auto, never, always, or bytes up to 4096 TiB in B, "),
              std::string::npos)
        << value << ": " << message;
  }
}

TEST(Strategy, HasWhatChangesAStepInOtherSections) {
  const auto others = [](const std::vector<Override>& overrides) {
    std::string all;
    for (const plan::Setting& setting :
         strategy(read(synthetic, overrides), plan::Accumulation::reduce_last))
      all += setting.key + "=" + setting.value + "\n";
    return all.substr(all.find("blocks_per_unit=1\n") + 18);
  };
  EXPECT_EQ(others({}), "");
  EXPECT_EQ(others({{"precision.gather", "bf16"},
                    {"precision.reduce", "fp16"},
                    {"memory.activation_checkpointing", "selective attention mlp"},
                    {"optimizer.name", "lion"},
                    {"optimizer.moments", "bf16"}}),
            "gather=bf16\nreduce=fp16\nactivation_checkpointing=selective attention mlp\n"
            "optimizer=lion\nmoments=bf16\n");
  EXPECT_EQ(others({{"memory.activation_checkpointing", "every 2"},
                    {"optimizer.name", "sgd"},
                    {"optimizer.momentum", "0"},
                    {"optimizer.moments", "bf16"}}),
            "activation_checkpointing=every 2\noptimizer=sgd\n");
  EXPECT_EQ(others({{"memory.offload", "optimizer"},
                    {"memory.activations", "host"},
                    {"memory.pinned", "false"},
                    {"optimizer.name", "muon"},
                    {"optimizer.parameters", "embedding.*:frozen"}}),
            "memory.offload=optimizer\nmemory.activations=host\noptimizer=muon\n"
            "optimizer.parameters=embedding.*: frozen\n");
}

TEST(Strategy, OneLineNamesAllThatHasNoEffect) {
  std::vector<Override> overrides = of_gathers;
  EXPECT_EQ(summary(read(synthetic, overrides)).find("without effect"), std::string::npos);
  overrides.emplace_back("parallel.sharding", "optimizer");
  const std::string shown = summary(read(synthetic, overrides));
  EXPECT_NE(shown.find("\n               without effect with sharding optimizer: "
                       "reshard_after_forward, forward_prefetch, backward_prefetch, "
                       "in_flight_gathers, units\n  precision"),
            std::string::npos)
      << shown;
}

TEST(Strategy, HasTheValuesOfADeckAndTheAccumulationOfThePlan) {
  const Settings settings = read(synthetic, {{"parallel.units", "head: forward_prefetch 2"},
                                             {"parallel.in_flight_gathers", "8 GiB"},
                                             {"parallel.shard_group", "node"},
                                             {"model.blocks_per_unit", "auto"}});
  std::string all;
  for (const plan::Setting& setting : strategy(settings, plan::Accumulation::shard_each))
    all += setting.key + "=" + setting.value + "\n";
  EXPECT_EQ(all,
            "sharding=full\nshard_group=node\nshard_optimizer_over=shard_group\n"
            "accumulation=shard_each\nleaf_order=ascending\nreshard_after_forward=default\n"
            "forward_prefetch=1\nbackward_prefetch=1\nin_flight_gathers=8 GiB\n"
            "in_flight_reductions=1\nunits=head: forward_prefetch 2\nblocks_per_unit=auto\n");
}

// ---- settings of a run and of the checkpoint that it goes on from

TEST(ValueOf, IsThatOfADeckWithoutQuotes) {
  const Settings settings = read(synthetic, {{"runtime.wall_time", "90"},
                                             {"output.directory", "a b"},
                                             {"optimizer.learning_rate", "6e-4"}});
  EXPECT_EQ(value_of(settings, "optimizer", "name"), "adamw");
  EXPECT_EQ(value_of(settings, "optimizer", "learning_rate"), "0.0006");
  EXPECT_EQ(value_of(settings, "optimizer", "moments"), "fp32");
  EXPECT_EQ(value_of(settings, "checkpoint", "async"), "true");
  EXPECT_EQ(value_of(settings, "checkpoint", "files"), "rank");
  EXPECT_EQ(value_of(settings, "runtime", "wall_time"), "01:30:00");
  EXPECT_EQ(value_of(settings, "output", "directory"), "a b");
  EXPECT_EQ(value_of(settings, "data", "path"), "");
  EXPECT_THROW(value_of(settings, "optimizer", "nme"), std::logic_error);
  EXPECT_THROW(value_of(settings, "optimiser", "name"), std::logic_error);
  EXPECT_THROW(value_of(settings, "", ""), std::logic_error);
}

TEST(Differences, NameWhatChangesResults) {
  const Settings before = read(synthetic);
  EXPECT_TRUE(differences(before, before).empty());
  const Settings now = read(synthetic, {{"training.steps", "20"},
                                        {"model.bias", "true"},
                                        {"optimizer.moments", "bf16"},
                                        {"optimizer.learning_rate", "1e-4"},
                                        {"data.path", "/x.h5"},
                                        {"memory.offload", "all"}});
  EXPECT_EQ(differences(now, before),
            (std::vector<std::string>{
                "model.bias = true, was false", "data.path = \"/x.h5\", was \"\"",
                "training.steps = 20, was 1000", "memory.offload = \"all\", was \"none\"",
                "optimizer.learning_rate = 0.0001, was 0.0003",
                "optimizer.moments = \"bf16\", was \"fp32\""}));
  EXPECT_EQ(differences(before, now).size(), 6u);
  EXPECT_EQ(differences(before, now)[2], "training.steps = 1000, was 20");
}

TEST(Differences, AreNotOfWhereAndHowARunIsStarted) {
  const Settings before = read(synthetic);
  const Settings elsewhere = read(synthetic, {{"checkpoint.every", "7"},
                                              {"checkpoint.files", "single"},
                                              {"checkpoint.initial_weights", "x.h5"},
                                              {"output.directory", "other"},
                                              {"output.trace", "2"},
                                              {"runtime.threads", "2"},
                                              {"runtime.wall_time", "90"}});
  EXPECT_TRUE(differences(elsewhere, before).empty());
  // The deck of a checkpoint has absolute paths.
  const Settings relative = read("ostrakon:\n  data:\n    path: x/../y.h5\n");
  EXPECT_TRUE(differences(relative, with_absolute_paths(relative)).empty());
  EXPECT_TRUE(differences(with_absolute_paths(relative), relative).empty());
}

/// Each key of a model that computes something else from the same parameters.
TEST(SameModel, IsRefusedByKeyAndBothValues) {
  const std::vector<Override> base = {{"model.width", "64"}, {"model.heads", "4"}};
  const Settings ours = read(synthetic, base);
  const auto deck_with = [&](const std::vector<Override>& more) {
    std::vector<Override> all = base;
    all.insert(all.end(), more.begin(), more.end());
    return write_deck(read(synthetic, all));
  };
  EXPECT_NO_THROW(require_same_model(ours, "", "w.h5"));
  EXPECT_NO_THROW(require_same_model(ours, deck_with({}), "w.h5"));
  EXPECT_NO_THROW(require_same_model(ours,
                                     deck_with({{"model.initializer_deviation", "0.5"},
                                                {"model.blocks_per_unit", "2"},
                                                {"training.steps", "7"},
                                                {"optimizer.name", "lion"}}),
                                     "w.h5"));
  for (const Override& other :
       {Override{"model.heads", "8"}, Override{"model.kv_heads", "2"},
        Override{"model.norm", "layernorm"}, Override{"model.positions", "learned"},
        Override{"model.activation", "gelu"}, Override{"model.norm_epsilon", "1e-6"},
        Override{"model.rotary_base", "500000"}, Override{"model.bias", "true"},
        Override{"model.tie_embeddings", "false"}, Override{"model.layers", "5"}}) {
    try {
      require_same_model(ours, deck_with({other}), "w.h5");
      ADD_FAILURE() << other.first << " is another in silence";
    } catch (const Error& error) {
      const std::string message = error.what();
      EXPECT_EQ(message.rfind("'w.h5' is not of the model that the deck describes:", 0), 0u);
      const std::size_t line = message.find("\n  " + other.first + " is ");
      ASSERT_NE(line, std::string::npos) << message;
      EXPECT_NE(message.find(other.second, line), std::string::npos) << message;
      EXPECT_NE(message.find(" in it, but ", line), std::string::npos) << message;
    }
  }
  // Learned positions have no base.
  const std::vector<Override> learned = {{"model.positions", "learned"}};
  EXPECT_NO_THROW(require_same_model(
      read(synthetic, learned),
      write_deck(read(synthetic, {learned[0], {"model.rotary_base", "500000"}})), "w.h5"));
}

/// Any key: a setting that is forgotten here would change a run in silence.
TEST(Differences, SeeEveryKey) {
  for (const Section& section : sections()) {
    for (const Key& key : section.keys) {
      Settings now = read(synthetic);
      const Settings before = now;
      const std::string was = key.get(before).shown();
      for (const Value& value : {Value::of(1.0),
                                 Value::of(2.0),
                                 Value::of(0.25),
                                 Value::of(true),
                                 Value::of(false),
                                 Value::of(std::string("/elsewhere")),
                                 Value::of(std::string("none")),
                                 Value::of(std::string("full")),
                                 Value::of(std::string("bf16")),
                                 Value::of(std::string("layernorm")),
                                 Value::of(std::string("learned")),
                                 Value::of(std::string("gelu")),
                                 Value::of(std::string("tokens")),
                                 Value::of(std::string("skip")),
                                 Value::of(std::string("world")),
                                 Value::of(std::string("reduce_each")),
                                 Value::of(std::string("descending")),
                                 Value::of(std::string("optimizer")),
                                 Value::of(std::string("host")),
                                 Value::of(std::string("single")),
                                 Value::of(std::string("threads")),
                                 Value::of(std::string("working_directory")),
                                 Value::of(std::string("sgd")),
                                 Value::of(std::string("linear")),
                                 Value::of(std::string("never")),
                                 Value::of(std::string("*: forward_prefetch 2")),
                                 Value::of(std::string("*.norm.*: frozen"))}) {
        try {
          key.set(now, value);
        } catch (const Error&) {  // text that is no rule
        }
        if (key.get(now).shown() != was) break;
      }
      const bool is_one_of_a_kind =
          key.name == "reduction" || (section.name == "precision" && key.name == "parameters");
      EXPECT_EQ(key.get(now).shown() != was, !is_one_of_a_kind) << section.name << "." << key.name;
      const bool is_left_out = section.name == "checkpoint" || section.name == "output" ||
                               section.name == "runtime" || is_one_of_a_kind;
      EXPECT_EQ(differences(now, before).size(), is_left_out ? 0u : 1u)
          << section.name << "." << key.name;
    }
  }
}

TEST(InputDecks, AllAreRight) {
  int decks = 0;
  for (const auto& entry : std::filesystem::directory_iterator(OSTRAKON_INPUT_DECKS)) {
    if (entry.path().extension() != ".yaml") continue;
    SCOPED_TRACE(entry.path());
    ++decks;
    Settings settings;
    ASSERT_NO_THROW(settings = read_settings(read_file(entry.path()), entry.path().string(), {}));
    // Installed decks read and write where they are run, not in the installation.
    EXPECT_EQ(settings.data.path.rfind("data/", 0), 0u) << settings.data.path;
    EXPECT_EQ(settings.data.validation_path.rfind("data/", 0), 0u) << settings.data.validation_path;
    EXPECT_EQ(settings.output.directory, "output/" + entry.path().stem().string());
    expect_equal(read(write_deck(settings)), settings);
    for (int ranks : {1, 2, 4, 8}) EXPECT_NO_THROW(check_ranks(settings, ranks));
  }
  EXPECT_GE(decks, 5);
}

Settings read_input_deck(const std::string& name) {
  const std::filesystem::path path = std::filesystem::path(OSTRAKON_INPUT_DECKS) / name;
  return read_settings(read_file(path), path.string(), {});
}

TEST(InputDecks, HaveTheModelsPublishedSizes) {
  const auto parameters = [](const std::string& name) {
    const Settings settings = read_input_deck(name);
    const model::LeafShape leaf{1, settings.training.sequence_length};
    return model::Decoder<float>(settings.model, leaf).parameter_count();
  };
  EXPECT_EQ(parameters("gpt2-124m.yaml"), 124439808);
  EXPECT_EQ(parameters("llama3-8b.yaml"), 8030261248);
  EXPECT_EQ(parameters("llama3-70b.yaml"), 70553706496);
  EXPECT_EQ(parameters("llama3-405b.yaml"), 405853388800);
  EXPECT_EQ(parameters("quickstart.yaml"), 1820544);
}

TEST(InputDecks, HaveThePublishedTraining) {
  struct Published {
    std::string deck;
    double learning_rate;
    std::int64_t tokens_per_batch;
    double tokens;
    double rotary_base;
  };
  // Tokens per batch of Llama 3 8B and 70B are those of 405B at the same sequence length; their
  // tokens in all are published.
  for (const Published& published : {Published{"gpt2-124m.yaml", 6e-4, 1 << 19, 10e9, 0.0},
                                     Published{"llama3-8b.yaml", 3e-4, 1 << 23, 15e12, 5e5},
                                     Published{"llama3-70b.yaml", 1.5e-4, 1 << 23, 15e12, 5e5},
                                     Published{"llama3-405b.yaml", 8e-5, 1 << 24, 0.0, 5e5}}) {
    SCOPED_TRACE(published.deck);
    const Settings settings = read_input_deck(published.deck);
    const TrainingSettings& training = settings.training;
    const std::int64_t batch = training.global_batch_size * training.sequence_length;
    EXPECT_EQ(settings.optimizer.learning_rate, published.learning_rate);
    EXPECT_EQ(batch, published.tokens_per_batch);
    if (published.tokens > 0.0) {
      const double tokens = static_cast<double>(batch) * static_cast<double>(training.steps);
      EXPECT_NEAR(tokens / published.tokens, 1.0, 1e-3);
    }
    if (published.rotary_base > 0.0) {
      EXPECT_EQ(settings.model.positions, model::Positions::rotary);
      EXPECT_EQ(settings.model.rotary_base, published.rotary_base);
    }
  }
}

std::string message_of_ranks(const Settings& settings, int ranks) {
  try {
    check_ranks(settings, ranks);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(CheckRanks, RefusesPlansThatAreTooLong) {
  const auto settings = [](const char* layers, const char* batch) {
    return read(synthetic, {{"model.layers", layers}, {"training.global_batch_size", batch}});
  };
  EXPECT_NO_THROW(check_ranks(read_input_deck("llama3-405b.yaml"), 1));
  EXPECT_NO_THROW(check_ranks(settings("8", "100000"), 1));
  EXPECT_NO_THROW(check_ranks(settings("8", "200000"), 2));
  EXPECT_EQ(message_of_ranks(settings("8", "200002"), 2),
            "a step is too long to plan: (model.layers + 2) x training.global_batch_size / "
            "training.micro_batch_size / ranks = 10 x 200002 / 1 / 2 = 10 x 100001, more than "
            "1,000,000; raise training.micro_batch_size or use more ranks");
  // Fewer units make a shorter step; how many automatic ones are is not known yet.
  const auto in_units_of = [&](const char* blocks, const char* batch) {
    return read(synthetic, {{"model.layers", "8"},
                            {"model.blocks_per_unit", blocks},
                            {"training.global_batch_size", batch}});
  };
  EXPECT_NO_THROW(check_ranks(in_units_of("3", "200000"), 1));
  EXPECT_THROW(check_ranks(in_units_of("auto", "200000"), 1), Error);
  EXPECT_EQ(message_of_ranks(in_units_of("3", "200001"), 1),
            "a step is too long to plan: (model.layers / model.blocks_per_unit + 2) x "
            "training.global_batch_size / training.micro_batch_size / ranks = 5 x 200001 / 1 / 1 = "
            "5 x 200001, more than 1,000,000; raise training.micro_batch_size or use more ranks");
}

TEST(CheckRanks, PartsThatStayAfterForwardDivideAShardGroup) {
  const auto message = [](int ranks, std::vector<Override> overrides) {
    overrides.emplace_back("training.global_batch_size", std::to_string(ranks));
    return message_of_ranks(read(synthetic, overrides), ranks);
  };
  const Override three = {"parallel.reshard_after_forward", "3"};
  const Override nodes = {"parallel.shard_group", "node"};
  for (int ranks : {1, 2, 3, 6, 9}) EXPECT_EQ(message(ranks, {three}), "");
  EXPECT_EQ(message(4, {three}),
            "parallel.reshard_after_forward = 3 does not divide the 4 ranks of a shard group (4 = "
            "3 x 1 + 1); use 2 or 4");
  EXPECT_EQ(message(7, {three}),
            "parallel.reshard_after_forward = 3 does not divide the 7 ranks of a shard group (7 = "
            "3 x 2 + 1); use 7");
  // Groups of a number of ranks; of a node's, where it is known.
  EXPECT_EQ(message(16, {three, {"parallel.shard_group", "2"}}), "");
  EXPECT_EQ(message(16, {three, {"parallel.shard_group", "8"}}),
            "parallel.reshard_after_forward = 3 does not divide the 8 ranks of a shard group (8 = "
            "3 x 2 + 2); use 2, 4 or 8");
  EXPECT_EQ(message(16, {three, nodes}), "");
  EXPECT_EQ(message(12, {three, nodes, {"parallel.ranks_per_node", "6"}}), "");
  EXPECT_EQ(message(16, {three, nodes, {"parallel.ranks_per_node", "4"}}),
            "parallel.reshard_after_forward = 3 does not divide the 4 ranks of a shard group (4 = "
            "3 x 1 + 1); use 2 or 4");
  // Groups that are not possible are for the mesh to refuse.
  EXPECT_EQ(message(4, {three, {"parallel.shard_group", "8"}}), "");
  const Override rules = {"parallel.units",
                          "*: forward_prefetch 2; head: reshard_after_forward 8; block.*: "
                          "backward_prefetch 2, reshard_after_forward 3"};
  EXPECT_EQ(message(3, {rules}), "");
  EXPECT_EQ(message(4, {rules}),
            "parallel.units: rule \"block.*: reshard_after_forward 3, backward_prefetch 2\": "
            "reshard_after_forward = 3 does not divide the 4 ranks of a shard group (4 = 3 x 1 + "
            "1); use 2 or 4");
}

TEST(CheckRanks, ShowsTheArithmetic) {
  const auto message = message_of_ranks;
  const Settings eight = read(synthetic);
  for (int ranks : {1, 2, 4, 8}) EXPECT_EQ(message(eight, ranks), "");
  EXPECT_EQ(message(eight, 3),
            "training.global_batch_size / training.micro_batch_size = 8 / 1 = 8 leaves, which 3 "
            "ranks can't share evenly (8 = 3 x 2 + 2); use 1, 2, 4 or 8 ranks, or make "
            "training.global_batch_size a multiple of 3 x 1 = 3");
  EXPECT_EQ(message(eight, 16),
            "training.global_batch_size / training.micro_batch_size = 8 / 1 = 8 leaves, fewer than "
            "16 ranks; use 1, 2, 4 or 8 ranks, or make training.global_batch_size a multiple of 16 "
            "x 1 = 16");
  const Settings one = read(synthetic, {{"training.micro_batch_size", "8"}});
  EXPECT_EQ(message(one, 2),
            "training.global_batch_size / training.micro_batch_size = 8 / 8 = 1 leaf, fewer than 2 "
            "ranks; use 1 rank, or make training.global_batch_size a multiple of 2 x 8 = 16");
  const Settings many = read(synthetic, {{"training.global_batch_size", "720720"}});
  EXPECT_NE(message(many, 17).find("; use 12, 13, 14, 15, 16, 18, 20, 21, 22 or 24 ranks,"),
            std::string::npos)
      << message(many, 17);
}

TEST(Nearest, CountsSwapsAsOne) {
  EXPECT_EQ(edit_distance("widht", "width"), 1);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(nearest("lyers", {"width", "layers"}), "layers");
  EXPECT_EQ(nearest("zzzzzz", {"width", "layers"}), "");
}

TEST(Nearest, FindsNamesByTheirParts) {
  const std::vector<std::string> names = {"forward_prefetch", "backward_prefetch",
                                          "in_flight_gathers", "micro_batch_size"};
  using Names = std::vector<std::string>;
  EXPECT_EQ(with_parts_of("prefetch", names), (Names{"forward_prefetch", "backward_prefetch"}));
  EXPECT_EQ(with_parts_of("prefech_forward", names), Names{"forward_prefetch"});
  EXPECT_EQ(with_parts_of("in_flight", names), Names{"in_flight_gathers"});
  EXPECT_EQ(with_parts_of("batch_size", names), Names{"micro_batch_size"});
  EXPECT_EQ(with_parts_of("on_flight", names), Names());  // short parts have to be the same
  EXPECT_EQ(with_parts_of("prefetch_reductions", names), Names());
  EXPECT_EQ(with_parts_of("", names), Names());
  EXPECT_EQ(with_parts_of("_", names), Names());
}

}  // namespace
}  // namespace ostrakon::config
