// SPDX-License-Identifier: Apache-2.0

// ostrakon-evaluate as a user starts it: texts, token files, requests and questions.

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "generate_fixture.hpp"

namespace ostrakon::testing {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

/// The models of ostrakon-generate's tests, with contexts of 24 tokens.
class Evaluate : public Generate {
 protected:
  static std::vector<Json> lines_of(const Texts& arguments, int ranks = 1) {
    std::vector<Json> all;
    std::istringstream lines(must("ostrakon-evaluate", arguments, ranks));
    for (std::string line; std::getline(lines, line);) all.push_back(Json::parse(line));
    return all;
  }
  static void write_lines(const std::string& name, const std::vector<Json>& lines) {
    std::string text;
    for (const Json& line : lines) text += line.dump() + "\n";
    write_bytes(path(name), text);
  }
  /// The answers to requests, as llama gives them.
  static std::vector<Json> answers_to(const std::vector<Json>& requests) {
    write_lines("requests.jsonl", requests);
    return lines_of({"llama", "--requests", "requests.jsonl"});
  }
  static void expect_refused(const Texts& arguments, const std::string& message, int ranks = 1) {
    const Outcome outcome = start("ostrakon-evaluate", arguments, ranks);
    EXPECT_EQ(outcome.status, 1);
    EXPECT_NE(outcome.err.find(message), std::string::npos) << message << "\n" << outcome.err;
  }
};

/// Bytes are tokens, behind the end of another document.
std::vector<int> ids_of(const std::string& text) {
  std::vector<int> ids = {256};
  for (const char byte : text) ids.push_back(static_cast<unsigned char>(byte));
  return ids;
}

TEST_F(Evaluate, TextsAreTheSumOfTheirTokens) {
  const std::string text = "Ship 37 has salt.\nSh";
  write_bytes(path("short.txt"), text);
  const Json found = lines_of({"llama", "--text", "short.txt", "--json"}).at(0);
  EXPECT_EQ(found["file"], "short.txt");
  EXPECT_EQ(found["tokens"], text.size());
  const double sum = found["log_probability"], loss = -sum / static_cast<double>(text.size());
  EXPECT_DOUBLE_EQ(found["loss"], loss);
  EXPECT_DOUBLE_EQ(found["perplexity"], std::exp(loss));
  EXPECT_DOUBLE_EQ(found["bits_per_byte"], loss / std::log(2.0));
  EXPECT_EQ(found["context"], 24);
  EXPECT_EQ(found["stride"], 24);
  const Json of_long =
      lines_of({"llama", "--text", "short.txt", "--context", "128", "--json"}).at(0);
  EXPECT_EQ(of_long["context"], 128) << "also where the ranks compute with a shorter one";
  EXPECT_EQ(of_long["stride"], 128);

  std::vector<Json> requests = {{{"text", text}}, {{"text", ids_of(text)}}};
  for (std::size_t i = 0; i < text.size(); ++i)
    requests.push_back({{"id", i},
                        {"context", ids_of(text.substr(0, i))},
                        {"continuation", {static_cast<unsigned char>(text[i])}}});
  const std::vector<Json> answers = answers_to(requests);
  ASSERT_EQ(answers.size(), requests.size());
  EXPECT_EQ(answers[0]["log_probability"], found["log_probability"]);
  EXPECT_EQ(answers[1], answers[0]);
  double by_token = 0.0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    EXPECT_EQ(answers[i + 2]["id"], i);
    EXPECT_EQ(answers[i + 2]["tokens"], 1);
    by_token += answers[i + 2]["log_probability"].get<double>();
  }
  EXPECT_NEAR(by_token, sum, 1e-5);
}

TEST_F(Evaluate, LongTextsArePredictedWhole) {
  const std::string text = read_bytes(path("text.txt"));
  const auto json_of = [](const Texts& options) {
    return lines_of(with({"llama", "--json"}, options)).at(0);
  };
  const Json whole = json_of({"--text", "text.txt"});
  EXPECT_EQ(whole["tokens"], text.size());
  const Json of_more = json_of({"--text", "text.txt", "--stride", "4"});
  EXPECT_LT(of_more["loss"], whole["loss"]) << "predicted from more";
  EXPECT_EQ(of_more["context"], 24);
  EXPECT_EQ(of_more["stride"], 4);
  const Json of_fewer = json_of({"--text", "text.txt", "--context", "12"});
  EXPECT_EQ(of_fewer["context"], 12);
  EXPECT_EQ(of_fewer["stride"], 12);
  // The file has the text, and a token that ends it in place of the one before it.
  const Json file = json_of({"--tokens", "text-train.h5"});
  EXPECT_EQ(file["tokens"], text.size());
  EXPECT_NEAR(file["loss"].get<double>(), whole["loss"].get<double>(), 0.05);
  EXPECT_NEAR(file["bits_per_byte"].get<double>(),
              file["loss"].get<double>() / std::log(2.0) * static_cast<double>(text.size() + 1) /
                  static_cast<double>(text.size()),
              1e-9);
  const std::string shown = must("ostrakon-evaluate", {"llama", "--text", "text.txt"});
  expect_in(shown, {"text.txt\n", "  perplexity  ", "  bits per byte  ",
                    "  context                 24\n", "  stride                  24\n"});
}

TEST_F(Evaluate, WhatIsGeneratedIsGreedy) {
  const std::string all = generated(
      {"llama", "--prompt", "Ship 4", "--temperature", "0", "--tokens", "12", "--ignore-end"});
  const std::string rest = all.substr(6, 12);
  std::string other = rest;
  other.back() = '#';
  const auto answers = answers_to({{{"context", "Ship 4"}, {"continuation", rest}},
                                   {{"context", "Ship 4"}, {"continuation", other}}});
  EXPECT_EQ(answers.at(0)["greedy"], true) << rest;
  EXPECT_EQ(answers.at(1)["greedy"], false);
  EXPECT_EQ(answers.at(0)["tokens"], 12);
}

TEST_F(Evaluate, SpacesBelongToTheContinuation) {
  const auto answers = answers_to({{{"context", "Ship 4 "}, {"continuation", "has"}},
                                   {{"context", "Ship 4"}, {"continuation", " has"}},
                                   {{"context", ""}, {"continuation", "Ship"}},
                                   {{"text", "Ship"}}});
  EXPECT_EQ(answers.at(0), answers.at(1));
  EXPECT_EQ(answers.at(0)["tokens"], 4);
  EXPECT_EQ(answers.at(2), answers.at(3));
}

TEST_F(Evaluate, HasTheBitsOfOneRankInEveryLayout) {
  const std::string text = read_bytes(path("text.txt"));
  std::vector<Json> requests;
  for (std::size_t i = 0; i < 21; ++i)
    requests.push_back(
        {{"context", text.substr(31 * i, i)}, {"continuation", text.substr(32 * i, 1 + i % 5)}});
  requests.push_back({{"text", text.substr(0, 300)}});
  write_lines("layouts.jsonl", requests);
  const auto answers = [](int ranks, const Texts& keys) {
    Texts arguments = {"llama", "--requests", "layouts.jsonl"};
    for (const std::string& key : keys) arguments = with(arguments, {"--set", key});
    return must("ostrakon-evaluate", arguments, ranks);
  };
  const std::string expected = answers(1, {});
  EXPECT_EQ(std::count(expected.begin(), expected.end(), '\n'), 22);
  EXPECT_EQ(answers(1, {"training.micro_batch_size=3"}), expected);
  EXPECT_EQ(answers(2, {}), expected);
  EXPECT_EQ(answers(4, {"training.micro_batch_size=2"}), expected);
  EXPECT_EQ(answers(2, {"parallel.sharding=none"}), expected);
  EXPECT_EQ(answers(2, {"parallel.pipeline=2"}), expected);
  EXPECT_EQ(answers(2, {"parallel.context=2"}), expected);
  const std::string in_pieces = answers(1, {"model.tensor_grain=2"});
  EXPECT_EQ(answers(2, {"model.tensor_grain=2", "parallel.tensor=2"}), in_pieces);
  EXPECT_EQ(answers(4, {"model.tensor_grain=2", "parallel.tensor=2", "parallel.pipeline=2"}),
            in_pieces);
}

TEST_F(Evaluate, QuestionsHaveTheLikeliestAnswer) {
  const std::vector<std::string> choices = {"salt.", "zq", "has salt. Ship has"};
  const std::string context = "Ship 37 has";
  std::vector<Json> requests;
  for (const std::string& choice : choices)
    requests.push_back({{"context", context}, {"continuation", " " + choice}});
  const std::vector<Json> answers = answers_to(requests);
  const auto best = [&](bool by_length) {
    std::size_t at = 0;
    const auto value = [&](std::size_t i) {
      const double sum = answers[i]["log_probability"];
      return by_length ? sum / static_cast<double>(choices[i].size()) : sum;
    };
    for (std::size_t i = 1; i < choices.size(); ++i)
      if (value(i) > value(at)) at = i;
    return at;
  };
  std::vector<Json> questions;
  for (std::size_t answer = 0; answer < choices.size(); ++answer)
    questions.push_back({{"context", context}, {"choices", choices}, {"answer", answer}});
  // Once more the one that is right.
  questions.push_back({{"context", context}, {"choices", choices}, {"answer", best(false)}});
  write_lines("questions.jsonl", questions);
  const Json found = lines_of({"llama", "--choices", "questions.jsonl", "--json"}).at(0);
  EXPECT_EQ(found["questions"], 4);
  EXPECT_EQ(found["context"], 24);
  EXPECT_EQ(found["stride"], 24);
  EXPECT_DOUBLE_EQ(found["acc"], 0.5);
  const double by_length = best(true) == best(false) ? 0.5 : 0.25;
  EXPECT_DOUBLE_EQ(found["acc_norm"], by_length);
  EXPECT_DOUBLE_EQ(found["acc_bytes"], by_length);
}

/// A run that answers questions while it trains, on one rank and on several, has the scores of
/// ostrakon-evaluate.
TEST_F(Evaluate, RunsAnswerQuestions) {
  std::vector<Json> questions;
  for (int i = 0; i < 7; ++i)
    questions.push_back({{"context", "Ship " + std::to_string(i * 37 % 101)},
                         {"choices", {"has salt.", "has zq.", "salt"}},
                         {"answer", i % 3}});
  fs::create_directories(path("asked"));
  write_lines("asked/a.jsonl", questions);
  questions.resize(2);
  write_lines("asked/b.jsonl", questions);
  write_bytes(path("asked/notes.txt"), "no questions");
  for (const int ranks : {1, 2}) {
    const std::string out = "asked" + std::to_string(ranks);
    const std::string said = must(
        "ostrakon-train",
        {"llama.yaml", "--set", "training.evaluate=asked", "--set", "training.evaluate_every=8",
         "--set", "output.directory=" + out, "--set", "training.ema=0.5"},
        ranks);
    expect_in(said, {"questions", "a.jsonl: 21 choices every 8 steps", "step 8  a.jsonl:  acc "});
    std::vector<Json> rows;
    std::istringstream lines(read_bytes(path(out + "/metrics.jsonl")));
    for (std::string line; std::getline(lines, line);)
      if (const Json row = Json::parse(line); row.contains("evaluation")) rows.push_back(row);
    ASSERT_EQ(rows.size(), 3U);
    EXPECT_EQ(rows[0]["step"], 8);
    EXPECT_EQ(rows[2]["step"], 20);
    for (const std::string file : {"a.jsonl", "b.jsonl"}) {
      Json found = lines_of({out, "--choices", "asked/" + file, "--json"}).at(0);
      EXPECT_EQ(found["questions"], file == "a.jsonl" ? 7 : 2);
      for (const char* key : {"file", "questions", "greedy", "context", "stride"}) found.erase(key);
      EXPECT_EQ(rows[2]["evaluation"][file], found) << ranks;
    }
  }
  // The averages, too, are weights that other programs read, and a checkpoint has them.
  const std::string averages =
      must("ostrakon-checkpoint", {"inspect", "asked1/checkpoints/latest"});
  expect_in(averages, {"average fp32"});
  must("ostrakon-checkpoint", {"export", "asked2/weights-ema.h5", "ema-weights"});
  must("ostrakon-checkpoint", {"export", "asked1/checkpoints/latest", "ema-checkpoint", "--ema"});
  must("ostrakon-checkpoint", {"diff", "ema-weights", "ema-checkpoint"});
  EXPECT_EQ(start("ostrakon-checkpoint", {"diff", "ema-weights", "asked1/weights.h5"}).status, 1);
  const Outcome none =
      start("ostrakon-checkpoint", {"export", "llama/checkpoints/latest", "x", "--ema"});
  EXPECT_EQ(none.status, 1);
  expect_in(none.err, {"has no averages; expected one of a run with training.ema above 0"});
  const Outcome other =
      start("ostrakon-train", {"llama.yaml", "--resume", "llama/checkpoints/latest", "--set",
                               "training.ema=0.5", "--set", "output.directory=other"});
  EXPECT_EQ(other.status, 1);
  expect_in(other.err, {"it has no average of ", "of a run without training.ema"});
}

TEST_F(Evaluate, WhatIsWrongIsRefused) {
  expect_refused({"llama"}, "nothing to evaluate; expected --text");
  expect_refused({"llama", "--text", "text.txt", "--stride", "25"},
                 "--stride 25: expected 1 to 24, the length of the context", 2);
  expect_refused({"llama", "--text", "text.txt", "--set", "optimizer.name=sgd"},
                 "--set optimizer.name=sgd: expected a key of parallel");
  expect_refused({"llama", "--text", "text.txt", "--set", "parallel.tensor=2"},
                 "does not divide the 1 ranks");
  expect_refused({"llama", "--text", "none.txt"}, "none.txt", 2);
  write_bytes(path("empty.txt"), "");
  expect_refused({"llama", "--text", "empty.txt"}, "empty.txt: the text has no tokens");
  for (const auto& [line, message] : std::vector<std::pair<std::string, std::string>>{
           {"7", "bad.jsonl, line 1: expected a JSON object"},
           {"What is it?",
            "bad.jsonl, line 1: is not JSON (column 1: invalid literal); expected a JSON object"},
           {R"({"context": "a"})", "expected either `text`, or `context` and `continuation`"},
           {R"({"context": "a", "continuation": [1]})", "both as lists of ids"},
           {R"({"context": [], "continuation": [1]})", "at least one id to predict others from"},
           {R"({"context": [1], "continuation": []})", "at least one id to predict"},
           {R"({"context": [257], "continuation": [1]})",
            "`context` has 257 as token 0; expected an id from 0 to 256"},
           {R"({"context": "a", "continuation": ""})", "adds no token to the context"}}) {
    write_bytes(path("bad.jsonl"), line + "\n");
    expect_refused({"llama", "--requests", "bad.jsonl"}, message);
  }
  write_bytes(path("bad.jsonl"), R"({"context": "a", "choices": ["b"], "answer": 1})");
  expect_refused({"llama", "--choices", "bad.jsonl"},
                 "expected the number of a choice as `answer`, 0, as there is one choice");
  write_bytes(path("bad.jsonl"), R"({"context": "a", "choices": ["b", "c"], "answer": 2})");
  expect_refused({"llama", "--choices", "bad.jsonl"},
                 "expected the number of a choice as `answer`, 0 to 1");
}

TEST_F(Evaluate, WhatIsNoModelIsRefused) {
  expect_refused({"nowhere", "--text", "text.txt"},
                 "'nowhere' does not exist; expected weights.h5, a checkpoint, a run's folder, or "
                 "safetensors");
  fs::create_directories(path("my_texts"));
  expect_refused({"my_texts", "--text", "text.txt"},
                 "'my_texts' has neither model.safetensors.index.json nor model.safetensors; "
                 "expected one of them, or a run's weights.h5 or checkpoints");
}

TEST_F(Evaluate, LinesOfHelpGoOnWhereOneIsTooLong) {
  expect_in(must("ostrakon-evaluate", {"--help"}),
            {" memory and\nruntime, training.micro_batch_size and the grains;"});
}

}  // namespace
}  // namespace ostrakon::testing
