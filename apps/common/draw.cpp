// SPDX-License-Identifier: Apache-2.0
#include "draw.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/new_file.hpp>
#include <ostrakon/base/shell_word.hpp>

#include "neighbour.hpp"
#include "output_file.hpp"

namespace ostrakon::apps {
namespace {

constexpr const char* drawing_program = "ostrakon-report";

/// A command that was run.
struct Ended {
  bool is_good = false;
  std::string last_line;  ///< of its standard error
};

std::string last_line(const std::string& text) {
  const std::size_t end = text.find_last_not_of("\r\n");
  if (end == std::string::npos) return "";
  const std::size_t before = text.find_last_of('\n', end);
  return text.substr(before == std::string::npos ? 0 : before + 1, end - before);
}

/// Runs a command whose standard output is this program's.
Ended run(std::vector<std::string> command) {
  int ends[2];
  require(::pipe2(ends, O_CLOEXEC) == 0, "can't start ", command[0], ": ", std::strerror(errno));
  std::vector<char*> arguments;
  for (std::string& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  ::pid_t child = 0;
  const int problem =
      ::posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  std::string errors;
  char part[4096];
  ::ssize_t bytes = 0;
  while (problem == 0 && ((bytes = ::read(ends[0], part, sizeof part)) > 0 || errno == EINTR)) {
    if (bytes > 0) errors.append(part, static_cast<std::size_t>(bytes));
    errno = 0;
  }
  ::close(ends[0]);
  if (problem != 0) return {false, text(command[0], ": ", std::strerror(problem))};
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return {WIFEXITED(status) && WEXITSTATUS(status) == 0, last_line(errors)};
}

void run_package(const std::vector<std::string>& arguments, const std::string& output) {
  std::vector<std::string> command = {neighbour(drawing_program)};
  command.insert(command.end(), arguments.begin(), arguments.end());
  const Ended ended = run(command);
  command[0] = drawing_program;
  std::string line;
  for (const std::string& word : command) line += " " + shell_word(word);
  require(ended.is_good, "can't draw ", shown(output), ": ", printable(ended.last_line),
          "; the Python package ostrakon_report draws it (docs/pictures.md):", printable(line));
}

}  // namespace

void draw(const Picture& picture, const std::string& path, const std::string& format) {
  require_reader(path);
  const std::filesystem::file_type type = type_of(path);
  const bool is_file =
      type == std::filesystem::file_type::regular || type == std::filesystem::file_type::not_found;
  std::string folder;  // for the JSON of what is no file
  if (!is_file) {
    folder = (std::filesystem::temp_directory_path() / "ostrakon-XXXXXX").string();
    require(::mkdtemp(folder.data()) != nullptr, folder, ": ", std::strerror(errno));
  }
  const std::string json = is_file ? path + ".json" : folder + "/" + picture.command + ".json";
  replace_file(json, picture.json);
  std::vector<std::string> arguments = {picture.command, json, "-o", path};
  if (!picture.trace.empty()) arguments.insert(arguments.begin() + 2, picture.trace);
  if (std::filesystem::path(path).extension() != "." + format)
    arguments.insert(arguments.end(), {"--format", format});
  if (!picture.title.empty()) arguments.insert(arguments.end(), {"--title", picture.title});
  run_package(arguments, path);
  if (!is_file) std::filesystem::remove_all(folder);
}

void draw_file(const std::string& command, const std::string& json,
               const std::vector<std::string>& outputs) {
  std::vector<std::string> arguments = {command, json};
  for (const std::string& output : outputs) arguments.insert(arguments.end(), {"-o", output});
  run_package(arguments, outputs.front());
}

}  // namespace ostrakon::apps
