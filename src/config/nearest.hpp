// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace ostrakon::config {

/// Insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b` (the optimal
/// string alignment distance).
int edit_distance(const std::string& a, const std::string& b);

/// The candidate nearest to `word`, the first of several; empty if none is near enough to be what
/// was meant.
std::string nearest(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace ostrakon::config
