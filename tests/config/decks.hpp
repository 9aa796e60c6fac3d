// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/config/keys.hpp>
#include <sstream>
#include <string>
#include <vector>

// Decks for tests, and comparisons of their settings.

namespace ostrakon::config {

inline const std::string synthetic = "ostrakon:\n  data:\n    dataset: synthetic\n";

inline Settings read(const std::string& deck, const std::vector<Override>& overrides = {}) {
  return read_settings(deck, "deck.yaml", overrides);
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream stream(path);
  std::ostringstream out;
  out << stream.rdbuf();
  return out.str();
}

inline void expect_equal(const std::optional<plan::Prefetch>& a,
                         const std::optional<plan::Prefetch>& b) {
  ASSERT_EQ(a.has_value(), b.has_value());
  if (!a) return;
  EXPECT_EQ(a->depth, b->depth);
  EXPECT_EQ(a->units, b->units);
}

inline void expect_equal(const std::vector<plan::UnitRule>& a,
                         const std::vector<plan::UnitRule>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].pattern, b[i].pattern);
    EXPECT_TRUE(a[i].reshard_after_forward == b[i].reshard_after_forward);
    expect_equal(a[i].forward_prefetch, b[i].forward_prefetch);
    expect_equal(a[i].backward_prefetch, b[i].backward_prefetch);
  }
}

inline void expect_equal(const std::vector<optim::ParameterRule>& a,
                         const std::vector<optim::ParameterRule>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].pattern, b[i].pattern);
    EXPECT_EQ(a[i].frozen, b[i].frozen);
    EXPECT_EQ(a[i].learning_rate, b[i].learning_rate);
    EXPECT_EQ(a[i].weight_decay, b[i].weight_decay);
  }
}

/// Compares settings exactly: the value of every key is written so that it reads back exactly.
inline void expect_equal(const Settings& a, const Settings& b) {
  for (const Section& section : sections()) {
    for (const Key& key : section.keys) {
      EXPECT_EQ(key.get(a).shown(), key.get(b).shown()) << section.name << "." << key.name;
      EXPECT_EQ(key.get(a).number, key.get(b).number) << section.name << "." << key.name;
      EXPECT_EQ(key.get(a).text, key.get(b).text) << section.name << "." << key.name;
    }
  }
  EXPECT_TRUE(a.parallel.reshard_after_forward == b.parallel.reshard_after_forward);
  EXPECT_TRUE(a.parallel.in_flight_gathers == b.parallel.in_flight_gathers);
  expect_equal(a.parallel.forward_prefetch, b.parallel.forward_prefetch);
  expect_equal(a.parallel.backward_prefetch, b.parallel.backward_prefetch);
  expect_equal(a.parallel.units, b.parallel.units);
  EXPECT_EQ(a.parallel.reduce, b.parallel.reduce);
  EXPECT_TRUE(a.parallel.activation_checkpointing == b.parallel.activation_checkpointing);
  EXPECT_EQ(a.parallel.moments.dtype, b.parallel.moments.dtype);
  EXPECT_EQ(a.parallel.offload, b.parallel.offload);
  EXPECT_EQ(a.parallel.offload_activations, b.parallel.offload_activations);
  EXPECT_EQ(a.parallel.updates, b.parallel.updates);
  EXPECT_EQ(a.pinned_host_memory, b.pinned_host_memory);
  EXPECT_EQ(a.early_updates, b.early_updates);
  EXPECT_EQ(a.precision.gather, b.precision.gather);
  EXPECT_EQ(a.precision.activations, b.precision.activations);
  EXPECT_EQ(a.precision.products.dtype, b.precision.products.dtype);
  EXPECT_EQ(a.precision.products.fp8_layers, b.precision.products.fp8_layers);
  EXPECT_EQ(a.precision.products.fp8_gradients, b.precision.products.fp8_gradients);
  EXPECT_EQ(a.precision.products.fp8_gather, b.precision.products.fp8_gather);
  EXPECT_EQ(a.precision.loss_scale.initial, b.precision.loss_scale.initial);
  EXPECT_EQ(a.recompute.attention, b.recompute.attention);
  EXPECT_EQ(a.recompute.norms, b.recompute.norms);
  EXPECT_EQ(a.recompute.mlp, b.recompute.mlp);
  EXPECT_EQ(a.recompute.norm_outputs, b.recompute.norm_outputs);
  EXPECT_EQ(a.recompute.activations, b.recompute.activations);
  EXPECT_EQ(a.chooses_recompute, b.chooses_recompute);
  EXPECT_EQ(a.memory_limit, b.memory_limit);
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

inline plan::Reshard kept_in(int parts) {
  plan::Reshard reshard;
  reshard.kind = plan::Reshard::partly;
  reshard.ranks = parts;
  return reshard;
}

/// Reads one of input_decks/.
inline Settings read_input_deck(const std::string& name) {
  const std::filesystem::path path = std::filesystem::path(OSTRAKON_INPUT_DECKS) / name;
  return read_settings(read_file(path), path.string(), {});
}

}  // namespace ostrakon::config
