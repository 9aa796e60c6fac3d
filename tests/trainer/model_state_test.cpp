// SPDX-License-Identifier: Apache-2.0
// What a rank keeps from step to step, without steps.
#include <gtest/gtest.h>

#include <cstring>
#include <ostrakon/base/error.hpp>
#include <ostrakon/trainer/state/model_state.hpp>
#include <ostrakon/trainer/state/saved_slices.hpp>
#include <string>
#include <vector>

#include "trainer/planned_parts.hpp"
#include "trainer/small_runs.hpp"

namespace ostrakon::tests {
namespace {

using train::ModelState;

/// Element `i` of each parameter is i, plus the length of its name.
class CountingWeights : public checkpoint::ParameterSource {
 public:
  void read(const std::string& owner, const std::string& parameter,
            const std::vector<std::int64_t>& /*shape*/, std::int64_t first, std::int64_t count,
            float* values) override {
    for (std::int64_t i = 0; i < count; ++i) values[i] = value(owner + "." + parameter, first + i);
  }
  void verify() override {}
  bool checks_what_it_reads() const override { return true; }
  static float value(const std::string& name, std::int64_t element) {
    return static_cast<float>(element) + 0.25f * static_cast<float>(name.size());
  }
};

ModelState::Options options_of(const PlannedParts& parts) {
  return {parts.settings.policy.moments.dtype, parts.settings.seed, true};
}

/// The digest of freshly initialized weights.
std::uint64_t digest_of(const config::Settings& deck,
                        checkpoint::ParameterSource* weights = nullptr) {
  mesh::Mesh mesh(MPI_COMM_WORLD, 0, deck.shard_group);
  const PlannedParts parts(deck, mesh);
  ModelState state(parts.programs, parts.layout, options_of(parts), mesh);
  state.initialize(weights);
  return state.digest();
}

TEST(ModelState, BeginsWithTheSameWeightsOnEveryLayout) {
  CountingWeights weights;
  for (const auto kind : {optim::OptimizerKind::adamw, optim::OptimizerKind::muon}) {
    config::Settings deck = small_gpt2(24);
    deck.optimizer.kind = kind;
    const std::uint64_t random = digest_of(deck), read = digest_of(deck, &weights);
    EXPECT_NE(random, read);
    for (const auto sharding : all_shardings)
      for (const auto offload : {plan::Offload::none, plan::Offload::all}) {
        deck.parallel.sharding = sharding;
        deck.parallel.offload = offload;
        EXPECT_EQ(digest_of(deck), random);
        EXPECT_EQ(digest_of(deck, &weights), read);
      }
    deck.training.seed = 2;
    EXPECT_NE(digest_of(deck), random);
    EXPECT_EQ(digest_of(deck, &weights), read);
  }
}

TEST(ModelState, SavesWhatItHasAsItIsOrStaged) {
  for (const auto sharding : all_shardings)
    for (const auto offload : {plan::Offload::none, plan::Offload::all}) {
      config::Settings deck = small_llama(24);
      deck.parallel.sharding = sharding;
      deck.parallel.offload = offload;
      deck.checkpoint.every = 1;
      mesh::Mesh mesh(MPI_COMM_WORLD, 0);
      const PlannedParts parts(deck, mesh);
      ASSERT_GE(parts.programs.train.plan.checkpoint, 0);
      ModelState state(parts.programs, parts.layout, options_of(parts), mesh);
      CountingWeights weights;
      state.initialize(&weights);
      state.stage();
      std::vector<const model::Parameter*> table;
      for (int u = 0; u < parts.model->units(); ++u)
        for (const model::Parameter& parameter : parts.model->parameters(u))
          table.push_back(&parameter);
      const std::vector<train::SavedSlice> slices = saved_slices(parts.layout);
      for (std::size_t s = 0; s < slices.size(); ++s) {
        const checkpoint::Slice& slice = slices[s].slice;
        const std::string name = table[static_cast<std::size_t>(slice.parameter)]->full_name();
        for (const bool staged : {false, true}) {
          std::vector<float> saved(static_cast<std::size_t>(slice.count));
          const std::int64_t bytes = slice.count * 4;
          // In two pieces, as a file's blocks may cut it.
          const std::int64_t half = bytes / 8 * 4;
          std::memcpy(saved.data(), state.saved(s, 0, half, staged),
                      static_cast<std::size_t>(half));
          std::memcpy(saved.data() + half / 4, state.saved(s, half, bytes - half, staged),
                      static_cast<std::size_t>(bytes - half));
          for (std::int64_t i = 0; i < slice.count; ++i)
            ASSERT_EQ(saved[static_cast<std::size_t>(i)],
                      slice.state == checkpoint::State::parameters
                          ? CountingWeights::value(name, slice.first + i)
                          : 0.0f)
                << name << ", staged " << staged;
        }
      }
    }
}

TEST(ModelState, FindsReplicasThatDiffer) {
  config::Settings deck = small_llama(24);
  deck.parallel.sharding = plan::Sharding::none;
  mesh::Mesh mesh(MPI_COMM_WORLD, 0);
  if (mesh.world().size() == 1) GTEST_SKIP() << "needs replicas";
  const PlannedParts parts(deck, mesh);
  ModelState state(parts.programs, parts.layout, options_of(parts), mesh);
  state.initialize(nullptr);
  const std::uint64_t digest = state.digest();
  const int masters = parts.programs.train.plan.units[1].masters;
  const bool is_last = mesh.world().rank() == mesh.world().size() - 1;
  if (is_last) state.memory().view<float, OnHost>(masters)[3] += 1.0f;
  EXPECT_THROW(state.digest(), CollectiveError);
  if (is_last) state.memory().view<float, OnHost>(masters)[3] -= 1.0f;
  EXPECT_EQ(state.digest(), digest);
}

/// Fails on one rank alone.
class BrokenWeights : public CountingWeights {
 public:
  explicit BrokenWeights(bool fails) : fails_(fails) {}
  void read(const std::string& owner, const std::string& parameter,
            const std::vector<std::int64_t>& shape, std::int64_t first, std::int64_t count,
            float* values) override {
    if (fails_ && owner == "head") throw Error("the disk is gone");
    CountingWeights::read(owner, parameter, shape, first, count, values);
  }

 private:
  bool fails_;
};

TEST(ModelState, WeightsThatOneRankCannotReadAreAnErrorOnAll) {
  mesh::Mesh mesh(MPI_COMM_WORLD, 0);
  const PlannedParts parts(small_llama(24), mesh);
  ModelState state(parts.programs, parts.layout, options_of(parts), mesh);
  BrokenWeights weights(mesh.world().rank() == mesh.world().size() - 1);
  EXPECT_THROW(state.initialize(&weights), CollectiveError);
}

TEST(StateMemory, PassesValuesOnInChunks) {
  mesh::Mesh mesh(MPI_COMM_WORLD, 0);
  for (const auto offload : {plan::Offload::none, plan::Offload::all}) {
    config::Settings deck = small_llama(24);
    deck.parallel.offload = offload;
    deck.parallel.moments.dtype = DType::bf16;
    const PlannedParts parts(deck, mesh);
    train::StateMemory memory(parts.programs, true);
    const plan::PlannedUnit& unit = parts.programs.train.plan.units[1];
    EXPECT_EQ(memory.is_on_host(unit.masters), offload == plan::Offload::all);
    memory.in_chunks(8, [&](std::int64_t begin, std::int64_t count) {
      ASSERT_EQ(begin, 0);
      ASSERT_EQ(count, 8);
      for (const auto& [buffer, number] :
           {std::pair{unit.masters, DType::fp32}, std::pair{unit.first_moments, DType::bf16}}) {
        for (int i = 0; i < 8; ++i) memory.scratch()[i] = static_cast<float>(i + 1);
        memory.clear(buffer);
        memory.store(number, memory.scratch().range(0, 8), buffer, 5);
        const View<const float*> back = memory.fetch(number, buffer, 4, 9);
        for (int i = 0; i < 9; ++i) EXPECT_EQ(back[i], static_cast<float>(i));
      }
    });
  }
}

}  // namespace
}  // namespace ostrakon::tests
