// SPDX-License-Identifier: Apache-2.0
// Text that is not a deck, and settings on the command line.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "config/bad_decks.hpp"

namespace ostrakon::config {
namespace {

TEST(BadDecks, TextThatIsNoYaml) {
  const std::string colon =
      "; this ':' ends no key: the line above lacks one, or this line is indented too deep, or "
      "text "
      "with ': ' in it lacks quotes";
  expect_messages(
      {{"", "deck.yaml: the deck is empty; expected the root key ostrakon with sections below it"},
       {"\n \n# nothing\n",
        "deck.yaml: the deck is empty; expected the root key ostrakon with sections below it"},
       {"ostrakon: 5\n", "deck.yaml: ostrakon: expected sections indented below it"},
       {"model:\n  width: 5\n",
        "deck.yaml: line 1: the root key is model; expected ostrakon, with all sections indented "
        "below it"},
       {"ostrakon:\n  model:\n    width: 5\ntraining:\n  steps: 1\n",
        "deck.yaml: line 4: training is a second root key; everything but ostrakon must be "
        "indented below it"},
       {"ostrakon:\nmodel:\n  width: 5\n",
        "deck.yaml: line 2: model is a second root key; everything but ostrakon must be indented "
        "below it"},
       {with("training", "steps: 1\n    steps: 2"),
        "deck.yaml: line 6: steps is given twice in the same section"},
       {"ostrakon:\n  model:\n    width: 8\n  data:\n    verify: no\n  model:\n    layers: 1\n",
        "deck.yaml: line 6: model is given twice in the same section"},
       {with("training", "steps 5") + "    seed: 1\n",
        "deck.yaml: not valid YAML: line 6: \"seed: 1\"" + colon},
       {with("training", "seed: 1\n    steps = 5"),
        "deck.yaml: not valid YAML: line 6: \"steps = 5\"; expected `key: value`, or a section "
        "`key:`"},
       {with("training", "steps 5"),
        "deck.yaml: training = \"steps 5\": expected a section, with keys below it"},
       {with("output", "directory: \"a"),
        "deck.yaml: not valid YAML: line 5: \"directory: \\\"a\"; a quote, or { or [, that begins "
        "here has no end"},
       {with("training", "steps: !!int x"),
        "deck.yaml: line 5: '!' begins a type tag, which decks don't have; put text that begins "
        "with '!' in quotes"},
       {"ostrakon:\n  model:\n\t\twidth: 5\n",
        "deck.yaml: not valid YAML: line 3: \"width: 5\"; text that begins with @, ` or % goes in "
        "quotes, and lines are indented with spaces, not tabs"},
       {"ostrakon:\n  model:\n    width: 8\n   data:\n    verify: no\n",
        "deck.yaml: not valid YAML: line 4: \"data:\"; expected a key, in the same column as the "
        "others of its section; nothing follows a value that ends with a quote, ] or }"},
       {"ostrakon:\n  model:\n    width: 8\n      heads: 2\n",
        "deck.yaml: not valid YAML: line 4: \"heads: 2\"" + colon},
       {"\x89HDF\r\n\x1A\n", "deck.yaml: not valid YAML: line 1: byte 0x89 is not text in UTF-8"},
       {std::string("ostrakon:\n  a\0b", 15),
        "deck.yaml: not valid YAML: line 2: byte 0x00 is not text in UTF-8"},
       {"- ostrakon\n",
        "deck.yaml: line 1: expected the root key ostrakon, with all sections indented below it, "
        "found a list"},
       {"hello\n",
        "deck.yaml: line 1: expected the root key ostrakon, with all sections indented below it, "
        "found text"},
       {"ostrakon: [[\n",
        "deck.yaml: not valid YAML: line 1: \"ostrakon: [[\"; did not find expected node content"},
       {"ostrakon: " +
            [] {
              std::string nested;
              for (int i = 0; i < 100; ++i) nested += "{a: ";
              return nested;
            }(),
        "deck.yaml: line 1: nested too deeply; decks have three levels: ostrakon, section, key"},
       {std::string(100000, ' '), "deck.yaml: too long for a deck, which has at most 65536 bytes"}},
      "deck.yaml");
}

TEST(BadDecks, TextThatIsNoXml) {
  const auto in_training = [](const std::string& inner) {
    return "<ParameterList name=\"ostrakon\">\n<ParameterList name=\"training\">\n" + inner +
           "\n</ParameterList>\n</ParameterList>\n";
  };
  expect_messages(
      {{"", "deck.xml: not valid XML"},
       {"ostrakon:\n",
        "deck.xml: not valid XML: line 1: document not well-formed: character data outside of an "
        "enclosing tag"},
       {"<ParameterList name=\"ostrakon\">\n",
        "deck.xml: not valid XML: line 2: file ended before closing element 'ParameterList' from "
        "line 1"},
       {"<List/>",
        "deck.xml: the root element is <List>; expected <ParameterList "
        "name=\"ostrakon\">"},
       {"<ParameterList/>", "deck.xml: <ParameterList> has no attribute name"},
       {"<ParameterList name=\"model\"/>",
        "deck.xml: the root list is named model; expected ostrakon"},
       {in_training("<Parameter name=\"steps\" type=\"int\" value=\"5.5\"/>"),
        "deck.xml: training.steps = 5.5: expected an integer >= 1"},
       {in_training("<Parameter name=\"steps\" type=\"int\" value=\"five\"/>"),
        "deck.xml: training.steps: \"five\" is not a value of the type \"int\""},
       {in_training("<Parameter name=\"steps\" type=\"string\" value=\"5\"/>"),
        "deck.xml: training.steps = \"5\": expected an integer >= 1"},
       {in_training("<Parameter name=\"steps\" type=\"Array(int)\" value=\"{5}\"/>"),
        "deck.xml: training.steps: expected an integer >= 1, found a list"},
       {in_training("<Parameter name=\"steps\" value=\"5\"/>"),
        "deck.xml: training.steps: <Parameter> has no attribute type"},
       {in_training("<Parameter name=\"setps\" type=\"int\" value=\"5\"/>"),
        "deck.xml: training.setps = 5: no such key; did you mean training.steps?"},
       {in_training("<Parameter name=\"steps\" type=\"int\" value=\"5\"/>"
                    "<Parameter name=\"steps\" type=\"int\" value=\"6\"/>"),
        "deck.xml: steps is given twice in the same section"},
       {in_training("<Parameter name=\"\" type=\"int\" value=\"5\"/>"),
        "deck.xml: an attribute name is empty"},
       {in_training("<Step name=\"steps\"/>"),
        "deck.xml: <Step>: expected <Parameter> or <ParameterList>"},
       {in_training("<ParameterList name=\"steps\"/>"),
        "deck.xml: training.steps: expected an integer >= 1, found a section; decks have three "
        "levels: ostrakon, section, key"}},
      "deck.xml");
}

TEST(BadDecks, Overrides) {
  const std::string deck = "ostrakon:\n  data:\n    dataset: synthetic\n";
  struct BadOverride {
    std::string argument, message;
  };
  const std::vector<BadOverride> overrides = {
      {"model.widht=5", "--set model.widht=5: no such key; did you mean model.width?"},
      {"modle.width=5", "--set modle.width=5: no such key; did you mean model.width?"},
      {"model.steps=5", "--set model.steps=5: no such key; did you mean training.steps?"},
      {"qqqqqqqqq.zzzzzzzz=5",
       "--set qqqqqqqqq.zzzzzzzz=5: no such key; the sections are model, data, training, parallel, "
       "precision, memory, optimizer, schedule, checkpoint, output and runtime"},
      {"training.steps=-5", "--set training.steps=-5: expected an integer >= 1"},
      {"training.steps=1.5", "--set training.steps=1.5: expected an integer >= 1"},
      {"training.steps=", "--set training.steps=\"\": expected an integer >= 1"},
      {"training.steps=12345678901234567890",
       "--set training.steps=12345678901234567890: expected an integer >= 1 and <= "
       "9007199254740991"},
      {"training.steps=five", "--set training.steps=\"five\": expected an integer >= 1"},
      {"model.norm=batch", "--set model.norm=\"batch\": expected layernorm or rmsnorm"},
      {"optimizer.learning_rate=nan",
       "--set optimizer.learning_rate=\"nan\": expected a number from 0 to 1e30"},
      {"output.directory=",
       "--set output.directory=\"\": expected a path that is not empty (numbers and yes/no need "
       "quotes)"},
      {"output.directory=a\nb",
       "--set output.directory: \"a\\nb\" has the control character \\n at byte 2; expected text "
       "without any"},
      {"data.path=\x1b[2J",
       "--set data.path: \"\\x1b[2J\" has the control character \\x1b at byte 1; expected text "
       "without any"},
      {"parallel.reshard_after_forward=1",
       "--set parallel.reshard_after_forward=1: expected default, always, never, end_of_step or an "
       "integer from "
       "2 to 1048576"},
      {"parallel.in_flight_gathers=8 Gib",
       "--set parallel.in_flight_gathers=\"8 Gib\": expected unlimited, an integer from 1 to "
       "1000000 (units), "
       "or bytes up to 4096 TiB in B, kB, KiB, MB, MiB, GB, GiB, TB or TiB"},
      {"parallel.units=block.*",
       "--set parallel.units: rule \"block.*\": expected PATTERN: SETTING "
       "VALUE, SETTING VALUE ..., found no ':'"},
      {"training.steps", "--set training.steps: expected section.key=value, found no '='"},
      {"steps=5", "--set steps=5: expected section.key=value; did you mean training.steps?"},
      {"=5", "--set =5: expected section.key=value"},
      {".steps=5", "--set .steps=5: expected section.key=value"},
      {"training.=5", "--set training.=5: expected section.key=value"},
      {"", "--set : expected section.key=value, found no '='"},
      {"model.heads=3",
       "deck.yaml: model.heads = 3 does not divide model.width = 256 (256 = 3 x 85 + 1); "
       "expected a divisor, or model.head_width"}};
  for (const BadOverride& bad : overrides) {
    std::string message = "(no error)";
    try {
      read_settings(deck, "deck.yaml", {parse_override(bad.argument)});
    } catch (const Error& error) {
      message = error.what();
    }
    EXPECT_EQ(message, bad.message);
  }
  EXPECT_EQ(message_of(deck, "deck.yaml", {{"steps", "5"}}),
            "--set steps=5: expected section.key=value; did you mean training.steps?");
}

}  // namespace
}  // namespace ostrakon::config
