// SPDX-License-Identifier: Apache-2.0
#include "run_in_use.hpp"

#include <filesystem>
#include <iostream>
#include <ostrakon/base/files/file_type.hpp>
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
