// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <ostrakon/data/dataset.hpp>
#include <ostrakon/data/token_file.hpp>

namespace ostrakon::data {

/// Returns samples of whole documents of a file, as Packing packs them, which do not see each
/// other: each epoch has the same samples in another order. Places that are left at the end of a
/// sample are padding: token 0, which does not count, and is a document of its own in each place.
/// Throws Error if no document has two tokens.
std::unique_ptr<Dataset> open_packed(TokenFile file, Split split, std::int64_t sequence_length,
                                     std::uint64_t seed);

}  // namespace ostrakon::data
