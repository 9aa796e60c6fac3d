// SPDX-License-Identifier: Apache-2.0
#pragma once

// What writing and reading a manifest's text have in common; for manifest*.cpp alone.

#include <cstdint>
#include <ostrakon/checkpoint/manifest.hpp>
#include <string>
#include <vector>

namespace ostrakon::checkpoint {

constexpr const char* manifest_format = "ostrakon-checkpoint";
constexpr std::int64_t manifest_version = 1;

/// Where the sixteen digits of a manifest's own checksum begin; npos where there are none near its
/// beginning.
std::size_t checksum_place(const std::string& manifest);
constexpr std::size_t checksum_digits = 16;

/// XXH3 (64 bits) of a manifest that has such a place, with zeros in it.
std::uint64_t checksum_of_text(const std::string& manifest);

/// What a parameter's line says for other readers, besides what ParameterEntry has.
struct ParameterRow {
  DType type{};             ///< of the parameters
  std::int64_t offset = 0;  ///< its first element, where all parameters are one array
};

/// Throws Error, which begins with `title`, where a manifest contradicts itself, or counts further
/// than any run gets. Each number in it has been read by then: extents and counts are positive, the
/// rest is not negative.
void check_manifest(const Manifest& manifest, const std::vector<ParameterRow>& rows,
                    const std::string& title);

}  // namespace ostrakon::checkpoint
