// SPDX-License-Identifier: Apache-2.0
// Decks that are written read back to the same settings.
#include <gtest/gtest.h>

#include <limits>
#include <ostrakon/config/policy_text.hpp>
#include <ostrakon/config/value.hpp>
#include <ostrakon/optim/muon.hpp>
#include <ostrakon/plan/ir/step_plan.hpp>
#include <random>
#include <sstream>

#include "config/decks.hpp"
#include "support/messages.hpp"
#include "support/table.hpp"

namespace ostrakon::config {
namespace {

TEST(WriteDeck, DefaultsReadBack) {
  const std::string deck = default_deck();
  const Settings settings = read(deck);
  EXPECT_EQ(settings.data.path, "tokens.h5");
  expect_equal(settings, read("ostrakon:\n  data:\n    path: tokens.h5\n"));
  EXPECT_EQ(write_deck(read(write_deck(settings))), write_deck(settings));
  std::istringstream lines(deck);
  std::string unfolded;  // text with each comment on one line
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 100u) << line;
    const std::size_t first = line.find_first_not_of(' ');
    unfolded += first > 4 && line[first] == '#' ? line.substr(first + 1) : '\n' + line;
  }
  for (const Section& section : sections()) {
    EXPECT_HAS(unfolded, "\n  " + section.name + ":  # " + section.meaning + '\n') << section.name;
    for (const Key& key : section.keys) {
      EXPECT_HAS(unfolded, "\n    " + key.name + ": ") << key.name;
      EXPECT_HAS(unfolded, "# " + key.meaning) << key.name;
    }
  }
}

TEST(WriteDeck, SaysWhereToReadOnAndWhatIsForGatheredParametersOnly) {
  const std::string deck = default_deck();
  const std::size_t pointer = deck.find("docs/strategies.md");
  EXPECT_NE(pointer, std::string::npos);
  EXPECT_EQ(deck.find("docs/strategies.md", pointer + 1), std::string::npos);
  for (const char* name :
       {"reshard_after_forward", "backward_prefetch", "in_flight_gathers", "units"}) {
    EXPECT_EQ(find_key(*find_section("parallel"), name)
                  ->meaning.rfind("where parameters are gathered: ", 0),
              0u)
        << name;
  }
  // The example must be valid.
  const std::string meaning = find_key(*find_section("parallel"), "units")->meaning;
  const std::size_t begin = meaning.find('"') + 1;
  EXPECT_EQ(read_unit_rules(meaning.substr(begin, meaning.rfind('"') - begin)).size(), 2u);
}

TEST(WriteDeck, TheExampleOfRulesForParametersCanBeTaken) {
  const std::string meaning = find_key(*find_section("optimizer"), "parameters")->meaning;
  const std::size_t begin = meaning.find('"') + 1;
  const std::string example = meaning.substr(begin, meaning.rfind('"') - begin);
  EXPECT_EQ(read(synthetic, {{"optimizer.parameters", example}}).optimizer.parameters.size(), 2u);
}

TEST(WriteDeck, RulesOnSeveralLinesAreReadAsOnOne) {
  const Settings settings = read(synthetic +
                                 "  parallel:\n"
                                 "    units: >\n"
                                 "      block.*: forward_prefetch 2;\n"
                                 "      head: forward_prefetch block.0\tblock.1\n"
                                 "  optimizer:\n"
                                 "    parameters: |\n"
                                 "      embedding.*:\n"
                                 "         frozen;\n"
                                 "      block.0.*: learning_rate\n"
                                 "                   1e-3,\tweight_decay 0;\n"
                                 "    name: lion\n");
  const char* const units = "block.*: forward_prefetch 2; head: forward_prefetch block.0 block.1";
  const char* const parameters =
      "embedding.*: frozen; block.0.*: learning_rate 0.001, weight_decay 0";
  EXPECT_EQ(write_unit_rules(settings.parallel.units), units);
  EXPECT_EQ(write_parameter_rules(settings.optimizer.parameters), parameters);
  const Settings again = read(write_deck(settings));
  expect_equal(again.parallel.units, settings.parallel.units);
  expect_equal(again.optimizer.parameters, settings.optimizer.parameters);
  const Settings given = read(synthetic, {{"optimizer.parameters", "embedding.*:\n\tfrozen;\r\n"}});
  EXPECT_EQ(write_parameter_rules(given.optimizer.parameters), "embedding.*: frozen");
}

TEST(WriteDeck, NumbersReadBackBitForBit) {
  Settings settings = read(synthetic);
  for (const double x : {1.0 / 3.0, 0.1, 1e-5, 6.02214076e23, 1e22, 123456789.125, 1e300, 5e-324,
                         0.1 + 0.2, std::numeric_limits<double>::max(), 4503599627370497.5}) {
    settings.training.time_limit_minutes = x;
    settings.runtime.peak_gflops = x;
    const Settings again = read(write_deck(settings));
    EXPECT_EQ(again.training.time_limit_minutes, x);
    EXPECT_EQ(again.runtime.peak_gflops, x);
  }
}

TEST(WriteDeck, OddPathsReadBack) {
  Settings settings = read(synthetic);
  std::string printable;
  for (char c = 0x20; c < 0x7F; ++c) printable += c;
  std::vector<std::string> paths = {printable,
                                    " ends with a blank ",
                                    "a\xC2\x85\xC2\xA0\xE2\x80\xA8\xE2\x80\xA9z",
                                    "\xEF\xBB\xBFx\xEF\xBF\xBF\xF0\x9F\x98\x80",
                                    "\xC2\x80",
                                    "| >-"};
  for (const std::string& path :
       testing::split("a b | a # b | a#b | C: \\d\\ | \"quoted\" 'twice' | ~/x~23~7E~ | "
                      "/home/jos\xC3\xA9/\xE6\x96\x87 | yes | 12 | 1e5 | {a: [b, c]} | - x | ... | "
                      "!!int 5 | ' | "
                      "\\\\\\ | true | null | 0x10 | 0o7 | .inf | << | *a | &a b",
                      "|"))
    paths.push_back(path);
  for (const std::string& path : paths) {
    // A ';' separates files of data.path.
    const std::string file = path.find(';') == std::string::npos ? path : "x";
    settings.data.path = file;
    settings.data.validation_path = path;
    settings.output.directory = path;
    // Some decks are not valid for training.
    const Settings again = read_settings(write_deck(settings), "deck.yaml", {}, DeckUse::model);
    EXPECT_EQ(again.data.path, file);
    EXPECT_EQ(again.data.validation_path, path);
    EXPECT_EQ(again.output.directory, path);
  }
}

TEST(WriteDeck, EveryChoiceReadsBack) {
  const std::string words =
      "layernorm | rmsnorm | learned | rotary | gelu | swiglu | synthetic | none | full | auto | "
      "reduce_each | reduce_last | ascending | descending | shuffled | default | always | never | "
      "cosine | linear | constant | inline | threads | deck | working_directory | unlimited | fp32 "
      "| "
      "bf16 | fp16 | adamw | sgd | lion | muon | optimizer | parameters | all | device | host | "
      "stop "
      "| skip | every 2 | warmup_stable_decay | inverse_square_root | rank | node | single | "
      "selective norms | keep activations | 72 GiB";
  for (const Section& section : sections()) {
    for (const Key& key : section.keys) {
      for (const std::string& word : testing::split(words, "|")) {
        Settings settings = read(synthetic);
        if (key.is_text || !key.set(settings, Value::of(word))) continue;
        if (settings.precision.activations)
          settings.precision.gather = *settings.precision.activations;
        expect_equal(read(write_deck(settings)), settings);
        EXPECT_EQ(key.get(settings).text, word);
      }
    }
  }
}

/// Random policies of every kind that a deck can hold.
class RandomPolicies {
 public:
  std::int64_t pick(std::int64_t below) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(below));
  }

  void fill(plan::PolicyChoices& policy) {
    policy.reshard_after_forward = reshard();
    policy.forward_prefetch.depth = depth();
    policy.backward_prefetch.depth = depth();
    policy.in_flight_reductions = depth();
    policy.in_flight_gathers = limit();
    for (std::int64_t rules = pick(4); rules > 0; --rules) policy.units.push_back(rule());
    policy.reduce = static_cast<DType>(pick(3));
    policy.moments.dtype = static_cast<DType>(pick(2));
    policy.offload = static_cast<plan::Offload>(pick(4));
    policy.offload_activations = pick(2) == 0;
    policy.updates = static_cast<plan::Updates>(pick(2));
  }

  /// Draws recomputation and dtypes.
  void fill(Settings& settings) {
    fill(settings.parallel);
    settings.precision.gather = static_cast<DType>(pick(3));
    if (pick(2) == 0) settings.precision.activations = settings.precision.gather;
    settings.precision.loss_scale.initial = static_cast<double>(1 << pick(25));
    if (pick(2) == 0) {
      settings.parallel.activation_checkpointing.every = static_cast<int>(pick(most_units_apart));
    } else {
      settings.recompute = {pick(2) == 0, pick(2) == 0, pick(2) == 0};
    }
    settings.pinned_host_memory = pick(2) == 0;
    settings.early_updates = pick(2) == 0;
    settings.optimizer.kind = static_cast<optim::OptimizerKind>(pick(4));
    settings.optimizer.clip_norm = static_cast<double>(pick(2));
    settings.optimizer.muon_iterations = static_cast<int>(1 + pick(1000));
    settings.optimizer.muon_rate_factor = number() + 1e-30;
    for (std::int64_t rules = pick(4); rules > 0; --rules)
      settings.optimizer.parameters.push_back(parameter_rule());
  }

 private:
  std::string name() {
    static const std::string characters = "abcXYZ_*.#'\"\\~%{}[]|>!&@()=?/<-+$0123456789";
    std::string out = "b";
    for (std::int64_t i = pick(12); i > 0; --i) {
      const auto at = static_cast<std::size_t>(pick(static_cast<std::int64_t>(characters.size())));
      out += at == 0 ? "\xC3\xA9" : characters.substr(at, 1);
    }
    return out;
  }

  plan::Reshard reshard() {
    plan::Reshard out;
    out.kind = static_cast<plan::Reshard::Kind>(pick(4));
    if (out.kind == plan::Reshard::partly) out.ranks = static_cast<int>(2 + pick(most_ranks - 1));
    return out;
  }

  int depth() { return static_cast<int>(pick(most_units_ahead + 1)); }

  /// Draws a prefetch of a rule for `unit`, which can't be in its own list.
  plan::Prefetch prefetch(const std::string& unit) {
    plan::Prefetch out;
    for (std::int64_t i = pick(4); i > 0; --i) {
      out.units.push_back(name());
      if (out.units.back() == unit) out.units.pop_back();
    }
    if (out.units.empty()) out.depth = depth();
    return out;
  }

  plan::GatherLimit limit() {
    plan::GatherLimit out;
    const std::int64_t kind = pick(3);
    if (kind == 0) out.units = 1 + pick(most_units_gathered);
    // Byte counts of every magnitude, some of them multiples of a unit.
    const std::int64_t unit = pick(2) == 0 ? std::int64_t{1} << (10 * pick(4)) : 1000000;
    if (kind == 1) out.bytes = (1 + pick(std::int64_t{1} << pick(22))) * unit;
    return out;
  }

  plan::UnitRule rule() {
    plan::UnitRule out;
    out.pattern = name();
    const std::int64_t set = 1 + pick(7);
    if ((set & 1) != 0) out.reshard_after_forward = reshard();
    if ((set & 2) != 0) out.forward_prefetch = prefetch(out.pattern);
    if ((set & 4) != 0) out.backward_prefetch = prefetch(out.pattern);
    return out;
  }

  /// Draws numbers of every magnitude.
  double number() {
    return static_cast<double>(pick(std::int64_t{1} << 31)) *
           std::ldexp(1.0, -static_cast<int>(pick(100)));
  }

  optim::ParameterRule parameter_rule() {
    static const std::vector<std::string> patterns = {
        "*", "*.norm.*", "block.*", "block.3.*", "embedding.token.weight", "head.norm*", "*a*e*"};
    optim::ParameterRule out;
    out.pattern = patterns[static_cast<std::size_t>(pick(7))];
    const std::int64_t set = 1 + pick(7);
    if ((set & 1) != 0) out.frozen = out.pattern != "*" && pick(2) == 0;
    if ((set & 2) != 0) out.learning_rate = number();
    if ((set & 4) != 0) out.weight_decay = number();
    return out;
  }

  std::mt19937 random_{7};  // the standard defines its numbers, so they are the same everywhere
};

TEST(WriteDeck, PoliciesReadBack) {
  RandomPolicies policies;
  for (int i = 0; i < 500 && !HasFailure(); ++i) {
    Settings settings = read(synthetic);
    policies.fill(settings);
    settings.model.blocks_per_unit = policies.pick(5);
    settings.output.trace_steps = policies.pick(100);
    settings.runtime.streams = static_cast<StreamsChoice>(policies.pick(3));
    const std::string deck = write_deck(settings);
    SCOPED_TRACE(deck);
    const Settings again = read(deck);
    expect_equal(again, settings);
    EXPECT_EQ(again.model.blocks_per_unit, settings.model.blocks_per_unit);
    EXPECT_EQ(again.runtime.streams, settings.runtime.streams);
    EXPECT_EQ(write_deck(again), deck);
    const Override rules = {"parallel.units", write_unit_rules(settings.parallel.units)};
    expect_equal(read(synthetic, {rules}).parallel.units, settings.parallel.units);
    const Override of_parameters = {"optimizer.parameters",
                                    write_parameter_rules(settings.optimizer.parameters)};
    expect_equal(read(synthetic, {of_parameters}).optimizer.parameters,
                 settings.optimizer.parameters);
  }
}

}  // namespace
}  // namespace ostrakon::config
