// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <apps/bench/models.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/trainer/make_trainer.hpp>
#include <set>
#include <sstream>

namespace ostrakon::tests {
namespace {

using bench::DeviceFacts;
using bench::StepNeeds;
using bench::TimedModel;

config::Settings settings_of(const TimedModel& model) {
  std::vector<config::Override> overrides;
  std::istringstream words(model.settings);
  for (std::string word; words >> word;) overrides.push_back(config::parse_override(word));
  return config::read_settings("ostrakon:\n  data: {dataset: synthetic}\n  training: {steps: 1}\n",
                               "deck", overrides);
}

StepNeeds needs_of(const TimedModel& model) {
  mesh::Mesh alone(MPI_COMM_SELF);
  const train::Trainer trainer = train::make_trainer(settings_of(model), alone);
  return {trainer.model_flops(), trainer.planned_peak_bytes()};
}

std::set<std::string> names_of(const std::vector<TimedModel>& models) {
  std::set<std::string> names;
  for (const TimedModel& model : models) names.insert(model.name);
  EXPECT_EQ(names.size(), models.size()) << "two models with one name";
  return names;
}

constexpr std::int64_t gibibyte = std::int64_t{1} << 30;

// On an H200, and an H100: kernels that take much longer than their launch.
TEST(BenchModels, FillADevice) {
  for (const DeviceFacts& device :
       {DeviceFacts{800e12, 138 * gibibyte}, DeviceFacts{800e12, 78 * gibibyte},
        DeviceFacts{280e12, 38 * gibibyte}}) {
    const std::vector<TimedModel> models = bench::device_models(device, needs_of);
    ASSERT_EQ(models.size(), 7U);
    names_of(models);
    for (std::size_t m = 0; m + 1 < models.size(); ++m) {
      const config::Settings settings = settings_of(models[m]);
      const StepNeeds needs = needs_of(models[m]);
      const double seconds = needs.flops / (0.5 * device.products);
      EXPECT_GT(seconds, 0.02) << models[m].name;
      EXPECT_LT(seconds, 0.25) << models[m].name;
      EXPECT_LT(needs.bytes, device.free_bytes) << models[m].name;
      const std::int64_t rows =
          settings.training.micro_batch_size * settings.training.sequence_length;
      EXPECT_GE(rows * settings.model.width, 4'000'000) << models[m].name;
      EXPECT_EQ(models[m].sequences, settings.training.micro_batch_size);
      EXPECT_EQ(models[m].sequences, settings.training.global_batch_size);
      const std::int64_t head = settings.model.width / settings.model.heads;
      EXPECT_TRUE(head == 64 || head == 128) << "attention on chip has these";
    }
    EXPECT_EQ(models.back().name, bench::host_models()[3].name) << "tells what launches take";
  }
}

TEST(BenchModels, AreSmallWhereADeviceIsSlowOrHasLittleMemory) {
  const std::set<std::string> small = names_of(bench::host_models());
  EXPECT_EQ(names_of(bench::device_models({1e11, 64 * gibibyte}, needs_of)), small);
  EXPECT_EQ(names_of(bench::device_models({800e12, gibibyte / 16}, needs_of)), small);
  // Some are.
  const DeviceFacts card = {60e12, 4 * gibibyte};
  const std::vector<TimedModel> models = bench::device_models(card, needs_of);
  names_of(models);
  std::size_t large = 0;
  for (const TimedModel& model : models) {
    EXPECT_LT(needs_of(model).bytes, card.free_bytes) << model.name;
    large += small.count(model.name) == 0 ? 1 : 0;
  }
  EXPECT_GT(large, 0U);
  EXPECT_LT(large, 6U);
}

TEST(BenchModels, OfAHostAreThoseThatPublishedPredictionsWereMadeWith) {
  const std::vector<TimedModel> models = bench::host_models();
  ASSERT_EQ(models.size(), 6U);
  for (const TimedModel& model : models) {
    const config::Settings settings = settings_of(model);
    const std::int64_t rows =
        settings.training.micro_batch_size * settings.training.sequence_length;
    EXPECT_TRUE(rows == 512 || rows == 1024 || rows == 2048) << model.name;
    EXPECT_EQ(model.sequences, settings.training.micro_batch_size);
  }
}

}  // namespace
}  // namespace ostrakon::tests
