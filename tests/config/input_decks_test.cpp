// SPDX-License-Identifier: Apache-2.0
// The decks that come with Ostrakon, and similar words.
#include <gtest/gtest.h>

#include <filesystem>
#include <ostrakon/config/nearest.hpp>
#include <ostrakon/model/decoder.hpp>

#include "config/decks.hpp"

namespace ostrakon::config {
namespace {

TEST(InputDecks, AllAreRight) {
  int decks = 0;
  for (const auto& entry : std::filesystem::directory_iterator(OSTRAKON_INPUT_DECKS)) {
    if (entry.path().extension() != ".yaml") continue;
    SCOPED_TRACE(entry.path());
    ++decks;
    Settings settings;
    ASSERT_NO_THROW(settings = read_settings(read_file(entry.path()), entry.path().string(), {}));
    // Installed decks read and write in the folder where they are run, not in the installation.
    EXPECT_EQ(settings.data.path.rfind("data/", 0), 0u) << settings.data.path;
    EXPECT_EQ(settings.data.validation_path.rfind("data/", 0), 0u) << settings.data.validation_path;
    EXPECT_EQ(settings.output.directory, "output/" + entry.path().stem().string());
    expect_equal(read(write_deck(settings)), settings);
    const std::int64_t together = std::max(settings.tensor, settings.expert);
    for (int groups : {1, 2, 4, 8})
      EXPECT_NO_THROW(check_ranks(settings, groups * static_cast<int>(together)));
  }
  EXPECT_GE(decks, 5);
}

TEST(InputDecks, HaveTheModelsPublishedSizes) {
  const auto parameters = [](const std::string& name) {
    const Settings settings = read_input_deck(name);
    const model::LeafShape leaf{1, settings.training.sequence_length};
    return model::Decoder<float>(settings.model, leaf).parameter_count();
  };
  EXPECT_EQ(parameters("gpt2-124m.yaml"), 124439808);
  EXPECT_EQ(parameters("llama3-8b.yaml"), 8030261248);
  EXPECT_EQ(parameters("llama3-70b.yaml"), 70553706496);
  EXPECT_EQ(parameters("llama3-405b.yaml"), 405853388800);
  EXPECT_EQ(parameters("llama3-70b-tensor.yaml"), 70553706496);
  EXPECT_EQ(parameters("llama3-405b-tensor.yaml"), 405853388800);
  EXPECT_EQ(parameters("qwen3-30b-a3b.yaml"), 30532122624);
  EXPECT_EQ(parameters("qwen3-next-80b-a3b.yaml"), 79674391296);
  EXPECT_EQ(parameters("gpt-oss-20b.yaml"), 20914757184);
  // Published are 671 billion; this is the sum of its tensors' sizes, without those for a
  // prediction of a second token.
  EXPECT_EQ(parameters("deepseek-v3.yaml"), 671026419200);
  EXPECT_EQ(parameters("deepseek-v3-small.yaml"), 1757232);
  EXPECT_EQ(parameters("llama3.1-8b.yaml"), 8030261248);
  EXPECT_EQ(parameters("qwen2.5-7b.yaml"), 7615616512);
  EXPECT_EQ(parameters("qwen3-8b.yaml"), 8190735360);
  EXPECT_EQ(parameters("gemma2-9b.yaml"), 9241705984);
  EXPECT_EQ(parameters("olmo2-7b.yaml"), 7298617344);
  EXPECT_EQ(parameters("quickstart.yaml"), 1820544);
}

TEST(InputDecks, HaveThePublishedTraining) {
  struct Published {
    std::string deck;
    double learning_rate;
    std::int64_t tokens_per_batch;
    double tokens;
    double rotary_base;
  };
  // The published batches of Llama 3 8B and 70B have as many tokens as those of 405B at the same
  // sequence length; their total numbers of tokens are published.
  for (const Published& published : {Published{"gpt2-124m.yaml", 6e-4, 1 << 19, 10e9, 0.0},
                                     Published{"llama3-8b.yaml", 3e-4, 1 << 23, 15e12, 5e5},
                                     Published{"llama3-70b.yaml", 1.5e-4, 1 << 23, 15e12, 5e5},
                                     Published{"llama3-405b.yaml", 8e-5, 1 << 24, 0.0, 5e5}}) {
    SCOPED_TRACE(published.deck);
    const Settings settings = read_input_deck(published.deck);
    const TrainingSettings& training = settings.training;
    const std::int64_t batch = training.global_batch_size * training.sequence_length;
    EXPECT_EQ(settings.optimizer.learning_rate, published.learning_rate);
    EXPECT_EQ(batch, published.tokens_per_batch);
    if (published.tokens > 0.0) {
      const double tokens = static_cast<double>(batch) * static_cast<double>(training.steps);
      EXPECT_NEAR(tokens / published.tokens, 1.0, 1e-3);
    }
    if (published.rotary_base > 0.0) {
      EXPECT_EQ(settings.model.positions, model::Positions::rotary);
      EXPECT_EQ(settings.model.rotary.base, published.rotary_base);
    }
  }
}

TEST(Nearest, CountsSwapsAsOne) {
  EXPECT_EQ(edit_distance("widht", "width"), 1);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(nearest("lyers", {"width", "layers"}), "layers");
  EXPECT_EQ(nearest("zzzzzz", {"width", "layers"}), "");
}

TEST(Nearest, FindsNamesByTheirParts) {
  const std::vector<std::string> names = {"forward_prefetch", "backward_prefetch",
                                          "in_flight_gathers", "micro_batch_size"};
  using Names = std::vector<std::string>;
  EXPECT_EQ(with_parts_of("prefetch", names), (Names{"forward_prefetch", "backward_prefetch"}));
  EXPECT_EQ(with_parts_of("prefech_forward", names), Names{"forward_prefetch"});
  EXPECT_EQ(with_parts_of("in_flight", names), Names{"in_flight_gathers"});
  EXPECT_EQ(with_parts_of("batch_size", names), Names{"micro_batch_size"});
  EXPECT_EQ(with_parts_of("on_flight", names), Names());  // short parts must be equal
  EXPECT_EQ(with_parts_of("prefetch_reductions", names), Names());
  EXPECT_EQ(with_parts_of("", names), Names());
  EXPECT_EQ(with_parts_of("_", names), Names());
}

}  // namespace
}  // namespace ostrakon::config
