// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <ostrakon/config/value.hpp>
#include <ostrakon/model/decoder.hpp>
#include <ostrakon/optim/parameter_rules.hpp>
#include <ostrakon/plan/ir/policy.hpp>
#include <string>
#include <vector>

namespace ostrakon::config {

// Conversions between the text of decks and structs of settings. Written text reads back to an
// equal struct.

constexpr std::int64_t most_ranks = std::int64_t{1} << 20;
constexpr std::int64_t most_units_ahead = 1000;
constexpr std::int64_t most_units_gathered = 1000000;
constexpr std::int64_t most_units_apart = 100000;

/// Reads default, always, never or an integer; returns nothing for any other value.
std::optional<plan::Reshard> read_reshard(const Value& value);
Value write_reshard(const plan::Reshard& reshard);
/// Describes what read_reshard accepts, for messages.
std::string expected_reshard();

/// Reads unlimited, an integer (units), or text such as "8 GiB" or "1.5TB", to the nearest byte;
/// returns nothing for any other value.
std::optional<plan::GatherLimit> read_gather_limit(const Value& value);
/// Writes bytes in the largest unit of which they are a multiple. Bounds in both units and bytes
/// can't be written.
Value write_gather_limit(const plan::GatherLimit& limit);
std::string expected_gather_limit();

/// Reads auto, never, always, or text such as "4 MiB"; returns nothing for any other value.
std::optional<plan::Hierarchical> read_hierarchical(const Value& value);
Value write_hierarchical(const plan::Hierarchical& hierarchical);
std::string expected_hierarchical();

/// Units or parts of blocks that are recomputed for backward: all of some units, or parts of all
/// blocks.
struct CheckpointingChoice {
  plan::ActivationCheckpointing units;
  model::Recompute within_blocks;
  bool is_chosen = false;  ///< Settings::chooses_recompute
};

/// Reads none, full, `every N`, `selective` with parts such as `selective attention mlp`, `keep`
/// with parts such as `keep norms`, or auto; returns nothing for any other value.
std::optional<CheckpointingChoice> read_checkpointing(const Value& value);
/// One alone can be written of units, parts that are recomputed, and parts that are kept.
Value write_checkpointing(const CheckpointingChoice& checkpointing);
std::string expected_checkpointing();

/// Reads auto, which is 0, or text such as "72 GiB"; returns nothing for any other value.
std::optional<std::int64_t> read_memory_limit(const Value& value);
Value write_memory_limit(std::int64_t bytes);
std::string expected_memory_limit();

// Rules by name in the syntax of decks. Written rules read back to equal ones.

/// Splits text at blanks.
std::vector<std::string> words(const std::string& text);

/// Rules separated by ';', each `PATTERN: SETTING VALUE, SETTING VALUE ...`, for example
///     block.*: reshard_after_forward never, backward_prefetch 2; head: forward_prefetch block.1
/// Settings are those of plan::UnitRule. A prefetch is an integer or names of units. Throws Error
/// that names the rule and what was expected there.
std::vector<plan::UnitRule> read_unit_rules(const std::string& text);
/// Omits rules that set nothing.
std::string write_unit_rules(const std::vector<plan::UnitRule>& rules);

/// Reads rules for parameters, with the settings of optim::ParameterRule, separated as unit rules
/// are:
///     embedding.*: frozen; *.norm.*: weight_decay 0, learning_rate 1e-4; block.0.*: trained
/// `trained` undoes an earlier `frozen`.
std::vector<optim::ParameterRule> read_parameter_rules(const std::string& text);
std::string write_parameter_rules(const std::vector<optim::ParameterRule>& rules);

}  // namespace ostrakon::config
