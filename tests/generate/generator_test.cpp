// SPDX-License-Identifier: Apache-2.0
// What a Generator returns, whatever it keeps of earlier tokens: the logits of a decoder that
// computes the whole text at once.
#include <ostrakon/generate/generator.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/generate/continue_texts.hpp>
#include <string>
#include <support/scratch_folder.hpp>
#include <vector>

#include "model/reference_run.hpp"

namespace ostrakon::train {
namespace {

using test::ModelCase;
using test::ModelRun;
using Tokens = std::vector<std::int32_t>;

constexpr std::int64_t longest = 420;  // with windows of 60, rings have 59 + 256 rows

model::DecoderSettings settings_of(const std::string& name) {
  for (const ModelCase& one : test::model_cases())
    if (one.name == name) return one.settings;
  throw Error("no case " + name);
}

/// Windows in some layers or in all, with all that attention may have besides.
std::vector<ModelCase> cases() {
  std::vector<ModelCase> all;
  for (const char* name :
       {"gemma2, window, cap and scale", "gpt-oss, window and sinks, 3 blocks a unit",
        "all of attention's scores, pieces as leaves",
        "latent attention, window, sinks, cap, not all layers rotary"}) {
    all.push_back({name, settings_of(name), {1, longest}});
    all.back().settings.attention_window = 60;
  }
  all.push_back({"windows in all layers", settings_of("qwen3"), {1, longest}});
  all.back().settings.attention_window = 60;
  all.push_back({"no window", settings_of("llama"), {1, longest}});
  for (const char* name : {"gpt2, experts and a shared one, 2 blocks a unit",
                           "llama, groups of experts by their best one"}) {
    all.push_back({name, settings_of(name), {1, longest}});
    all.back().settings.max_positions = longest;  // of shorter texts, too
  }
  const char* const delta_nets =
      "qwen3, delta nets in most layers, 2 blocks a unit, sequences as leaves";
  all.push_back({delta_nets, settings_of(delta_nets), {1, longest}});
  return all;
}

/// The parameters of a decoder that runs by itself.
class ParametersOf final : public checkpoint::ParameterSource {
 public:
  explicit ParametersOf(const ModelRun<float>& run) : run_(run) {}
  void read(const std::string& owner, const std::string& parameter,
            const std::vector<std::int64_t>&, std::int64_t first, std::int64_t count,
            float* values) override {
    run_.for_each_parameter([&](int u, const model::Parameter& p) {
      if (p.owner != owner || p.name != parameter) return;
      const std::vector<float> all = test::part(run_.parameters[u].values(), p);
      std::copy_n(all.begin() + first, count, values);
    });
  }
  void verify() override {}

 private:
  const ModelRun<float>& run_;
};

/// A model whose texts of any length are computed by a Generator, and at once.
class Texts {
 public:
  explicit Texts(const ModelCase& which, const GeneratorSettings& settings = {},
                 std::int64_t context = longest)
      : which_(which),
        parameters_(which),
        source_(parameters_),
        generator_(deck(context), source_, settings) {}

  Generator& generator() { return generator_; }
  /// Tokens of a text; others from `other` on.
  Tokens text(std::int64_t length, std::int64_t other = longest) const {
    Tokens tokens(parameters_.token_ids.begin(), parameters_.token_ids.begin() + length);
    for (std::int64_t i = other; i < length; ++i)
      tokens[i] = (tokens[i] + 1) % static_cast<std::int32_t>(which_.settings.vocabulary);
    return tokens;
  }
  std::vector<float> at_once(const Tokens& tokens) const {
    ModelCase all = which_;
    all.leaf.tokens = static_cast<std::int64_t>(tokens.size());
    ModelRun<float> run(decoded_at_once(all));  // as random as those of `parameters_`
    run.set_batch(tokens, tokens);
    run.forward();
    return run.head_output();
  }
  /// Bits, unless a device's products of other shapes add in another order, or a delta net's
  /// chunks, which begin anew in each run of tokens.
  void expect_same(const Tokens& tokens, const char* when) {
    const std::vector<float> found = generator_.logits(tokens), expected = at_once(tokens);
    if (on_device || which_.settings.has_delta_nets())
      EXPECT_LE(test::relative_distance(found, expected), 1e-5) << when;
    else
      EXPECT_TRUE(test::bits(found) == test::bits(expected)) << when;
  }

 private:
  config::Settings deck(std::int64_t context) const {
    config::Settings settings;
    settings.model = which_.settings;
    settings.training.sequence_length = context;
    return settings;
  }

  ModelCase which_;
  ModelRun<float> parameters_;
  ParametersOf source_;
  Generator generator_;
};

TEST(Generator, HasTheLogitsOfTheWholeText) {
  for (const ModelCase& which : cases()) {
    SCOPED_TRACE(which.name);
    Texts texts(which);
    texts.expect_same(texts.text(300), "a prompt longer than one run");
    for (std::int64_t length = 301; length <= 303; ++length)
      texts.expect_same(texts.text(length), "token by token");
    texts.expect_same(texts.text(303), "the same text again");
    texts.expect_same(texts.text(303, 302), "another last token");
    texts.expect_same(texts.text(longest), "a text of seven windows");
    texts.expect_same(texts.text(longest, longest - 1), "its last token, another one");
    texts.expect_same(texts.text(longest - 100, 200), "back by what a ring still has");
    texts.expect_same(texts.text(longest - 90, 200), "on from there");
    texts.expect_same(texts.text(longest), "the first text again");
    texts.expect_same(texts.text(longest - 100, 130), "back by more than a ring has");
    texts.expect_same(texts.text(longest, 130), "on from there");
    texts.expect_same(texts.text(3), "three tokens of it");
    texts.expect_same(texts.text(70), "and seventy");
  }
}

using TextsOfSequences = std::vector<Generator::Text>;

// What a text has alone, a generator of one sequence tells.
TEST(Generator, ATextHasItsLogitsInAnyCompany) {
  for (const ModelCase& which : cases()) {
    SCOPED_TRACE(which.name);
    Texts together(which, {4}), alone(which), also_alone(which);
    const auto expect_same = [&](const TextsOfSequences& texts, const std::vector<Texts*>& those,
                                 const char* when) {
      const std::vector<std::vector<float>> found = together.generator().logits(texts);
      for (std::size_t i = 0; i < texts.size(); ++i) {
        const std::vector<float>& expected = those[i]->generator().logits(*texts[i].tokens);
        if (on_device)
          EXPECT_LE(test::relative_distance(found[i], expected), 1e-5) << when << ", text " << i;
        else
          EXPECT_TRUE(test::bits(found[i]) == test::bits(expected)) << when << ", text " << i;
      }
    };
    // Two texts that are longer than a run, and another one behind the second; a copy of the first.
    Tokens first = together.text(300), second = together.text(270, 10), third = together.text(5);
    Tokens copy = first;
    Texts third_alone(which), copy_alone(which);
    const std::vector<Texts*> all = {&alone, &also_alone, &third_alone, &copy_alone};
    const TextsOfSequences texts = {{2, &first}, {0, &second}, {3, &third}, {1, &copy}};
    expect_same(texts, all, "prompts");
    for (std::int32_t token = 0; token < 3; ++token) {
      for (Tokens* one : {&first, &second, &third}) one->push_back(token);
      copy.push_back(token + 1);
      expect_same(texts, all, "token by token");
    }
    second = together.text(40);
    expect_same(texts, all, "another prompt, the others again");
    first.push_back(1);
    copy.push_back(1);
    expect_same({{2, &first}, {1, &copy}}, {&alone, &copy_alone}, "two of them");
    first = third = copy;
    for (Tokens* one : {&first, &third}) one->push_back(2);
    expect_same(texts, all, "a text of another sequence, which begins anew or not");
  }
}

TEST(Generator, TextsAreContinuedTheSameHoweverManyAtOnce) {
  for (const char* name : {"llama", "gpt2, experts and a shared one, 2 blocks a unit",
                           "qwen3, delta nets in most layers, 2 blocks a unit, sequences as leaves",
                           "gpt-oss, window and sinks, 3 blocks a unit"}) {
    SCOPED_TRACE(name);
    const ModelCase which{name, settings_of(name), {1, longest}};
    const auto continued = [&](std::int64_t sequences) {
      Texts texts(which, {sequences}, 24);
      std::vector<TokenPrompt> beginnings;
      // Two samples of a text are neighbours, as are texts of other lengths.
      for (const std::int64_t length : {7, 7, 30, 1, 3, 7}) {
        beginnings.push_back({texts.text(length), {}});
        beginnings.back().sampling.sample = beginnings.size();
        beginnings.back().sampling.repetition_penalty = length == 3 ? 1.5 : 1.0;
      }
      std::vector<Tokens> tokens(beginnings.size());
      continue_texts(texts.generator(), beginnings, 25, [&](std::size_t i, std::int32_t token) {
        tokens[i].push_back(token);
        return i % 2 == 1 || token % 11 != 0;
      });
      return tokens;
    };
    const std::vector<Tokens> expected = continued(1);
    std::size_t least = 25, most = 0;
    for (const Tokens& one : expected) {
      least = std::min(least, one.size());
      most = std::max(most, one.size());
    }
    EXPECT_LT(least, most) << "some end before others";
    EXPECT_EQ(most, 25U) << "a text that outgrows the context";
    EXPECT_NE(expected[0], expected[5]) << "samples of one text";
    if (on_device) continue;  // products of other shapes may add in another order
    for (const std::int64_t sequences : {2, 4, 6, 8}) EXPECT_EQ(continued(sequences), expected);
  }
}

TEST(Generator, SixteenBitsAreNearTheLogitsOfThirtyTwo) {
  for (const ModelCase& which : cases()) {
    SCOPED_TRACE(which.name);
    Texts full(which);
    const Tokens tokens = full.text(70);
    const std::vector<float> expected = full.generator().logits(tokens);
    const auto distance = [&](DType dtype) {
      Texts texts(which, {2, dtype});
      texts.generator().logits({{0, &tokens}, {1, &tokens}});
      Tokens longer = tokens;
      longer.pop_back();
      texts.generator().logits({{1, &longer}});
      return test::relative_distance(texts.generator().logits({{1, &tokens}}).front(), expected);
    };
    const double of_bf16 = distance(DType::bf16), of_fp16 = distance(DType::fp16);
    EXPECT_LE(of_bf16, 0.1);
    EXPECT_LE(of_fp16, 0.02);
    EXPECT_GT(of_bf16, 1e-4) << "it is computed in 16 bits";
    EXPECT_GT(of_fp16, 1e-5) << "it is computed in 16 bits";
  }
}

TEST(Generator, RefusesTextsThatItHasNoRoomFor) {
  Texts texts(cases().front(), {2});
  const Tokens one = {1}, none, large = {1, 100000};
  const auto refusal = [&](const TextsOfSequences& of) {
    return testing::error_of([&] { texts.generator().logits(of); });
  };
  EXPECT_EQ(refusal({{2, &one}}), "a text of sequence 2; expected one of each of 2 at most");
  EXPECT_EQ(refusal({{1, &one}, {1, &one}}),
            "a text of sequence 1; expected one of each of 2 at most");
  EXPECT_EQ(refusal({{0, &none}}), "a context of 0 tokens; expected 1 to 420");
  EXPECT_HAS(refusal({{0, &large}}), "token 100000 is not in the vocabulary of ");
}

// Models of latents are among them, whose absorbed weights add in another order.
TEST(Generator, TakesTheLikeliestTokensOfPlainLoops) {
  for (const char* name :
       {"latents of queries, too, wide values, sigmoid, groups, sequences as leaves",
        "latent attention, window, sinks, cap, not all layers rotary",
        "gemma2, window, cap and scale", "llama, a delta net, longer than a chunk"}) {
    ModelCase which{name, settings_of(name), {1, longest}};
    Texts texts(which);
    constexpr std::int64_t prompt = 20, count = 40;
    Tokens tokens = texts.text(prompt);
    SamplingSettings greedy;
    greedy.temperature = 0.0;
    continue_texts(texts.generator(), {{tokens, greedy}}, count,
                   [&](std::size_t, std::int32_t token) {
                     tokens.push_back(token);
                     return true;
                   });
    ASSERT_EQ(tokens.size(), static_cast<std::size_t>(prompt + count));
    which.leaf.tokens = prompt + count;
    ModelRun<float> plain(which);
    plain.token_ids = tokens;
    const std::vector<double> logits = run_reference(plain).logits;
    for (std::int64_t i = prompt; i < prompt + count; ++i) {
      const auto row = logits.begin() + (i - 1) * which.settings.vocabulary;
      EXPECT_EQ(tokens[i], std::max_element(row, row + which.settings.vocabulary) - row)
          << name << ", token " << i;
    }
  }
}

}  // namespace
}  // namespace ostrakon::train
