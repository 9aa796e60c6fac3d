// SPDX-License-Identifier: Apache-2.0
// Decoders of 16-bit types, compared with those of double with the same parameters.
#include <gtest/gtest.h>

#include <cmath>
#include <ostrakon/base/error.hpp>
#include <ostrakon/model/decoder_model.hpp>
#include <ostrakon/plan/policy.hpp>

#include "model/model_run.hpp"

namespace ostrakon::test {
namespace {

using model::Recompute;

/// |found - expected| / |expected|, in the Euclidean norm.
template <class A>
double relative_distance(const std::vector<A>& found, const std::vector<double>& expected) {
  EXPECT_EQ(found.size(), expected.size());
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference += std::pow(static_cast<double>(found[i]) - expected[i], 2);
    size += std::pow(expected[i], 2);
  }
  return std::sqrt(difference / size);
}

/// Both families some blocks deep, one block a unit and several.
std::vector<ModelCase> deep_half_cases() {
  std::vector<ModelCase> cases = model_cases();
  cases.resize(2);
  for (ModelCase& which : cases) {
    which.settings.width = 48;
    which.settings.layers = 4;
    which.settings.vocabulary = 131;
    which.settings.initializer_deviation = 0.1;
    which.leaf = {2, 70};
  }
  for (int i = 0; i < 2; ++i) {
    cases.push_back(cases[i]);
    cases.back().name += ", 3 blocks a unit";
    cases.back().settings.blocks_per_unit = 3;
  }
  return cases;
}

struct Tolerances {
  double outputs, losses, gradients;
};

template <class T>
void expect_near_double(const ModelCase& which, const Recompute& recompute,
                        const Tolerances& tolerances) {
  const std::string name = which.name + ", " + to_string(recompute);
  ModelRun<T> run(which, recompute);
  ModelRun<double> exact(which);
  exact.take_parameters(run);
  run.forward();
  run.backward(compute_t<T>(0.25));
  run.expect_guards_intact();
  exact.forward();
  exact.backward(0.25);
  for (int u = 0; u < run.head(); ++u)
    EXPECT_LE(relative_distance(run.outputs[u].values(), exact.outputs[u].values()),
              tolerances.outputs)
        << name << ": output of " << run.description.units[u].name;
  EXPECT_LE(relative_distance(run.losses(), exact.losses()), tolerances.losses) << name;
  for (int u = 0; u < run.units(); ++u) {
    const auto found = run.gradients[u].values();
    const std::vector<double> expected = exact.gradients[u].values();
    for (const model::Parameter& p : run.decoder.unit(u).parameters())
      EXPECT_LE(relative_distance(part(found, p), part(expected, p)), tolerances.gradients)
          << name << ": gradient of " << p.full_name();
  }
}

template <class T>
void expect_all_near_double(const Tolerances& tolerances) {
  for (const ModelCase& which : deep_half_cases())
    for (const Recompute& recompute : {Recompute{}, Recompute{true, true, true}})
      expect_near_double<T>(which, recompute, tolerances);
}

TEST(Half, FloatIsNearDouble) { expect_all_near_double<float>({1e-6, 1e-6, 2e-6}); }
TEST(Half, Bf16IsNearDouble) { expect_all_near_double<bf16>({0.01, 0.003, 0.02}); }
TEST(Half, Fp16IsNearDouble) { expect_all_near_double<fp16>({0.0015, 0.0005, 0.003}); }

/// All gradients of a step, without the gaps, divided by `divisor`.
template <class T>
std::vector<double> gradients(const ModelCase& which, float loss_scale, double divisor) {
  ModelRun<T> run(which);
  run.forward();
  run.backward(loss_scale);
  std::vector<double> all;
  for (int u = 0; u < run.units(); ++u)
    for (const model::Parameter& p : run.decoder.unit(u).parameters())
      for (const float value : part(run.gradients[u].values(), p))
        all.push_back(static_cast<double>(value) / divisor);
  return all;
}

TEST(Half, Bf16GradientsScaleWithTheLoss) {
  for (const ModelCase& which : deep_half_cases())
    EXPECT_EQ(gradients<bf16>(which, 0x1p-20f, 1.0), gradients<bf16>(which, 0x1p10f, 0x1p30))
        << which.name;
}

/// Small gradients are nothing in fp16, unless the loss is scaled: then all of them are there.
TEST(Half, Fp16GradientsNeedAScaledLoss) {
  for (const ModelCase& which : deep_half_cases()) {
    const std::vector<double> expected = gradients<float>(which, 0x1p-20f, 1.0);
    EXPECT_GT(relative_distance(gradients<fp16>(which, 0x1p-20f, 1.0), expected), 0.1)
        << which.name;
    EXPECT_LE(relative_distance(gradients<fp16>(which, 0x1p-2f, 0x1p18), expected), 0.003)
        << which.name;
  }
}

/// A prompt, then token by token. Products of other shapes add in another order, so the results of
/// some rows are rounded to the neighbour of what they were.
template <class T>
void expect_decoding_agrees(double tolerance) {
  for (ModelCase which : model_cases()) {
    which.leaf = {1, 13};
    ModelRun<T> whole(which);
    whole.forward();
    const auto decoded = decoded_outputs(which, whole);
    const auto doubles = [](const auto& values) {
      return std::vector<double>(values.begin(), values.end());
    };
    for (int u = 0; u < whole.head(); ++u)
      EXPECT_LE(relative_distance(decoded[u], doubles(whole.outputs[u].values())), tolerance)
          << which.name << ": " << whole.description.units[u].name;
  }
}

TEST(Half, DecodingRowByRowAgreesWithTheWholeForward) {
  expect_decoding_agrees<bf16>(0x1p-8);
  expect_decoding_agrees<fp16>(0x1p-11);
}

/// Logits of the last row, in float.
template <class T>
void expect_logits_near_double(double tolerance) {
  for (const ModelCase& each : model_cases()) {
    const ModelCase which = decoded_at_once(each);
    ModelRun<T> run(which);
    ModelRun<double> exact(which);
    exact.take_parameters(run);
    run.forward();
    exact.forward();
    EXPECT_LE(relative_distance(run.head_output(), exact.head_output()), tolerance) << which.name;
    run.expect_guards_intact();
  }
}

TEST(Half, LogitsAreNearDouble) {
  expect_logits_near_double<float>(1e-6);
  expect_logits_near_double<bf16>(0.04);
  expect_logits_near_double<fp16>(0.006);
}

TEST(Half, DescribesWhatTakesTwoBytes) {
  ModelCase which = model_cases()[0];
  which.settings.width = 48;
  which.leaf = {2, 64};
  const std::int64_t rows = 128, width = 48, heads = which.settings.heads;
  const model::Decoder<bf16> decoder(which.settings, which.leaf);
  const plan::ModelDescription description = decoder.description();
  EXPECT_EQ(description.element_bytes, 2);
  EXPECT_EQ(description.master_bytes, 4);
  EXPECT_EQ(description.gradient_bytes, 2 * rows * width);
  EXPECT_EQ(description.batch_bytes, 2 * rows * 4);
  EXPECT_EQ(description.units[0].output_bytes, 2 * rows * width);
  EXPECT_EQ(description.units[0].saved_bytes, 0);
  EXPECT_FALSE(description.units[0].recomputes);
  const plan::UnitDescription& block = description.units[1];
  EXPECT_EQ(block.output_bytes, 2 * rows * width);
  EXPECT_EQ(block.saved_bytes,
            2 * rows * (5 * width + which.settings.ffn_width) + 4 * rows * (4 + heads));
  const plan::UnitDescription& head = description.units.back();
  EXPECT_EQ(head.output_bytes, 4 * rows);
  EXPECT_FALSE(head.recomputes);
  const ModelCase decoded = decoded_at_once(which);
  EXPECT_EQ(
      model::Decoder<bf16>(decoded.settings, decoded.leaf).description().units.back().output_bytes,
      4 * which.settings.vocabulary);

  const plan::ModelDescription whole =
      model::Decoder<float>(which.settings, which.leaf).description();
  EXPECT_EQ(whole.element_bytes, 4);
  EXPECT_EQ(whole.master_bytes, 4);
  for (std::size_t u = 0; u < whole.units.size(); ++u) {
    EXPECT_EQ(description.units[u].parameter_elements, whole.units[u].parameter_elements);
    EXPECT_EQ(description.units[u].forward.front().flops, whole.units[u].forward.front().flops);
    EXPECT_EQ(description.units[u].backward.front().flops, whole.units[u].backward.front().flops);
  }
}

/// The buffers of one unit for backward, as a caller has them without types.
template <class T>
model::UnitBuffers<void> untyped(const model::UnitBuffers<T>& typed,
                                 View<const std::int32_t*> batch) {
  model::UnitBuffers<void> buffers;
  buffers.batch = view_as<std::byte>(batch);
  buffers.parameters = view_as<std::byte>(typed.parameters);
  buffers.frozen = view_as<std::byte>(typed.frozen);
  buffers.tied_parameters = view_as<std::byte>(typed.tied_parameters);
  buffers.tied_frozen = view_as<std::byte>(typed.tied_frozen);
  buffers.input = view_as<std::byte>(typed.input);
  buffers.output = view_as<std::byte>(typed.output);
  buffers.saved = typed.saved;
  return buffers;
}

/// Runs units by way of a Model, in the buffers of a ModelRun<T>.
template <class T>
void expect_same_as_typed(DType dtype, const ModelCase& which, const Recompute& recompute,
                          const model::Frozen& frozen) {
  ModelRun<T> expected(which, recompute, frozen), run(which, recompute, frozen);
  expected.forward();
  expected.backward(compute_t<T>(0.5));
  const auto decoder = model::make_decoder(dtype, which.settings, which.leaf, recompute, frozen);
  ASSERT_EQ(decoder->dtype(), dtype);
  ASSERT_EQ(decoder->units(), run.units());
  EXPECT_EQ(decoder->parameter_count(), run.decoder.parameter_count());
  const plan::ModelDescription description = decoder->description();
  EXPECT_EQ(description.element_bytes, bytes_of(dtype));
  EXPECT_EQ(description.element_bytes, run.description.element_bytes);
  EXPECT_EQ(description.master_bytes, 4);
  std::vector<std::int32_t> tokens_then_targets = run.token_ids;
  tokens_then_targets.insert(tokens_then_targets.end(), run.target_ids.begin(),
                             run.target_ids.end());
  GuardedArray<std::int32_t> batch(2 * run.rows());
  batch.assign(tokens_then_targets);
  for (int u = 0; u < run.units(); ++u) {
    const plan::UnitDescription& unit = description.units[u];
    EXPECT_EQ(unit.saved_bytes, run.description.units[u].saved_bytes);
    EXPECT_EQ(unit.backward.front().workspace_bytes,
              run.description.units[u].backward.front().workspace_bytes);
    EXPECT_EQ(unit.frozen_elements, run.description.units[u].frozen_elements);
    ASSERT_EQ(decoder->parameters(u).size(), run.decoder.unit(u).parameters().size());
    EXPECT_EQ(decoder->parameters(u).back().full_name(),
              run.decoder.unit(u).parameters().back().full_name());
    auto workspace = GuardedArray<T>::of_bytes(unit.forward.front().workspace_bytes);
    model::UnitBuffers<void> buffers = untyped<T>(run.buffers(u), batch.view());
    buffers.workspace = workspace.bytes();
    decoder->forward(u, run.exec, buffers);
    run.exec.fence();
  }
  for (int u = run.head(); u >= run.first_trained(); --u) {
    const plan::UnitDescription& unit = description.units[u];
    auto workspace = GuardedArray<T>::of_bytes(unit.backward.front().workspace_bytes);
    model::UnitBuffers<void> buffers = untyped<T>(run.buffers(u), batch.view());
    buffers.workspace = workspace.bytes();
    buffers.gradient = view_as<std::byte>(run.gradient.view());
    buffers.parameter_gradients = view_as<float>(run.gradients[u].view());
    if (unit.tied_to >= 0)
      buffers.tied_gradients = view_as<float>(run.gradients[unit.tied_to].view());
    decoder->backward(u, run.exec, buffers, 0.5f, run.opened(u));
    run.exec.fence();
  }
  for (int u = 0; u < run.units(); ++u)
    EXPECT_TRUE(bits(run.gradients[u].values()) == bits(expected.gradients[u].values()))
        << which.name << ": " << description.units[u].name;
  EXPECT_TRUE(bits(run.gradient.values()) == bits(expected.gradient.values())) << which.name;
  EXPECT_EQ(run.losses(), expected.losses()) << which.name;
}

TEST(DecoderModel, ComputesWhatTheTypedOneDoes) {
  for (const ModelCase& which : model_cases())
    for (const Recompute& recompute : {Recompute{}, Recompute{true, false, true}}) {
      expect_same_as_typed<float>(DType::fp32, which, recompute, {});
      expect_same_as_typed<bf16>(DType::bf16, which, recompute, {});
      expect_same_as_typed<fp16>(DType::fp16, which, recompute, {});
    }
}

/// With some in each unit, that of units that are tied, too.
TEST(DecoderModel, FreezesWhatTheTypedOneDoes) {
  const model::Frozen weights = [](const std::string& name) {
    return plan::matches("block.*.weight", name);
  };
  const model::Frozen tokens_and_norms = [](const std::string& name) {
    return plan::matches("*.token.*", name) || plan::matches("*norm.weight", name);
  };
  for (const ModelCase& which : model_cases())
    for (const model::Frozen& frozen : {weights, tokens_and_norms}) {
      expect_same_as_typed<float>(DType::fp32, which, {}, frozen);
      expect_same_as_typed<bf16>(DType::bf16, which, {}, frozen);
      expect_same_as_typed<fp16>(DType::fp16, which, {}, frozen);
    }
}

TEST(DecoderModel, RefusesWhatDecoderRefuses) {
  ModelCase which = model_cases()[0];
  which.settings.width = 23;
  EXPECT_THROW(model::make_decoder(DType::bf16, which.settings, which.leaf), Error);
}

}  // namespace
}  // namespace ostrakon::test
