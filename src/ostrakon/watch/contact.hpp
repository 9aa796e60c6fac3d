// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/watch/channel.hpp>
#include <string>

namespace ostrakon::watch {

/// What ranks tell each other at the start, as text.
struct Contact {
  std::uint64_t token = 0;  ///< rank 0's is that of the job
  int rank_in_plans = 0;
  std::string host;
  Address address;
  std::string trouble;  ///< why this rank can't be watched; empty: it can

  std::string to_text() const;
  static Contact of_text(const std::string& text);
};

}  // namespace ostrakon::watch
