// SPDX-License-Identifier: Apache-2.0
// What becomes of each parameter: frozen ones, those with a rate or a decay of their own, and
// matrices under Muon.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/random.hpp>
#include <ostrakon/math/transfer.hpp>
#include <ostrakon/plan/ir/policy.hpp>
#include <string>
#include <vector>

#include "support/messages.hpp"
#include "trainer/small_runs.hpp"

namespace {

using namespace ostrakon;
using namespace ostrakon::tests;

using Values = std::map<std::string, std::vector<float>>;

/// All parameters by their full names, on every rank.
Values values_of(train::Trainer& trainer) {
  Values values;
  trainer.visit_parameters([&](int unit, View<const float*> trained, View<const float*> frozen) {
    for (const model::Parameter& parameter : trainer.model().parameters(unit)) {
      std::vector<float>& copy = values[parameter.full_name()];
      copy.resize(static_cast<std::size_t>(parameter.elements()));
      const View<const float*> from =
          (parameter.frozen ? frozen : trained)
              .range(parameter.offset, parameter.offset + parameter.elements());
      math::copy_to_host(Exec(), from, host_view(copy));
    }
  });
  return values;
}

Values initial_values(const config::Settings& settings) {
  SmallRun run(settings, MPI_COMM_SELF);
  return values_of(run.trainer);
}

struct Trained {
  Values values;
  std::uint64_t digest;
};
Trained train_steps(const config::Settings& settings, std::int64_t steps, MPI_Comm comm) {
  SmallRun run(settings, comm);
  for (std::int64_t step = 1; step <= steps; ++step) run.step(step);
  return {values_of(run.trainer), run.trainer.state_digest()};
}

config::Settings unsharded(config::Settings settings) {
  settings.parallel.sharding = plan::Sharding::none;
  settings.optimizer.clip_norm = 0.0;  // one parameter's gradient has no effect on another's update
  settings.schedule.tail = optim::Tail::constant;
  settings.schedule.warmup_steps = 0;
  return settings;
}

optim::ParameterRule rule(const std::string& pattern, std::optional<bool> frozen,
                          std::optional<double> learning_rate, std::optional<double> weight_decay) {
  optim::ParameterRule one;
  one.pattern = pattern;
  one.frozen = frozen;
  one.learning_rate = learning_rate;
  one.weight_decay = weight_decay;
  return one;
}

bool matches_any(const std::vector<std::string>& patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return plan::matches(pattern, name); });
}

TEST(Frozen, ParametersKeepTheirBitsAndOthersTrainAsWithARateOfZero) {
  const std::vector<std::vector<std::string>> all_patterns = {
      {"embedding.*"},
      {"block.0.*"},
      {"*.norm.*", "*.bias"},
      {"*attention*"},
      {"embedding.token.*", "block.0.*", "block.1.*"},
      {"head.*"}};
  for (const config::Settings& of_model : {small_gpt2(8), small_llama(8)}) {
    config::Settings settings = unsharded(of_model);
    const Values initial = initial_values(settings);
    int row_of_pattern = 0;
    for (std::vector<std::string> patterns : all_patterns) {
      if (!settings.model.bias)
        patterns.erase(std::remove(patterns.begin(), patterns.end(), "*.bias"), patterns.end());
      std::vector<optim::ParameterRule>& rules = settings.optimizer.parameters;
      settings = unsharded(of_model);
      for (const std::string& pattern : patterns)
        rules.push_back(rule(pattern, std::nullopt, 0.0, 0.0));
      const Values expected = train_steps(settings, 3, MPI_COMM_SELF).values;
      rules.clear();
      for (const std::string& pattern : patterns)
        rules.push_back(rule(pattern, true, std::nullopt, std::nullopt));
      const std::uint64_t digest = train_steps(settings, 3, MPI_COMM_SELF).digest;
      // Every two of sharding, offload and blocks are combined with some patterns.
      int row = row_of_pattern++;
      for (const auto sharding : all_shardings) {
        constexpr plan::Offload offloads[] = {plan::Offload::none, plan::Offload::parameters,
                                              plan::Offload::all};
        settings.parallel.offload = offloads[row % 3];
        settings.parallel.sharding = sharding;
        settings.model.blocks_per_unit = 1 + row / 3 % 2;
        ++row;
        const Trained run = train_steps(settings, 3, MPI_COMM_WORLD);
        EXPECT_EQ(run.digest, digest);
        EXPECT_EQ(run.values.size(), expected.size());
        for (const auto& [name, values] : run.values) {
          EXPECT_EQ(values, expected.at(name)) << name << " beside " << patterns[0];
          const bool frozen = matches_any(patterns, name);
          EXPECT_EQ(values == initial.at(name), frozen) << name << " beside " << patterns[0];
        }
      }
    }
  }
}

TEST(Frozen, ParametersHaveNoMomentsAndNoGradients) {
  config::Settings settings = small_llama(8);
  mesh::Mesh mesh(MPI_COMM_WORLD, 0);
  const auto bytes_of_kind = [&](plan::Category category) {
    const train::Trainer trainer = train::make_trainer(settings, mesh);
    std::int64_t bytes = 0;
    for (const plan::Buffer& buffer : trainer.program(plan::Purpose::train).plan.buffers)
      if (buffer.category == category) bytes += buffer.bytes;
    return bytes;
  };
  const std::int64_t moments = bytes_of_kind(plan::Category::optimizer);
  const std::int64_t gradients = bytes_of_kind(plan::Category::gradients);
  settings.optimizer.parameters = {rule("block.*.weight", true, std::nullopt, std::nullopt)};
  EXPECT_LT(bytes_of_kind(plan::Category::optimizer), moments / 2);
  EXPECT_LT(bytes_of_kind(plan::Category::gradients), gradients / 2);
}

/// The way of a step of plain gradient descent is the rate times the gradient.
TEST(Rules, GiveParametersARateAndADecayOfTheirOwn) {
  config::Settings settings = unsharded(small_gpt2(8));
  settings.optimizer.kind = optim::OptimizerKind::sgd;
  settings.optimizer.momentum = 0.0;
  settings.optimizer.learning_rate = 0.5;
  settings.optimizer.weight_decay = 0.0;
  const Values initial = initial_values(settings);
  const Values plain = train_steps(settings, 1, MPI_COMM_SELF).values;
  settings.optimizer.parameters = {rule("block.*", std::nullopt, 0.125, std::nullopt),
                                   rule("*.norm.weight", std::nullopt, std::nullopt, 0.5),
                                   rule("block.1.*", std::nullopt, 2.0, std::nullopt)};
  for (const auto sharding : all_shardings)
    for (const auto offload : {plan::Offload::none, plan::Offload::optimizer}) {
      settings.parallel.sharding = sharding;
      settings.parallel.offload = offload;
      const Values ruled = train_steps(settings, 1, MPI_COMM_WORLD).values;
      int decayed = 0;
      for (const auto& [name, before] : initial) {
        const double rate = name.rfind("block.1.", 0) == 0   ? 2.0
                            : name.rfind("block.0.", 0) == 0 ? 0.125
                                                             : 0.5;
        const bool decays = plan::matches("*.norm.weight", name);
        decayed += decays;
        for (std::size_t i = 0; i < before.size(); ++i) {
          const double x = static_cast<double>(before[i]);
          const double gradient = (x - static_cast<double>(plain.at(name)[i])) / 0.5;
          const double expected = x - rate * (gradient + (decays ? 0.5 : 0.0) * x);
          ASSERT_NEAR(ruled.at(name)[i], expected, 1e-6) << name << "[" << i << "]";
        }
      }
      EXPECT_EQ(decayed, 5);
    }
}

/// U p(S) V^T of a (rows, columns) matrix in plain loops: Jordan's iteration, always with X X^T.
std::vector<double> orthogonalized(std::vector<double> x, std::size_t rows, std::size_t columns) {
  double norm = 0.0;
  for (double value : x) norm += value * value;
  for (double& value : x) value /= std::sqrt(norm);
  for (int iteration = 0; iteration < 5; ++iteration) {
    std::vector<double> square(rows * rows), polynomial(rows * rows), next(rows * columns);
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t j = 0; j < rows; ++j)
        for (std::size_t k = 0; k < columns; ++k)
          square[i * rows + j] += x[i * columns + k] * x[j * columns + k];
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t j = 0; j < rows; ++j) {
        double sum = 0.0;
        for (std::size_t k = 0; k < rows; ++k) sum += square[i * rows + k] * square[k * rows + j];
        polynomial[i * rows + j] =
            (i == j ? 3.4445 : 0.0) - 4.7750 * square[i * rows + j] + 2.0315 * sum;
      }
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t k = 0; k < rows; ++k)
        for (std::size_t j = 0; j < columns; ++j)
          next[i * columns + j] += polynomial[i * rows + k] * x[k * columns + j];
    x = next;
  }
  return x;
}

/// The gradients of step `step` at the initial parameters, as gradient descent shows them.
Values gradients_of(config::Settings settings, const Values& initial, std::int64_t step) {
  settings.optimizer.kind = optim::OptimizerKind::sgd;
  settings.optimizer.momentum = 0.0;
  settings.optimizer.weight_decay = 0.0;
  settings.optimizer.learning_rate = 0x1p20;  // so large that what was there before rounds away
  SmallRun run(settings, MPI_COMM_SELF);
  run.trainer.set_next_step(step);
  run.step(step);
  Values gradients = values_of(run.trainer);
  for (auto& [name, values] : gradients)
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = (initial.at(name)[i] - values[i]) * 0x1p-20f;
  return gradients;
}

/// Step 2, whose rate is zero, then step 1: two gradients at the same parameters.
TEST(Muon, OrthogonalizesMatricesBetweenHiddenStatesAndLeavesTheRestToAdamw) {
  config::Settings settings = unsharded(small_llama(8));
  const Values initial = initial_values(settings);
  const Values first = gradients_of(settings, initial, 2);
  const Values second = gradients_of(settings, initial, 1);

  settings.training.steps = 2;
  settings.schedule.tail = optim::Tail::linear;
  settings.schedule.final_fraction = 0.0;
  settings.optimizer.kind = optim::OptimizerKind::muon;
  settings.optimizer.momentum = 0.9;
  settings.optimizer.beta1 = 0.75;
  settings.optimizer.beta2 = 0.5;
  settings.optimizer.weight_decay = 0.1;
  settings.optimizer.muon_rate_factor = 2.0;
  settings.optimizer.learning_rate = 0.02;
  const double base = optim::learning_rate(settings.schedule, 0.02, 1, 2);
  ASSERT_EQ(optim::learning_rate(settings.schedule, 0.02, 2, 2), 0.0);
  ASSERT_GT(base, 0.0);
  std::uint64_t digest = 0;
  for (const auto offload : {plan::Offload::none, plan::Offload::all})
    for (const auto sharding : all_shardings) {
      settings.parallel.offload = offload;
      settings.parallel.sharding = sharding;
      SmallRun run(settings);
      run.trainer.set_next_step(2);
      run.step(2);
      EXPECT_EQ(values_of(run.trainer), initial);
      run.trainer.set_next_step(1);
      run.step(1);
      if (digest == 0) digest = run.trainer.state_digest();
      EXPECT_EQ(run.trainer.state_digest(), digest);
      const Values found = values_of(run.trainer);
      int matrices = 0;
      for (int u = 0; u < run.trainer.model().units(); ++u)
        for (const model::Parameter& parameter : run.trainer.model().parameters(u)) {
          const std::string name = parameter.full_name();
          const std::vector<float>& before = initial.at(name);
          const bool is_matrix = parameter.shape.size() == 2 && name.rfind("block.", 0) == 0;
          matrices += is_matrix;
          std::vector<double> way(before.size());
          for (std::size_t i = 0; i < way.size(); ++i) {
            const double g = static_cast<double>(first.at(name)[i]);
            const double h = static_cast<double>(second.at(name)[i]);
            if (is_matrix) {
              way[i] = h + 0.9 * (0.9 * g + h);
            } else {
              const double mean = (0.75 * 0.25 * g + 0.25 * h) / (1.0 - 0.75 * 0.75);
              const double square = (0.5 * 0.5 * g * g + 0.5 * h * h) / (1.0 - 0.5 * 0.5);
              way[i] = mean / (std::sqrt(square) + 1e-8);
            }
          }
          if (is_matrix) {
            const std::vector<std::int64_t>& shape = parameter.shape;
            way = orthogonalized(way, static_cast<std::size_t>(shape[0]),
                                 static_cast<std::size_t>(shape[1]));
            for (double& value : way)
              value *= 0.2 * std::sqrt(static_cast<double>(std::max(shape[0], shape[1])));
          }
          const double rate = is_matrix ? 2.0 * base : base;
          const double decay = parameter.decays ? 0.1 : 0.0;
          // Small singular values grow 485-fold, and their errors too.
          const double tolerance = is_matrix ? 2e-5 : 1e-6;
          for (std::size_t i = 0; i < way.size(); ++i) {
            // Next to nothing has a sign that is next to anything.
            if (!is_matrix && std::abs(first.at(name)[i]) < 1e-6f &&
                std::abs(second.at(name)[i]) < 1e-6f)
              continue;
            const double x = static_cast<double>(before[i]);
            ASSERT_NEAR(found.at(name)[i], x - rate * (way[i] + decay * x), tolerance)
                << name << "[" << i << "]";
          }
        }
      EXPECT_GE(matrices, 8);
    }
}

TEST(Muon, KeepsOneMomentOfMatrices) {
  config::Settings settings = small_llama(8);
  mesh::Mesh mesh(MPI_COMM_SELF, 0);
  settings.optimizer.kind = optim::OptimizerKind::muon;
  const train::Trainer trainer = train::make_trainer(settings, mesh);
  const plan::StepPlan& plan = trainer.program(plan::Purpose::train).plan;
  for (int u = 0; u < trainer.model().units(); ++u) {
    std::int64_t matrices = 0;
    const plan::PlannedUnit& unit = plan.units[u];
    for (const plan::WholeMatrix& matrix : unit.whole_matrices) matrices += matrix.elements;
    EXPECT_EQ(matrices > 0, unit.name.rfind("block", 0) == 0);
    EXPECT_EQ(plan.buffers[unit.second_moments].bytes,
              plan.buffers[unit.first_moments].bytes - 4 * matrices);
  }
}

/// Every element of every parameter has a value of its own; from one rank's on, it is not there.
class Numbered : public checkpoint::ParameterSource {
 public:
  explicit Numbered(bool breaks = false) : breaks_(breaks) {}

  static float value(const std::string& name, std::int64_t element) {
    return static_cast<float>(math::random_key(static_cast<std::uint64_t>(element), name) >> 40) *
           0x1p-28f;
  }
  void read(const std::string& owner, const std::string& parameter,
            const std::vector<std::int64_t>& shape, std::int64_t first, std::int64_t count,
            float* values) override {
    require(!breaks_ || owner != "block.1", "no ", owner, ".", parameter);
    std::int64_t elements = 1;
    for (std::int64_t extent : shape) elements *= extent;
    ASSERT_LE(first + count, elements);
    for (std::int64_t i = 0; i < count; ++i) values[i] = value(owner + "." + parameter, first + i);
  }
  void verify() override {}

 private:
  bool breaks_;
};

TEST(InitialWeights, AreReadByEachRankWhereverTheyLive) {
  for (const auto offload : {plan::Offload::none, plan::Offload::parameters, plan::Offload::all})
    for (const auto sharding : all_shardings)
      for (const bool halves : {false, true}) {
        config::Settings settings = small_llama(8);
        settings.parallel.offload = offload;
        settings.parallel.sharding = sharding;
        if (halves) settings.precision.gather = DType::bf16;
        settings.optimizer.parameters = {{"block.0.attention.*", true, {}, {}}};
        SmallRun run(settings, MPI_COMM_WORLD);
        Numbered weights;
        run.trainer.initialize(&weights);
        const Values found = values_of(run.trainer);
        for (int u = 0; u < run.trainer.model().units(); ++u)
          for (const model::Parameter& parameter : run.trainer.model().parameters(u)) {
            const std::vector<float>& values = found.at(parameter.full_name());
            for (std::int64_t i = 0; i < parameter.elements(); ++i)
              ASSERT_EQ(values[static_cast<std::size_t>(i)],
                        Numbered::value(parameter.full_name(), i))
                  << parameter.full_name() << " " << i;
          }
        run.trainer.state_digest();  // throws where copies to compute with differ
      }
}

TEST(InitialWeights, ThatOneRankCannotReadAreRefusedByAll) {
  SmallRun run(small_llama(8), MPI_COMM_WORLD);
  Numbered weights(run.mesh.world().rank() == run.mesh.world().size() - 1);
  const std::string message =
      ostrakon::testing::error_of<CollectiveError>([&] { run.trainer.initialize(&weights); });
  EXPECT_HAS(message, "no block.1.");
}

}  // namespace
