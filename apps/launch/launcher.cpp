// SPDX-License-Identifier: Apache-2.0
#include "launcher.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <ostrakon/base/clock.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <thread>

namespace ostrakon::apps::launch_program {
namespace {

constexpr double grace_seconds = 5.0;  // between SIGTERM and SIGKILL

sigset_t handled_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal :
       {SIGUSR1, SIGUSR2, SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGTSTP, SIGCONT, SIGCHLD})
    sigaddset(&set, signal);
  return set;
}

/// Returns the parents of all processes that the system shows.
std::multimap<pid_t, pid_t> children_by_parent() {
  std::multimap<pid_t, pid_t> children;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry.path() / "stat");
    std::string line;
    std::getline(file, line);
    const std::size_t end = line.rfind(')');  // of the program's name, which may have blanks
    char state = 0;
    int parent = 0;
    if (end != std::string::npos &&
        std::sscanf(line.c_str() + end + 1, " %c %d", &state, &parent) == 2)
      children.emplace(parent, std::stoi(name));
  }
  return children;
}

void send_to_descendants(int signal) {
  const auto children = children_by_parent();
  std::vector<pid_t> parents = {::getpid()};
  while (!parents.empty()) {
    const auto [begin, end] = children.equal_range(parents.back());
    parents.pop_back();
    for (auto child = begin; child != end; ++child) {
      ::kill(child->second, signal);
      parents.push_back(child->second);
    }
  }
}

/// Becomes the command; writes errno to `report` where it can't.
[[noreturn]] void become(const std::vector<std::string>& command, const sigset_t& mask,
                         bool in_own_group, int report) {
  if (in_own_group) ::setpgid(0, 0);
  ::signal(SIGXFSZ, SIG_DFL);  // which programs of Ostrakon ignore
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  const int problem = errno;
  (void)!::write(report, &problem, sizeof problem);
  ::_exit(127);
}

}  // namespace

Launcher::Launcher(const std::vector<std::string>& command)
    : has_own_group_(::isatty(STDIN_FILENO) == 0) {
  // What the launcher leaves behind is a child of this process then, so that end() finds it.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  const sigset_t handled = handled_signals();
  sigset_t mask;
  ::sigprocmask(SIG_BLOCK, &handled, &mask);
  int ends[2];
  require(::pipe2(ends, O_CLOEXEC) == 0, "can't start ", shown(command[0]), ": ",
          std::strerror(errno));
  process_ = ::fork();
  if (process_ == 0) become(command, mask, has_own_group_, ends[1]);
  int problem = process_ < 0 ? errno : 0;
  ::close(ends[1]);
  if (process_ > 0 && ::read(ends[0], &problem, sizeof problem) <= 0) problem = 0;
  ::close(ends[0]);
  require(problem == 0, "can't start the launcher ", shown(command[0]), ": ",
          std::strerror(problem));
}

std::optional<int> Launcher::wait(double seconds) {
  const sigset_t handled = handled_signals();
  const double last = seconds_now() + seconds;
  for (double left = seconds; !status_ && left >= 0.0; left = last - seconds_now()) {
    std::timespec time = {};
    time.tv_sec = static_cast<std::time_t>(left);
    time.tv_nsec = static_cast<long>((left - static_cast<double>(time.tv_sec)) * 1e9);
    siginfo_t signal = {};
    const int got = ::sigtimedwait(&handled, &signal, &time);
    if (got == SIGCHLD)
      reap();
    else if (got > 0)
      pass_on(signal);
  }
  return status_;
}

int Launcher::end() {
  send_to_descendants(SIGTERM);
  if (!wait(grace_seconds)) {
    send_to_descendants(SIGKILL);
    while (!wait(grace_seconds)) {
    }
  }
  send_to_descendants(SIGKILL);
  for (int i = 0; i < 20 && ::waitpid(-1, nullptr, WNOHANG) >= 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  return *status_;
}

void Launcher::pass_on(const siginfo_t& signal) {
  const int number = signal.si_signo;
  if (number == SIGTERM || number == SIGINT || number == SIGQUIT || number == SIGHUP)
    was_asked_to_end_ = true;
  const bool is_from_terminal = signal.si_code == SI_KERNEL;
  if (!is_from_terminal || has_own_group_) ::kill(process_, number);
  // A shell waits until this process stops, too.
  if (number == SIGTSTP && is_from_terminal) ::kill(::getpid(), SIGSTOP);
}

void Launcher::reap() {
  int status = 0;
  for (pid_t ended = 0; (ended = ::waitpid(-1, &status, WNOHANG)) > 0;)
    if (ended == process_)
      status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace ostrakon::apps::launch_program
