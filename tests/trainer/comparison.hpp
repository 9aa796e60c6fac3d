// SPDX-License-Identifier: Apache-2.0
#pragma once

// Runs on many layouts against a run on one rank, bit for bit.

#include <gtest/gtest.h>

#include <ostrakon/config/settings.hpp>
#include <string>

#include "trainer/layouts.hpp"
#include "trainer/small_runs.hpp"

namespace ostrakon::tests {

inline void expect_same_bits(const History& run, const History& reference,
                             const std::string& name) {
  ASSERT_EQ(run.losses.size(), reference.losses.size());
  for (std::size_t i = 0; i < run.losses.size(); ++i) {
    EXPECT_EQ(run.losses[i], reference.losses[i]) << name << ", step " << i + 1;
    EXPECT_EQ(run.norms[i], reference.norms[i]) << name << ", step " << i + 1;
    EXPECT_EQ(run.digests[i], reference.digests[i]) << name << ", step " << i + 1;
  }
  EXPECT_EQ(run.further, reference.further) << name;
  ASSERT_EQ(run.loads.size(), reference.loads.size());
  for (std::size_t i = 0; i < run.loads.size(); ++i) {
    EXPECT_EQ(run.loads[i].least, reference.loads[i].least) << name;
    EXPECT_EQ(run.loads[i].most, reference.loads[i].most) << name;
  }
  EXPECT_EQ(run.validation_loss, reference.validation_loss) << name;
  EXPECT_EQ(run.half_batch_loss, reference.half_batch_loss) << name;
}

/// One rank, one tree, nothing sharded. All ranks of the world call it.
inline History reference_run(config::Settings settings, const SomeTargets::Counts& counts = {}) {
  settings.parallel.sharding = plan::Sharding::none;
  settings.parallel.leaf_order = plan::LeafOrder::ascending;
  return train_alone(settings, MPI_COMM_WORLD, counts);
}

/// Eight sequences, and pieces of eight of all that is cut. Sizes are as odd as that allows: the
/// vocabulary does not divide.
inline config::Settings in_pieces(config::Settings settings) {
  settings.model.width = 48;
  settings.model.heads = settings.model.kv_heads = 8;
  settings.model.ffn_width = 72;
  settings.training.sequence_length = 128;
  settings.training.global_batch_size = 8;
  settings.training.micro_batch_size = 1;
  settings.training.context_grain = 8;
  settings.tensor_grain = 8;
  return settings;
}

/// Runs of three steps, compared with one rank's, with nothing sharded.
class Comparison {
 public:
  config::Settings settings(const Layout& layout) const {
    config::Settings settings = models_[layout[model_factor]];
    apply(layout, settings);
    return settings;
  }

  /// Whether this rank is one of those of the layout.
  bool has_me(const Layout& layout) const { return comms_[layout[ranks_factor]].has_me(); }

  History run(const Layout& layout) const {
    const std::string name = describe(layout);
    SCOPED_TRACE(name);
    const History run = train_history(settings(layout), comms_[layout[ranks_factor]].comm());
    expect_same_bits(run, references_[layout[model_factor]], name);
    return run;
  }

 private:
  static config::Settings of_three_steps(config::Settings settings) {
    settings.training.steps = 3;
    return settings;
  }

  const config::Settings models_[2] = {of_three_steps(small_gpt2(8)),
                                       of_three_steps(small_llama(8))};
  const History references_[2] = {reference_run(models_[0]), reference_run(models_[1])};
  const FirstRanks comms_[4] = {FirstRanks(1), FirstRanks(2), FirstRanks(4), FirstRanks(8)};
};

}  // namespace ostrakon::tests
