// SPDX-License-Identifier: Apache-2.0
#include "command.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <stdexcept>
#include <thread>

#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "../support/scratch_folder.hpp"

extern char** environ;

namespace ostrakon::testing {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Both ends close when a program is started, so that no command holds another's pipe open.
class Pipe {
 public:
  Pipe() {
    if (pipe2(ends_.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  int read_end() const { return ends_[0]; }
  int write_end() const { return ends_[1]; }
  void close_end(int end) {
    if (ends_[end] >= 0) ::close(ends_[end]);
    ends_[end] = -1;
  }

 private:
  std::array<int, 2> ends_{-1, -1};
};

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const std::string& one : texts) result.push_back(const_cast<char*>(one.c_str()));
  result.push_back(nullptr);
  return result;
}

std::vector<std::string> environment_with(
    const std::vector<std::pair<std::string, std::string>>& added) {
  std::vector<std::string> result;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    bool replaced = false;
    for (const auto& one : added) replaced = replaced || text.rfind(one.first + "=", 0) == 0;
    if (!replaced) result.push_back(text);
  }
  for (const auto& one : added) result.push_back(one.first + "=" + one.second);
  return result;
}

/// Between fork and exec only what is safe in a copy of one thread of many.
[[noreturn]] void become(char** arguments, char** environment, const char* folder, int in, int out,
                         int err) {
#ifdef __linux__
  prctl(PR_SET_PDEATHSIG, SIGTERM);  // a test that is ended takes its commands along
#endif
  if (in < 0) in = open("/dev/null", O_RDONLY);
  if (chdir(folder) == 0 && dup2(in, 0) == 0 && dup2(out, 1) == 1 && dup2(err, 2) == 2)
    execvpe(arguments[0], arguments, environment);
  _exit(127);
}

/// Reads what there is. False at the end.
bool drain(int descriptor, std::string& text) {
  std::array<char, 4096> buffer;
  const ssize_t count = ::read(descriptor, buffer.data(), buffer.size());
  if (count > 0) text.append(buffer.data(), static_cast<std::size_t>(count));
  return count > 0;
}

/// Collects both outputs until both end; asks the command to end at its time limit, and makes it
/// end a little later.
void collect(pid_t process, const Command& command, int out, int err, Outcome& outcome) {
  const Clock::time_point begin = Clock::now();
  std::array<pollfd, 2> watched = {pollfd{out, POLLIN, 0}, pollfd{err, POLLIN, 0}};
  constexpr double grace = 5.0;
  while (watched[0].fd >= 0 || watched[1].fd >= 0) {
    ::poll(watched.data(), watched.size(), 100);
    if (watched[0].revents != 0 && !drain(out, outcome.out)) watched[0].fd = -1;
    if (watched[1].revents != 0 && !drain(err, outcome.err)) watched[1].fd = -1;
    const double seconds = seconds_since(begin);
    if (seconds > command.time_limit && !outcome.timed_out) {
      outcome.timed_out = true;
      ::kill(process, SIGTERM);  // mpiexec ends its ranks, a single one is asked
    }
    if (seconds > command.time_limit + grace) {
      ::kill(process, SIGKILL);
      return;
    }
  }
}

}  // namespace

Outcome run_command(const Command& command) {
  // Files of Open MPI 4 are of this command alone: jobs without mpiexec all have the same name.
  const ScratchFolder folder_of_mpi;
  std::vector<std::pair<std::string, std::string>> added = command.environment;
  added.emplace_back("OMPI_MCA_orte_tmpdir_base", folder_of_mpi.file(""));
  const std::vector<std::string> environment = environment_with(added);
  const std::vector<char*> argument_pointers = pointers(command.arguments);
  const std::vector<char*> environment_pointers = pointers(environment);
  Pipe out, err;
  Outcome outcome;
  const Clock::time_point begin = Clock::now();
  const pid_t process = fork();
  if (process < 0) throw std::runtime_error("can't fork");
  if (process == 0)
    become(const_cast<char**>(argument_pointers.data()),
           const_cast<char**>(environment_pointers.data()), command.folder.c_str(), command.input,
           out.write_end(), err.write_end());
  out.close_end(1);
  err.close_end(1);
  collect(process, command, out.read_end(), err.read_end(), outcome);
  int status = 0;
  waitpid(process, &status, 0);
  outcome.seconds = seconds_since(begin);
  if (WIFEXITED(status)) outcome.status = WEXITSTATUS(status);
  if (outcome.status == 127)
    throw std::runtime_error("can't run " + command.arguments[0] + " in " + command.folder);
  return outcome;
}

Command mpi_job(const std::string& name, int ranks, std::vector<std::string> arguments,
                const std::string& folder) {
  Command command;
  command.arguments = {OSTRAKON_MPIEXEC, OSTRAKON_MPIEXEC_NUMPROC_FLAG, std::to_string(ranks),
                       OSTRAKON_APPS_DIR "/" + name};
  for (std::string& argument : arguments) command.arguments.push_back(std::move(argument));
  command.folder = folder;
  // Open MPI's mpiexec waits for seconds where a rank has failed; nobody reads along here.
  command.environment = {{"OMPI_MCA_odls_base_sigkill_timeout", "0"}};
  return command;
}

Command program(const std::string& name, int ranks, std::vector<std::string> arguments,
                const std::string& folder) {
  Command command = mpi_job(name, ranks, std::move(arguments), folder);
  if (ranks > 1) return command;
  command.arguments.erase(command.arguments.begin(), command.arguments.begin() + 3);
  // Open MPI 4 starts a daemon of its own for it otherwise.
  command.environment = {{"OMPI_MCA_ess_singleton_isolated", "1"}};
  return command;
}

std::vector<pid_t> processes_in(const std::string& name, const std::string& folder) {
  namespace fs = std::filesystem;
  std::vector<pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string number = entry.path().filename().string();
    if (number.find_first_not_of("0123456789") != std::string::npos) continue;
    std::error_code error;
    const fs::path where = fs::read_symlink(entry.path() / "cwd", error);
    if (error || !fs::equivalent(where, folder, error) || error) continue;
    std::string title;
    std::getline(std::ifstream(entry.path() / "comm"), title);
    if (title == name) found.push_back(std::stoi(number));
  }
  return found;
}

void in_parallel(int count, const std::function<void(int)>& work, int at_once) {
  std::atomic<int> next{0};
  std::exception_ptr failure;
  std::mutex guard;
  const auto some = [&] {
    for (int i = next++; i < count; i = next++) {
      try {
        work(i);
      } catch (...) {
        const std::lock_guard<std::mutex> lock(guard);
        failure = std::current_exception();
      }
    }
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < at_once; ++t) threads.emplace_back(some);
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace ostrakon::testing
