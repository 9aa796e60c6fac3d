// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/saving/save_folder.hpp>

#include <algorithm>
#include <map>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/format.hpp>
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
  attempt([&] { folder_.prune(keep_, keep_every_); }, remark);
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

}  // namespace ostrakon::train
