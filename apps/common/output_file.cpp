// SPDX-License-Identifier: Apache-2.0
#include "output_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/base/files/input.hpp>
#include <ostrakon/base/format.hpp>
#include <set>

namespace ostrakon::apps {
namespace {

namespace fs = std::filesystem;

/// Whether a folder belongs to a run, also a finished one, which may continue meanwhile.
bool is_of_run(const fs::path& folder) {
  for (const char* const name : {"run.lock", "metrics.jsonl", "checkpoints"})
    if (is_there((folder / name).string())) return true;
  return false;
}

}  // namespace

void require_output(const std::string& option, const std::string& path) {
  require_expanded(text(option, " is ", shown(path)), path);
}

void require_reader(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
  require(descriptor >= 0 || errno != ENXIO, path, ": is a pipe without a reader");
  if (descriptor >= 0) ::close(descriptor);
}

void require_free_name(const std::string& path, bool overwrite) {
  const std::filesystem::file_type type = type_of_name(path);
  if (type == std::filesystem::file_type::not_found) return;
  require(!is_there(path) || !is_folder(path), "'", path,
          "' is a folder; expected a new name or, with --overwrite, a file");
  require(overwrite, "'", path, "' is there already; expected a new name, or --overwrite to ",
          "replace it");
}

void make_folder(const std::string& path) {
  std::error_code failure;
  if (!path.empty()) fs::create_directories(path, failure);
  require(!failure, "can't make folder '", path, "': ", failure.message());
}

void write_file(const std::string& path, const std::string& text) {
  require_reader(path);
  std::ofstream stream(path, std::ios::binary);
  require(stream.is_open(), path, ": can't be written: ", std::strerror(errno));
  stream << text;
  stream.close();
  require(stream.good(), path, ": can't be written to its end: ", std::strerror(errno));
}

std::vector<std::unique_ptr<FolderLock>> lock_run_folders(const std::string& out) {
  fs::path path = fs::absolute(out);
  if (path.filename().empty()) path = path.parent_path();  // the path is like "run/x/"
  const fs::path named = path.parent_path(), meant = fs::weakly_canonical(named);
  // Both the given path and its target are checked, as either may lead into a run's folder.
  std::set<fs::path> folders;
  for (const fs::path& of : {named, meant}) {
    const fs::path folder = of.filename() == "checkpoints" ? of.parent_path() : of;
    if (is_of_run(folder)) folders.insert(fs::canonical(folder));
  }
  FolderLockOptions options;
  options.advice = "; choose another OUT, or wait for its end";
  options.tell = [](const std::string& words) {
    std::cerr << "note: " << printable(words) << std::endl;
  };
  std::vector<std::unique_ptr<FolderLock>> locks;
  for (const fs::path& folder : folders)
    locks.push_back(std::make_unique<FolderLock>(folder.string(), options));
  return locks;
}

}  // namespace ostrakon::apps
