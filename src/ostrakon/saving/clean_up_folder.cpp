// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/saving/clean_up_folder.hpp>

#include <filesystem>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/base/files/files.hpp>
#include <system_error>

namespace ostrakon::train {

namespace fs = std::filesystem;

bool is_in_folder(const std::string& checkpoint, const checkpoint::Folder& folder) {
  if (!is_folder(folder.path())) return false;
  std::error_code problem;
  // The checkpoint is compared by its name, as it may itself be a link to an archive. `latest` is
  // different: it links to another name.
  const fs::path name = fs::path(checkpoint).lexically_normal();
  const fs::path real =
      name.filename() == checkpoint::latest_name ? fs::canonical(name, problem) : name;
  require(!problem, "can't look at '", checkpoint, "': ", problem.message());
  return are_same(parent_folder(real.string()), folder.path());
}

void require_usable(const checkpoint::Folder& folder) {
  const std::string path = without_slashes(folder.path());
  std::vector<std::string> missing;
  std::string there = path;  // or its nearest parent that exists
  while (type_of_name(there) == fs::file_type::not_found && parent_folder(there) != there) {
    missing.push_back(there);
    there = parent_folder(there);
  }
  const std::string refusal = text("'", path, "' can't be a folder of checkpoints: ");
  require(is_folder(there), refusal, "'", there, "' is ",
          is_there(there) ? "no folder"
                          : "a link whose target does not exist, or is not mounted on this host");
  std::vector<std::string> made;
  std::error_code problem, ignored;
  for (auto one = missing.rbegin(); !problem && one != missing.rend(); ++one)
    if (fs::create_directory(*one, problem)) made.push_back(*one);
  for (auto one = made.rbegin(); one != made.rend(); ++one) fs::remove(*one, ignored);
  require(!problem, refusal, "it can't be made: ", problem.message());
}

std::vector<std::string> clean_up_folder(const checkpoint::Folder& folder,
                                         const std::vector<std::string>& damaged,
                                         std::optional<std::int64_t> restored) {
  std::vector<std::string> lines;
  try {
    for (const std::string& path : damaged)
      if (is_in_folder(path, folder)) lines.push_back("renamed to " + folder.quarantine(path));
  } catch (const Error& error) {
    lines.emplace_back(error.what());
  }
  for (const std::string& path : folder.remove_partial()) lines.push_back("renamed to " + path);
  try {
    // An interrupted run may have left `latest` pointing to another checkpoint.
    if (restored) {
      const std::string aside = folder.mark_latest(*restored);
      if (!aside.empty())
        lines.push_back(
            text("what had the name ", checkpoint::latest_name, " is in ", aside, " now"));
    }
  } catch (const Error& error) {
    lines.emplace_back(error.what());
  }
  return lines;
}

}  // namespace ostrakon::train
