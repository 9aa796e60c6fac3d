// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace ostrakon {

/// A named value that two sides must agree on: {"checksum", "9f0c..."}. Start-up settings of ranks,
/// the identity of data, and all that determines the bits of kernels are lists of facts, compared
/// by first_difference().
struct Fact {
  std::string name;
  std::string value;
};
using Facts = std::vector<Fact>;

/// The first fact, in the order of `ours`, whose value differs in `theirs`; if there is none, the
/// first fact that only `theirs` have. A missing fact has the value "nothing".
struct FactDifference {
  std::string name, ours, theirs;
};
std::optional<FactDifference> first_difference(const Facts& ours, const Facts& theirs);

/// pack_facts() returns facts, which may hold any bytes, as text to send between processes;
/// unpack_facts() reads it. Throws Error for text of another form.
std::string pack_facts(const Facts& facts);
Facts unpack_facts(const std::string& packed);

}  // namespace ostrakon
