// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/saving/continuation.hpp>

#include <algorithm>
#include <array>
#include <optional>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/version.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/data/dataset.hpp>
#include <ostrakon/data/tokenizer.hpp>
#include <sstream>

namespace ostrakon::train {
namespace {

using Lines = std::vector<std::string>;
using Version = std::array<int, 3>;

/// Parses "Ostrakon 0.3.0".
std::optional<Version> version_of(const std::string& program) {
  Version version{};
  int read = 0;
  const std::string name = "Ostrakon ";
  if (program.rfind(name, 0) != 0 ||
      std::sscanf(program.c_str() + name.size(), "%d.%d.%d%n", &version[0], &version[1],
                  &version[2], &read) != 3 ||
      name.size() + static_cast<std::size_t>(read) != program.size())
    return std::nullopt;
  return version;
}

Lines require_program(const std::string& theirs, bool allows, const char* how_to_allow) {
  const std::string ours = text("Ostrakon ", version());
  if (theirs == ours) return {};
  const auto saved_by = version_of(theirs);
  const bool is_earlier = saved_by && *saved_by < *version_of(ours);
  require(is_earlier || allows, "it was saved by ", theirs, "; this is ", ours,
          ", which may not know all that is in it; expected this version or an earlier one",
          how_to_allow);
  return {text("saved by ", theirs, "; this is ", ours)};
}

/// Whether a tokenizer is not named: in old files, and for ids imported without a name.
bool is_unknown(const std::string& tokenizer) {
  return tokenizer.empty() || tokenizer == data::unknown_tokenizer;
}

/// Whether a tokenizer's name identifies the tokens.
bool is_known(const std::string& tokenizer) {
  return !is_unknown(tokenizer) && tokenizer != data::no_tokenizer;
}

/// Whether weights and data may have the same tokenizer. Synthetic data have none, so weights
/// always fit them; and weights trained only on them fit all data.
bool may_be_of_one_tokenizer(const std::string& a, const std::string& b) {
  if (a == data::no_tokenizer || b == data::no_tokenizer) return true;
  return a == b || (is_unknown(a) && is_unknown(b));
}

/// Returns how a user can name the tokenizer of data or weights that lack it.
std::string how_to_name(const std::string& of_weights, const std::string& of_data) {
  if (is_unknown(of_weights))
    return text(
        "; where that is the tokenizer of the weights, `ostrakon-checkpoint import "
        "--tokenizer ",
        of_data, "` says so in a copy of them");
  if (of_weights == data::ByteTokenizer::name)
    return "; `ostrakon-data build` makes its tokens of text";
  return text("; `ostrakon-data import --tokenizer ", of_weights,
              "` makes a token file of ids that it wrote");
}

std::string value_in(const Facts& facts, const std::string& name) {
  for (const Fact& fact : facts)
    if (fact.name == name) return fact.value;
  return "";
}

template <class Condition>
Facts without(Facts facts, const Condition& condition) {
  facts.erase(std::remove_if(facts.begin(), facts.end(), condition), facts.end());
  return facts;
}

/// Also of all sources of a mixture.
Facts without_tokenizer(const Facts& facts) {
  return without(facts, [](const Fact& fact) {
    return fact.name == "tokenizer" ||
           fact.name.rfind(std::string("tokenizer") + data::of_source, 0) == 0;
  });
}

/// Returns " of source 2" of a fact on the second source of a mixture; "" for the first one.
std::string source_in(const Fact& fact) {
  const std::size_t at = fact.name.find(data::of_source);
  return at == std::string::npos ? "" : fact.name.substr(at);
}

/// Returns the facts without those of sources of a mixture that are new since `before`.
Facts without_new_sources(const Facts& now, const Facts& before) {
  return without(now, [&](const Fact& fact) {
    const std::string source = source_in(fact);
    return !source.empty() && std::none_of(before.begin(), before.end(), [&](const Fact& other) {
      return source_in(other) == source;
    });
  });
}

/// Whether the data are known to be the same, token by token.
bool require_data(const Facts& now, const Facts& before, const std::string& data_path,
                  const AllowedChanges& allowed, Lines& notes) {
  if (before.empty()) {
    notes.push_back(
        "it does not say what data it was trained on: whether it is the deck's is not known");
    return false;
  }
  const std::string what = data_change(without_tokenizer(now), without_tokenizer(before));
  if (what.empty()) return true;
  require(allowed.data, what, data_path.empty() ? "" : " in " + data_path,
          "; expected the same data, or --allow-changes data to continue with other data");
  notes.push_back(what + ", as --allow-changes data says");
  return false;
}

void require_optimizer(const config::Settings& settings, const checkpoint::Manifest& manifest) {
  const std::string now = config::value_of(settings, "optimizer", "name");
  require(now == manifest.optimizer, "its optimizer.name is ", manifest.optimizer, ", but ", now,
          " in the deck, whose state it does not have; name it as checkpoint.initial_weights to "
          "begin at step 1 with its parameters");
}

void require_model(const config::Settings& settings, const checkpoint::Manifest& manifest,
                   const std::string& path, Lines& notes) {
  try {
    config::read_settings(manifest.deck, path, {}, config::DeckUse::model);
  } catch (const Error&) {
    notes.push_back("its deck is of another version: only shapes of the model were compared");
    return;
  }
  // The checkpoint has the adapters: those of lora.initial are only read before step 1.
  config::Settings resumed = settings;
  resumed.lora_initial.clear();
  config::require_same_model(resumed, manifest.deck, path);
}

}  // namespace

std::string data_change(const Facts& now, const Facts& kept) {
  const Facts before = data::kept_identity(kept);
  const std::optional<FactDifference> changed =
      first_difference(without_new_sources(now, before), before);
  return !changed ? ""
                  : text("the ", changed->name, " of its training data was ", changed->theirs,
                         ", and is ", changed->ours);
}

void allow_changes(const std::string& names, AllowedChanges& allowed) {
  std::istringstream stream(names + ",");
  for (std::string name; std::getline(stream, name, ',');) {
    if (name == "data")
      allowed.data = true;
    else if (name == "program")
      allowed.program = true;
    else if (name == "tokenizer")
      allowed.tokenizer = true;
    else
      throw Error(text("--allow-changes ", names, ": \"", name,
                       "\" is unknown; expected data, program or tokenizer, or several "
                       "separated by commas"));
  }
}

Lines require_same_tokenizer(const std::string& of_weights, const std::string& path,
                             const std::string& of_data, const AllowedChanges& allowed) {
  if (may_be_of_one_tokenizer(of_weights, of_data)) return {};
  const std::string weights = is_unknown(of_weights)
                                  ? std::string("does not say whose tokens it knows")
                                  : text("trained on tokens of the tokenizer '", of_weights, "'");
  const std::string what = text(weights, "; the data's is '", of_data, "'",
                                is_unknown(of_data) ? ", which is not known" : "");
  require(allowed.tokenizer, path, ": ", what,
          "; expected the same, or --allow-changes tokenizer to train it on other tokens",
          how_to_name(of_weights, of_data));
  return {what + ", as --allow-changes tokenizer says"};
}

Lines require_comparable_validation(const Facts& training, const std::string& training_path,
                                    const Facts& validation, const AllowedChanges& allowed) {
  for (const char* const name : {"tokenizer", "vocabulary"}) {
    const std::string theirs = value_in(validation, name), ours = value_in(training, name);
    if (name == std::string("vocabulary") && is_known(value_in(training, "tokenizer"))) break;
    if (theirs == ours) continue;
    const std::string what = text("its ", name, " is '", theirs, "', that of the training data in ",
                                  training_path, " is '", ours, "'");
    require(allowed.tokenizer, what, "; expected data of the same tokenizer, or --allow-changes ",
            "tokenizer to validate on other tokens");
    return {what + ", as --allow-changes tokenizer says"};
  }
  return {};
}

Lines require_steps_and_program(const checkpoint::Manifest& manifest, std::int64_t steps,
                                bool allows_program, const ContinuationWords& words) {
  const std::int64_t done = manifest.progress.step;
  require(done <= steps, "it has done ", done, " steps, more than ", words.steps, " = ", steps,
          "; expected at least as many, or ", words.begin_anew, " to begin anew");
  return require_program(manifest.program, allows_program, words.allow_program);
}

Lines require_continuation(const config::Settings& settings, const Facts& data,
                           const checkpoint::Manifest& manifest, const std::string& path,
                           const AllowedChanges& allowed) {
  Lines notes = require_steps_and_program(manifest, settings.training.steps, allowed.program);
  require_model(settings, manifest, path, notes);
  require_optimizer(settings, manifest);
  const bool is_same_data = require_data(data, manifest.data, settings.data.path, allowed, notes);
  const std::string named = value_in(data, "tokenizer");
  const std::string tokenizer = named.empty() ? data::no_tokenizer : named;
  // Data whose tokenizer was named later are still the same.
  if (is_same_data && (is_unknown(manifest.tokenizer) || is_unknown(tokenizer))) return notes;
  for (const std::string& note :
       require_same_tokenizer(manifest.tokenizer, path, tokenizer, allowed))
    notes.push_back(note);
  return notes;
}

}  // namespace ostrakon::train
