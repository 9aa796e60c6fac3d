// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/trainer/program.hpp>
#include <string>
#include <vector>

namespace ostrakon::apps {

using train::Arguments;
using train::run_program;

/// Exit status of a run that was stopped early and can be resumed: EX_TEMPFAIL, on which batch
/// systems can be configured to requeue.
constexpr int status_requeue = 75;

/// Returns a deck's text. Throws Error if the file can't be read.
std::string read_file(const std::string& path);

/// Rank 0 reads the file, all ranks parse it. Collective. Throws CollectiveError.
config::Settings read_deck(comm::Communicator& world, const std::string& path,
                           const std::vector<config::Override>& overrides);

}  // namespace ostrakon::apps
