// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/saving/save_folder.hpp>

#include <algorithm>
#include <filesystem>
#include <map>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/format.hpp>
#include <system_error>
#include <utility>

namespace ostrakon::train {
namespace {

std::string manifest_of(checkpoint::Manifest manifest, const std::vector<std::string>& entries) {
  std::map<std::string, checkpoint::FileEntry> files;
  for (const std::string& entry : entries) {
    checkpoint::FileEntry part = checkpoint::read_file_entry(entry);
    const auto known = files.find(part.name);
    if (known == files.end()) {
      // The lowest rank of a file comes first, and knows its structure.
      files.emplace(part.name, std::move(part));
    } else {
      std::vector<checkpoint::PieceEntry>& pieces = known->second.pieces;
      pieces.insert(pieces.end(), part.pieces.begin(), part.pieces.end());
    }
  }
  for (auto& [name, file] : files) {
    std::sort(file.pieces.begin(), file.pieces.end(),
              [](const auto& a, const auto& b) { return a.offset < b.offset; });
    manifest.files.push_back(std::move(file));
  }
  return checkpoint::write_manifest(manifest);
}

/// Runs work that a new checkpoint does not depend on; passes the reason of a failure to `tell`.
template <class Work, class Tell>
void attempt(const Work& work, const Tell& tell) {
  try {
    work();
  } catch (const Error& error) {
    tell(error.what());
  }
}

}  // namespace

SaveFolder::SaveFolder(const std::string& path, std::int64_t keep, std::int64_t keep_every)
    : folder_(path), keep_(keep), keep_every_(keep_every) {}

std::int64_t SaveFolder::last_sequence() const {
  std::int64_t last = 0;
  for (const checkpoint::Folder::Entry& entry : folder_.list())
    last = std::max(last, entry.sequence);
  return last;
}

std::string SaveFolder::begin(std::int64_t step, std::int64_t bytes) const {
  check_();
  const std::string partial = folder_.begin(step);
  const std::int64_t left = free_bytes(partial);
  require(bytes <= left, folder_.path(), ": a checkpoint takes ", format_bytes(bytes),
          "; the file system has ", format_bytes(left), " left");
  return partial;
}

SaveFolder::Committed SaveFolder::commit(const checkpoint::Manifest& manifest,
                                         const std::vector<std::string>& entries) const {
  const std::int64_t step = manifest.progress.step;
  check_();
  const checkpoint::Folder::Committed committed =
      folder_.commit(step, manifest_of(manifest, entries));
  Committed result = {committed.path, ""};
  if (!committed.previous.empty())
    result.remark =
        text("an earlier checkpoint of step ", step, " is in ", committed.previous, " now");
  const auto remark = [&](const std::string& words) {
    result.remark += (result.remark.empty() ? "" : "; ") + words;
  };
  attempt(
      [&] {
        const std::string aside = folder_.mark_latest(step);
        if (!aside.empty())
          remark(text("what had the name ", checkpoint::latest_name, " is in ", aside, " now"));
      },
      remark);
  attempt([&] { folder_.prune(keep_, keep_every_, manifest.progress.audited_step); }, remark);
  return result;
}

void SaveFolder::abandon(std::int64_t step) const {
  try {
    check_();
    folder_.abandon(step);
  } catch (const Error&) {
    // The next run removes the folder, or a run that has taken the output folder saves there.
  }
}

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
