// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/preflight/check.hpp>
#include <string>

namespace ostrakon::testing {

/// A table without answers of `ranks` ranks, each `per_host` of them on a host n0, n1, ...
inline preflight::Table table_of(int ranks, int per_host) {
  preflight::Table table;
  table.answers.resize(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank)
    table.hosts.push_back("n" + std::to_string(rank / per_host));
  return table;
}

inline preflight::Answer& answer_of(preflight::Table& table, int rank) {
  return table.answers[static_cast<std::size_t>(rank)];
}

}  // namespace ostrakon::testing
