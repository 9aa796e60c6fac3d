// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace ostrakon {

/// Something that two sides must have in common, with the value of one of them: {"checksum",
/// "9f0c..."}. What ranks are started with, what identifies data, what determines the bits of
/// kernels are lists of such facts, compared by first_difference().
struct Fact {
  std::string name;
  std::string value;
};
using Facts = std::vector<Fact>;

/// The first fact, in the order of `ours`, that is not the same in `theirs`; then one that only
/// `theirs` have. A fact that a side lacks has the value "nothing" there.
struct FactDifference {
  std::string name, ours, theirs;
};
std::optional<FactDifference> first_difference(const Facts& ours, const Facts& theirs);

/// Facts as text between processes, any bytes in it; and back. Throws Error where it is no such
/// text.
std::string pack_facts(const Facts& facts);
Facts unpack_facts(const std::string& packed);

}  // namespace ostrakon
