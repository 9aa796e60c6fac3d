// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/base/facts.hpp>
#include <string>
#include <vector>

namespace ostrakon::data {

// A file of the reference's log-probabilities, `ostrakon-reference` version 1, is an HDF5 file:
//   /log_probabilities (pairs, 2) float32: of the chosen answer of each pair of a token file, and
//                                 of the rejected one, natural logarithms
// Attributes of the root group: format, version; "hash of weights", of those that the reference
// has; `log_probabilities_checksum` (XXH3, 64 bits); and the facts that identify the token file:
// dataset, checksum, "number of tokens", vocabulary, tokenizer, "checksum of its loss mask".

/// What log-probabilities are of.
struct ReferenceOrigin {
  Facts data;           ///< PairDataset::identity_of_file()
  std::string weights;  ///< hash of the reference's weights; empty: not known, and not compared
};

/// Writes such a file, replacing another one once it is complete. `log_probabilities`: (pairs, 2),
/// row by row. Throws Error.
void write_references(const std::string& path, const ReferenceOrigin& origin,
                      const std::vector<float>& log_probabilities);

/// Reads and checks a file. Throws Error, with both values, where it is of another origin.
std::vector<float> read_references(const std::string& path, const ReferenceOrigin& origin);

}  // namespace ostrakon::data
