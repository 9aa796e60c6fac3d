// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/base/facts.hpp>
#include <ostrakon/comm/communicator.hpp>
#include <string>

// Checks that ranks agree: each rank states facts, which are compared with those of rank 0. All
// ranks take part in the same few messages whatever they state, so none waits for another.

namespace ostrakon::comm {

/// Returns "" if all ranks state the same facts as rank 0. Else a sentence, equal on all ranks, on
/// the lowest rank that differs and its first fact that differs:
///     the checksum is 17c0 on rank 3 (host b), 9f0c on rank 0 (host a)
/// Collective.
std::string disagreement(Communicator& world, const Facts& facts);

/// Throws CollectiveError with `about` and the sentence if there is a disagreement. Collective.
void require_agreement(Communicator& world, const std::string& about, const Facts& facts);

}  // namespace ostrakon::comm
