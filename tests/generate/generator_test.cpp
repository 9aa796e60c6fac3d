// SPDX-License-Identifier: Apache-2.0
// What a Generator returns, whatever it keeps of earlier tokens: the logits of a decoder that
// computes the whole text at once.
#include <ostrakon/generate/generator.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <string>
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
  explicit Texts(const ModelCase& which)
      : which_(which), parameters_(which), source_(parameters_), generator_(deck(), source_) {}

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
  config::Settings deck() const {
    config::Settings settings;
    settings.model = which_.settings;
    settings.training.sequence_length = longest;
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
    texts.generator().continue_text(tokens, count, greedy, [&](std::int32_t token) {
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
