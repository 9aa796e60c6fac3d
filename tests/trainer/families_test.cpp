// SPDX-License-Identifier: Apache-2.0
// What distinguishes families of models has the bits of one rank in every layout.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <ostrakon/plan/ir/sum_order.hpp>
#include <string>

#include "trainer/choices.hpp"
#include "trainer/comparison.hpp"
#include "trainer/small_families.hpp"

namespace ostrakon::tests {
namespace {

config::Settings settings_of(const SmallFamily& family) {
  config::Settings settings = in_pieces(small_llama(8));
  settings.model = family.model;
  settings.training.steps = 2;
  if (!family.fits_context) settings.training.context_grain = 1;
  return settings;
}

// Samples are plain ones, those of which some targets count, documents whose positions restart, and
// documents whose positions continue and of which some targets count.
bool some_targets(const NamedRow& row) { return row["samples"] % 2 == 1; }
bool in_documents(const NamedRow& row) { return row["samples"] >= 2; }

/// Rows of choices that cover every two of them.
TEST(Families, HaveTheBitsOfOneRankInEveryLayout) {
  const int ranks = world_ranks();
  const std::vector<SmallFamily> families = small_families();
  const std::string factors = text(
      "family ", families.size(),
      ", tensor 2, context 2, pipeline 2, expert 2, group 2, checkpointing 5, host_activations 2, "
      "offload 4, sharding 4, streams 2, precision 2, chunks 2, samples 4");
  const auto is_valid = [&](const NamedRow& row) {
    const SmallFamily& family = families[static_cast<std::size_t>(row["family"])];
    const int together = (1 << row["tensor"]) * (1 << row["context"]) * (1 << row["pipeline"]);
    const bool has_experts = family.model.experts.exist();
    const bool needs_all = family.model.multi_token_depth > 0 ||
                           family.model.experts.balance == model::RouterBalance::loss;
    if (some_targets(row) && needs_all) return false;
    if (together > ranks || (row["context"] == 1 && !family.fits_context)) return false;
    if (row["chunks"] == 1 && row["pipeline"] == 0) return false;
    if (in_documents(row) && (family.model.has_delta_nets() || family.model.multi_token_depth > 0))
      return false;
    if (!has_experts) return row["expert"] == 0;
    if (row["tensor"] == 1 && row["expert"] == 0) return false;  // tensor ranks share experts
    const int shard = ranks >> (row["tensor"] + row["context"] + row["pipeline"]);
    return row["expert"] == 0 || (shard << (row["tensor"] + row["context"])) >= 2;
  };
  std::map<std::array<int, 3>, History> references;
  int rows = 0, equal_rows = 0;
  for (const NamedRow& row : covering_rows(factors, is_valid)) {
    const SmallFamily& family = families[static_cast<std::size_t>(row["family"])];
    config::Settings settings = settings_of(family);
    settings.precision.gather = row["precision"] == 0 ? DType::fp32 : DType::bf16;
    settings.data.documents =
        in_documents(row) ? data::Documents::separate : data::Documents::continued;
    settings.data.restart_positions = !some_targets(row);
    const SomeTargets::Counts counts = some_targets(row) ? counts_unequally : SomeTargets::Counts();
    History& reference = references[{row["family"], row["precision"], row["samples"]}];
    if (reference.losses.empty()) reference = reference_run(settings, counts);
    settings.tensor = 1 << row["tensor"];
    settings.tensor_chunks = row["tensor"] == 1 ? 1 + row["chunks"] : 1;
    settings.context = 1 << row["context"];
    settings.pipeline = 1 << row["pipeline"];
    settings.expert = 1 << row["expert"];
    if (row["chunks"] == 1) settings.parallel.schedule = plan::ScheduleKind::zero_bubble;
    const int shard = ranks >> (row["tensor"] + row["context"] + row["pipeline"]);
    settings.shard_group =
        static_cast<int>(settings.tensor * settings.context) * (row["group"] == 0 ? shard : 1);
    if (settings.shard_group % settings.expert != 0)
      settings.shard_group = ranks >> row["pipeline"];
    apply_policy(row, settings);
    const std::string what = family.name + ": " + row.text();
    SCOPED_TRACE(what);
    const History run = train_history(settings, MPI_COMM_WORLD, {}, counts);
    ++rows;
    mesh::Mesh mesh(MPI_COMM_WORLD, 0, settings.shard_group, static_cast<int>(settings.pipeline));
    const bool equal = train::make_trainer(settings, mesh)
                           .program(plan::Purpose::train)
                           .plan.has_the_bits_of_one_rank();
    if (equal && row["precision"] == 0) {
      ++equal_rows;
      expect_same_bits(run, reference, what);
    } else {
      EXPECT_NEAR(run.losses.back(), reference.losses.back(), 2e-3 * reference.losses.back())
          << what;
    }
  }
  EXPECT_GE(equal_rows, rows / 4);
  std::printf("%d layouts, %d in fp32 with equal bits\n", rows, equal_rows);
}

/// With weights of nearly 0 every word is as likely, so that all losses that count are alike.
TEST(Families, AModulesLossIsAMeanOverTokensThatHaveATarget) {
  config::Settings settings = small_llama(world_ranks());
  settings.model.multi_token_depth = 1;
  settings.model.initializer_deviation = 1e-9;
  settings.training.steps = 1;
  const History run = train_history(settings, MPI_COMM_WORLD);
  const double expected = std::log(static_cast<double>(settings.model.vocabulary));
  ASSERT_EQ(run.further.size(), 1u);
  EXPECT_NEAR(run.losses.front(), expected, 1e-6);
  EXPECT_NEAR(run.further.front(), expected, 1e-6);
}

}  // namespace
}  // namespace ostrakon::tests
