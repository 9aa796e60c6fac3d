// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/base/facts.hpp>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/plan/report/report.hpp>
#include <string>
#include <utility>
#include <vector>

namespace ostrakon::config {

/// A `--set section.key=value` from the command line.
using Override = std::pair<std::string, std::string>;

/// Splits "section.key=value"; the value may contain further '='. Throws Error if there is no '=',
/// or no '.' before it.
Override parse_override(const std::string& argument);

/// The purpose for which a deck is read.
enum class DeckUse {
  training,
  model  ///< only the model: the deck need not name data to train on
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

/// Writes every key with its value as YAML that read_settings reads back to the same settings, each
/// with a comment on its meaning.
std::string write_deck(const Settings& settings);

/// Writes the keys that are in `settings.given`, or whose values are not the defaults, each with a
/// comment on its meaning, and `head` before them, as comments.
std::string write_short_deck(const Settings& settings, const std::vector<std::string>& head);

/// Returns the output of `--print-defaults`: write_deck of a deck that sets only data.path, which
/// has no default.
std::string default_deck();

/// Returns the settings with absolute paths, to write them as a deck into another folder.
Settings with_absolute_paths(Settings settings);

/// Returns the settings with relative paths as a deck in `folder` names them, and those that are
/// absolute as they are.
Settings with_paths_from(Settings settings, const std::string& folder);

/// Begins a message about a path: where it was given, and relative to what. `key` is "data.path":
///     my.yaml: data.path = "../text.h5", relative to the deck's folder
///     --set data.path="text.h5", relative to the working directory
/// Returns the key alone if the settings come from no deck.
std::string path_origin(const Settings& settings, const std::string& key);

/// Properties of the ranks that settings are for, as far as known.
struct OnRanks {
  int shard_group = 0;          ///< ranks of a shard group; 0: unknown
  bool may_have_levels = true;  ///< as plan::may_have_levels returns
};

/// Lists every setting with its value, a few lines per section, for people, and the given settings
/// that have no effect with the others, such as the sharding, or with these ranks.
std::string summary(const Settings& settings, const OnRanks& ranks = {});

/// Rows about the model, each a name and a text: the layers, with what some of them have, and with
/// experts how many parameters compute a token: of experts those that are chosen for it, and all
/// others but tables that are only looked up (an embedding that is not tied to the logits, learned
/// positions).
std::vector<std::pair<std::string, std::string>> model_rows(const Settings& settings);

/// Returns the settings that choose how ranks share the work, with values as in a deck, except
/// `accumulation`, for which the plan's choice replaces `auto`. Settings of other sections that
/// change what a step sends or keeps follow if they are not the default.
std::vector<plan::Setting> strategy(const Settings& settings, plan::Accumulation accumulation,
                                    const OnRanks& ranks = {});

/// Returns the value of a setting as in a deck: "adamw". Throws std::logic_error for an unknown
/// key.
std::string value_of(const Settings& settings, const std::string& section, const std::string& key);

/// Lists changed settings: "training.steps = 20, was 10". Leaves out the sections checkpoint,
/// output and runtime, and parallel.choose, which change no result.
std::vector<std::string> differences(const Settings& now, const Settings& before);

/// Returns every setting as a fact: "training.steps" and its value.
Facts facts_of(const Settings& settings);

/// Compares the model of `settings` with `deck`, the resolved deck that came with weights. Throws
/// Error that lists the differing keys, with both values, that change what is computed from the
/// same parameters. An empty `deck` is not compared. `path`: the file of the weights.
void require_same_model(const Settings& settings, const std::string& deck, const std::string& path);

/// Checks that settings fit the number of ranks, without the file system. Throws Error, showing the
/// arithmetic, if stages, shard groups or leaves do not divide evenly over `ranks`, a rank has more
/// leaves than a plan can hold, or a shard group does not divide into the parts that stay after
/// forward.
/// `ranks_per_node`: 0: as the settings say.
void check_ranks(const Settings& settings, int ranks, int ranks_per_node = 0);

/// Throws Error, beginning with `name`, for settings that are each valid but contradict each other.
void check_consistency(const Settings& settings, const std::string& name);

/// Throws Error, beginning with `name`, for settings that lack the data to train and validate on.
void check_data(const Settings& settings, const std::string& name);

/// Returns all parameters of the model, in its order. Throws Error for contradicting settings.
std::vector<model::Parameter> parameters_of(const Settings& settings);

}  // namespace ostrakon::config
