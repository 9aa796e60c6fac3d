// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts by themselves: what the bits of a token and of a leaf may depend on.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <ostrakon/math/piece_tree.hpp>
#include <ostrakon/model/builder.hpp>
#include <ostrakon/model/expert_unit.hpp>
#include <ostrakon/model/graph/operations.hpp>
#include <ostrakon/model/graph_unit.hpp>
#include <ostrakon/model/layer_parameters.hpp>
#include <string>
#include <vector>

#include "model/model_run.hpp"

namespace ostrakon::test {
namespace {

using math::RouterScore;
using model::RouterBalance;

/// y = x + the mixture of experts of norm(x), as a unit with all its buffers.
template <class T>
class MixtureRun {
 public:
  using Compute = compute_t<T>;

  MixtureRun(const model::DecoderSettings& settings, const model::LeafShape& leaf)
      : rows_(leaf.rows()), width_(settings.width), unit_(make_unit(settings, leaf)) {
    const plan::UnitDescription& d = unit_->description();
    flat_ = std::make_unique<DeviceArray<T>>(scaled(d.parameter_elements, 2, 0.5));
    gradients_ = std::make_unique<GuardedArray<Compute>>(d.parameter_elements);
    saved_ = std::make_unique<GuardedArray<std::byte>>(d.saved_bytes);
  }

  /// y (rows, width).
  std::vector<T> forward(const std::vector<T>& x) {
    const DeviceArray<T> in(x), out(rows_ * width_);
    const GuardedArray<std::byte> workspace(unit_->description().forward.front().workspace_bytes);
    model::UnitBuffers<T> buffers = this->buffers(in, workspace);
    buffers.output = out.view();
    unit_->forward(Exec(), buffers);
    EXPECT_TRUE(workspace.guards_intact() && saved_->guards_intact());
    return out.host();
  }

  /// dx after forward(x).
  std::vector<T> backward(const std::vector<T>& x, const std::vector<T>& dy) {
    const DeviceArray<T> in(x), gradient(dy);
    const GuardedArray<std::byte> workspace(unit_->description().backward.front().workspace_bytes);
    model::UnitBuffers<T> buffers = this->buffers(in, workspace);
    buffers.gradient = gradient.view();
    gradients_->assign_unwritten();
    buffers.parameter_gradients = gradients_->view();
    unit_->backward(Exec(), buffers, 1, false);
    EXPECT_TRUE(workspace.guards_intact() && saved_->guards_intact() &&
                gradients_->guards_intact());
    return gradient.host();
  }

  /// Gradients of all parameters, one after the other.
  std::vector<Compute> gradients() const {
    std::vector<Compute> all;
    for (const model::Parameter& p : unit_->parameters()) {
      const std::vector<Compute> one = gradient(p.name);
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }
  std::vector<Compute> gradient(const std::string& name) const {
    const std::vector<Compute> flat = gradients_->values();
    for (const model::Parameter& p : unit_->parameters())
      if (p.name == name) return {flat.begin() + p.offset, flat.begin() + p.offset + p.elements()};
    return {};
  }

  static std::vector<T> scaled(std::int64_t count, std::uint64_t seed, double factor) {
    std::vector<T> values;
    for (const double value : random_values<double>(count, seed))
      values.push_back(static_cast<T>(static_cast<Compute>(factor * value)));
    return values;
  }

 private:
  static std::unique_ptr<model::Unit<T>> make_unit(const model::DecoderSettings& m,
                                                   const model::LeafShape& leaf) {
    model::Builder<T> b("mixture", leaf, m.width, {}, {}, {});
    const model::Value x = b.input(), n = b.norm(x, "mlp.norm", m.norm_settings());
    const model::Value y = b.mixture_onto(x, n, "mlp", m.experts, m.mlp_settings());
    return std::move(b).build(y).unit;
  }

  model::UnitBuffers<T> buffers(const DeviceArray<T>& x,
                                const GuardedArray<std::byte>& workspace) const {
    model::UnitBuffers<T> buffers;
    buffers.input = x.view();
    buffers.parameters = flat_->view();
    buffers.saved = saved_->view();
    buffers.workspace = workspace.view();
    return buffers;
  }

  std::int64_t rows_, width_;
  std::unique_ptr<const model::Unit<T>> unit_;
  std::unique_ptr<DeviceArray<T>> flat_;
  std::unique_ptr<GuardedArray<Compute>> gradients_;
  std::unique_ptr<GuardedArray<std::byte>> saved_;
};

std::vector<model::DecoderSettings> mixtures() {
  model::DecoderSettings swiglu;
  swiglu.layers = 1;
  swiglu.width = 40;
  swiglu.experts = {8, 2, 1, 24, RouterScore::sigmoid, true, 1.5, RouterBalance::bias, 0.5};
  model::DecoderSettings gelu = swiglu;
  gelu.activation = model::Activation::gelu;
  gelu.norm = math::NormKind::layernorm;
  gelu.bias = true;
  gelu.experts = {5, 3, 0, 12, RouterScore::softmax, false, 1.0, RouterBalance::loss, 0.1};
  return {swiglu, gelu};
}

template <class T>
class MixtureOf : public ::testing::Test {};
using MixtureTypes = ::testing::Types<float, bf16, fp16>;
TYPED_TEST_SUITE(MixtureOf, MixtureTypes);

template <class T>
std::vector<T> some_rows(const std::vector<T>& x, std::int64_t width, std::int64_t begin,
                         std::int64_t end) {
  return {x.begin() + begin * width, x.begin() + end * width};
}

TYPED_TEST(MixtureOf, ATokenDependsOnNoOther) {
  using T = TypeParam;
  for (const model::DecoderSettings& settings : mixtures()) {
    const std::int64_t rows = 150, width = settings.width;
    const std::vector<T> x = MixtureRun<T>::scaled(rows * width, 3, 1.0);
    const std::vector<T> all = MixtureRun<T>(settings, {1, rows}).forward(x);
    for (const auto& [begin, end] : {std::pair{0, 1}, std::pair{7, 90}, std::pair{149, 150}})
      EXPECT_EQ(
          bits(MixtureRun<T>(settings, {1, end - begin}).forward(some_rows(x, width, begin, end))),
          bits(some_rows(all, width, begin, end)))
          << begin << " to " << end;
  }
}

/// Several leaves at once are each of them alone, and their gradients added by the tree.
TYPED_TEST(MixtureOf, LeavesAtOnceAreLeavesOneByOne) {
  using T = TypeParam;
  using C = compute_t<T>;
  for (const model::DecoderSettings& settings : mixtures())
    for (const std::int64_t leaves : {2, 3, 4}) {
      const std::int64_t tokens = 6, width = settings.width, rows = leaves * tokens;
      const std::vector<T> x = MixtureRun<T>::scaled(rows * width, 3, 1.0);
      const std::vector<T> dy = MixtureRun<T>::scaled(rows * width, 4, 1.0);
      MixtureRun<T> at_once(settings, {leaves, tokens, 1, 1, true});
      const std::vector<T> y = at_once.forward(x), dx = at_once.backward(x, dy);
      MixtureRun<T> alone(settings, {1, tokens});
      std::vector<std::vector<C>> slots(static_cast<std::size_t>(math::tree_slots(leaves)));
      math::sum_pieces(
          leaves,
          [&](std::int64_t slot, std::int64_t leaf) {
            const auto of_leaf = [&](const std::vector<T>& all) {
              return some_rows(all, width, leaf * tokens, (leaf + 1) * tokens);
            };
            EXPECT_EQ(bits(alone.forward(of_leaf(x))), bits(of_leaf(y)));
            EXPECT_EQ(bits(alone.backward(of_leaf(x), of_leaf(dy))), bits(of_leaf(dx)));
            slots.at(slot) = alone.gradients();
          },
          [&](std::int64_t from, std::int64_t to) {
            for (std::size_t i = 0; i < slots[to].size(); ++i) slots[to][i] += slots[from][i];
          });
      EXPECT_EQ(bits(at_once.gradients()), bits(slots[0])) << leaves << " leaves";
    }
}

TYPED_TEST(MixtureOf, ExpertsWithoutTokensHaveGradientsOfZero) {
  using T = TypeParam;
  for (const model::DecoderSettings& settings : mixtures()) {
    MixtureRun<T> run(settings, {1, 1});
    const std::vector<T> x = MixtureRun<T>::scaled(settings.width, 3, 1.0);
    run.forward(x);
    run.backward(x, x);
    std::int64_t used = 0;
    for (std::int64_t e = 0; e < settings.experts.count; ++e) {
      const auto down = run.gradient(model::name_of_expert("mlp", e) + ".down.weight");
      const bool is_zero = std::all_of(down.begin(), down.end(), [](auto g) { return g == 0; });
      if (!is_zero) ++used;
    }
    EXPECT_EQ(used, settings.experts.per_token);
    for (const auto gradient : run.gradients()) EXPECT_EQ(gradient, gradient) << "unwritten";
  }
}

TYPED_TEST(MixtureOf, TheBiasIsUpdatedByCounts) {
  using T = TypeParam;
  const model::DecoderSettings settings = mixtures()[0];
  const std::int64_t rows = 64;
  MixtureRun<T> run(settings, {1, rows});
  const std::vector<T> x = MixtureRun<T>::scaled(rows * settings.width, 3, 1.0);
  run.forward(x);
  run.backward(x, x);
  const auto excess = run.gradient("mlp.router.balance");
  ASSERT_EQ(excess.size(), 8U);
  EXPECT_EQ(std::accumulate(excess.begin(), excess.end(), compute_t<T>(0)), 0);
  for (const auto value : excess) EXPECT_EQ(value, std::round(value)) << "64 x 2 / 8 is whole";
  EXPECT_GT(*std::max_element(excess.begin(), excess.end()), 0);
}

TEST(Mixture, CallsReadNoBiasesThatTheyDoNotUse) {
  const model::DecoderSettings m = mixtures()[1];
  std::vector<model::Parameter> parameters = {
      model::Parameter::normal("mlp.router.weight", {m.experts.count, m.width}, 0.02)};
  for (model::Parameter& one :
       model::expert_parameters("mlp", m.experts, m.mlp_settings(), m.width))
    parameters.push_back(std::move(one));
  model::lay_out_parameters(parameters, "mixture", {});
  model::graph::Operations<float> unit({1, 16}, {}, parameters, m.width);
  model::graph::Experts experts{m.experts.router()};
  const int copies = unit.dispatch(unit.input(), "mlp.router", experts);
  unit.expert_linear(experts, copies, ".up");
  const model::graph::Operation& layer = unit.graph().operations.back();
  EXPECT_EQ(layer.forward.front().weights.size(), 10u);
  EXPECT_EQ(layer.backward.front().gradients.size(), 10u);
  EXPECT_EQ(layer.backward.back().weights.size(), 5u);
}

TEST(Mixture, CallsOfAPhaseCopyOffsetsToTheHostOnce) {
  using model::graph::PlacedCall;
  const DeviceArray<std::int64_t> offsets({0, 2, 3}), others({0, 1, 3});
  PlacedCall first, second;
  first.call.reads = {7};
  second.call.reads = {5, 7};
  const model::graph::Program program;
  const model::graph::Buffers phase, next_phase;
  const auto second_offset = [&](const PlacedCall& call, const model::graph::Buffers& buffers,
                                 int value, const DeviceArray<std::int64_t>& in) {
    const model::graph::Arguments arguments(call, program, buffers, {});
    return arguments.on_host(Exec(), value, in.view())[1];
  };
  EXPECT_EQ(second_offset(first, phase, 0, offsets), 2);
  EXPECT_EQ(second_offset(second, phase, 1, others), 2) << "those of the same value";
  EXPECT_EQ(second_offset(second, phase, 0, others), 1) << "of another one";
  EXPECT_EQ(second_offset(first, next_phase, 0, others), 1);
}

/// Estimates of time count the rounds that even routing takes, whose products are all of them.
TEST(ExpertUnit, IsPlannedWithTheRoundsOfEvenRouting) {
  model::DecoderSettings settings = mixtures()[0];
  settings.experts.shared = 0;
  struct Case {
    double capacity;
    std::int64_t rows, rounds;
  };
  for (const Case& one :
       {Case{9.0, 8192, 1}, Case{2.0, 8192, 1}, Case{1.25, 5120, 1}, Case{1.0, 4096, 1},
        Case{0.5, 2048, 2}, Case{0.3, 1229, 4}, Case{0.25, 1024, 4}, Case{0.001, 256, 16}}) {
    model::LeafShape leaf{1, 4096};
    leaf.expert_ranks = 2;
    leaf.expert_capacity = one.capacity;
    const plan::UnitDescription unit = model::ExpertUnit<float>(settings, leaf, 0).description();
    EXPECT_EQ(unit.capacity.rows, one.rows) << one.capacity;
    EXPECT_EQ(unit.capacity.rounds_if_even, one.rounds) << one.capacity;
    EXPECT_GE(unit.capacity.most_rounds, one.rounds) << one.capacity;
    for (const plan::Phases* phases : {&unit.forward, &unit.backward}) {
      std::int64_t exchanges = 0;
      for (const plan::Phase& phase : *phases)
        if (phase.then && !phase.then->empty_if_even) ++exchanges;
      EXPECT_EQ(exchanges, 1 + 2 * one.rounds) << one.capacity;
    }
    // Gate, up and down, of two experts for each token; gate and up once more in backward.
    const double product = 2.0 * 4096 * 2 * 40 * 24;
    EXPECT_NEAR(plan::flops(unit.forward), 3.0 * product, 1.0) << one.capacity;
    EXPECT_NEAR(plan::flops(unit.backward), 8.0 * product, 1.0) << one.capacity;
  }
}

}  // namespace
}  // namespace ostrakon::test
