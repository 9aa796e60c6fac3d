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

/// The candidates that have all parts of `word`, or near ones: parts stand between '_'. Those of up
/// to three characters must be the same.
std::vector<std::string> with_parts_of(const std::string& word,
                                       const std::vector<std::string>& candidates);

/// "a", "a or b", "a, b or c" for the separators ", " and " or ".
std::string join(const std::vector<std::string>& words, const std::string& separator,
                 const std::string& last);

}  // namespace ostrakon::config
