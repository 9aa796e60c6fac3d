// SPDX-License-Identifier: Apache-2.0
// Unusual YAML: a deck has the meaning of YAML 1.2, or is refused with the line and the reason. The
// long and escaped texts are as PyYAML and ruamel.yaml write them.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "config/bad_decks.hpp"
#include "config/decks.hpp"

namespace ostrakon::config {
namespace {

/// Returns a deck with this value of output.directory, on line 4.
std::string directory(const std::string& written) {
  return "ostrakon:\n  data: {dataset: synthetic}\n  output:\n    directory: " + written + "\n";
}

/// Returns a deck with this text in the section training, from line 4 on.
std::string training(const std::string& written) {
  return "ostrakon:\n  data: {dataset: synthetic}\n  training:\n    " + written + "\n";
}

const std::string words_of_80 =
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen";

struct Directory {
  std::string deck, value;
};

TEST(Yaml, TextIsWhatYamlSays) {
  const std::vector<Directory> decks = {
      // escapes
      {directory(R"("l\xE4ufe/run1")"), "l\xC3\xA4ufe/run1"},
      {directory(R"("\u6587/jos\u00e9\U0001F600")"), "\xE6\x96\x87/jos\xC3\xA9\xF0\x9F\x98\x80"},
      {directory(R"("a\_b\Nc\Ld\Pe")"),
       "a\xC2\xA0"
       "b\xC2\x85"
       "c\xE2\x80\xA8"
       "d\xE2\x80\xA9"
       "e"},
      {directory(R"("a\/b\\c\"d\x20e")"), "a/b\\c\"d e"},
      {directory(R"('it''s "\x41"')"), "it's \"\\x41\""},
      // several lines
      {directory(words_of_80 + "\n      fifteen/run"), words_of_80 + " fifteen/run"},
      {directory("'" + words_of_80 + "\n      fifteen/run'"), words_of_80 + " fifteen/run"},
      {directory("\"" + words_of_80 + "\\\n      \\ fifteen\\\n      /run\""),
       words_of_80 + " fifteen/run"},
      {directory("\n      a/very/long/path"), "a/very/long/path"},
      {directory(">-\n      one\n      two"), "one two"},
      {directory("|-\n      one # no comment"), "one # no comment"},
      {directory(">2-\n       one"), " one"},
      // anchors and aliases
      {directory("&out runs/a"), "runs/a"},
      {directory("&id001 'runs/a'"), "runs/a"},
      {"ostrakon:\n  data: {dataset: synthetic, path: &x 'runs/a'}\n  output: {directory: *x}\n",
       "runs/a"},
      {"ostrakon:\n  data: {dataset: synthetic, path: &x a, validation_path: &x b}\n"
       "  output: {directory: *x}\n",
       "b"},
      // plain text
      {directory("a:b"), "a:b"},
      {directory("50%"), "50%"},
      {directory("a@b`c*d&e!f"), "a@b`c*d&e!f"},
      {directory("a#b # a comment"), "a#b"},
      {directory("-a"), "-a"},
      {directory("it's a \"path\""), "it's a \"path\""},
      {directory("\ta \t# tabs"), "a"},
      // text that other versions of YAML read as a number, a boolean or a date
      {directory("1_000"), "1_000"},
      {directory("1:30:00"), "1:30:00"},
      {directory("2026-11-27"), "2026-11-27"},
      {directory("0b11"), "0b11"},
      {directory("on"), "on"},
      {directory("n"), "n"},
      {directory("1.2.3"), "1.2.3"},
      {directory("nan"), "nan"},
      {directory("<<"), "<<"},
      {directory("\"1e5\""), "1e5"},
      {directory("'null'"), "null"},
      // styles, markers, line breaks
      {R"({"ostrakon":{"data":{"dataset":"synthetic"},"output":{"directory":"a"}}})", "a"},
      {"ostrakon: {data: {dataset: synthetic}, # a comment\n output:\n  {directory: a:b , every: "
       "2}}",
       "a:b"},
      {"%YAML 1.2\n--- # a comment\n" + directory("a") + "...\n", "a"},
      {"%YAML 1.1\n---\n" + directory("a"), "a"},
      {"--- {ostrakon: {data: {dataset: synthetic}, output: {directory: a}}}\n", "a"},
      {"\xEF\xBB\xBF" + directory("a"), "a"},
      {"ostrakon:\r\n  data: {dataset: synthetic}\r\n  output:\r\n    directory: 'a\r\n      "
       "b'\r\n",
       "a b"},
      {"# old\rostrakon:\r  data: {dataset: synthetic}\r  output:\r    directory: 'a\r      b'\r",
       "a b"},
      {"ostrakon:\r\tdata: {dataset: synthetic}\r\toutput:\r\t\tdirectory: a\r", "a"},
      {"  ostrakon:\n    data: {dataset: synthetic}\n    output: {directory: a}\n", "a"},
      {"ostrakon:\n  ? data\n  : {? dataset : synthetic}\n  'output':\n    \"directory\" : a\n",
       "a"},
      {"ostrakon:\n  data: {dataset: synthetic}\n  output: {directory: a}\n  checkpoint:\n"
       "  memory: ~\n  model: null\n  schedule: {}\n",
       "a"}};
  for (const Directory& deck : decks) {
    SCOPED_TRACE(deck.deck);
    EXPECT_NO_THROW(EXPECT_EQ(read(deck.deck).output.directory, deck.value));
  }
}

TEST(Yaml, NumbersAreThoseOfTheCoreSchema) {
  const std::vector<std::pair<std::string, double>> decks = {
      {"steps: 0x1F", 31},  {"steps: 0o17", 15},
      {"steps: 010", 10},   {"steps: +5", 5},
      {"steps: 1e3", 1000}, {"steps: 1.2E+1", 12},
      {"steps: 5.", 5},     {"steps: &n 7\n    seed: *n", 7}};
  for (const auto& [line, steps] : decks)
    EXPECT_EQ(static_cast<double>(read(training(line)).training.steps), steps) << line;
  EXPECT_EQ(read(training("time_limit_minutes: .5")).training.time_limit_minutes, 0.5);
  EXPECT_EQ(read(training("time_limit_minutes: 5e-324")).training.time_limit_minutes, 5e-324);
  EXPECT_EQ(read(training("time_limit_minutes: 0.0e-400")).training.time_limit_minutes, 0.0);
  EXPECT_EQ(read(synthetic + "  runtime: {wall_time: 1:30:00}\n").runtime.wall_time, 5400.0);
  EXPECT_TRUE(read(synthetic + "  model: {bias: yes}\n").model.bias);
}

TEST(Yaml, NumbersThatNoDoubleHoldsAreRefused) {
  for (const std::string number : {"1e-400", "1e400", ".inf", ".nan", "0.0000001e-330"}) {
    const std::string reason =
        number[0] == '.' ? "" : "; " + number + " is beyond the range of a double";
    const std::string expected = number + ": expected a number >= 0" + reason;
    EXPECT_EQ(message_of(training("time_limit_minutes: " + number), "deck.yaml"),
              "deck.yaml: training.time_limit_minutes = " + expected);
    EXPECT_EQ(message_of(synthetic, "deck.yaml", {{"training.time_limit_minutes", number}}),
              "--set training.time_limit_minutes=" + expected);
    EXPECT_NE(message_of(training("steps: " + number), "deck.yaml"), "no error");
  }
}

TEST(Yaml, WhatIsNotADeckIsRefusedWithLineAndReason) {
  const std::string tag = "'!' begins a type tag, which has no meaning here";
  const std::string starts = "; text that begins with @, ` or % goes in quotes";
  const std::string colon = "; this ':' ends no key";
  const std::string column = "; expected a key, in the same column";
  const std::string end = "; a quote, or { or [, that begins here has no end";
  const std::string breaks = ": the character U+0085, U+2028 or U+2029";
  const std::string path = ": expected a path that is not empty (numbers and yes/no need quotes)";
  expect_refused(
      {// tags
       {directory("!!python/object/apply:pathlib.PosixPath [a]"), "line 4: " + tag},
       {directory("!!binary YQ=="), "line 4: " + tag},
       {training("steps: !!int '5'"), "line 4: " + tag},
       {training("!!str steps: 5"), "line 4: " + tag},
       {"!!map {ostrakon: {}}", "line 1: " + tag},
       // anchors, aliases, merge keys
       {directory("*out"), "line 4: no text, number or list before it is named &out; put text"},
       {"ostrakon:\n  data: &data {dataset: synthetic}\n  model: *data\n",
        "line 3: no text, number or list before it is named &data; put text that begins with"},
       {"ostrakon: &all\n  data: *all\n", "line 2: no text, number or list before it is named"},
       {"ostrakon:\n  data: &base {dataset: synthetic}\n  training:\n    <<: *base\n",
        "line 4: '<<' merges keys, which is not supported; write the keys themselves"},
       {directory("& a"), "not valid YAML: line 4: \"directory: & a\"; did not find expected"},
       // text that must be quoted
       {directory("@x"), "not valid YAML: line 4: \"directory: @x\"" + starts},
       {directory("`x`"), "not valid YAML: line 4: \"directory: `x`\"" + starts},
       {directory("%x"), "not valid YAML: line 4: \"directory: %x\"" + starts},
       {directory("a: b"), "not valid YAML: line 4: \"directory: a: b\"" + colon},
       {directory("- x"), "not valid YAML: line 4: \"directory: - x\"; text that begins with '- '"},
       {directory("'a' b"), "not valid YAML: line 4: \"directory: 'a' b\"" + column},
       {directory("'a"), "not valid YAML: line 4: \"directory: 'a\"" + end},
       {directory("{a"), "not valid YAML: line 4: \"directory: {a\"; did not find expected ',' or"},
       {directory(R"("C:\dir")"), "not valid YAML: line 4: \"directory: \\\"C:\\dir\\\"\"; found"},
       {directory(R"("\ud83d")"), "not valid YAML: line 4: \"directory: \\\"\\ud83d\\\"\"; found"},
       {directory(R"("a\0b")"), "output.directory: \"a\\x00b\" has the control character \\x00 at"},
       {directory("|\n      a"), "output.directory: \"a\\n\" has the control character \\n at"},
       // not text
       {directory("~"), "output.directory" + path + ", found nothing"},
       {directory("null"), "output.directory" + path + ", found nothing"},
       {directory("0x10"), "output.directory = 0x10" + path},
       {directory("1e5"), "output.directory = 1e5" + path},
       {directory(".inf"), "output.directory = .inf" + path},
       {directory("No"), "output.directory = false" + path},
       {directory("\n      - a\n      - {b: [c]}"), "output.directory" + path + ", found a list"},
       // not numbers
       {training("steps: '5'"), "training.steps = \"5\": expected an integer >= 1"},
       {training("steps: 1:30"), "training.steps = \"1:30\": expected an integer >= 1"},
       {training("steps: 0x"), "training.steps = \"0x\": expected an integer >= 1"},
       {training("steps: 0o8"), "training.steps = \"0o8\": expected an integer >= 1"},
       {training("steps: 5\n      6"), "training.steps = \"5 6\": expected an integer >= 1"},
       // keys
       {training("steps: 5\n    'steps': 6"), "line 5: steps is given twice in the same section"},
       {training("[steps]: 5"), "line 4: a key is text; found another thing before the ':'"},
       {training("{a: b}: 5"), "line 4: a key is text; found another thing before the ':'"},
       {training("\"\": 5"), "line 4: a key is empty; expected its name before the ':'"},
       {training("?\n    : 5"), "line 4: a key is empty; expected its name before the ':'"},
       {"ostrakon:\n  ? {}\n", "line 2: a key is text; found another thing before the ':'"},
       {"ostrakon:\n  ''  : {}\n", "line 2: a key is empty; expected its name before the ':'"},
       {training(": 5"), "not valid YAML: line 4: \": 5\"" + column},
       {"ostrakon: {data: {dataset: synthetic}, data: {}}", "line 1: data is given twice in the"},
       {"ostrakon: {}\nostrakon: {}", "line 2: ostrakon is given twice in the same section"},
       // documents
       {directory("a") + "---\n" + directory("b"),
        "line 5: a second document begins here; expected one"},
       {directory("a") + "...\nmore\n", "not valid YAML: line 6: \"more\"; expected no more text"},
       {"---\n", "is empty; expected the root key ostrakon with sections below it"},
       {"{}", "is empty; expected the root key ostrakon with sections below it"},
       {"%YAML 3.0\n---\n" + directory("a"), "not valid YAML: line 1: \"%YAML 3.0\"; found"},
       // bytes
       {directory("l\xE4ufe"), "not valid YAML: line 4: byte 0xE4 is not text in UTF-8"},
       {directory("a\x7f"), "not valid YAML: line 4: byte 0x7F is not text in UTF-8"},
       {directory("a\xC2\x85"
                  "b"),
        "not valid YAML: line 4" + breaks},
       {"# a\xE2\x80\xA8"
        "b\n" +
            directory("a"),
        "not valid YAML: line 1" + breaks},
       // lines that end with a carriage return
       {"ostrakon:\r  data: {dataset: synthetic}\r  training:\r    steps: 5: 6\r",
        "not valid YAML: line 4: \"steps: 5: 6\"" + colon},
       {"ostrakon:\r  output:\r    directory: l\xE4ufe\r", "not valid YAML: line 3: byte 0xE4 is"},
       {"# a\r# b\xE2\x80\xA8\r", "not valid YAML: line 2" + breaks},
       // indentation
       {"ostrakon:\n  data:\n\t\tdataset: synthetic\n",
        "not valid YAML: line 3: \"dataset: synthetic\"" + starts},
       {"  ostrakon:\n    data: {dataset: synthetic}\nmodel:\n", "not valid YAML: line 3"}},
      "deck.yaml");
  EXPECT_EQ(
      message_of(training("5: 6"), "deck.yaml").rfind("deck.yaml: training.5 = 6: no such key", 0),
      0u);
}

TEST(Yaml, WrittenPathsThatAShellWouldExpandAreRefused) {
  const std::string home =
      ": '~' is not expanded to a home folder here; expected the path written out, or './' before "
      "a "
      "name that begins with '~'";
  const std::string variable = ": '$' is not expanded here; expected the path without variables";
  for (const char* path : {"~", "~/runs/a", "~else/runs", "~x"}) {
    EXPECT_EQ(message_of(directory(text("'", path, "'")), "deck.yaml"),
              text("deck.yaml: output.directory = \"", path, "\"", home));
    EXPECT_EQ(message_of(synthetic, "deck.yaml", {{"output.directory", path}}),
              text("--set output.directory=\"", path, "\"", home));
  }
  for (const char* path : {"$HOME/runs", "/scratch/$USER", "${X}", "a/$(date)", "a$"}) {
    EXPECT_EQ(message_of(directory(path), "deck.yaml"),
              text("deck.yaml: output.directory = \"", path, "\"", variable));
    EXPECT_EQ(message_of(synthetic, "deck.yaml", {{"output.directory", path}}),
              text("--set output.directory=\"", path, "\"", variable));
  }
  // An overridden path is not checked, nor one in which a shell would expand nothing.
  EXPECT_EQ(read(directory("~/a"), {{"output.directory", "b"}}).output.directory, "b");
  EXPECT_EQ(read(directory("./~/a~")).output.directory, "./~/a~");
  EXPECT_EQ(read_settings(directory("~/a"), "deck.yaml", {}, DeckUse::model).output.directory,
            "~/a");
  // Paths that are read may have such names.
  const Settings settings =
      read(synthetic, {{"data.path", "$x/~"}, {"data.validation_path", "~/v"}});
  EXPECT_EQ(settings.data.path, "$x/~");
  EXPECT_EQ(
      path_origin(settings, "data.validation_path"),
      "--set data.validation_path=\"~/v\", relative to the working directory, '~' not expanded");
}

TEST(Yaml, AFolderWithADollarThatADeckLiesInIsMeant) {
  const std::string deck = directory("/scratch/$old/runs/a");
  EXPECT_EQ(read_settings(deck, "/scratch/$old/runs/a/deck.yaml", {}).output.directory,
            "/scratch/$old/runs/a");
  EXPECT_EQ(read_settings(directory("a"), "/scratch/$old/deck.yaml", {}).output.directory,
            "/scratch/$old/a");
  EXPECT_NE(message_of(directory("/scratch/$old/$new"), "/scratch/$old/deck.yaml"), "no error");
  EXPECT_NE(message_of(deck, "/scratch/other/deck.yaml"), "no error");
}

}  // namespace
}  // namespace ostrakon::config
