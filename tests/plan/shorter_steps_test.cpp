// SPDX-License-Identifier: Apache-2.0
// Shorter steps say exactly what a whole one takes where that is linear in its layers, stages and
// micro-batches.
#include <gtest/gtest.h>

#include <algorithm>
#include <ostrakon/plan/pipeline/stages.hpp>
#include <ostrakon/plan/shorter_steps.hpp>

namespace ostrakon::tests {
namespace {

using namespace ostrakon::plan;

/// An embedding, layers and a head, of which only the layers compute.
ModelDescription model_of(std::int64_t layers) {
  ModelDescription model;
  for (std::int64_t u = 0; u < layers + 2; ++u) {
    UnitDescription& unit = model.units.emplace_back();
    unit.name = std::to_string(u);
    unit.forward.emplace_back();
    unit.backward.emplace_back();
    const bool is_layer = 0 < u && u < layers + 1;
    unit.forward.back().flops = unit.backward.back().flops = is_layer ? 1.0 : 0.25;
  }
  return model;
}

StepCost take(const StepLength& length) {
  StepCost takes;
  const auto layers = static_cast<double>(length.layers);
  const auto micro_batches = static_cast<double>(length.micro_batches);
  takes.seconds = 5.0 + 2.0 * layers + 3.0 * micro_batches;
  if (length.stages == 1) takes.seconds += 0.5 * layers * micro_batches;
  for (int s = 0; s < length.stages; ++s)
    takes.bytes.push_back(length.stages == 1 ? 100 + 10 * length.layers
                                             : 100 + 10 * (length.stages - s));
  return takes;
}

std::int64_t work(const StepLength& length) { return length.layers * length.micro_batches; }

struct ShortenedCase {
  int stages, chunks, layers_of_chunk;
  std::int64_t micro_batches;
  int stages_at_a_time;
};

TEST(ShorterSteps, AreExactWhereAllIsLinear) {
  for (const ShortenedCase& of :
       {ShortenedCase{1, 1, 5, 3, 8}, ShortenedCase{1, 1, 24, 2, 8}, ShortenedCase{1, 1, 24, 9, 8},
        ShortenedCase{1, 1, 5, 64, 8}, ShortenedCase{2, 1, 12, 8, 4}, ShortenedCase{4, 1, 2, 64, 1},
        ShortenedCase{8, 1, 20, 64, 1}, ShortenedCase{16, 1, 3, 16, 1},
        ShortenedCase{16, 1, 3, 24, 1}, ShortenedCase{32, 1, 2, 8, 1},
        ShortenedCase{16, 2, 8, 64, 2}, ShortenedCase{32, 2, 2, 256, 8},
        ShortenedCase{32, 4, 1, 32, 1}, ShortenedCase{64, 1, 2, 1024, 4},
        ShortenedCase{24, 1, 6, 72, 3}}) {
    SCOPED_TRACE(::testing::Message()
                 << of.stages << " stages, " << of.chunks << " chunks of " << of.layers_of_chunk
                 << ", micro-batches " << of.micro_batches);
    Policy policy;
    policy.stages = of.stages;
    policy.chunks = of.chunks;
    StepLength whole;
    // The first chunk and the last have as many units as others, if they are of several.
    whole.layers =
        std::int64_t{of.stages} * of.chunks * of.layers_of_chunk - (of.stages == 1 ? 0 : 2);
    whole.stages = of.stages;
    whole.micro_batches = of.micro_batches;
    const ModelDescription model = model_of(whole.layers);
    if (of.stages > 1)
      policy.chunk_units.assign(static_cast<std::size_t>(of.stages) * of.chunks,
                                of.layers_of_chunk);
    whole.chunk_units = policy.chunk_units;
    for (const bool has_like_layers : {true, false}) {
      const ShorterSteps shorter(model, policy, whole, has_like_layers, of.stages_at_a_time);
      std::vector<StepCost> takes;
      std::int64_t worked = 0;
      for (const StepLength& length : shorter.lengths()) {
        worked += work(length);
        EXPECT_EQ(length.micro_batches % length.stages == 0, of.micro_batches % of.stages == 0);
        if (length.stages != of.stages) {
          EXPECT_EQ(length.stages % of.stages_at_a_time, 0);
        }
        Policy own = policy;
        own.stages = length.stages;
        own.chunk_units = length.chunk_units;
        EXPECT_EQ(make_chunks(model_of(length.layers), own).size(),
                  static_cast<std::size_t>(length.stages) * of.chunks);
        takes.push_back(take(length));
      }
      EXPECT_LE(worked, work(whole));
      const StepCost expected = take(whole);
      EXPECT_NEAR(shorter.seconds(takes), expected.seconds, 1e-9 * expected.seconds);
      EXPECT_EQ(shorter.bytes(takes),
                *std::max_element(expected.bytes.begin(), expected.bytes.end()));
    }
  }
}

TEST(ShorterSteps, HaveTheBusiestStage) {
  Policy policy;
  policy.stages = 20;
  policy.chunk_units.assign(20, 2);
  policy.chunk_units[13] = 3;
  StepLength whole;
  whole.layers = 39;
  whole.stages = 20;
  whole.micro_batches = 20;
  whole.chunk_units = policy.chunk_units;
  const ShorterSteps shorter(model_of(39), policy, whole, true, 1);
  ASSERT_EQ(shorter.lengths().size(), 2U);
  for (const StepLength& length : shorter.lengths()) {
    EXPECT_LT(length.stages, 20);
    EXPECT_EQ(std::count(length.chunk_units.begin(), length.chunk_units.end(), 3), 1);
  }
}

}  // namespace
}  // namespace ostrakon::tests
