// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace ostrakon::train {

/// The arguments of a command line without those of MPI and Kokkos.
using Arguments = std::vector<std::string>;

/// Starts MPI, then Kokkos on this rank's device; runs `body`; ends both. Returns the result of
/// `body`, which must be the same on all ranks, as the exit status. Exceptions become exit status 1
/// and one message from one rank: "<name>: error: <what>". Exceptions other than CollectiveError
/// may be one rank's alone: unless all ranks throw one within a second, a failed rank ends the
/// whole job, with "<name>: error on rank 3: <what>". If all throw, with different texts, the
/// message is rank 0's.
///
/// All ranks have to be started with the same program, version and arguments, except flags of
/// Kokkos. They compare these first; then rank 0 answers --help (`usage`) and --version. If nothing
/// has launched the process, that is done before MPI is started.
int run_program(const char* name, const char* usage, int argc, char** argv,
                const std::function<int(const Arguments&)>& body);

/// Ends the job with status 1 and one message, as an exception of one rank does in run_program. May
/// be called from any thread of a rank that can't go on, in whatever state the others are.
[[noreturn]] void end_job_alone(const std::string& why);

}  // namespace ostrakon::train
