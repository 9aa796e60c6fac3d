// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/train/tidy_folder.hpp>

#include <filesystem>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/file_type.hpp>
#include <ostrakon/base/files.hpp>

namespace ostrakon::train {

namespace fs = std::filesystem;

bool is_in_folder(const std::string& checkpoint, const checkpoint::Folder& folder) {
  if (!is_folder(folder.path())) return false;
  std::error_code problem;
  // By its name: the checkpoint itself may be a link to an archive. But `latest` is one to another
  // name.
  const fs::path name = fs::path(checkpoint).lexically_normal();
  const fs::path real = name.filename() == "latest" ? fs::canonical(name, problem) : name;
  require(!problem, "can't look at '", checkpoint, "': ", problem.message());
  return are_same(parent_folder(real.string()), folder.path());
}

std::vector<std::string> tidy_folder(const checkpoint::Folder& folder,
                                     const std::vector<std::string>& damaged,
                                     std::optional<std::int64_t> restored) {
  std::vector<std::string> lines;
  try {
    for (const std::string& path : damaged)
      if (is_in_folder(path, folder))
        lines.push_back("renamed to " + folder.set_damaged_aside(path));
  } catch (const Error& error) {
    lines.emplace_back(error.what());
  }
  for (const std::string& path : folder.remove_partial()) lines.push_back("renamed to " + path);
  try {
    // Which may not have been pointed to when the last run was interrupted.
    if (restored) folder.mark_latest(*restored);
  } catch (const Error& error) {
    lines.emplace_back(error.what());
  }
  return lines;
}

}  // namespace ostrakon::train
