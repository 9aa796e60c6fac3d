// SPDX-License-Identifier: Apache-2.0
#pragma once

// Shared by the reader and writer of a manifest's text. Only manifest*.cpp include this file.

#include <cstdint>
#include <ostrakon/checkpoint/manifest.hpp>
#include <string>
#include <vector>

namespace ostrakon::checkpoint {

constexpr const char* manifest_format = "ostrakon-checkpoint";
constexpr std::int64_t manifest_version = 1;

/// Returns where the 16 digits of a manifest's own checksum begin; npos if there are none near its
/// beginning.
std::size_t checksum_place(const std::string& manifest);
constexpr std::size_t checksum_digits = 16;

/// XXH3 (64 bits) of a manifest, with zeros in place of its checksum.
std::uint64_t checksum_of_text(const std::string& manifest);

/// Redundant values of a parameter for other readers, in addition to ParameterEntry.
struct ParameterRow {
  DType type{};             ///< dtype of the parameter
  std::int64_t offset = 0;  ///< first element if all parameters are concatenated
};

/// Throws Error, beginning with `title`, if a manifest contradicts itself, or has counts beyond
/// those of any run. Its numbers must have been checked: extents and counts are positive, others
/// not negative.
void check_manifest(const Manifest& manifest, const std::vector<ParameterRow>& rows,
                    const std::string& title);

}  // namespace ostrakon::checkpoint
