// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/trainer/program.hpp>

#include <mpi.h>
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/facts.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/version.hpp>
#include <ostrakon/comm/agreement.hpp>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/math/portability.hpp>
#include <ostrakon/trainer/job_termination.hpp>
#if OSTRAKON_HAS_DEVICE
#include <ostrakon/device/memory.hpp>
#endif

namespace ostrakon::train {
namespace {

int rank_among(MPI_Comm comm) {
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  return rank;
}

/// Returns the answer to --help or --version, whichever comes first; "" if there is neither.
std::string answer_to(const char* name, const char* usage, int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    for (const char* word : {"--help", "-h"})
      if (std::strcmp(argv[i], word) == 0) return usage;
    if (std::strcmp(argv[i], "--version") == 0) return text(name, " ", version(), "\n");
  }
  return "";
}

/// Returns the facts that all ranks of a job must share. Flags of Kokkos may differ by rank: its
/// device.
Facts start_facts(const char* name, int argc, char** argv) {
  std::string line;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind("--kokkos-", 0) == 0) continue;
    const bool is_plain =
        !argument.empty() && argument.find_first_of(" \t\n'\"\\") == std::string::npos;
    line += (line.empty() ? "" : " ") + (is_plain ? argument : "'" + argument + "'");
  }
  return {
      {"program", name}, {"version of Ostrakon", version()}, {"command line", "\"" + line + "\""}};
}

/// Starts Kokkos on this rank's share of the host's devices (`local`: its number on the host),
/// unless the user's flags choose one.
void start_kokkos(int& argc, char** argv, int local) {
#if defined(OSTRAKON_FAKE_DEVICE)
  const int devices = device::count();
  require(devices > 0, "no device");
  device::use(local % devices);
  Kokkos::initialize(argc, argv);
#elif OSTRAKON_HAS_DEVICE
  // A plan has up to nine streams. With CUDA's default of 8 hardware queues two of them would wait
  // for each other without need. A value that the user has set is kept.
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  const int devices = device::count();
  bool chosen = devices == 0;
  for (int i = 1; i < argc; ++i)
    chosen = chosen || std::strncmp(argv[i], "--kokkos-device-id", 18) == 0 ||
             std::strncmp(argv[i], "--kokkos-map-device-id-by", 25) == 0;
  std::string flag = "--kokkos-device-id=" + std::to_string(chosen ? 0 : local % devices);
  std::vector<char*> extended(argv, argv + argc);
  if (!chosen) extended.push_back(flag.data());
  int count = static_cast<int>(extended.size());
  extended.push_back(nullptr);
  Kokkos::initialize(count, extended.data());
  std::copy(extended.begin(), extended.begin() + count, argv);
  argc = count;
#else
  (void)local;
  Kokkos::initialize(argc, argv);
#endif
}

/// Returns the message for an exception `why` on this rank, and perhaps no other: others would wait
/// for this one forever, so the job ends here.
std::string message_of_ranks(const JobTermination& end, const char* name, const std::string& why) {
  const std::string mine = error_message(name, rank_among(MPI_COMM_WORLD), why);
  const Failures failures = end.failures(why);
  if (failures == Failures::of_some) end.alone(mine);
  return failures == Failures::same ? error_message(name, why) : mine;
}

/// The running program, for end_job_alone.
struct Running {
  const char* name = "ostrakon";
  const JobTermination* end = nullptr;
};
Running running;

}  // namespace

void end_job_alone(const std::string& why) {
  const std::string message = error_message(running.name, rank_among(MPI_COMM_WORLD), why);
  if (running.end != nullptr) running.end->alone(message);
  std::cerr << message << std::flush;
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}

int run_program(const char* name, const char* usage, int argc, char** argv,
                const std::function<int(const Arguments&)>& body) {
  ignore_sigxfsz();
  const std::string answer = answer_to(name, usage, argc, argv);
  JobTermination end;
  if (!answer.empty() && !end.launched()) {
    std::cout << answer;
    return 0;
  }
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  end.begin();
  running = {name, &end};
  try {
    comm::Communicator world = comm::Communicator::duplicate(MPI_COMM_WORLD);
    comm::require_agreement(world, "ranks were not started alike", start_facts(name, argc, argv));
  } catch (const std::exception& error) {
    return end.together(1, error_message(name, error.what()));
  }
  if (!answer.empty()) {
    if (rank_among(MPI_COMM_WORLD) == 0) std::cout << answer << std::flush;
    return end.together(0, "");
  }
  try {
    // If Kokkos fails to start, for a flag that it can't read or a device that does not exist, it
    // has started nothing.
    const int local = comm::Communicator::split_shared_memory(MPI_COMM_WORLD).rank();
    comm::Communicator::duplicate(MPI_COMM_WORLD).run_collectively([&] {
      start_kokkos(argc, argv, local);
    });
  } catch (const std::exception& error) {
    const std::string message = error.what();
    return end.together(
        1, error_message(name, "Kokkos can't start: " + message.substr(0, message.find('\n'))));
  }
  int status = 0;
  std::string message;
  try {
    status = body(Arguments(argv + 1, argv + argc));
  } catch (const CollectiveError& error) {
    message = error_message(name, error.what());
    status = 1;
  } catch (const std::exception& error) {
    message = message_of_ranks(end, name, error.what());
    status = 1;
  } catch (...) {
    message = message_of_ranks(end, name, "an exception of unknown type");
    status = 1;
  }
  Kokkos::finalize();
  return end.together(status, message);
}

}  // namespace ostrakon::train
