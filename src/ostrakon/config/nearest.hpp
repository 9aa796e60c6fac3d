// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace ostrakon::config {

/// The number of insertions, deletions, substitutions and swaps of neighbours that turn `a` into
/// `b` (the optimal string alignment distance).
int edit_distance(const std::string& a, const std::string& b);

/// Returns the candidate nearest to `word`, the first of several; empty if none is near enough for
/// a misspelling.
std::string nearest(const std::string& word, const std::vector<std::string>& candidates);

/// Returns the candidates that have all parts of `word`, or similar ones; '_' separates parts.
/// Parts of up to three characters must be equal.
std::vector<std::string> with_parts_of(const std::string& word,
                                       const std::vector<std::string>& candidates);

/// Joins words: "a", "a or b", "a, b or c" for the separators ", " and " or ".
std::string join(const std::vector<std::string>& words, const std::string& separator,
                 const std::string& last);

}  // namespace ostrakon::config
