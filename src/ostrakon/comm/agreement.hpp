// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/base/facts.hpp>
#include <ostrakon/comm/communicator.hpp>
#include <string>

// Where ranks must have something alike, each states it as facts, and those of rank 0 are what the
// others are compared with. All ranks take part in the same few messages whatever they state, so
// none waits for another one.

namespace ostrakon::comm {

/// Empty where all ranks state what rank 0 does. Else a sentence on the first fact in which the
/// lowest rank that differs does so, the same on all ranks:
///     the checksum is 17c0 on rank 3 (host b), 9f0c on rank 0 (host a)
/// Collective.
std::string disagreement(Communicator& world, const Facts& facts);

/// Throws AgreedError where there is a disagreement: `about`, and the sentence. Collective.
void require_agreement(Communicator& world, const std::string& about, const Facts& facts);

}  // namespace ostrakon::comm
