// SPDX-License-Identifier: Apache-2.0
// Invalid rules for units and parameters.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "config/bad_decks.hpp"

namespace ostrakon::config {
namespace {

/// Checks rows "rule | what its message says", in decks and on the command line.
void expect_rules_refused(const std::string& section, const std::string& key,
                          const std::string& harmless, const std::string& table) {
  for (const std::vector<std::string>& row : testing::rows_of(table)) {
    const std::string& rule = row[0];
    const std::string said = section + "." + key + ": rule \"" + rule + "\": .. " + row[1];
    const auto in_deck = [&](const std::string& rules) {
      expect_refused({{with(section, key + ": \"" + rules + '"'), said}}, "deck.yaml");
    };
    in_deck(rule);
    in_deck(harmless + "; " + rule + " ; embedding: nothing");  // the invalid one is named
    const std::string message =
        message_of(with("model", "layers: 2"), "deck.yaml", {{section + "." + key, rule}});
    EXPECT_EQ(message.rfind("--set ", 0), 0U) << message;
    EXPECT_TRUE(testing::says(message, said)) << message << "\nwithout\n" << said;
  }
}

TEST(BadDecks, RulesForUnits) {
  expect_rules_refused("parallel", "units", "head: forward_prefetch 1", R"(
block.* | found no ':'
block.* forward_prefetch 2 | found no ':'
forward_prefetch=2 | found no ':'
2 | found no ':'
block.*: | expected SETTING VALUE after the colon and each comma; the settings are reshard_after_forward,
block.*: , | expected SETTING VALUE
block.*: forward_prefetch 2, | expected SETTING VALUE
block.*: forward_prefetch 2,, backward_prefetch 1 | expected SETTING VALUE
: | expected one pattern before the colon, such as block.*
: forward_prefetch 2 | expected one pattern
block 0: forward_prefetch 2 | expected one pattern
block.0, block.1: forward_prefetch 2 | expected one pattern
block.*:: forward_prefetch 2 | expected one ':', after the pattern; ';' separates rules
block.*: : forward_prefetch 2 | expected one ':'
block.*: forward_prefetch: 2 | expected one ':'
block.*: forward_prefetch 2, block.0: backward_prefetch 1 | expected one ':'
block.*: forward_prefech 2 | "forward_prefech": no such setting; did you mean forward_prefetch?
block.*: backwards_prefetch 2 | "backwards_prefetch": no such setting; did you mean backward_prefetch?
block.*: forward_prefetch=2 | "forward_prefetch=2": no such setting; did you mean forward_prefetch?
block.*: Reshard_after_forward never | did you mean reshard_after_forward?
block.*: sharding full | "sharding": no such setting; the settings are reshard_after_forward,
block.*: never | "never": no such setting; the settings are
block.*: in_flight_gathers 2 | "in_flight_gathers": no such setting; the settings are
block.*: reshard_after_forward | reshard_after_forward: expected default, always, never, end_of_step or an integer
block.*: reshard_after_forward 1 | reshard_after_forward = 1: expected default, .. from 2 to 1048576
block.*: reshard_after_forward -4 | reshard_after_forward = -4: expected default
block.*: reshard_after_forward 2.5 | reshard_after_forward = 2.5: expected default
block.*: reshard_after_forward 1048577 | reshard_after_forward = 1048577: expected default
block.*: reshard_after_forward yes | reshard_after_forward = true: expected default
block.*: reshard_after_forward never always | reshard_after_forward = "never always": expected default
block.*: forward_prefetch | forward_prefetch: expected an integer from 0 to 1000, or names of units
block.*: forward_prefetch -1 | forward_prefetch = -1: expected an integer from 0 to 1000
block.*: forward_prefetch 0.5 | forward_prefetch = 0.5: expected an integer
block.*: backward_prefetch 1001 | backward_prefetch = 1001: expected an integer
block.*: backward_prefetch 1e18 | backward_prefetch = 1e18: expected an integer
block.*: backward_prefetch 1e999 | backward_prefetch = 1e999: expected an integer
block.*: forward_prefetch 1 2 | forward_prefetch = "1 2": expected an integer
block.*: forward_prefetch 2 block.1 | forward_prefetch = "2 block.1": expected an integer
block.*: forward_prefetch block.1 2 | forward_prefetch = "block.1 2": expected an integer
block.*: prefetch 2 | "prefetch": no such setting; did you mean forward_prefetch or backward_prefetch?
block.1: forward_prefetch block.1 | forward_prefetch names block.1 itself
head: forward_prefetch 1, backward_prefetch block.1 head | backward_prefetch names head itself
block.*: forward_prefetch 1, forward_prefetch 2 | forward_prefetch is given twice
block.*: reshard_after_forward never, reshard_after_forward never | reshard_after_forward is given twice
)");
  const std::string message = message_of(with("parallel", "sharding: full"), "deck.yaml",
                                         {{"parallel.units", "a:\x7F forward_prefetch 2"}});
  EXPECT_TRUE(testing::says(message, R"(--set parallel.units: "a:\x7f .. \x7f at byte 3)"))
      << message;
  const std::string of_200(200, 'a'), of_100(100, 'a');
  expect_refused({{with("parallel", "units: 2"), "parallel.units = 2: expected rules PATTERN:"},
                  {with("parallel", "units: [a, b]"), "parallel.units: expected .. found a list"},
                  {with("parallel", "units: block.*: forward_prefetch 2"),
                   "line 5: \"units: block.*: forward_prefetch 2\"; this ':' ends no key"},
                  {with("parallel", "units: \"" + of_200 + '"'),
                   "parallel.units: rule \"" + of_100 + "...\": expected PATTERN"}},
                 "deck.yaml");
}

TEST(BadDecks, RulesForParameters) {
  expect_rules_refused("optimizer", "parameters", "*: weight_decay 0", R"(
head.* | found no ':'
head.* frozen | found no ':'
head.*: | expected SETTING VALUE after the colon and each comma; the settings are frozen, trained, learning_rate
head.*: frozen, | expected SETTING VALUE
: frozen | expected one pattern before the colon
head embedding: frozen | expected one pattern before the colon
head.*: frozen: yes | expected one ':', after the pattern; ';' separates rules
head.*: frozen, embedding.*: frozen | expected one ':'
head.*: forzen | "forzen": no such setting; did you mean frozen?
head.*: freeze | "freeze": no such setting; the settings are frozen,
head.*: decay 0 | "decay": no such setting; did you mean weight_decay?
head.*: lr 1e-3 | "lr": no such setting; the settings are frozen,
head.*: forward_prefetch 1 | "forward_prefetch": no such setting; the settings are frozen,
head.*: frozen yes | frozen = true: expected nothing after it, and not trained in the same rule
head.*: frozen, trained | trained: expected nothing after it, and not frozen in the same rule
head.*: trained, frozen | frozen: expected nothing after it, and not trained in the same rule
head.*: frozen, frozen | frozen is given twice
head.*: learning_rate 1, learning_rate 1 | learning_rate is given twice
head.*: learning_rate | learning_rate: expected a number from 0 to 1e30
head.*: learning_rate -1e-3 | learning_rate = -1e-3: expected a number from 0 to 1e30
head.*: learning_rate 1e31 | learning_rate = 1e31: expected a number
head.*: learning_rate 1e-3 1e-4 | learning_rate = "1e-3 1e-4": expected a number
head.*: weight_decay nan | weight_decay = "nan": expected a number
head.*: weight_decay no | weight_decay = false: expected a number
)");
  expect_refused(
      {{with("optimizer", "parameters: 2"), "optimizer.parameters = 2: expected rules PATTERN:"},
       {with("optimizer", "parameters: [embedding.*]"), "optimizer.parameters: .. found a list"}},
      "deck.yaml");
}

TEST(BadDecks, RulesForParametersThatTheModelDoesNotHave) {
  const std::string none = ": no parameter of the model has such a name; they are ";
  const std::string llama =
      "embedding.token.weight, block.N.attention.norm.weight, block.N.attention.qkv.weight, "
      "block.N.attention.out.weight, block.N.mlp.norm.weight, block.N.mlp.gate_up.weight, "
      "block.N.mlp.down.weight and head.norm.weight, with N from 0 to 3";
  const std::string place = "optimizer.parameters: rule \"";
  for (const char* pattern :
       {"token.weight", "embedding", "block.4.*", "block.N.*", "head.output.weight", "*.bias",
        "embedding.position.weight", "block.0-3.*"}) {
    const std::string rule = text(pattern, ": frozen"), more = rule + ", weight_decay 0";
    expect_refused(
        {{with("optimizer", "parameters: \"" + rule + '"'), place + rule + '"' + none + llama},
         {with("optimizer", "parameters: \"head.*: frozen; " + more + "; *: trained\""),
          place + more + '"' + none + llama}},
        "deck.yaml");
  }
  const std::string message =
      message_of(with("optimizer", "parameters: \"block.12.*: learning_rate 1\""), "deck.yaml",
                 {{"model.norm", "layernorm"},
                  {"model.positions", "learned"},
                  {"model.activation", "gelu"},
                  {"model.bias", "true"},
                  {"model.tie_embeddings", "false"},
                  {"model.layers", "12"},
                  {"model.blocks_per_unit", "auto"}});
  EXPECT_TRUE(testing::says(message, place + "block.12.*: learning_rate 1\"" + none +
                                         "embedding.token.weight, embedding.position.weight, .. "
                                         "block.N.mlp.up.bias, .. head.output.weight, with N from "
                                         "0 to 11"))
      << message;
}

TEST(BadDecks, RulesThatLeaveNothingToTrain) {
  for (const char* rules : {"*: frozen", "*: trained; *: frozen",
                            "embedding.*: frozen; block.*: frozen; head.*: frozen, learning_rate 1",
                            "*.weight: frozen"})
    expect_refused({{with("optimizer", text("parameters: \"", rules, '"')),
                     text("optimizer.parameters = \"", rules, "\": all parameters are frozen")}},
                   "deck.yaml");
}

}  // namespace
}  // namespace ostrakon::config
