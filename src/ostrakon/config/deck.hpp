// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/base/facts.hpp>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/plan/report.hpp>
#include <string>
#include <utility>
#include <vector>

namespace ostrakon::config {

/// A `--set section.key=value` from the command line.
using Override = std::pair<std::string, std::string>;

/// Splits "section.key=value"; the value may hold further '='. Throws Error where there is no '='
/// or no '.' before it.
Override parse_override(const std::string& argument);

/// What a deck is read for.
enum class DeckUse {
  training,
  model  ///< which model it describes: it need not say what data to train on
};

/// Reads settings from a deck's text (YAML, or XML where `name` ends in .xml). Unknown keys, wrong
/// types and impossible values throw Error naming the key, its value, what was expected and, for an
/// unknown key, the nearest known one. Relative paths in the deck become relative to the deck's
/// folder, the default output directory too, unless runtime.paths_from is working_directory; paths
/// in `overrides` stay relative to the working directory. Calls no MPI.
///
/// A YAML deck has the one root key `ostrakon`, sections below it, keys below these:
///     ostrakon:
///       training:
///         steps: 100
/// An XML deck is a ParameterList named `ostrakon` of ParameterLists of Parameters.
Settings read_settings(const std::string& deck_text, const std::string& name,
                       const std::vector<Override>& overrides, DeckUse use = DeckUse::training);

/// Every key with its value as YAML that read_settings reads back to the same settings, each with a
/// comment that says what it means.
std::string write_deck(const Settings& settings);

/// What `--print-defaults` prints: write_deck of a deck that sets nothing but data.path, which has
/// no default.
std::string default_deck();

/// Returns the settings with absolute paths: what to write as a deck into another folder.
Settings with_absolute_paths(Settings settings);

/// What a message about a path begins with: where it was given, and as what. `key` is "data.path":
///     my.yaml: data.path = "../text.h5", relative to the deck's folder
///     --set data.path="text.h5", relative to the working directory
/// The key alone where settings come from no deck.
std::string path_origin(const Settings& settings, const std::string& key);

/// What is known of the ranks that settings are for.
struct OnRanks {
  int shard_group = 0;          ///< ranks of a shard group; 0: not known
  bool may_have_levels = true;  ///< plan::may_have_levels
};

/// Every setting with its value, a few lines for each section, for people; and which of those that
/// were given have no effect given others, such as the sharding, or the ranks.
std::string summary(const Settings& settings, const OnRanks& ranks = {});

/// The settings that choose how ranks share the work, with values as in a deck but for
/// accumulation, which is what a plan made of `auto`; then, where they are not the default, those
/// of other sections that change what a step sends or keeps.
std::vector<plan::Setting> strategy(const Settings& settings, plan::Accumulation accumulation,
                                    const OnRanks& ranks = {});

/// The value of a setting as decks have it: "adamw". Keys that there are not throw
/// std::logic_error.
std::string value_of(const Settings& settings, const std::string& section, const std::string& key);

/// Settings that are not what they were: "training.steps = 20, was 10". Not those
/// of the sections checkpoint, output and runtime, nor parallel.choose, which change no result.
std::vector<std::string> differences(const Settings& now, const Settings& before);

/// Every setting, "training.steps", with its value.
Facts facts_of(const Settings& settings);

/// Throws Error that lists, by key and both values, what `deck`, the resolved deck that came with
/// weights, says of a model that `settings` do not, where it changes what is computed from the same
/// parameters. Nothing is compared where `deck` is empty. `path`: of the weights.
void require_same_model(const Settings& settings, const std::string& deck, const std::string& path);

/// What does not depend on the file system but on the ranks: throws Error with the arithmetic shown
/// where leaves do not divide evenly over `ranks`, a rank has more of them than a plan can hold, or
/// a shard group does not divide into the parts that stay after forward.
void check_ranks(const Settings& settings, int ranks);

}  // namespace ostrakon::config
