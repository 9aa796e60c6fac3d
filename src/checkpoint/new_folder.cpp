// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files.hpp>
#include <ostrakon/checkpoint/new_folder.hpp>

namespace ostrakon::checkpoint {

namespace fs = std::filesystem;

namespace {

/// "a/b" of "a/b/".
std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

NewFolder::NewFolder(const std::string& path) : path_(without_slashes(path)) {
  const fs::path name = fs::path(path_).filename();
  require(!name.empty() && name != "." && name != "..", "'", path, "' is no name of a new folder");
  std::error_code failure;
  const bool is_there = fs::exists(fs::symlink_status(path_, failure));
  require(!is_there || (fs::is_directory(fs::symlink_status(path_, failure)) &&
                        fs::is_empty(path_, failure)),
          "'", path_, "' is there already; expected a new name or an empty folder");
  const std::string partial = path_ + ".partial";
  fs::remove_all(partial, failure);
  require(!failure, "can't remove '", partial, "': ", failure.message());
  fs::create_directories(partial, failure);
  require(!failure, "can't make the folder '", partial, "': ", failure.message());
  partial_ = partial;
}

NewFolder::~NewFolder() {
  std::error_code ignored;
  if (!partial_.empty()) fs::remove_all(partial_, ignored);
}

void NewFolder::commit() {
  sync_folder(partial_);
  rename_file(partial_, path_);
  partial_.clear();
}

}  // namespace ostrakon::checkpoint
