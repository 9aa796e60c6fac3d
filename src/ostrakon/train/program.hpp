// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace ostrakon::train {

/// What is left of a command line after MPI and Kokkos took theirs.
using Arguments = std::vector<std::string>;

/// Starts MPI, then Kokkos on this rank's device; runs `body`; ends both. Returns what `body` does,
/// which is the same on all ranks, as the exit status. Exceptions become exit
/// status 1 and one message from one rank: "<name>: error: <what>". Exceptions other than
/// AgreedError may be one rank's alone: unless all ranks throw one within a second, a rank that has
/// ends the whole job, with "<name>: error on rank 3: <what>". Where all do, with different texts,
/// the message is that of rank 0.
///
/// All ranks have to be started alike, but for flags of Kokkos: the same program, version and
/// arguments. They compare that before anything else, and --help (`usage`) and --version are
/// answered then, by rank 0; where nothing has launched the process, before MPI is started.
int run_program(const char* name, const char* usage, int argc, char** argv,
                const std::function<int(const Arguments&)>& body);

/// From any thread of a rank that can't go on, while others do whatever they do: ends the job with
/// status 1 and one message from one such rank, as an exception of one rank does in run_program.
[[noreturn]] void end_job_alone(const std::string& why);

}  // namespace ostrakon::train
