// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <ostrakon/config/value.hpp>
#include <ostrakon/model/decoder.hpp>
#include <ostrakon/plan/policy.hpp>
#include <string>

namespace ostrakon::config {

// How decks say what settings hold in structs. Whatever is written reads back to the same.

constexpr std::int64_t most_ranks = std::int64_t{1} << 20;
constexpr std::int64_t most_units_ahead = 1000;
constexpr std::int64_t most_units_gathered = 1000000;
constexpr std::int64_t most_units_apart = 100000;

/// default, always, never or an integer; nothing for any other value.
std::optional<plan::Reshard> read_reshard(const Value& value);
Value write_reshard(const plan::Reshard& reshard);
/// What read_reshard takes, for messages.
std::string expected_reshard();

/// unlimited, an integer (units), or text such as "8 GiB" or "1.5TB", to the nearest byte; nothing
/// for any other value.
std::optional<plan::GatherLimit> read_gather_limit(const Value& value);
/// Bytes in the largest unit of which they are a multiple. Not for bounds in units and bytes both.
Value write_gather_limit(const plan::GatherLimit& limit);
std::string expected_gather_limit();

/// auto, never, always, or text such as "4 MiB"; nothing for any other value.
std::optional<plan::Hierarchical> read_hierarchical(const Value& value);
Value write_hierarchical(const plan::Hierarchical& hierarchical);
std::string expected_hierarchical();

/// What is computed again for backward: all of some units, or parts of all blocks.
struct ActivationCheckpointing {
  plan::Checkpointing units;
  model::Recompute within_blocks;
};

/// none, full, `every N`, or `selective` with parts such as `selective attention mlp`; nothing for
/// any other value.
std::optional<ActivationCheckpointing> read_checkpointing(const Value& value);
/// Not for units and parts of blocks both.
Value write_checkpointing(const ActivationCheckpointing& checkpointing);
std::string expected_checkpointing();

}  // namespace ostrakon::config
