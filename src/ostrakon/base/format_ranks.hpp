// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace ostrakon {

/// Formats ascending numbers of ranks, at least one, in which neighbours are joined: "rank 5",
/// "ranks 0-3, 7".
std::string format_ranks(const std::vector<int>& ranks);

}  // namespace ostrakon
