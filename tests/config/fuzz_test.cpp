// SPDX-License-Identifier: Apache-2.0

// Any deck is either read, or refused by Error with a printable message.

#include <gtest/gtest.h>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/config/policy_text.hpp>
#include <random>
#include <string>
#include <vector>

#include "support/messages.hpp"
#include "support/table.hpp"

namespace ostrakon::config {
namespace {

const std::string xml_deck = R"(<ParameterList name="ostrakon">
  <!-- a comment -->
  <ParameterList name="data">
    <Parameter name="dataset" type="string" value="synthetic"/>
  </ParameterList>
  <ParameterList name="training">
    <Parameter name="steps" type="int" value="12"/>
    <Parameter name="seed" type="double" value="1e3"/>
  </ParameterList>
</ParameterList>
)";

class Mutator {
 public:
  explicit Mutator(unsigned seed) : random_(seed) {}

  std::string operator()(std::string deck) {
    const int mutations = 1 + pick(4);
    for (int i = 0; i < mutations; ++i) mutate(deck);
    return deck;
  }

 private:
  int pick(std::size_t below) {
    return static_cast<int>(random_() % std::max<std::size_t>(below, 1));
  }

  void mutate(std::string& deck) {
    static const std::vector<std::string> pieces = [] {
      std::vector<std::string> all = testing::words_of(
          R"(: # " ' - { } [ ] , | > ! % & * ... --- 1e9 nan -inf ~ \ < /> </ = -5 1.5 &#65; &lt; <!--
             --> <?xml?> 999999999999999999999)");
      all.insert(all.end(), {" ", "  ", "\n", "\t", "\r", "\x01", "\xC3\xA9", "!!int ",
                             "ostrakon:\n", "    steps: 1\n", "  model:\n", std::string(1, '\0')});
      return all;
    }();
    const auto at = static_cast<std::size_t>(pick(deck.size() + 1));
    const auto length = static_cast<std::size_t>(pick(8));
    switch (pick(6)) {
      case 0:
        deck.erase(at, length);
        break;
      case 1:
        deck.insert(at, pieces[static_cast<std::size_t>(pick(pieces.size()))]);
        break;
      case 2:
        deck.resize(at);
        break;
      case 3:
        deck.insert(at, deck.substr(static_cast<std::size_t>(pick(deck.size())), 40));
        break;
      case 4:
        if (at < deck.size()) deck[at] = static_cast<char>(pick(256));
        break;
      default:
        deck.replace(at, std::min(length, deck.size() - at),
                     pieces[static_cast<std::size_t>(pick(pieces.size()))]);
    }
  }

  std::mt19937 random_;  // the standard defines its numbers, so they are the same everywhere
};

void expect_clean(const std::string& deck, const std::string& name) {
  try {
    read_settings(deck, name, {});
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(message.rfind(name, 0), 0u) << message << "\n" << deck;
    for (const char* noise : {"Teuchos", "packages/", "Throw number", "std::", "TEUCHOS"}) {
      EXPECT_LACKS(message, noise) << message << "\n" << deck;
    }
    EXPECT_GT(message.size(), name.size() + 2) << deck;
    EXPECT_LT(message.size(), 1000u) << deck;
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what() << "\n" << deck;
  }
}

TEST(Fuzz, MutatedYamlIsReadOrRefused) {
  const std::string deck = default_deck();
  const std::string small = "ostrakon:\n  data:\n    path: \"a b\"\n  training:\n    steps: 12\n";
  Mutator mutate(1);
  for (int i = 0; i < 1000; ++i) expect_clean(mutate(deck), "deck.yaml");
  for (int i = 0; i < 4000; ++i) expect_clean(mutate(small), "deck.yaml");
}

TEST(Fuzz, MutatedXmlIsReadOrRefused) {
  Mutator mutate(2);
  for (int i = 0; i < 4000; ++i) expect_clean(mutate(xml_deck), "deck.xml");
}

TEST(Fuzz, NoiseIsRefused) {
  std::mt19937 random(3);
  for (int i = 0; i < 1000; ++i) {
    std::string noise(random() % 200, '\0');
    for (char& c : noise) c = static_cast<char>(i % 2 == 0 ? random() % 256 : 32 + random() % 95);
    expect_clean(noise, "deck.yaml");
    expect_clean(noise, "deck.xml");
  }
}

TEST(Fuzz, MutatedOverridesAreReadOrRefused) {
  const std::vector<std::string> arguments = {
      "training.steps=12",
      "data.path=a",
      "parallel.reshard_after_forward=4",
      "parallel.in_flight_gathers=1.5 GiB",
      "model.blocks_per_unit=auto",
      "memory.activation_checkpointing=selective attention norms mlp",
      "memory.activation_checkpointing=every 12",
      "precision.loss_scale=65536",
      "training.skip_outliers=6.5",
      "memory.offload=parameters",
      "memory.pinned=false",
      "memory.early_updates=false",
      "memory.activations=host",
      "optimizer.name=muon",
      "optimizer.muon_iterations=6",
      "optimizer.muon_rate_factor=0.5",
      "optimizer.parameters=embedding.*: frozen; *.norm.*: weight_decay 0, learning_rate 1e-4; "
      "block.0.*: trained",
      "parallel.units=block.*: reshard_after_forward 4, backward_prefetch 2; head: "
      "forward_prefetch block.1 block.2"};
  Mutator mutate(4);
  const std::string deck = "ostrakon:\n  data:\n    dataset: synthetic\n";
  for (int i = 0; i < 10000; ++i) {
    const std::string argument = mutate(arguments[static_cast<std::size_t>(i) % arguments.size()]);
    try {
      read_settings(deck, "deck.yaml", {parse_override(argument)});
    } catch (const Error& error) {
      const std::string message = error.what();
      EXPECT_TRUE(message.rfind("--set ", 0) == 0 || message.rfind("deck.yaml: ", 0) == 0)
          << message;
    }
  }
}

TEST(Fuzz, MutatedCheckpointingThatIsReadReadsBack) {
  const std::vector<std::string> texts = {"selective attention norms mlp", "selective mlp",
                                          "every 12", "full", "keep norms activations"};
  Mutator mutate(6);
  int read = 0;
  for (int i = 0; i < 25000; ++i) {
    const std::string written = mutate(texts[static_cast<std::size_t>(i) % texts.size()]);
    const auto checkpointing = read_checkpointing(parse_scalar(written));
    if (!checkpointing) continue;
    ++read;
    const Value value = write_checkpointing(*checkpointing);
    const auto again = read_checkpointing(value);
    ASSERT_TRUE(again.has_value()) << written;
    EXPECT_EQ(write_checkpointing(*again).text, value.text) << written;
    EXPECT_TRUE(again->units == checkpointing->units) << written;
  }
  EXPECT_GT(read, 500);
}

/// Mutates `rules`; valid results must be equal after `rewrite` writes and reads them.
template <class Rewrite>
void expect_read_back(const std::string& rules, unsigned seed, const Rewrite& rewrite) {
  Mutator mutate(seed);
  int read = 0;
  for (int i = 0; i < 20000; ++i) {
    const std::string mutated = mutate(rules);
    try {
      const std::string written = rewrite(mutated);
      EXPECT_EQ(rewrite(written), written) << mutated;
      ++read;
    } catch (const Error& error) {
      const std::string message = error.what();
      EXPECT_EQ(message.rfind("rule \"", 0), 0u) << message;
      EXPECT_LT(message.size(), 500u) << message;
    }
  }
  EXPECT_GT(read, 500);
}

TEST(Fuzz, MutatedRulesThatAreReadReadBack) {
  expect_read_back(
      "*: forward_prefetch a b; block.*: reshard_after_forward 4, backward_prefetch 2; head: "
      "reshard_after_forward never",
      5, [](const std::string& rules) { return write_unit_rules(read_unit_rules(rules)); });
  expect_read_back(
      "embedding.*: frozen; *.norm.*: weight_decay 0.125, learning_rate 1e-4; block.0.*: trained",
      7,
      [](const std::string& rules) { return write_parameter_rules(read_parameter_rules(rules)); });
}

}  // namespace
}  // namespace ostrakon::config
