// SPDX-License-Identifier: Apache-2.0

// Folders of transformers as users read, continue and write them, against what transformers
// computes.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <ostrakon/checkpoint/families/family.hpp>
#include <ostrakon/checkpoint/huggingface/huggingface_config.hpp>
#include <ostrakon/checkpoint/huggingface/huggingface_writer.hpp>
#include <ostrakon/checkpoint/huggingface/safetensors.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/generate/continue_texts.hpp>
#include <set>

#include "apps/common/model_file.hpp"
#include "parameterized.hpp"
#include "support/scratch_folder.hpp"

namespace ostrakon::test::transformers {
namespace {

/// Rounding of fp32 in a few layers.
constexpr double rounding = 1e-5;

/// A model that is read from a folder, with a context of `tokens` tokens.
struct Read {
  Read(const std::string& folder, std::size_t tokens)
      : file(apps::open_safetensors(folder, {}, static_cast<std::int64_t>(tokens))),
        generator(file.settings, *file.parameters) {}
  apps::ModelFile file;
  train::Generator generator;
};

/// Returns log softmax(logits)[token].
double log_probability(const Floats& logits, std::int32_t token) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(logit - most);
  return logits[static_cast<std::size_t>(token)] - most - std::log(sum);
}

/// Writes a model as `ostrakon-checkpoint export` does. `source`: what is kept of its config.json;
/// empty: as of a model that came from none.
void export_to(const std::string& folder, const apps::ModelFile& file, const std::string& source) {
  const checkpoint::HuggingFaceModel described = {
      file.settings.model, file.settings.training.sequence_length, DType::fp32, {}, source};
  std::filesystem::create_directories(folder);
  testing::write_bytes(folder + "/config.json", checkpoint::write_huggingface_config(described));
  checkpoint::write_huggingface_shards(
      folder, file.settings.model, 5'000'000'000,
      {&checkpoint::family_of(described), described.tokens, DType::fp32, {}}, *file.parameters);
}

class WeightsOfTransformers : public OfExpectedModel {};

TEST_P(WeightsOfTransformers, ComputeWhatTheirsDo) {
  const testing::ScratchFolder scratch;
  const std::string folder = scratch.file("theirs"), back = scratch.file("ours"),
                    made = scratch.file("made");
  write_folder(expected_, folder);
  const std::size_t tokens = expected_.prompt.size() + expected_.greedy.size();
  Read theirs(folder, tokens);

  std::int64_t parameters = 0;
  for (const model::Parameter& p : config::parameters_of(theirs.file.settings))
    if (p.name != "mlp.router.balance") parameters += p.elements();
  EXPECT_EQ(parameters, expected_.parameters) << expected_.name << ": number of parameters";

  Tokens context;
  for (std::size_t t = 0; t < expected_.log_probabilities.size(); ++t) {
    context.push_back(expected_.batch[0][t]);
    EXPECT_NEAR(log_probability(theirs.generator.logits(context), expected_.batch[0][t + 1]),
                expected_.log_probabilities[t], rounding)
        << expected_.name << ": log probability of target " << t;
  }

  Tokens greedy;
  train::continue_texts(theirs.generator, {{expected_.prompt, {0.0}}},
                        static_cast<std::int64_t>(expected_.greedy.size()),
                        [&](std::size_t, std::int32_t token) {
                          greedy.push_back(token);
                          return true;
                        });
  EXPECT_EQ(greedy, expected_.greedy) << expected_.name << ": greedy tokens";

  const std::string source = theirs.file.parameters->huggingface_config();
  export_to(back, theirs.file, source);
  checkpoint::SafetensorsReader exported(back);
  EXPECT_EQ(exported.tensors().size(), expected_.tensors.size())
      << expected_.name << ": number of exported tensors";
  for (const ExpectedTensor& tensor : expected_.tensors) {
    ASSERT_TRUE(exported.has(tensor.name)) << expected_.name << ": exported " << tensor.name;
    EXPECT_EQ(exported.tensor(tensor.name).shape, tensor.shape)
        << expected_.name << ": shape of exported " << tensor.name;
    Floats values(tensor.values.size());
    exported.read(tensor.name, 0, static_cast<std::int64_t>(values.size()), values.data());
    EXPECT_EQ(values, tensor.values) << expected_.name << ": bits of exported " << tensor.name;
  }
  const auto config = nlohmann::json::parse(testing::read_bytes(back + "/config.json"));
  for (const auto& item : expected_.config.items())
    EXPECT_EQ(config.value(item.key(), nlohmann::json()), item.value())
        << expected_.name << ": " << item.key() << " of the exported config.json";
  export_to(made, theirs.file, "");
  for (const std::string& written : {back, made}) {
    Read again(written, tokens);
    EXPECT_EQ(again.generator.logits(expected_.prompt), theirs.generator.logits(expected_.prompt))
        << expected_.name << ": logits of what was exported"
        << (written == made ? " as a model made here" : "");
  }
}

TEST(ExpectedModels, AreOfAllTypes) {
  std::set<std::string> types;
  for (const std::string& name : expected_names())
    types.insert(read_expected(name).config.at("model_type").get<std::string>());
  for (const checkpoint::Family& family : checkpoint::all_families())
    EXPECT_EQ(types.count(family.model_type), 1u)
        << family.model_type << ": no file in tests/transformers/expected has this model_type";
}

INSTANTIATE_TEST_SUITE_P(Expected, WeightsOfTransformers, ::testing::ValuesIn(expected_names()),
                         test_name);

}  // namespace
}  // namespace ostrakon::test::transformers
