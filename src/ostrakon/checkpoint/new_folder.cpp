// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/new_folder.hpp>

#include <filesystem>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/files.hpp>

namespace ostrakon::checkpoint {

namespace fs = std::filesystem;

NewFolder::NewFolder(const std::string& path) : path_(without_slashes(path)) {
  const fs::path name = fs::path(path_).filename();
  require(!name.empty() && name != "." && name != "..", "'", path, "' is no name of a new folder");
  std::error_code failure;
  const fs::file_type type = fs::symlink_status(path_, failure).type();
  require(type != fs::file_type::none, "can't read '", path_, "': ", failure.message());
  failure.clear();
  const bool is_free = type == fs::file_type::not_found ||
                       (type == fs::file_type::directory && fs::is_empty(path_, failure));
  require(!failure, "can't read folder '", path_, "': ", failure.message());
  require(is_free, "'", path_, "' is there already; expected a new name or an empty folder");
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
