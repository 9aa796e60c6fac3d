// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostrakon/base/error.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/trainer/make_trainer.hpp>
#include <ostrakon/trainer/step_size.hpp>
#include <string>
#include <vector>

#include "support/messages.hpp"

namespace ostrakon::train {
namespace {

config::Settings settings(const std::vector<config::Override>& overrides) {
  return config::read_settings("ostrakon:\n  data: {dataset: synthetic}\n", "deck.yaml", overrides);
}

TEST(StepSize, IsThatOfTheModel) {
  const std::vector<std::vector<config::Override>> decks = {
      {},
      {{"model.layers", "1"}},
      {{"model.layers", "23"}, {"model.blocks_per_unit", "4"}},
      {{"model.layers", "30"}, {"model.blocks_per_unit", "auto"}, {"model.bias", "true"}},
      {{"model.tie_embeddings", "false"}, {"model.positions", "learned"}},
      {{"model.layers", "9"}, {"model.activation", "gelu"}, {"model.kv_heads", "2"}}};
  for (const auto& overrides : decks) {
    const config::Settings deck = settings(overrides);
    const auto decoder = make_decoder(deck);
    const StepSize size = step_size(deck, 1);
    EXPECT_EQ(size.parameters, decoder->parameter_count());
    EXPECT_EQ(size.units, decoder->units());
    EXPECT_EQ(size.micro_batches, deck.training.micro_batches());
  }
}

TEST(StepSize, OfManyRanksHasTheirShareOfMicroBatches) {
  const config::Settings deck =
      settings({{"training.global_batch_size", "48"}, {"training.micro_batch_size", "2"}});
  EXPECT_EQ(step_size(deck, 8).micro_batches, 3);
  EXPECT_EQ(step_size(deck, 8).visits(), 3 * step_size(deck, 8).units);
}

TEST(StepSize, RefusesPlansThatAreTooLong) {
  EXPECT_NO_THROW(require_short_plan({1000, 20000, 3}));
  EXPECT_EQ(
      testing::error_of([] {
        require_short_plan({1000, 60001, 1});
      }),
      "the plan of a step is too long: 60001 units x 1 micro-batches on each rank = 60,001, "
      "more than 60,000; use fewer layers, raise training.micro_batch_size or use more ranks");
}

TEST(StepSize, RefusesParametersThatDoNotFit) {
  const std::int64_t available = 3 << 20;
  // Each of four ranks has 2 MB of two million parameters, and a host of two ranks 4 MB.
  EXPECT_NO_THROW(require_room_for_parameters({2 << 20, 4, 1}, 4, 1, available));
  EXPECT_EQ(testing::error_of([&] {
              require_room_for_parameters({2 << 20, 4, 1}, 4, 2, available);
            }),
            "the model does not fit: 2 ranks on this host x 2.00 MiB planned for 2,097,152 "
            "parameters alone = 4.00 MiB, but 3.00 MiB are available; use more hosts or a smaller "
            "model");
}

}  // namespace
}  // namespace ostrakon::train
