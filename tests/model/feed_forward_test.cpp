// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts by themselves: what the bits of a token and of a leaf may depend on.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <ostrakon/math/piece_tree.hpp>
#include <ostrakon/model/expert_feed_forward.hpp>
#include <ostrakon/model/expert_unit.hpp>
#include <string>
#include <vector>

#include "model/model_run.hpp"

namespace ostrakon::test {
namespace {

using math::RouterScore;
using model::RouterBalance;

/// The second half of a block with all its buffers.
template <class T>
class FeedForwardRun {
 public:
  using Compute = compute_t<T>;

  FeedForwardRun(const model::DecoderSettings& settings, const model::LeafShape& leaf)
      : leaf_(leaf), width_(settings.width), parameters_(model::block_parameters(settings)) {
    const model::SegmentSizes sizes = model::lay_out_parameters(parameters_, "block.0", {});
    part_ = std::make_unique<model::ExpertFeedForward<T>>(settings, leaf, model::Recompute{},
                                                          parameters_);
    flat_ = std::make_unique<DeviceArray<T>>(scaled(sizes.trained, 2, 0.5));
    gradients_ = std::make_unique<GuardedArray<Compute>>(sizes.trained);
    saved_ = std::make_unique<GuardedArray<T>>(elements(part_->saved_bytes()));
  }

  /// y (rows of x, width), for x that is some rows of the leaf or all.
  std::vector<T> forward(const std::vector<T>& x) {
    const auto rows = static_cast<std::int64_t>(x.size()) / width_;
    const DeviceArray<T> in(x), out(rows * width_);
    const GuardedArray<T> workspace(elements(part_->forward_workspace_bytes()));
    model::FeedForwardCall<T> call = this->call(in, workspace, rows);
    call.y = out.matrix(rows, width_);
    part_->forward(Exec(), call);
    EXPECT_TRUE(workspace.guards_intact() && saved_->guards_intact());
    return out.host();
  }

  /// dx after forward(x).
  std::vector<T> backward(const std::vector<T>& x, const std::vector<T>& dy) {
    const DeviceArray<T> in(x), gradient(dy);
    const GuardedArray<T> workspace(elements(part_->backward_workspace_bytes()));
    const GuardedArray<Compute> sums(part_->sum_elements());
    model::FeedForwardCall<T> call = this->call(in, workspace, leaf_.rows());
    call.gradient = gradient.matrix(leaf_.rows(), width_);
    gradients_->assign_unwritten();
    call.parameter_gradients = gradients_->view().range(0, gradients_->size());
    call.sums = sums;
    part_->backward(Exec(), call);
    EXPECT_TRUE(workspace.guards_intact() && sums.guards_intact() && saved_->guards_intact() &&
                gradients_->guards_intact());
    return gradient.host();
  }

  /// Of the feed-forward's parameters, one after the other.
  std::vector<Compute> gradients() const {
    const std::vector<Compute> flat = gradients_->values();
    std::vector<Compute> all;
    for (const model::Parameter& p : parameters_)
      if (p.name.rfind("mlp.", 0) == 0)
        all.insert(all.end(), flat.begin() + p.offset, flat.begin() + p.offset + p.elements());
    return all;
  }
  std::vector<Compute> gradient(const std::string& name) const {
    const std::vector<Compute> flat = gradients_->values();
    for (const model::Parameter& p : parameters_)
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
  static std::int64_t elements(std::int64_t bytes) {
    const auto size = static_cast<std::int64_t>(sizeof(T));
    return (bytes + size - 1) / size;
  }

  model::FeedForwardCall<T> call(const DeviceArray<T>& x, const GuardedArray<T>& workspace,
                                 std::int64_t rows) const {
    model::FeedForwardCall<T> call;
    call.parameters = {flat_->view(), {}};
    call.x = x.matrix(rows, width_);
    call.saved = view_as<std::byte>(saved_->view().range(0, saved_->size()));
    call.workspace = view_as<std::byte>(workspace.view().range(0, workspace.size()));
    return call;
  }

  model::LeafShape leaf_;
  std::int64_t width_;
  std::vector<model::Parameter> parameters_;
  std::unique_ptr<const model::ExpertFeedForward<T>> part_;
  std::unique_ptr<DeviceArray<T>> flat_;
  std::unique_ptr<GuardedArray<Compute>> gradients_;
  std::unique_ptr<GuardedArray<T>> saved_;
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
using Elements = ::testing::Types<float, bf16, fp16>;
TYPED_TEST_SUITE(MixtureOf, Elements);

template <class T>
std::vector<T> some_rows(const std::vector<T>& x, std::int64_t width, std::int64_t begin,
                         std::int64_t end) {
  return {x.begin() + begin * width, x.begin() + end * width};
}

TYPED_TEST(MixtureOf, ATokenDependsOnNoOther) {
  using T = TypeParam;
  for (const model::DecoderSettings& settings : mixtures()) {
    const std::int64_t rows = 150, width = settings.width;
    FeedForwardRun<T> run(settings, {1, rows});
    const std::vector<T> x = FeedForwardRun<T>::scaled(rows * width, 3, 1.0);
    const std::vector<T> all = run.forward(x);
    for (const auto& [begin, end] : {std::pair{0, 1}, std::pair{7, 90}, std::pair{149, 150}})
      EXPECT_EQ(bits(run.forward(some_rows(x, width, begin, end))),
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
      const std::vector<T> x = FeedForwardRun<T>::scaled(rows * width, 3, 1.0);
      const std::vector<T> dy = FeedForwardRun<T>::scaled(rows * width, 4, 1.0);
      FeedForwardRun<T> at_once(settings, {leaves, tokens, 1, 1, true});
      const std::vector<T> y = at_once.forward(x), dx = at_once.backward(x, dy);
      FeedForwardRun<T> alone(settings, {1, tokens});
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
    FeedForwardRun<T> run(settings, {1, 1});
    const std::vector<T> x = FeedForwardRun<T>::scaled(settings.width, 3, 1.0);
    run.forward(x);
    run.backward(x, x);
    std::int64_t used = 0;
    for (std::int64_t e = 0; e < settings.experts.count; ++e) {
      const auto down = run.gradient(model::name_of_expert(e) + ".down.weight");
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
  FeedForwardRun<T> run(settings, {1, rows});
  const std::vector<T> x = FeedForwardRun<T>::scaled(rows * settings.width, 3, 1.0);
  run.forward(x);
  run.backward(x, x);
  const auto excess = run.gradient("mlp.router.balance");
  ASSERT_EQ(excess.size(), 8U);
  EXPECT_EQ(std::accumulate(excess.begin(), excess.end(), compute_t<T>(0)), 0);
  for (const auto value : excess) EXPECT_EQ(value, std::round(value)) << "64 x 2 / 8 is whole";
  EXPECT_GT(*std::max_element(excess.begin(), excess.end()), 0);
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
    EXPECT_EQ(unit.room.rows, one.rows) << one.capacity;
    EXPECT_EQ(unit.room.rounds_if_even, one.rounds) << one.capacity;
    EXPECT_GE(unit.room.most_rounds, one.rounds) << one.capacity;
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
