// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/base/process.hpp>

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace ostrakon {
namespace {

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

std::string host_name() {
  char name[256] = "";
  // POSIX may leave a name that was cut without its end.
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
  // The second field is the program's name in brackets, which may hold anything.
  const std::size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return -1;
  std::istringstream fields(line.substr(name_end + 1));
  constexpr int fields_between = 19;
  std::string skipped;
  for (int i = 0; i < fields_between; ++i) fields >> skipped;
  std::int64_t start = -1;
  return fields >> start ? start : -1;
}

bool is_no_process(std::int64_t process) {
  return kill(static_cast<pid_t>(process), 0) != 0 && errno == ESRCH;
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

std::string utc_time() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char written[32] = "";
  std::strftime(written, sizeof written, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return written;
}

}  // namespace ostrakon
