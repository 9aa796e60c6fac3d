// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/base/process.hpp>

#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <ostrakon/base/print.hpp>
#include <set>

namespace ostrakon {
namespace {

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

std::string host_name() {
  char name[256] = "";
  // POSIX allows that a truncated name has no terminating zero.
  if (gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "?";
  return name;
}

std::string boot_id() {
  std::string id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), id);
  return id;
}

std::string process_namespace() {
  std::error_code none;
  return std::filesystem::read_symlink("/proc/self/ns/pid", none).string();
}

std::int64_t process_start(std::int64_t process) {
  std::ifstream stream("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  std::getline(stream, line);
  // The second field is the program's name in parentheses, which may contain any character.
  const std::size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return -1;
  TextReader fields(line.substr(name_end + 1));
  constexpr int fields_between = 19;
  std::string skipped;
  for (int i = 0; i < fields_between; ++i) fields >> skipped;
  std::int64_t start = -1;
  return fields >> start ? start : -1;
}

bool is_no_process(std::int64_t process) {
  return kill(static_cast<pid_t>(process), 0) != 0 && errno == ESRCH;
}

std::set<int> allowed_cores() {
  // The kernel refuses a mask smaller than its own, and doesn't report its size.
  for (std::size_t size = 1024; size <= (1U << 18); size *= 4) {
    cpu_set_t* mask = CPU_ALLOC(size);
    if (mask == nullptr) break;
    const std::size_t bytes = CPU_ALLOC_SIZE(size);
    std::set<int> cores;
    const bool known = sched_getaffinity(0, bytes, mask) == 0;
    for (std::size_t core = 0; known && core < size; ++core)
      if (CPU_ISSET_S(core, bytes, mask)) cores.insert(static_cast<int>(core));
    CPU_FREE(mask);
    if (known) return cores;
  }
  return {};
}

std::string batch_job() {
  struct System {
    const char *title, *variable;
  };
  for (const System& system : {System{"Slurm", "SLURM_JOB_ID"}, System{"PBS", "PBS_JOBID"},
                               System{"Flux", "FLUX_JOB_ID"}}) {
    const std::string id = environment(system.variable);
    if (!id.empty()) return std::string(system.title) + " job " + id;
  }
  return "";
}

std::optional<StartedTogether> started_together() { return started_together(environment); }

std::optional<StartedTogether> started_together(
    const std::function<std::string(const char* name)>& variable) {
  struct Says {
    const char *starter, *name;
    bool is_rank;
  };
  // Variables of MPI launchers come before those of Slurm steps, which their processes inherit.
  for (const Says& one :
       {Says{"mpiexec", "OMPI_COMM_WORLD_SIZE", false}, Says{"mpiexec", "PMI_SIZE", false},
        Says{"mpiexec", "PALS_RANKID", true}, Says{"flux run", "FLUX_JOB_SIZE", false},
        Says{"srun", "SLURM_STEP_NUM_TASKS", false}, Says{"a launcher", "PMIX_RANK", true}}) {
    const std::string value = variable(one.name);
    std::int64_t number = -1;
    const char* const end = value.data() + value.size();
    const auto [stopped, failure] = std::from_chars(value.data(), end, number);
    if (failure != std::errc() || stopped != end) continue;
    // Rank 0 may be the only rank.
    if (one.is_rank && number == 0) continue;
    const std::int64_t processes = one.is_rank ? number + 1 : number;
    if (processes <= 1) return std::nullopt;
    return StartedTogether{one.starter, processes, one.is_rank, one.name, value};
  }
  return std::nullopt;
}

std::string utc_time() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char written[32] = "";
  std::strftime(written, sizeof written, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return written;
}

}  // namespace ostrakon
