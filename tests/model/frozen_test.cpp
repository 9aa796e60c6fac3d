// SPDX-License-Identifier: Apache-2.0
// Freezing parameters changes where they are and what is skipped, and no bit of what is computed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <ostrakon/model/block.hpp>
#include <ostrakon/model/embedding.hpp>
#include <ostrakon/model/graph/program.hpp>
#include <ostrakon/model/head.hpp>
#include <ostrakon/model/packing.hpp>
#include <ostrakon/plan/policy.hpp>

#include "math/check_gradient.hpp"
#include "model/model_run.hpp"

namespace ostrakon::test {
namespace {

/// Arrays begin at multiples of these bytes, so that fewer arrays can take more by one of them.
constexpr std::int64_t gap = model::graph::array_alignment * std::int64_t{sizeof(float)};

using model::Recompute;

/// Which parameters are frozen, with a name for messages.
struct Freeze {
  std::string name;
  model::Frozen frozen;
};

bool matches_any(const std::vector<std::string>& patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return plan::matches(pattern, name); });
}

Freeze freezing(const std::vector<std::string>& patterns) {
  std::string name = "freezing";
  for (const std::string& pattern : patterns) name += " " + pattern;
  return {name,
          [patterns](const std::string& parameter) { return matches_any(patterns, parameter); }};
}

Freeze training_only(const std::vector<std::string>& patterns) {
  std::string name = "training only";
  for (const std::string& pattern : patterns) name += " " + pattern;
  return {name,
          [patterns](const std::string& parameter) { return !matches_any(patterns, parameter); }};
}

/// Whole units, kinds of parameters, either table of the embedding, and mixtures within blocks and
/// stacks of them.
std::vector<Freeze> freezes() {
  return {freezing({"block.1.*"}),
          freezing({"head.*"}),
          freezing({"embedding.*"}),
          freezing({"embedding.token.weight"}),
          freezing({"embedding.position.weight"}),
          freezing({"embedding.*", "block.0.*"}),
          freezing({"*norm*"}),
          freezing({"*norm.weight"}),
          freezing({"*.bias"}),
          freezing({"*norm.bias", "*.mlp.down.*"}),
          freezing({"*.attention.qkv.weight", "*up.weight", "head.output.weight"}),
          freezing({"*.attention.out.weight", "*down.weight", "*up.bias"}),
          freezing({"block.0.mlp.*", "block.1.attention.*", "block.2.*.weight"}),
          training_only({"*.bias"}),
          training_only({"*norm*"}),
          training_only({"block.1.attention.out.*"}),
          training_only({"embedding.*"}),
          training_only({"head.norm.*"})};
}

/// Both families, their mixtures, stacks of blocks, and a table of positions that is larger than
/// that of tokens.
std::vector<ModelCase> some_cases() {
  const std::vector<ModelCase> all = model_cases();
  ModelCase positions = all[0];
  positions.name = "gpt2, 13 positions of 5 tokens";
  positions.settings.vocabulary = 5;
  positions.leaf = {2, 13};
  return {all[0], all[1], all[6], all[7], all[8], all[9], positions};
}

template <class T>
const std::vector<model::Parameter>& parameters_of(const model::Decoder<T>& decoder, int u) {
  return decoder.unit(u).parameters();
}

TEST(Frozen, ParametersLieInASegmentOfTheirOwn) {
  for (const ModelCase& which : model_cases())
    for (const Freeze& freeze : freezes()) {
      const std::string name = which.name + ", " + freeze.name;
      const model::Decoder<float> plain(which.settings, which.leaf);
      const model::Decoder<float> decoder(which.settings, which.leaf, {}, freeze.frozen);
      EXPECT_EQ(decoder.parameter_count(), plain.parameter_count()) << name;
      ASSERT_EQ(decoder.units(), plain.units()) << name;
      for (int u = 0; u < decoder.units(); ++u) {
        const plan::UnitDescription& unit = decoder.unit(u).description();
        const auto& expected = parameters_of(plain, u);
        ASSERT_EQ(parameters_of(decoder, u).size(), expected.size()) << name;
        std::int64_t trained_end = 0, frozen_end = 0;
        for (std::size_t i = 0; i < expected.size(); ++i) {
          const model::Parameter& p = parameters_of(decoder, u)[i];
          EXPECT_EQ(p.full_name(), expected[i].full_name()) << name;
          EXPECT_FALSE(expected[i].frozen) << name;
          EXPECT_EQ(p.frozen, freeze.frozen(p.full_name())) << name << ": " << p.full_name();
          std::int64_t& end = p.frozen ? frozen_end : trained_end;
          EXPECT_EQ(p.offset, end) << name << ": " << p.full_name();
          end = model::round_up(end + p.elements(), model::parameter_alignment);
        }
        EXPECT_EQ(unit.frozen_elements, frozen_end) << name << ": " << unit.name;
        EXPECT_EQ(unit.parameter_elements, frozen_end + trained_end) << name << ": " << unit.name;
        EXPECT_EQ(unit.parameter_elements, plain.unit(u).description().parameter_elements);
        EXPECT_EQ(plain.unit(u).description().frozen_elements, 0);
      }
    }
}

/// The gradients of unit u in `run` have the bits of those in `plain`, where all are trained, and
/// nothing else is written.
template <class T>
void expect_same_gradients(const std::string& name, const ModelRun<T>& run,
                           const ModelRun<T>& plain, int u) {
  const auto found = run.gradients[u].values(), expected = plain.gradients[u].values();
  std::vector<bool> written(found.size(), run.opened(u));  // a tied head's gaps are zeros
  for (std::size_t i = 0; i < parameters_of(run.decoder, u).size(); ++i) {
    const model::Parameter& p = parameters_of(run.decoder, u)[i];
    if (p.frozen) continue;
    const auto values = part(found, p);
    ASSERT_TRUE(std::none_of(values.begin(), values.end(), [](auto v) { return std::isnan(v); }))
        << name << ": gradient of " << p.full_name();
    EXPECT_TRUE(bits(values) == bits(part(expected, parameters_of(plain.decoder, u)[i])))
        << name << ": gradient of " << p.full_name();
    std::fill_n(written.begin() + p.offset, p.elements(), true);
  }
  for (std::size_t i = 0; i < found.size(); ++i)
    ASSERT_EQ(std::isnan(found[i]), !written[i])
        << name << ": gradient " << i << " of " << run.description.units[u].name;
}

template <class T>
void expect_same_bits_frozen(const ModelCase& which, const Freeze& freeze,
                             const Recompute& recompute) {
  const std::string name = which.name + ", " + freeze.name + ", " + to_string(recompute);
  ModelRun<T> plain(which, recompute), run(which, recompute, freeze.frozen);
  std::vector<std::vector<unsigned char>> frozen_before;
  for (const auto& frozen : run.frozen) frozen_before.push_back(bits(frozen.values()));
  plain.forward();
  run.forward();
  for (int u = 0; u < run.units(); ++u) {
    EXPECT_TRUE(bits(run.outputs[u].values()) == bits(plain.outputs[u].values()))
        << name << ": output of " << run.description.units[u].name;
    EXPECT_TRUE(bits(run.saved[u].values()) == bits(plain.saved[u].values()))
        << name << ": saved by " << run.description.units[u].name;
  }
  for (int u = run.head(); u >= run.first_trained(); --u) {
    plain.backward(u, compute_t<T>(0.5), plain.opened(u));
    run.backward(u, compute_t<T>(0.5), run.opened(u));
    EXPECT_TRUE(bits(run.gradient.values()) == bits(plain.gradient.values()))
        << name << ": gradient of the input of " << run.description.units[u].name;
    EXPECT_EQ(run.losses(), plain.losses()) << name;
  }
  for (int u = 0; u < run.units(); ++u) expect_same_gradients(name, run, plain, u);
  for (int u = 0; u < run.units(); ++u)
    EXPECT_TRUE(bits(run.frozen[u].values()) == frozen_before[u]) << name;
  run.expect_guards_intact();
}

template <class T>
void expect_same_bits_frozen() {
  for (const ModelCase& which : some_cases())
    for (const Freeze& freeze : freezes()) expect_same_bits_frozen<T>(which, freeze, {});
}

TEST(Frozen, ChangeNoBitOfFloat) { expect_same_bits_frozen<float>(); }
TEST(Frozen, ChangeNoBitOfDouble) { expect_same_bits_frozen<double>(); }
TEST(Frozen, ChangeNoBitOf16BitNumbers) {
  expect_same_bits_frozen<bf16>();
  expect_same_bits_frozen<fp16>();
}

/// Longer than a block of any kernel.
TEST(Frozen, ChangeNoBitOfLongSequences) {
  for (ModelCase which : {model_cases()[0], model_cases()[1]}) {
    which.name += ", long";
    which.settings.width = 96;
    which.settings.vocabulary = 131;
    which.leaf = {1, 150};
    for (const Freeze& freeze : freezes()) {
      expect_same_bits_frozen<float>(which, freeze, {});
      expect_same_bits_frozen<bf16>(which, freeze, {});
    }
  }
}

/// What is computed again only for gradients of weights is not needed for the rest.
TEST(Frozen, ChangeNoBitOfWhatIsComputedAgain) {
  for (const ModelCase& which : some_cases())
    for (const Freeze& freeze : freezes())
      for (const Recompute& recompute : recompute_choices())
        expect_same_bits_frozen<float>(which, freeze, recompute);
}

TEST(Frozen, SavedArraysAreWrittenAgain) {
  for (const ModelCase& which : some_cases())
    for (const Freeze& freeze : freezes()) {
      const Recompute recompute{true, true, true};
      ModelRun<float> plain(which, recompute), run(which, recompute, freeze.frozen);
      for (ModelRun<float>* each : {&plain, &run}) {
        each->forward();
        each->recompute_and_backward(0.5f);
      }
      for (int u = 0; u < run.units(); ++u)
        expect_same_gradients(which.name + ", " + freeze.name, run, plain, u);
    }
}

/// Where gradients of parameters are deferred, what only frozen ones need is not kept, and a block
/// none of whose matrices is trained defers nothing.
TEST(Frozen, DeferredGradientsHaveTheSameBits) {
  std::vector<ModelCase> cases = some_cases();
  for (int i : {13, 15, 16}) cases.push_back(model_cases()[static_cast<std::size_t>(i)]);
  std::vector<Freeze> all = freezes();
  all.push_back(freezing({"*mlp.router*", "*mlp.shared*"}));
  all.push_back(freezing({"*mlp.experts*"}));
  all.push_back(freezing({"*mlp.experts*", "*mlp.router.weight", "*mlp.shared*"}));
  for (const ModelCase& which : cases)
    for (const Freeze& freeze : all) {
      ModelCase later = which;
      later.leaf.defers_gradients = true;
      const std::string name = which.name + ", " + freeze.name + ", deferred";
      ModelRun<float> plain(which, {}, freeze.frozen), run(later, {}, freeze.frozen);
      for (ModelRun<float>* each : {&plain, &run}) {
        each->forward();
        each->backward(0.5f);
      }
      EXPECT_TRUE(bits(run.gradient.values()) == bits(plain.gradient.values())) << name;
      const ModelRun<float> everything(later);
      for (int u = run.first_trained(); u < run.units(); ++u) {
        const plan::UnitDescription& unit = run.description.units[u];
        expect_same_gradients(name, run, plain, u);
        const bool is_block = u > 0 && u < run.head();
        const std::vector<model::Parameter> all_parameters = parameters_of(run.decoder, u);
        const bool trains_matrices =
            std::any_of(all_parameters.begin(), all_parameters.end(),
                        [](const model::Parameter& p) { return !p.frozen && p.shape.size() == 2; });
        EXPECT_EQ(unit.deferred_phases, is_block && trains_matrices ? 1 : 0) << name;
        EXPECT_LE(unit.deferred_bytes, everything.description.units[u].deferred_bytes + gap)
            << name;
      }
      run.expect_guards_intact();
    }
}

/// All that deferred gradients need of a block's second matrices, unless these are frozen.
TEST(Frozen, SecondMatricesTakeNothingThatIsDeferred) {
  ModelCase which = model_cases()[0];
  which.leaf = {2, 64};
  which.leaf.defers_gradients = true;
  const auto deferred = [&](const std::vector<std::string>& patterns) {
    const model::Decoder<float> decoder(which.settings, which.leaf, {}, freezing(patterns).frozen);
    return decoder.unit(1).description().deferred_bytes;
  };
  const std::int64_t rows = 4 * 128, width = which.settings.width;
  EXPECT_EQ(deferred({}) - deferred({"*attention.out.*"}), rows * width);
  EXPECT_EQ(deferred({}) - deferred({"*mlp.down.*"}), rows * (width + which.settings.ffn_width));
  // Its bias has a gradient in backward, which waits: no product reads what that takes.
  EXPECT_EQ(deferred({}) - deferred({"*mlp.down.weight"}),
            rows * (width + which.settings.ffn_width) - 4 * model::round_up(width, 64));
}

/// Checks up to `samples` elements of an array's gradient, spread evenly over it.
void expect_gradient(const std::string& name, GuardedArray<double>& array, std::int64_t begin,
                     std::int64_t count, const std::vector<double>& gradient,
                     const std::function<double()>& function) {
  constexpr std::int64_t samples = 4;
  const std::vector<double> before = array.values();
  std::vector<std::int64_t> at;
  for (std::int64_t i = 0; i < std::min(samples, count); ++i)
    at.push_back(i * count / std::min(samples, count));
  std::vector<double> x, expected;
  for (const std::int64_t i : at) {
    x.push_back(before[begin + i]);
    expected.push_back(gradient[i]);
  }
  const auto moved = [&] {
    std::vector<double> values = before;
    for (std::size_t i = 0; i < at.size(); ++i) values[begin + at[i]] = x[i];
    array.assign(values);
    return function();
  };
  EXPECT_TRUE(gradient_agrees(name, x, expected, moved));
  array.assign(before);
}

TEST(Frozen, GradientsOfTheRestAgreeWithFiniteDifferences) {
  for (const ModelCase& which : some_cases())
    for (const Freeze& freeze : freezes()) {
      const std::string name = which.name + ", " + freeze.name;
      ModelRun<double> run(which, {}, freeze.frozen);
      const double scale = 0.25;
      const auto function = [&] {
        run.forward();
        const std::vector<double> losses = run.losses();
        return scale * std::accumulate(losses.begin(), losses.end(), 0.0);
      };
      run.forward();
      run.backward(scale);
      run.expect_guards_intact();
      for (int u = 0; u < run.units(); ++u) {
        const std::vector<double> gradients = run.gradients[u].values();
        for (const model::Parameter& p : parameters_of(run.decoder, u))
          if (!p.frozen)
            expect_gradient(name + ", " + p.full_name(), run.parameters[u], p.offset, p.elements(),
                            part(gradients, p), function);
      }
    }
}

/// A unit of which nothing is trained passes on the gradient of its input all the same.
TEST(Frozen, WholeUnitsHandOnTheGradientOfTheirInput) {
  for (const ModelCase& which : model_cases()) {
    ModelRun<double> run(which, {}, [](const std::string& name) { return name[0] != 'e'; });
    for (int u = 1; u < run.units(); ++u) {
      ASSERT_EQ(run.gradients[u].size(), 0) << which.name;
      const std::vector<double> weights = run.random(run.outputs[u].size());
      run.outputs[u - 1].assign(run.random(run.outputs[u - 1].size()));
      const bool head = u == run.head();
      const auto function = [&] {
        run.forward(u);
        return head ? weighted_sum(run.losses(), std::vector<double>(run.rows(), 0.5))
                    : weighted_sum(run.outputs[u].values(), weights);
      };
      run.forward(u);
      if (!head) run.gradient.assign(weights);
      run.backward(u, 0.5, false);
      const std::vector<double> gradient = run.gradient.values();
      expect_gradient(which.name + ", input of " + run.description.units[u].name,
                      run.outputs[u - 1], 0, run.outputs[u - 1].size(), gradient, function);
    }
    run.expect_guards_intact();
  }
}

/// Where the token table is trained, a tied head opens all gradients of the embedding that there
/// are, whatever else is frozen; where it is frozen, none.
TEST(Frozen, TiedHeadsOpenTheGradientsOfATrainedTable) {
  for (const ModelCase& which : some_cases())
    for (const Freeze& freeze : freezes()) {
      const std::string name = which.name + ", " + freeze.name;
      ModelRun<float> run(which, {}, freeze.frozen);
      const bool tied = which.settings.tie_embeddings;
      const bool frozen_table = freeze.frozen("embedding.token.weight");
      const plan::UnitDescription& head = run.description.units.back();
      EXPECT_EQ(head.tied_to, tied ? 0 : -1) << name;
      EXPECT_EQ(head.tied_gradients, !tied || !frozen_table) << name;

      run.forward();
      run.backward(run.head(), 1.0f, false);
      const std::vector<float> lent = run.gradients[0].values();
      const std::int64_t written =
          std::count_if(lent.begin(), lent.end(), [](float value) { return !std::isnan(value); });
      EXPECT_EQ(written, tied && !frozen_table ? run.gradients[0].size() : 0) << name;
    }
}

/// Rows that a parameter's layer is described with: an expert's share of all copies, else all.
std::int64_t rows_of(const ModelCase& which, const std::string& name) {
  const std::string prefix = "mlp.experts.";
  if (name.compare(0, prefix.size(), prefix) != 0) return which.leaf.rows();
  const model::ExpertSettings& experts = which.settings.experts;
  const std::int64_t expert = std::stoll(name.substr(prefix.size()));
  const std::int64_t copies = which.leaf.rows() * experts.per_token;
  return (expert + 1) * copies / experts.count - expert * copies / experts.count;
}

TEST(Frozen, DescriptionsCountWhatIsLeftOut) {
  for (const ModelCase& which : model_cases())
    for (const Freeze& freeze : freezes())
      for (const Recompute& recompute : {Recompute{}, Recompute{true, true, true}}) {
        const std::string name = which.name + ", " + freeze.name;
        const model::Decoder<bf16> decoder(which.settings, which.leaf, recompute, freeze.frozen);
        const plan::ModelDescription plain =
            model::Decoder<bf16>(which.settings, which.leaf, recompute).description();
        const plan::ModelDescription description = decoder.description();
        EXPECT_EQ(description.gradient_bytes, plain.gradient_bytes);
        // A product for each weight; the embedding has none, but for a tied head's.
        std::vector<double> left_out(decoder.units(), 0.0);
        std::vector<std::int64_t> frozen(decoder.units(), 0);
        for (int u = 0; u < decoder.units(); ++u)
          for (const model::Parameter& p : parameters_of(decoder, u)) {
            frozen[u] += p.frozen ? p.elements() : 0;
            if (!p.frozen || p.shape.size() != 2) continue;
            const bool lent = p.name == "token.weight" && which.settings.tie_embeddings;
            if (u > 0 || lent)
              left_out[lent ? decoder.units() - 1 : u] +=
                  2.0 * static_cast<double>(rows_of(which, p.name) * p.elements());
          }
        for (int u = 0; u < decoder.units(); ++u) {
          const plan::UnitDescription& found = description.units[u];
          const plan::UnitDescription& expected = plain.units[u];
          EXPECT_EQ(found.backward.front().flops, expected.backward.front().flops - left_out[u])
              << name << ": " << found.name;
          EXPECT_EQ(found.gradient_flops, 2.0 * expected.forward.front().flops - left_out[u])
              << name;
          EXPECT_EQ(found.frozen_count, frozen[u]) << name;
          EXPECT_EQ(found.forward.front().flops, expected.forward.front().flops) << name;
          EXPECT_EQ(found.forward.front().recompute_flops, expected.forward.front().recompute_flops)
              << name;
          EXPECT_EQ(found.saved_bytes, expected.saved_bytes) << name;
          EXPECT_EQ(found.output_bytes, expected.output_bytes) << name;
          EXPECT_EQ(found.forward.front().workspace_bytes, expected.forward.front().workspace_bytes)
              << name;
          EXPECT_LE(found.backward.front().workspace_bytes,
                    expected.backward.front().workspace_bytes + gap)
              << name;
          EXPECT_EQ(found.backward_reads_parameters, expected.backward_reads_parameters) << name;
          EXPECT_EQ(found.tied_to, expected.tied_to) << name;
        }
      }
}

TEST(Frozen, LogitsHaveTheSameBits) {
  for (const ModelCase& which : model_cases())
    for (const Freeze& freeze : freezes()) {
      const auto logits = [&](const model::Frozen& frozen) {
        ModelRun<float> run(decoded_at_once(which), {}, frozen);
        run.forward();
        return bits(run.head_output());
      };
      EXPECT_TRUE(logits(freeze.frozen) == logits({})) << which.name << ", " << freeze.name;
    }
}

}  // namespace
}  // namespace ostrakon::test
