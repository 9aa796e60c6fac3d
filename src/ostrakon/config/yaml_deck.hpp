// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/config/value.hpp>
#include <string>
#include <vector>

namespace ostrakon::config {

/// The one root of every deck.
constexpr const char* root_name = "ostrakon";

/// Deeper than any deck is, and shallow enough for a parser that calls itself.
constexpr int deepest_nesting = 32;

/// read_deck of YAML 1.2 (core schema), with `yes` and `no` as booleans besides. Type tags, merge
/// keys (<<), several documents and keys given twice are refused. Errors name the line.
std::vector<DeckSection> read_yaml(const std::string& text, const std::string& name);

}  // namespace ostrakon::config
