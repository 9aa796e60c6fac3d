// SPDX-License-Identifier: Apache-2.0
// Settings of a run compared with those of its checkpoint, and checks of settings for ranks.
#include <gtest/gtest.h>

#include <ostrakon/base/error.hpp>
#include <ostrakon/config/value.hpp>
#include <stdexcept>

#include "config/decks.hpp"
#include "support/messages.hpp"
#include "support/table.hpp"

namespace ostrakon::config {
namespace {

TEST(ValueOf, IsThatOfADeckWithoutQuotes) {
  const Settings settings = read(synthetic, {{"runtime.wall_time", "90"},
                                             {"output.directory", "a b"},
                                             {"optimizer.learning_rate", "6e-4"}});
  EXPECT_EQ(value_of(settings, "optimizer", "name"), "adamw");
  EXPECT_EQ(value_of(settings, "optimizer", "learning_rate"), "0.0006");
  EXPECT_EQ(value_of(settings, "optimizer", "moments"), "fp32");
  EXPECT_EQ(value_of(settings, "checkpoint", "async"), "true");
  EXPECT_EQ(value_of(settings, "checkpoint", "files"), "rank");
  EXPECT_EQ(value_of(settings, "runtime", "wall_time"), "01:30:00");
  EXPECT_EQ(value_of(settings, "output", "directory"), "a b");
  EXPECT_EQ(value_of(settings, "data", "path"), "");
  EXPECT_THROW(value_of(settings, "optimizer", "nme"), std::logic_error);
  EXPECT_THROW(value_of(settings, "optimiser", "name"), std::logic_error);
  EXPECT_THROW(value_of(settings, "", ""), std::logic_error);
}

TEST(Differences, NameWhatChangesResults) {
  const Settings before = read(synthetic);
  EXPECT_TRUE(differences(before, before).empty());
  const Settings now = read(synthetic, {{"training.steps", "20"},
                                        {"model.bias", "true"},
                                        {"optimizer.moments", "bf16"},
                                        {"optimizer.learning_rate", "1e-4"},
                                        {"data.path", "/x.h5"},
                                        {"memory.offload", "all"}});
  EXPECT_EQ(differences(now, before),
            (std::vector<std::string>{
                "model.bias = true, was false", "data.path = \"/x.h5\", was \"\"",
                "training.steps = 20, was 1000", "memory.offload = \"all\", was \"none\"",
                "optimizer.learning_rate = 0.0001, was 0.0003",
                "optimizer.moments = \"bf16\", was \"fp32\""}));
  EXPECT_EQ(differences(before, now).size(), 6u);
  EXPECT_EQ(differences(before, now)[2], "training.steps = 1000, was 20");
}

TEST(Differences, AreNotOfWhereAndHowARunIsStarted) {
  const Settings before = read(synthetic);
  const Settings elsewhere = read(synthetic, {{"checkpoint.every", "7"},
                                              {"checkpoint.files", "single"},
                                              {"checkpoint.initial_weights", "x.h5"},
                                              {"output.directory", "other"},
                                              {"output.trace", "2"},
                                              {"runtime.threads", "2"},
                                              {"runtime.wall_time", "90"}});
  EXPECT_TRUE(differences(elsewhere, before).empty());
  // The deck of a checkpoint has absolute paths.
  const Settings relative = read("ostrakon:\n  data:\n    path: x/../y.h5\n");
  EXPECT_TRUE(differences(relative, with_absolute_paths(relative)).empty());
  EXPECT_TRUE(differences(with_absolute_paths(relative), relative).empty());
}

/// Tests each key of a model that changes what is computed from the same parameters.
TEST(SameModel, IsRefusedByKeyAndBothValues) {
  const std::vector<Override> base = {{"model.width", "64"}, {"model.heads", "4"}};
  const Settings ours = read(synthetic, base);
  const auto deck_with = [&](const std::vector<Override>& more) {
    std::vector<Override> all = base;
    all.insert(all.end(), more.begin(), more.end());
    return write_deck(read(synthetic, all));
  };
  EXPECT_NO_THROW(require_same_model(ours, "", "w.h5"));
  EXPECT_NO_THROW(require_same_model(ours, deck_with({}), "w.h5"));
  EXPECT_NO_THROW(require_same_model(ours,
                                     deck_with({{"model.initializer_deviation", "0.5"},
                                                {"model.blocks_per_unit", "2"},
                                                {"training.steps", "7"},
                                                {"optimizer.name", "lion"}}),
                                     "w.h5"));
  for (const Override& other :
       {Override{"model.heads", "8"}, Override{"model.kv_heads", "2"},
        Override{"model.norm", "layernorm"}, Override{"model.positions", "learned"},
        Override{"model.activation", "gelu"}, Override{"model.norm_epsilon", "1e-6"},
        Override{"model.rotary_base", "500000"}, Override{"model.bias", "true"},
        Override{"model.tie_embeddings", "false"}, Override{"model.layers", "5"}}) {
    const std::string message =
        testing::error_of([&] { require_same_model(ours, deck_with({other}), "w.h5"); });
    EXPECT_EQ(message.rfind("'w.h5' is not of the model that the deck describes:", 0), 0u);
    const std::size_t line = message.find("\n  " + other.first + " is ");
    ASSERT_NE(line, std::string::npos) << message;
    EXPECT_NE(message.find(other.second, line), std::string::npos) << message;
    EXPECT_NE(message.find(" in it, but ", line), std::string::npos) << message;
  }
  // Adapters that there are compute what they did; new ones may be any.
  const Override rank = {"lora.rank", "4"}, alpha = {"lora.alpha", "2"};
  const std::vector<Override> adapted = {base[0], base[1], rank};
  EXPECT_NO_THROW(require_same_model(read(synthetic, adapted), deck_with({}), "w.h5"));
  EXPECT_NO_THROW(require_same_model(read(synthetic, adapted), deck_with({rank}), "w.h5"));
  EXPECT_NE(testing::error_of([&] {
              require_same_model(read(synthetic, adapted), deck_with({rank, alpha}), "w.h5");
            }).find("lora.alpha is 2 in it, but 16 in the deck"),
            std::string::npos);
  // Adapters of lora.initial would replace those in the file.
  std::vector<Override> initial = adapted;
  initial.insert(initial.end(), {{"lora.initial", "/a"}, {"checkpoint.initial_weights", "w.h5"}});
  EXPECT_NO_THROW(require_same_model(read(synthetic, initial), deck_with({}), "w.h5"));
  EXPECT_NE(testing::error_of([&] {
              require_same_model(read(synthetic, initial), deck_with({rank}), "w.h5");
            }).find("'w.h5' has adapters, of rank 4, which those of lora.initial = /a would"),
            std::string::npos);
  // With experts, no expert uses ffn_width.
  const std::vector<Override> mixture = {{"model.experts", "4"}, {"model.expert_width", "32"}};
  std::vector<Override> wider = mixture;
  wider.push_back({"model.ffn_width", "512"});
  EXPECT_NO_THROW(
      require_same_model(read(synthetic, mixture), write_deck(read(synthetic, wider)), "w.h5"));
  EXPECT_THROW(require_same_model(ours, deck_with({{"model.ffn_width", "512"}}), "w.h5"), Error);
  EXPECT_THROW(require_same_model(read(synthetic, mixture),
                                  write_deck(read(synthetic, {mixture[0]})), "w.h5"),
               Error);
  // `auto` equals the value that it stands for.
  const auto is_same = [&](const std::vector<Override>& more, const std::vector<Override>& theirs) {
    std::vector<Override> all = base;
    all.insert(all.end(), more.begin(), more.end());
    EXPECT_NO_THROW(require_same_model(read(synthetic, all), deck_with(theirs), "w.h5"));
  };
  is_same({{"model.head_width", "16"}}, {});
  is_same({{"model.bias", "true"}, {"model.mlp_bias", "true"}}, {{"model.bias", "true"}});
  is_same({{"model.positions", "learned"},
           {"model.max_positions", "256"},
           {"training.sequence_length", "64"}},
          {{"model.positions", "learned"}, {"training.sequence_length", "256"}});
  is_same({{"training.sequence_length", "64"}}, {{"training.sequence_length", "256"}});
  EXPECT_THROW(require_same_model(ours, deck_with({{"model.mlp_bias", "true"}}), "w.h5"), Error);
  EXPECT_THROW(require_same_model(read(synthetic, {{"model.positions", "learned"}}),
                                  write_deck(read(synthetic, {{"model.positions", "learned"},
                                                              {"training.sequence_length", "64"}})),
                                  "w.h5"),
               Error);
  // Learned positions have no base.
  const std::vector<Override> learned = {{"model.positions", "learned"}};
  EXPECT_NO_THROW(require_same_model(
      read(synthetic, learned),
      write_deck(read(synthetic, {learned[0], {"model.rotary_base", "500000"}})), "w.h5"));
}

/// For each key, one of them is another than the default.
const char* const values =
    "1 | 2 | 0.25 | true | false | /elsewhere | none | full | bf16 | layernorm | learned | gelu | "
    "sigmoid | loss | tokens | skip | world | reduce_each | shard_first | descending | optimizer | "
    "after | parallel | 1, 2 | host | single | sequence | interleaved | threads | mpi_staged | "
    "working_directory | sgd | "
    "linear | never | optimistic | library | unlimited | keep | *: forward_prefetch 2 | "
    "*.norm.*: frozen | after | parallel | max | 1, 2 | separate | continue | "
    "q_proj | gather | fp8 | e4m3 | 72 GiB | own | dpo | rank 1, step 2, load: stop";

/// Tests every key: one that is left out would change a run silently.
TEST(Differences, SeeEveryKey) {
  for (const Section& section : sections()) {
    for (const Key& key : section.keys) {
      Settings now = read(synthetic);
      const Settings before = now;
      const std::string was = key.get(before).shown();
      for (const std::string& value : testing::split(values, "|")) {
        try {
          key.set(now, parse_scalar(value));
        } catch (const Error&) {  // invalid text of a rule
        }
        if (key.get(now).shown() != was) break;
      }
      const bool is_one_of_a_kind = section.name == "precision" && key.name == "parameters";
      EXPECT_EQ(key.get(now).shown() != was, !is_one_of_a_kind) << section.name << "." << key.name;
      const bool is_left_out =
          section.name == "checkpoint" || section.name == "output" ||
          (section.name == "runtime" && key.name != "subnormals" && key.name != "attention") ||
          key.name == "choose" || is_one_of_a_kind ||
          (section.name == "lora" && key.name == "initial");
      EXPECT_EQ(differences(now, before).size(), is_left_out ? 0u : 1u)
          << section.name << "." << key.name;
    }
  }
}

std::string message_of_ranks(const Settings& settings, int ranks) {
  return testing::error_of([&] { check_ranks(settings, ranks); });
}

TEST(CheckRanks, RefusesPlansThatAreTooLong) {
  const auto settings = [](const char* layers, const char* batch) {
    return read(synthetic, {{"model.layers", layers}, {"training.global_batch_size", batch}});
  };
  EXPECT_NO_THROW(check_ranks(read_input_deck("llama3-405b.yaml"), 1));
  EXPECT_NO_THROW(check_ranks(settings("8", "100000"), 1));
  EXPECT_NO_THROW(check_ranks(settings("8", "200000"), 2));
  EXPECT_EQ(message_of_ranks(settings("8", "200002"), 2),
            "a step is too long to plan: (model.layers + 2) x training.global_batch_size / "
            "training.micro_batch_size / ranks = 10 x 200002 / 1 / 2 = 10 x 100001, more than "
            "1,000,000; raise training.micro_batch_size or use more ranks");
  // Fewer units make a shorter step; the number of automatic units is not known yet.
  const auto in_units_of = [&](const char* blocks, const char* batch) {
    return read(synthetic, {{"model.layers", "8"},
                            {"model.blocks_per_unit", blocks},
                            {"training.global_batch_size", batch}});
  };
  EXPECT_NO_THROW(check_ranks(in_units_of("3", "200000"), 1));
  EXPECT_THROW(check_ranks(in_units_of("auto", "200000"), 1), Error);
  EXPECT_EQ(message_of_ranks(in_units_of("3", "200001"), 1),
            "a step is too long to plan: (model.layers / model.blocks_per_unit + 2) x "
            "training.global_batch_size / training.micro_batch_size / ranks = 5 x 200001 / 1 / 1 = "
            "5 x 200001, more than 1,000,000; raise training.micro_batch_size or use more ranks");
}

TEST(CheckRanks, PartsThatStayAfterForwardDivideAShardGroup) {
  const auto message = [](int ranks, std::vector<Override> overrides) {
    overrides.emplace_back("training.global_batch_size", std::to_string(ranks));
    return message_of_ranks(read(synthetic, overrides), ranks);
  };
  const Override three = {"parallel.reshard_after_forward", "3"};
  const Override nodes = {"parallel.shard_group", "node"};
  for (int ranks : {1, 2, 3, 6, 9}) EXPECT_EQ(message(ranks, {three}), "no error");
  EXPECT_EQ(message(4, {three}),
            "parallel.reshard_after_forward = 3 does not divide the 4 ranks of a shard group (4 = "
            "3 x 1 + 1); use 2 or 4");
  EXPECT_EQ(message(7, {three}),
            "parallel.reshard_after_forward = 3 does not divide the 7 ranks of a shard group (7 = "
            "3 x 2 + 1); use 7");
  // Groups of a number of ranks; for those of a node, if its ranks are known.
  EXPECT_EQ(message(16, {three, {"parallel.shard_group", "2"}}), "no error");
  EXPECT_EQ(message(16, {three, {"parallel.shard_group", "8"}}),
            "parallel.reshard_after_forward = 3 does not divide the 8 ranks of a shard group (8 = "
            "3 x 2 + 2); use 2, 4 or 8");
  EXPECT_EQ(message(16, {three, nodes}), "no error");
  EXPECT_EQ(message(12, {three, nodes, {"parallel.ranks_per_node", "6"}}), "no error");
  EXPECT_EQ(message(16, {three, nodes, {"parallel.ranks_per_node", "4"}}),
            "parallel.reshard_after_forward = 3 does not divide the 4 ranks of a shard group (4 = "
            "3 x 1 + 1); use 2 or 4");
  EXPECT_EQ(message(4, {three, {"parallel.shard_group", "8"}}),
            "parallel.shard_group = 8 does not divide the 4 ranks");
  const Override rules = {"parallel.units",
                          "*: forward_prefetch 2; head: reshard_after_forward 8; block.*: "
                          "backward_prefetch 2, reshard_after_forward 3"};
  EXPECT_EQ(message(3, {rules}), "no error");
  EXPECT_EQ(message(4, {rules}),
            "parallel.units: rule \"block.*: reshard_after_forward 3, backward_prefetch 2\": "
            "reshard_after_forward = 3 does not divide the 4 ranks of a shard group (4 = 3 x 1 + "
            "1); use 2 or 4");
}

TEST(CheckRanks, ShowsTheArithmetic) {
  const auto message = message_of_ranks;
  const Settings eight = read(synthetic);
  for (int ranks : {1, 2, 4, 8}) EXPECT_EQ(message(eight, ranks), "no error");
  EXPECT_EQ(message(eight, 3),
            "training.global_batch_size / training.micro_batch_size = 8 / 1 = 8 leaves, which 3 "
            "ranks can't share evenly (8 = 3 x 2 + 2); use 1, 2, 4 or 8 ranks, or make "
            "training.global_batch_size a multiple of 3 x 1 = 3");
  EXPECT_EQ(message(eight, 16),
            "training.global_batch_size / training.micro_batch_size = 8 / 1 = 8 leaves, fewer than "
            "16 ranks; use 1, 2, 4 or 8 ranks, or make training.global_batch_size a multiple of 16 "
            "x 1 = 16");
  const Settings one = read(synthetic, {{"training.micro_batch_size", "8"}});
  EXPECT_EQ(message(one, 2),
            "training.global_batch_size / training.micro_batch_size = 8 / 8 = 1 leaf, fewer than 2 "
            "ranks; use 1 rank, or make training.global_batch_size a multiple of 2 x 8 = 16");
  const Settings many = read(synthetic, {{"training.global_batch_size", "720720"}});
  EXPECT_HAS(message(many, 17), "; use 12, 13, 14, 15, 16, 18, 20, 21, 22 or 24 ranks,");
}

}  // namespace
}  // namespace ostrakon::config
