// SPDX-License-Identifier: Apache-2.0
// Text that is not a deck, and settings on the command line.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "config/bad_decks.hpp"
#include "config/decks.hpp"

namespace ostrakon::config {
namespace {

TEST(BadDecks, TextThatIsNoYaml) {
  const std::string colon = "; this ':' ends no key";
  expect_refused(
      {{"", "is empty; expected the root key ostrakon with sections below it"},
       {"\n \n# nothing\n", "is empty; expected the root key ostrakon with sections"},
       {"ostrakon: 5\n", "ostrakon: expected sections indented below it"},
       {"model:\n  width: 5\n", "line 1: the root key is model; expected ostrakon, with all"},
       {"ostrakon:\n  model:\n    width: 5\ntraining:\n  steps: 1\n",
        "line 4: training is a second root key; everything but ostrakon must be indented below"},
       {"ostrakon:\nmodel:\n  width: 5\n", "line 2: model is a second root key; everything but"},
       {with("training", "steps: 1\n    steps: 2"), "line 6: steps is given twice in the same"},
       {"ostrakon:\n  model:\n    width: 8\n  data:\n    verify: no\n  model:\n    layers: 1\n",
        "line 6: model is given twice in the same section"},
       {with("training", "steps 5") + "    seed: 1\n",
        "not valid YAML: line 6: \"seed: 1\"" + colon},
       {with("training", "seed: 1\n    steps = 5"), "not valid YAML: line 6: \"steps = 5\""},
       {with("training", "steps 5"), "training = \"steps 5\": expected a section, with keys below"},
       {with("output", "directory: \"a"), "not valid YAML: line 5: \"directory: \\\"a\"; a quote"},
       {with("training", "steps: !!int x"), "line 5: '!' begins a type tag, which has no"},
       {"ostrakon:\n  model:\n\t\twidth: 5\n", "not valid YAML: line 3: \"width: 5\"; text that"},
       {"ostrakon:\n  model:\n    width: 8\n   data:\n    verify: no\n",
        "not valid YAML: line 4: \"data:\"; expected a key, in the same column as the others"},
       {"ostrakon:\n  model:\n    width: 8\n      heads: 2\n",
        "not valid YAML: line 4: \"heads: 2\"" + colon},
       {"\x89HDF\r\n\x1A\n", "not valid YAML: line 1: byte 0x89 is not text in UTF-8"},
       {std::string("ostrakon:\n  a\0b", 15), "not valid YAML: line 2: byte 0x00 is not text in"},
       {"- ostrakon\n", "line 1: expected the root key ostrakon, with all sections indented below"},
       {"hello\n", "line 1: expected the root key ostrakon, with all sections indented below it"},
       {"ostrakon: [[\n", "not valid YAML: line 1: \"ostrakon: [[\"; did not find expected node"},
       {"ostrakon: " +
            [] {
              std::string nested;
              for (int i = 0; i < 100; ++i) nested += "{a: ";
              return nested;
            }(),
        "deck.yaml: line 1: nested too deeply; expected three levels: ostrakon, section, key"},
       {std::string(100000, ' '), "too long; expected at most 65536 bytes"}},
      "deck.yaml");
}

TEST(BadDecks, TextThatIsNoXml) {
  const auto in_training = [](const std::string& inner) {
    return "<ParameterList name=\"ostrakon\">\n<ParameterList name=\"training\">\n" + inner +
           "\n</ParameterList>\n</ParameterList>\n";
  };
  expect_refused(
      {{"", "not valid XML"},
       {"ostrakon:\n", "not valid XML: line 1: document not well-formed: character data outside"},
       {"<ParameterList name=\"ostrakon\">\n", "not valid XML: line 2: file ended before closing"},
       {"<List/>", "the root element is <List>; expected <ParameterList name=\"ostrakon\">"},
       {"<ParameterList/>", "<ParameterList> has no attribute name"},
       {"<ParameterList name=\"model\"/>", "the root list is named model; expected ostrakon"},
       {in_training("<Parameter name=\"steps\" type=\"int\" value=\"5.5\"/>"),
        "training.steps = 5.5: expected an integer >= 1"},
       {in_training("<Parameter name=\"steps\" type=\"int\" value=\"five\"/>"),
        "training.steps: \"five\" is not a value of the type \"int\""},
       {in_training("<Parameter name=\"steps\" type=\"string\" value=\"5\"/>"),
        "training.steps = \"5\": expected an integer >= 1"},
       {in_training("<Parameter name=\"steps\" type=\"Array(int)\" value=\"{5}\"/>"),
        "training.steps: expected an integer >= 1, found a list"},
       {in_training("<Parameter name=\"steps\" value=\"5\"/>"), "training.steps: <Parameter> has"},
       {in_training("<Parameter name=\"setps\" type=\"int\" value=\"5\"/>"),
        "training.setps = 5: no such key; did you mean training.steps?"},
       {in_training("<Parameter name=\"steps\" type=\"int\" value=\"5\"/>"
                    "<Parameter name=\"steps\" type=\"int\" value=\"6\"/>"),
        "steps is given twice in the same section"},
       {in_training("<Parameter name=\"\" type=\"int\" value=\"5\"/>"),
        "an attribute name is empty"},
       {in_training("<Step name=\"steps\"/>"), "<Step>: expected <Parameter> or <ParameterList>"},
       {in_training("<ParameterList name=\"steps\"/>"), "training.steps: expected an integer >="}},
      "deck.xml");
}

TEST(BadDecks, Overrides) {
  const auto expect = [](const std::string& argument, const std::string& said) {
    const std::string message = testing::error_of(
        [&] { read_settings(synthetic, "deck.yaml", {parse_override(argument)}); });
    EXPECT_TRUE(testing::says(message, said)) << message << "\nwithout\n" << said;
  };
  for (const std::vector<std::string>& row : testing::rows_of(R"(
model.widht=5 | --set model.widht=5: no such key; did you mean model.width?
modle.width=5 | --set modle.width=5: no such key; did you mean model.width?
model.steps=5 | --set model.steps=5: no such key; did you mean training.steps?
qqqqqqqqq.zzzzzzzz=5 | --set qqqqqqqqq.zzzzzzzz=5: no such key; the sections are model, lora, data, .. and runtime
training.steps=-5 | --set training.steps=-5: expected an integer >= 1
training.steps=1.5 | --set training.steps=1.5: expected an integer >= 1
training.steps= | --set training.steps="": expected an integer >= 1
training.steps=12345678901234567890 | --set training.steps=12345678901234567890: expected .. <= 9007199254740991
training.steps=five | --set training.steps="five": expected an integer >= 1
model.norm=batch | --set model.norm="batch": expected layernorm or rmsnorm
optimizer.learning_rate=nan | --set optimizer.learning_rate="nan": expected a number from 0 to 1e30
output.directory= | --set output.directory="": expected a path that is not empty
parallel.reshard_after_forward=1 | --set parallel.reshard_after_forward=1: expected default, .. from 2 to 1048576
parallel.in_flight_gathers=8 Gib | --set parallel.in_flight_gathers="8 Gib": expected unlimited, .. or TiB
parallel.units=block.* | --set parallel.units: rule "block.*": expected PATTERN: SETTING VALUE, .. found no ':'
training.steps | --set training.steps: expected section.key=value, found no '='
steps=5 | --set steps=5: expected section.key=value; did you mean training.steps?
=5 | --set =5: expected section.key=value
.steps=5 | --set .steps=5: expected section.key=value
training.=5 | --set training.=5: expected section.key=value
model.heads=3 | deck.yaml: model.heads = 3 does not divide model.width = 256
)"))
    expect(row[0], row[1]);
  expect("", "--set : expected section.key=value, found no '='");
  expect("output.directory=a\nb", R"(--set output.directory: "a\nb" has the .. \n at byte 2)");
  expect("data.path=\x1b[2J", R"(--set data.path: "\x1b[2J" has the .. \x1b at byte 1)");
  EXPECT_EQ(message_of(synthetic, "deck.yaml", {{"steps", "5"}}),
            "--set steps=5: expected section.key=value; did you mean training.steps?");
}

}  // namespace
}  // namespace ostrakon::config
