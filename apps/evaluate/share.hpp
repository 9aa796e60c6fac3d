// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/config/settings.hpp>
#include <string>
#include <vector>

#include "job.hpp"

// How ranks come to share an evaluation.

namespace ostrakon::apps {

/// Gives all ranks the sequences of the jobs that rank 0 has read. Collective.
void share_jobs(comm::Communicator& world, std::vector<Job>& jobs);

/// Tokens from which the last one of the longest sequence is predicted, in a form that ranks can
/// divide: a multiple of 64 where it is more. A token file needs all that there are.
std::int64_t context_for(const std::vector<Job>& jobs);

/// Throws Error for a key that an evaluation does not have: the model is that of the weights, and
/// nothing is trained.
void require_settable(const std::vector<config::Override>& overrides);

/// Returns the settings of an evaluation of this model on `ranks` ranks: see
/// evaluate::evaluation_settings. Throws Error for settings that contradict each other.
config::Settings settings_of_run(const config::Settings& model,
                                 const std::vector<config::Override>& overrides, int ranks);

}  // namespace ostrakon::apps
