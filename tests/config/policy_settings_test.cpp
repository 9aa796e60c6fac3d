// SPDX-License-Identifier: Apache-2.0
// Settings of the policy: recomputation, gathers, rules by name.
#include <gtest/gtest.h>

#include <ostrakon/base/error.hpp>
#include <ostrakon/config/policy_text.hpp>
#include <ostrakon/plan/ir/step_plan.hpp>
#include <stdexcept>

#include "config/decks.hpp"
#include "support/messages.hpp"

namespace ostrakon::config {
namespace {

TEST(Settings, ReadsWhatIsComputedAgain) {
  struct Written {
    const char* text;
    int every;
    bool attention, norms, mlp;
    const char* again;
    bool norm_outputs = true, activations = true, is_chosen = false;
  };
  for (const Written& written :
       {Written{"none", 0, false, false, false, "none"},
        Written{"full", 1, false, false, false, "full"},
        Written{"every 1", 1, false, false, false, "full"},
        Written{"every 2", 2, false, false, false, "every 2"},
        Written{"every  2.0", 2, false, false, false, "every 2"},
        Written{"every 1e5", 100000, false, false, false, "every 100000"},
        Written{"selective attention", 0, true, false, false, "selective attention"},
        Written{"selective norms", 0, false, true, false, "selective norms"},
        Written{"selective mlp", 0, false, false, true, "selective mlp"},
        Written{"selective mlp attention", 0, true, false, true, "selective attention mlp"},
        Written{"selective norms  mlp attention", 0, true, true, true,
                "selective attention norms mlp"},
        Written{"keep norms", 0, false, false, false, "keep norms", false},
        Written{"keep activations norms", 0, false, false, false, "keep norms activations", false,
                false},
        Written{"auto", 0, false, false, false, "auto", true, true, true}}) {
    SCOPED_TRACE(written.text);
    for (const Settings& settings :
         {read(synthetic, {{"memory.activation_checkpointing", written.text}}),
          read(synthetic + "  memory:\n    activation_checkpointing: " + written.text + "\n")}) {
      EXPECT_EQ(settings.parallel.activation_checkpointing.every, written.every);
      EXPECT_EQ(settings.recompute.attention, written.attention);
      EXPECT_EQ(settings.recompute.norms, written.norms);
      EXPECT_EQ(settings.recompute.mlp, written.mlp);
      EXPECT_EQ(settings.recompute.norm_outputs, written.norm_outputs);
      EXPECT_EQ(settings.recompute.activations, written.activations);
      EXPECT_EQ(settings.chooses_recompute, written.is_chosen);
      EXPECT_EQ(write_checkpointing({settings.parallel.activation_checkpointing, settings.recompute,
                                     settings.chooses_recompute})
                    .text,
                written.again);
      expect_equal(read(write_deck(settings)), settings);
    }
  }
  // A later value replaces all earlier ones.
  const std::string key = "memory.activation_checkpointing";
  const std::vector<const char*> values = {
      "none", "full", "every 2", "selective mlp", "selective attention", "keep norms", "auto"};
  for (const char* before : values)
    for (const char* after : values)
      expect_equal(read(synthetic, {{key, before}, {key, after}}), read(synthetic, {{key, after}}));
  CheckpointingChoice both;
  both.units.every = 1;
  both.within_blocks.norms = true;
  EXPECT_THROW(write_checkpointing(both), std::logic_error);
  both.within_blocks = {};
  both.within_blocks.activations = false;
  EXPECT_THROW(write_checkpointing(both), std::logic_error);
}

TEST(Settings, ReadsWhatIsGatheredWhen) {
  const Settings settings = read(R"(ostrakon:
  model: {blocks_per_unit: auto}
  data: {dataset: synthetic}
  parallel:
    reshard_after_forward: 4
    forward_prefetch: 0
    backward_prefetch: 1000
    in_flight_gathers: 8 GiB
    in_flight_reductions: 3
    units: "block.*: backward_prefetch 2"
  output: {trace: 2}
  runtime: {streams: inline}
)");
  EXPECT_EQ(settings.model.blocks_per_unit, 0);
  EXPECT_TRUE(settings.parallel.reshard_after_forward == kept_in(4));
  EXPECT_EQ(settings.parallel.forward_prefetch.depth, 0);
  EXPECT_EQ(settings.parallel.backward_prefetch.depth, 1000);
  EXPECT_EQ(settings.parallel.in_flight_gathers.units, 0);
  EXPECT_EQ(settings.parallel.in_flight_gathers.bytes, std::int64_t{8} << 30);
  EXPECT_EQ(settings.parallel.in_flight_reductions, 3);
  EXPECT_EQ(settings.parallel.units.size(), 1u);
  EXPECT_EQ(settings.output.trace_steps, 2);
  EXPECT_EQ(settings.runtime.streams, StreamsChoice::in_plan_order);
  EXPECT_EQ(read(synthetic, {{"model.blocks_per_unit", "4"}}).model.blocks_per_unit, 4);
  EXPECT_EQ(read(synthetic, {{"runtime.streams", "threads"}}).runtime.streams,
            StreamsChoice::threads);
  const auto reshard = [](const char* text) {
    return read(synthetic, {{"parallel.reshard_after_forward", text}})
        .parallel.reshard_after_forward;
  };
  EXPECT_EQ(reshard("default").kind, plan::Reshard::automatic);
  EXPECT_EQ(reshard("always").kind, plan::Reshard::always);
  EXPECT_EQ(reshard("never").kind, plan::Reshard::never);
  EXPECT_EQ(reshard("end_of_step").kind, plan::Reshard::end_of_step);
  EXPECT_TRUE(reshard("2") == kept_in(2));
}

TEST(Settings, ReadsThreadsOfTheMatrixLibrary) {
  const auto threads = [](const char* text) {
    return read(synthetic, {{"runtime.threads", text}}).runtime.threads;
  };
  EXPECT_EQ(threads("auto"), automatic_threads);
  EXPECT_EQ(threads("1"), 1);
  EXPECT_EQ(threads("4096"), 4096);
  for (const char* text : {"auto", "2"})
    EXPECT_HAS(write_deck(read(synthetic, {{"runtime.threads", text}})),
               std::string("threads: ") + text);
}

TEST(Settings, ReadsLimitsOfGathers) {
  const auto limit = [](const std::string& text) {
    return read(synthetic, {{"parallel.in_flight_gathers", text}}).parallel.in_flight_gathers;
  };
  struct Written {
    const char* text;
    std::int64_t bytes;
    const char* again;
  };
  for (const Written& written :
       {Written{"1 B", 1, "1 B"}, Written{"123456B", 123456, "123456 B"},
        Written{"1 kB", 1000, "1 kB"}, Written{"1KiB", 1024, "1 KiB"},
        Written{"500 MB", 500000000, "500 MB"}, Written{"1.5 MiB", 1572864, "1536 KiB"},
        Written{"0.5GB", 500000000, "500 MB"}, Written{"2.500 GiB", 2684354560, "2560 MiB"},
        Written{".25 TB", 250000000000, "250 GB"}, Written{"3. TiB", 3298534883328, "3 TiB"},
        Written{"0.3 MB", 300000, "300 kB"}, Written{"0.1 MiB", 104858, "104858 B"},
        Written{"1024000 kB", 1024000000, "1024 MB"}, Written{"007 B", 7, "7 B"},
        Written{"4096 TiB", std::int64_t{1} << 52, "4096 TiB"},
        Written{"4503599627370495 B", (std::int64_t{1} << 52) - 1, "4503599627370495 B"}}) {
    SCOPED_TRACE(written.text);
    EXPECT_EQ(limit(written.text).bytes, written.bytes);
    EXPECT_EQ(limit(written.text).units, 0);
    EXPECT_EQ(write_gather_limit(limit(written.text)).text, written.again);
    EXPECT_EQ(limit(written.again).bytes, written.bytes);
  }
  EXPECT_TRUE(limit("unlimited") == plan::GatherLimit());
  EXPECT_EQ(limit("2").units, 2);
  EXPECT_EQ(limit("2").bytes, 0);
  EXPECT_EQ(limit("1e6").units, 1000000);
  plan::GatherLimit both;
  both.units = both.bytes = 1;
  EXPECT_THROW(write_gather_limit(both), std::logic_error);
}

TEST(Settings, ReadsRulesForUnits) {
  const std::string text =
      "block.*: reshard_after_forward never, backward_prefetch 2; block.0: forward_prefetch "
      "block.1 block.2";
  for (const Settings& settings :
       {read(synthetic, {{"parallel.units", text}}),
        read(synthetic + "  parallel:\n    units: \"" + text + "\"\n"),
        read(synthetic + "  parallel:\n    units: '" + text + "'\n"),
        read(synthetic, {{"parallel.units",
                          " ;block.* :backward_prefetch  2.0,reshard_after_forward never;;"
                          "block.0:forward_prefetch   block.1  block.2 ; "}})}) {
    const std::vector<plan::UnitRule>& rules = settings.parallel.units;
    ASSERT_EQ(rules.size(), 2u);
    EXPECT_EQ(rules[0].pattern, "block.*");
    EXPECT_EQ(rules[0].reshard_after_forward->kind, plan::Reshard::never);
    EXPECT_FALSE(rules[0].forward_prefetch.has_value());
    EXPECT_EQ(rules[0].backward_prefetch->depth, 2);
    EXPECT_TRUE(rules[0].backward_prefetch->units.empty());
    EXPECT_EQ(rules[1].pattern, "block.0");
    EXPECT_FALSE(rules[1].reshard_after_forward.has_value());
    EXPECT_EQ(rules[1].forward_prefetch->units, (std::vector<std::string>{"block.1", "block.2"}));
    EXPECT_FALSE(rules[1].backward_prefetch.has_value());
    EXPECT_EQ(write_unit_rules(rules), text);
  }
  // A unit may be in the list of its own rule if the rule applies to many units.
  EXPECT_EQ(read_unit_rules("block.*: forward_prefetch block.1 head")[0].forward_prefetch->units,
            (std::vector<std::string>{"block.1", "head"}));
  EXPECT_TRUE(read_unit_rules("").empty());
  EXPECT_TRUE(read_unit_rules(" ; ").empty());
  EXPECT_TRUE(read_unit_rules("*: reshard_after_forward 8")[0].reshard_after_forward == kept_in(8));
  EXPECT_EQ(write_unit_rules(std::vector<plan::UnitRule>(2)), "");
}

TEST(Settings, ReadsRulesForParameters) {
  const std::string text =
      "embedding.*: frozen; *.norm.*: learning_rate 0.0001, weight_decay 0; block.0.*: frozen; "
      "block.0.mlp.*: trained, weight_decay 1e-20";
  for (const Settings& settings :
       {read(synthetic, {{"optimizer.parameters", text}}),
        read(synthetic + "  optimizer:\n    parameters: \"" + text + "\"\n"),
        read(synthetic + "  optimizer:\n    parameters: '" + text + "'\n"),
        read(synthetic, {{"optimizer.parameters",
                          ";embedding.*  :frozen ;; *.norm.*:weight_decay   0.0,learning_rate 1e-4;"
                          "block.0.*:frozen;block.0.mlp.*: weight_decay .1E-19 ,trained; "}})}) {
    const std::vector<optim::ParameterRule>& rules = settings.optimizer.parameters;
    ASSERT_EQ(rules.size(), 4u);
    EXPECT_EQ(rules[0].pattern, "embedding.*");
    EXPECT_EQ(rules[0].frozen, true);
    EXPECT_FALSE(rules[0].learning_rate || rules[0].weight_decay);
    EXPECT_EQ(rules[1].pattern, "*.norm.*");
    EXPECT_FALSE(rules[1].frozen.has_value());
    EXPECT_EQ(rules[1].learning_rate, 1e-4);
    EXPECT_EQ(rules[1].weight_decay, 0.0);
    EXPECT_EQ(rules[3].frozen, false);
    EXPECT_FALSE(rules[3].learning_rate.has_value());
    EXPECT_EQ(rules[3].weight_decay, 1e-20);
    EXPECT_EQ(write_parameter_rules(rules), text);
    expect_equal(read(write_deck(settings)), settings);
  }
  EXPECT_TRUE(read_parameter_rules("").empty());
  EXPECT_TRUE(read_parameter_rules(" ; ").empty());
  EXPECT_EQ(write_parameter_rules(std::vector<optim::ParameterRule>(2)), "");
  // Names are those of the model's units, however its blocks are grouped. A rule for units that are
  // frozen in the end, or whose settings later rules replace, is valid.
  const std::vector<Override> gpt = {
      {"model.norm", "layernorm"},       {"model.positions", "learned"},
      {"model.activation", "gelu"},      {"model.bias", "true"},
      {"model.tie_embeddings", "false"}, {"model.blocks_per_unit", "3"}};
  for (const char* rules :
       {"embedding.position.weight: frozen", "block.3.mlp.up.bias: weight_decay 1",
        "head.output.weight: learning_rate 0",
        "block.2.attention.norm.bias: frozen, learning_rate 1", "*: frozen; *.bias: trained",
        "*: learning_rate 1; *: learning_rate 2"}) {
    std::vector<Override> overrides = gpt;
    overrides.emplace_back("optimizer.parameters", rules);
    EXPECT_EQ(write_parameter_rules(read(synthetic, overrides).optimizer.parameters), rules);
  }
}

TEST(Settings, TwoLevelsAreChosenByNameOrSize) {
  using plan::Hierarchical;
  const auto hierarchical = [](const char* value) {
    return read(synthetic, {{"parallel.hierarchical_collectives", value}}).parallel.hierarchical;
  };
  EXPECT_EQ(read(synthetic).parallel.hierarchical, Hierarchical());
  EXPECT_EQ(hierarchical("auto"), Hierarchical());
  EXPECT_EQ(hierarchical("never").kind, Hierarchical::never);
  EXPECT_EQ(hierarchical("always").kind, Hierarchical::always);
  EXPECT_EQ(hierarchical("1.5 MiB"), (Hierarchical{Hierarchical::by_size, 3 << 19}));
  for (const char* value : {"sometimes", "2", "-1", "0 B", "1 mile", "true"}) {
    EXPECT_HAS(testing::error_of([&] { hierarchical(value); }),
               ": expected auto, never, always, or bytes up to 4096 TiB in B, ")
        << value;
  }
}

}  // namespace
}  // namespace ostrakon::config
