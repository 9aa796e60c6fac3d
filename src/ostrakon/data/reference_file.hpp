// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/base/facts.hpp>
#include <string>
#include <vector>

namespace ostrakon::data {

// A file of the reference's log-probabilities, `ostrakon-reference` version 1, is an HDF5 file:
//   /log_probabilities (pairs, 2) float32: of the chosen answer of each pair of a token file, and
//                                 of the rejected one, natural logarithms
// Attributes of the root group: format, version; reference: a JSON object of texts, which are the
// facts that identify the reference; `log_probabilities_checksum` (XXH3, 64 bits); and the facts
// that identify the token file: dataset, checksum, "number of tokens", vocabulary, tokenizer,
// "checksum of its loss mask".

/// The reference's log-probabilities of all pairs of a token file.
struct References {
  Facts model;                           ///< of which weights and settings they are
  std::vector<float> log_probabilities;  ///< (pairs, 2), row by row
};

/// Writes such a file, replacing another one once it is complete. `pairs`:
/// PairDataset::identity_of_file(). Throws Error.
void write_references(const std::string& path, const Facts& pairs, const References& references);

/// Reads and checks a file. Throws Error where it is damaged or, with both values, where it is of
/// other pairs.
References read_references(const std::string& path, const Facts& pairs);

}  // namespace ostrakon::data
