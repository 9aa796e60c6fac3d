// SPDX-License-Identifier: Apache-2.0

// Low-rank adapters: folders as PEFT writes them, trained, exported and merged, against
// adapters.json.

#include <cmath>
#include <filesystem>
#include <ostrakon/checkpoint/adapters/adapted_source.hpp>
#include <ostrakon/checkpoint/adapters/peft_writer.hpp>
#include <ostrakon/checkpoint/huggingface/huggingface_config.hpp>
#include <ostrakon/checkpoint/open_parameters.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/evaluate/evaluating_trainer.hpp>
#include <ostrakon/evaluate/scorer.hpp>
#include <ostrakon/generate/generator.hpp>
#include <ostrakon/run/ranks.hpp>
#include <ostrakon/saving/save_weights.hpp>

#include "parameterized.hpp"
#include "support/scratch_folder.hpp"
#include "support/shared_folder.hpp"
#include "trainer/small_runs.hpp"

namespace ostrakon::test::transformers {
namespace {

using Json = nlohmann::json;

Json read_cases() {
  const std::string path = OSTRAKON_SOURCE_DIR "/tests/transformers/adapters.json";
  return Json::parse(testing::read_bytes(path));
}

std::vector<std::string> names_of_cases() {
  std::vector<std::string> names;
  const Json file = read_cases();
  for (const Json& one : file.at("cases")) names.push_back(one.at("model"));
  return names;
}

/// The shape of a tensor of PEFT, by that of the module's weight.
std::vector<std::int64_t> shape_of(const ExpectedModel& model, const std::string& name,
                                   std::int64_t rank) {
  const std::string start = "base_model.model.", a = ".lora_A.weight";
  const bool is_a = name.size() > a.size() && name.substr(name.size() - a.size()) == a;
  const std::string weight =
      name.substr(start.size(), name.size() - start.size() - a.size()) + ".weight";
  for (const ExpectedTensor& tensor : model.tensors)
    if (tensor.name == weight)
      return is_a ? std::vector{rank, tensor.shape[1]} : std::vector{tensor.shape[0], rank};
  throw std::logic_error("no tensor " + weight);
}

/// Writes adapters as PEFT does.
void write_adapters(const ExpectedModel& model, const Json& one, const std::string& folder) {
  std::filesystem::create_directories(folder);
  const Json config = {{"peft_type", "LORA"},
                       {"r", one.at("rank")},
                       {"lora_alpha", one.at("alpha")},
                       {"lora_dropout", 0.0},
                       {"bias", "none"},
                       {"fan_in_fan_out", false},
                       {"modules_to_save", nullptr},
                       {"rank_pattern", Json::object()},
                       {"target_modules", one.at("targets")},
                       {"task_type", "CAUSAL_LM"},
                       {"use_rslora", false}};
  testing::write_bytes(folder + "/adapter_config.json", config.dump(1));
  std::vector<checkpoint::SafetensorsWriter::Tensor> list;
  for (const auto& item : one.at("norms_after").items())
    list.push_back({item.key(), shape_of(model, item.key(), one.at("rank"))});
  checkpoint::SafetensorsWriter writer(folder + "/adapter_model.safetensors", DType::fp32, list,
                                       {{"format", "pt"}});
  for (const auto& tensor : list) {
    const std::int64_t elements = tensor.shape[0] * tensor.shape[1];
    writer.write(tensor.name, values_of(model.seed, tensor.name, elements, 0.0).data(), elements);
  }
  writer.finish();
}

class Adapters : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    file_ = read_cases();
    for (const Json& one : file_.at("cases"))
      if (one.at("model") == GetParam()) case_ = one;
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) {
      write_folder(expected_, base_);
      write_adapters(expected_, case_, adapters_);
    }
    tests::gathered(MPI_COMM_WORLD);
  }

  /// Settings of a deck as users write it. `lora`: its section.
  config::Settings settings(const std::string& lora, const std::string& precision = "") const {
    std::string optimizer;
    for (const auto& item : file_.at("adamw").items())
      optimizer += item.key() + ": " + item.value().dump() + ", ";
    return config::read_settings(
        "ostrakon:\n  model: {from: \"" + base_ + "\"}\n  checkpoint: {initial_weights: \"" +
            base_ + "\"}\n  data: {dataset: synthetic}\n  training: {steps: 10, " +
            "global_batch_size: " + std::to_string(expected_.batch.size()) +
            ", micro_batch_size: 2, sequence_length: " +
            std::to_string(expected_.sequence_length()) + "}\n  optimizer: {" + optimizer +
            "clip_norm: 0}\n  schedule: {warmup_steps: 0, tail: constant}\n" + lora + precision,
        "deck.yaml", {});
  }
  std::string lora() const {
    return "  lora: {rank: " + case_.at("rank").dump() + ", alpha: " + case_.at("alpha").dump() +
           ", targets: " + case_.at("targets").dump() + ", initial: \"" + adapters_ + "\"}\n";
  }
  std::unique_ptr<checkpoint::ParameterSource> open(const config::Settings& settings) const {
    auto base = checkpoint::open_parameters(base_, settings.model, expected_.sequence_length());
    if (settings.lora_initial.empty()) return base;
    return checkpoint::add_adapters(std::move(base), settings.lora_initial, settings.model,
                                    expected_.sequence_length());
  }

  const ExpectedModel expected_ = read_expected(GetParam());
  Json file_, case_;
  const testing::SharedFolder shared_;
  const std::string base_ = shared_.file("base"), adapters_ = shared_.file("adapters");
};

TEST_P(Adapters, TrainAsPeftsDoAndComeBack) {
  const config::Settings with = settings(lora());
  tests::SmallRun run(with);
  run.trainer.initialize(open(with).get());
  RepeatedBatch batch(expected_.batch);
  const auto losses = case_.at("losses").get<std::vector<double>>();
  for (std::size_t i = 0; i < losses.size(); ++i)
    EXPECT_NEAR(run.trainer.step(batch, static_cast<std::int64_t>(i) + 1).loss, losses[i],
                1e-6 * losses[i])
        << "loss of step " << i + 1;

  const std::string weights = shared_.file("weights.h5"), out = shared_.file("out");
  train::save_weights(run.trainer, run.mesh.world(), weights,
                      {config::write_deck(with), 10, "", ""}, [] {});
  if (run.mesh.world().rank() != 0) return;
  std::filesystem::create_directories(out);
  const auto saved = checkpoint::open_parameters(weights, with.model, expected_.sequence_length());
  const checkpoint::HuggingFaceConfig config =
      checkpoint::load_huggingface_config(base_ + "/config.json");
  checkpoint::write_peft(out, *config.family, with.model, base_, *saved);
  checkpoint::SafetensorsReader written(out + "/adapter_model.safetensors");
  const Json& norms = case_.at("norms_after");
  EXPECT_EQ(written.tensors().size(), norms.size());
  for (const auto& item : norms.items()) {
    Floats values(static_cast<std::size_t>(written.tensor(item.key()).elements()));
    written.read(item.key(), 0, static_cast<std::int64_t>(values.size()), values.data());
    double squares = 0.0;
    for (const float value : values) squares += static_cast<double>(value) * value;
    const double norm = item.value();
    EXPECT_NEAR(std::sqrt(squares), norm, 2e-6 * norm) << item.key();
  }
  // What was written is read again as what it was.
  checkpoint::PeftReader again(out, *config.family, with.model);
  for (const checkpoint::AdaptedRows& layer : checkpoint::adapted_rows(with.model))
    for (const std::string& name : {layer.lora_a(), layer.lora_b()}) {
      const Floats values = again.read("block.1", name);
      Floats expected(values.size());
      const std::int64_t rank = with.model.lora.rank;
      const std::vector<std::int64_t> shape = name == layer.lora_a()
                                                  ? std::vector{rank, layer.inputs()}
                                                  : std::vector{layer.rows, rank};
      saved->read("block.1", name, shape, 0, static_cast<std::int64_t>(values.size()),
                  expected.data());
      EXPECT_EQ(values, expected) << name;
    }
}

TEST_P(Adapters, MergedWeightsComputeTheSame) {
  const config::Settings with = settings(lora()), without = settings("");
  const auto adapted = open(with);
  checkpoint::MergedSource merged(*adapted, with.model);
  tests::SmallRun run(without);
  run.trainer.initialize(&merged);
  RepeatedBatch batch(expected_.batch);
  const double loss = case_.at("losses").at(0);
  EXPECT_NEAR(run.trainer.step(batch, 1).loss, loss, 1e-6 * loss);
}

/// The generator computes on each rank for itself, an evaluation on all of them.
TEST_P(Adapters, GenerateAndEvaluateAsMergedWeights) {
  const config::Settings with = settings(lora()), without = settings("");
  const auto adapted = open(with);
  checkpoint::MergedSource merged(*adapted, with.model);
  train::Generator generator(with, *adapted), merged_generator(without, merged);
  const Floats logits = generator.logits(expected_.prompt);
  const Floats expected = merged_generator.logits(expected_.prompt);
  ASSERT_EQ(logits.size(), expected.size());
  for (std::size_t i = 0; i < logits.size(); ++i) EXPECT_NEAR(logits[i], expected[i], 1e-4) << i;

  const auto loss_of = [&](const config::Settings& trained, checkpoint::ParameterSource& weights) {
    const config::Settings own = evaluate::evaluation_settings(trained, tests::world_ranks());
    train::Ranks ranks = train::make_ranks(own, MPI_COMM_WORLD, false);
    train::Trainer trainer = evaluate::make_evaluating_trainer(own, ranks.mesh);
    trainer.allocate();
    trainer.initialize(&weights);
    const std::int64_t length = expected_.sequence_length();
    return score(trainer, evaluate::SequencesInMemory({{expected_.batch[0], 1}}), {length, length})
        .front()
        .loss();
  };
  const double loss = loss_of(without, merged);
  EXPECT_NEAR(loss_of(with, *adapted), loss, 1e-6 * loss);
}

/// Without adapters in a file, what they add is zero at first.
TEST_P(Adapters, BeginAsTheModelWithoutThem) {
  const config::Settings with = settings("  lora: {rank: 3, targets: [q_proj, down_proj]}\n");
  tests::SmallRun run(with);
  run.trainer.initialize(open(with).get());
  RepeatedBatch batch(expected_.batch);
  const double first = run.trainer.step(batch, 1).loss;
  EXPECT_NEAR(first, expected_.losses[0], 1e-6 * first);
  double last = first;
  for (std::int64_t step = 2; step <= 10; ++step) last = run.trainer.step(batch, step).loss;
  EXPECT_LT(last, first - 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Expected, Adapters, ::testing::ValuesIn(names_of_cases()), test_name);

}  // namespace
}  // namespace ostrakon::test::transformers
