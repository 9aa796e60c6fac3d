// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/config/value.hpp>
#include <string>
#include <vector>

namespace ostrakon::config {

/// The only root key of a deck.
constexpr const char* root_name = "ostrakon";

/// Limit for nested values, deeper than in any deck, and small enough for a recursive parser.
constexpr int deepest_nesting = 32;

/// read_deck for YAML 1.2 (core schema), with `yes` and `no` as booleans in addition. Refuses type
/// tags, merge keys (<<), several documents and duplicate keys. Errors name the line.
std::vector<DeckSection> read_yaml(const std::string& text, const std::string& name);

}  // namespace ostrakon::config
