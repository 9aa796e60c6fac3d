// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace ostrakon {

/// Bytes in the largest binary unit that keeps the number at least 1: "512 B", "3.25 GiB".
std::string format_bytes(std::int64_t bytes);

/// A count with thousands separators: "8,030,261,248".
std::string format_count(std::int64_t count);

/// Sixteen lower-case hexadecimal digits.
std::string format_hex(std::uint64_t value);

}  // namespace ostrakon
