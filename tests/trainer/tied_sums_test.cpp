// SPDX-License-Identifier: Apache-2.0
// Models whose tied gradients are summed apart from those of the unit that they are tied to
// (plan::UnitDescription::sums_tied_apart): bitwise equal on any number of ranks, as others are.

#include <gtest/gtest.h>
#include <mpi.h>

#include <memory>
#include <utility>
#include <vector>

#include "trainer/own_model_runs.hpp"
#include "trainer/small_runs.hpp"

namespace ostrakon::tests {
namespace {

/// A model as it is, but for that. Its backward must find no gradients opened.
class SummedApart final : public model::Model {
 public:
  explicit SummedApart(std::unique_ptr<const model::Model> same) : same_(std::move(same)) {}

  DType dtype() const override { return same_->dtype(); }
  int units() const override { return same_->units(); }
  const std::vector<model::Parameter>& parameters(int unit) const override {
    return same_->parameters(unit);
  }
  plan::ModelDescription description() const override {
    plan::ModelDescription description = same_->description();
    for (plan::UnitDescription& unit : description.units) unit.sums_tied_apart = unit.tied_to >= 0;
    return description;
  }
  model::LossTerms loss_terms() const override { return same_->loss_terms(); }
  void forward(int unit, const Exec& exec, const model::UnitBuffers<void>& buffers) const override {
    same_->forward(unit, exec, buffers);
  }
  void backward(int unit, const Exec& exec, const model::UnitBuffers<void>& buffers,
                float loss_scale, bool adds_gradients) const override {
    EXPECT_FALSE(adds_gradients);
    same_->backward(unit, exec, buffers, loss_scale, adds_gradients);
  }

 private:
  std::unique_ptr<const model::Model> same_;
};

/// Calls with(change) for strategies of all kinds, which `change` sets in a policy.
template <class With>
void for_all_strategies(const With& with) {
  for (const auto sharding : {plan::Sharding::none, plan::Sharding::full})
    for (const auto accumulation : {plan::Accumulation::reduce_each, plan::Accumulation::shard_each,
                                    plan::Accumulation::reduce_last})
      for (const auto offload : {plan::Offload::none, plan::Offload::all})
        for (const int in_flight : {0, 2}) {
          SCOPED_TRACE(text(name(sharding), ", ", name(accumulation), ", offload ", name(offload),
                            ", ", in_flight, " in flight"));
          with([&](plan::PolicyChoices& policy) {
            policy.sharding = sharding;
            policy.accumulation = accumulation;
            policy.offload = offload;
            policy.in_flight_reductions = in_flight;
          });
        }
}

Trained train_chain_apart(const TrainerSettings& settings, MPI_Comm comm) {
  Mesh mesh(comm);
  Trainer trainer(std::make_unique<SummedApart>(make_model(tied_chain<float>())), settings, mesh);
  trainer.allocate();
  trainer.initialize();
  return train_steps(trainer, 1, settings.steps, SmallTokens());
}

TEST(TiedSums, OfAChainHaveTheBitsOfOneRank) {
  const Trained one_rank = train_chain_apart(plain_settings(), MPI_COMM_SELF);
  ASSERT_EQ(one_rank.losses.size(), tied_reference().losses.size());
  for (std::size_t step = 0; step < one_rank.losses.size(); ++step)
    EXPECT_NEAR(one_rank.losses[step], tied_reference().losses[step],
                1e-5 * tied_reference().losses[step]);
  for_all_strategies([&](const auto& change) {
    TrainerSettings settings = plain_settings();
    change(settings.policy);
    const Trained trained = train_chain_apart(settings, MPI_COMM_WORLD);
    EXPECT_EQ(trained.losses, one_rank.losses);
    EXPECT_EQ(trained.digest, one_rank.digest);
  });
}

/// A GPT-2, whose embedding has positions besides the table that the head shares.
Trained train_decoder(bool apart, const config::Settings& settings, MPI_Comm comm) {
  Mesh mesh(comm);
  std::unique_ptr<const model::Model> model = train::make_decoder(settings);
  if (apart) model = std::make_unique<SummedApart>(std::move(model));
  Trainer trainer(std::move(model), train::trainer_settings(settings, mesh), mesh);
  trainer.allocate();
  trainer.initialize();
  const auto samples =
      data::open_dataset(settings.data, data::Split::training, settings.training.sequence_length,
                         settings.model.vocabulary, settings.training.seed, mesh.world());
  Trained trained;
  for (std::int64_t step = 1; step <= 3; ++step)
    trained.losses.push_back(trainer.step(*samples, step).loss);
  trained.digest = trainer.state_digest();
  return trained;
}

TEST(TiedSums, OfADecoderHaveTheBitsOfOneRank) {
  const config::Settings base = small_gpt2(8);
  const Trained together = train_decoder(false, base, MPI_COMM_SELF);
  const Trained one_rank = train_decoder(true, base, MPI_COMM_SELF);
  for (std::size_t step = 0; step < 3; ++step)
    EXPECT_NEAR(one_rank.losses[step], together.losses[step], 1e-4);
  for_all_strategies([&](const auto& change) {
    config::Settings settings = base;
    change(settings.parallel);
    const Trained trained = train_decoder(true, settings, MPI_COMM_WORLD);
    EXPECT_EQ(trained.losses, one_rank.losses);
    EXPECT_EQ(trained.digest, one_rank.digest);
  });
}

}  // namespace
}  // namespace ostrakon::tests
