// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/plan/description.hpp>
#include <vector>

#include "plan_fit_keys.hpp"
#include "plan_fit_request.hpp"

namespace ostrakon::apps::fit {

/// What is varied, each independently of the others, besides overlap; what is kept on the host
/// comes last, as it is the first thing to give up. No two choices of an axis make the same of the
/// deck.
std::vector<Choices> axes(const config::Settings& deck, const FitRequest& request);

/// How much runs ahead of compute or behind it: as the deck says, then what most have, then more,
/// some of it with a bound on what is gathered, then less.
Choices overlap_choices(std::int64_t gather_bytes);

/// Enough for two ordinary units, or for the largest visit alone: bytes of gathered parameters.
std::int64_t gather_bound(const plan::ModelDescription& model, int ranks);

}  // namespace ostrakon::apps::fit
