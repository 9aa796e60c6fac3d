// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/latest.hpp>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/checkpoint/folder.hpp>
#include <ostrakon/checkpoint/manifest.hpp>
#include <utility>
#include <vector>

namespace ostrakon::checkpoint {
namespace {

namespace fs = std::filesystem;
using Entries = std::vector<Folder::Entry>;

/// Returns the sequence and step of a checkpoint; nothing if its manifest is damaged or can't be
/// read.
std::optional<std::pair<std::int64_t, std::int64_t>> order_of(const std::string& path) {
  try {
    const Manifest manifest = read_manifest(load_manifest(path), manifest_path(path));
    return std::make_pair(manifest.sequence, manifest.progress.step);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

ResolvedCheckpoint follow_latest(const std::string& path) {
  const ResolvedCheckpoint same = {path, ""};
  const std::string latest = without_slashes(path), folder = parent_folder(latest);
  if (fs::path(latest).filename() != latest_name || !is_folder(folder)) return same;
  const bool is_missing = type_of_name(latest) == fs::file_type::not_found;
  if (!is_missing && !is_there(latest)) return same;
  const Entries entries = Folder(folder).list(Folder::Unreadable::tell);
  // The list begins with sound checkpoints, the last saved first.
  if (entries.empty() || !entries.front().problem.empty()) return same;
  const Folder::Entry& newest = entries.front();
  if (!is_missing) {
    if (are_same(latest, newest.path)) return same;
    const auto found = order_of(latest);
    const auto order = std::make_optional(std::make_pair(newest.sequence, newest.step));
    if (found == order) return {newest.path, ""};  // `latest` is a copy of the newest
    if (!found || found > order) return same;
  }
  return {newest.path, text("'", latest, "' is ", is_missing ? "not there" : "an older checkpoint",
                            ": takes the newest, '", newest.path, "'")};
}

}  // namespace ostrakon::checkpoint
