// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/config/deck.hpp>
#include <string>
#include <vector>

namespace ostrakon::apps {

/// What is left of a command line after MPI and Kokkos took theirs.
using Arguments = std::vector<std::string>;

/// Exit status of a run that was stopped early and can be resumed: EX_TEMPFAIL, on which batch
/// systems can be set to requeue.
constexpr int status_requeue = 75;

/// Starts MPI, then Kokkos on this rank's device; runs `body`; ends both. Returns what `body` does,
/// which is the same on all ranks, as the exit status. Exceptions become exit
/// status 1 and one message from one rank: "<name>: error: <what>". An exception that is not sure
/// to have been thrown by all ranks ends the whole job at once.
///
/// All ranks have to be started alike, but for flags of Kokkos: the same program, version and
/// arguments. They compare that before anything else, and --help (`usage`) and --version are
/// answered then, by rank 0; where nothing has launched the process, before MPI is started.
int run_program(const char* name, const char* usage, int argc, char** argv,
                const std::function<int(const Arguments&)>& body);

/// A deck's text. Throws Error where the file can't be read.
std::string read_file(const std::string& path);

/// Collective: rank 0 reads the file, all ranks the settings in it. Throws AgreedError.
config::Settings read_deck(comm::Communicator& world, const std::string& path,
                           const std::vector<config::Override>& overrides);

}  // namespace ostrakon::apps
