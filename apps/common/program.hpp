// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/comm/communicator.hpp>

#include "options.hpp"

namespace ostrakon::apps {

/// Runs a program with MPI and Kokkos, see train::run_program. All ranks parse the command line.
int run_program(const Program& program, int argc, char** argv,
                const std::function<int(comm::Communicator& world, const Given& given)>& body);

/// Runs the command of a program of one process, without MPI and Kokkos. Returns its exit status,
/// or 1 with one message if it throws or its output could not be written.
int run_serial_program(const Program& program, int argc, char** argv);

/// Returns a deck's text. Throws Error if the file can't be read.
std::string read_file(const std::string& path);

/// Rank 0 reads the file, all ranks parse it. Collective. Throws CollectiveError.
config::Settings read_deck(comm::Communicator& world, const std::string& path,
                           const std::vector<config::Override>& overrides);

/// Writes each line to the standard error, as a warning of a program about a file.
void warn(const char* program, const std::string& path, const std::vector<std::string>& lines);

/// A count and its noun: "1 file", "1,234 files".
std::string counted(std::int64_t count, const std::string& noun);

}  // namespace ostrakon::apps
