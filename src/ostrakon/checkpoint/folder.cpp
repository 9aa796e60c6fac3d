// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/folder.hpp>

#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/files/free_name.hpp>
#include <ostrakon/checkpoint/manifest.hpp>
#include <system_error>
#include <tuple>
#include <utility>

namespace ostrakon::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* prefix = "step-";

// Suffixes of folders that are incomplete, being replaced, being removed, or replaced.
constexpr const char* partial = ".partial";
constexpr const char* replaced = ".replaced.partial";
constexpr const char* removed = ".removed.partial";
constexpr const char* previous = ".previous";

bool ends_with(const std::string& name, const std::string& end) {
  return name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
}

/// Returns the step of a name made by folder_name; -1 for other names.
std::int64_t step_of(const std::string& name) {
  const std::string start = prefix;
  if (name.compare(0, start.size(), start) != 0) return -1;
  std::int64_t step = -1;
  const auto [end, problem] =
      std::from_chars(name.data() + start.size(), name.data() + name.size(), step);
  return problem == std::errc() && step >= 0 && name == folder_name(step) ? step : -1;
}

/// Returns the step of a name made by folder_name and this ending; -1 for other names.
std::int64_t step_of(const std::string& name, const std::string& ending) {
  return ends_with(name, ending) ? step_of(name.substr(0, name.size() - ending.size())) : -1;
}

bool is_left_behind(const std::string& name) {
  return step_of(name, partial) >= 0 || step_of(name, replaced) >= 0 ||
         step_of(name, removed) >= 0 || name == latest_name + std::string(partial);
}

/// Whether anything has that name, including a broken link.
bool has_name(const std::string& path) { return type_of_name(path) != fs::file_type::not_found; }

bool is_link(const std::string& path) { return type_of_name(path) == fs::file_type::symlink; }

/// Returns the names in a folder; none if the folder is missing. Throws Error if the path is a
/// broken link, as to a disk that is not mounted.
std::vector<std::string> names_in(const std::string& path) {
  std::vector<std::string> names;
  std::error_code problem;
  fs::directory_iterator entry(path, problem);
  if (problem == std::errc::no_such_file_or_directory) {
    require(!has_name(path), "'", path,
            "' is a link whose target does not exist, or is not mounted on this host");
    return names;
  }
  while (!problem && entry != fs::directory_iterator()) {
    names.push_back(entry->path().filename().string());
    entry.increment(problem);
  }
  require(!problem, "can't list folder '", path, "': ", problem.message());
  return names;
}

/// Removes a file, a folder with its content, or a link without its target.
void remove_all(const std::string& path) {
  std::error_code problem;
  fs::remove_all(path, problem);
  require(!problem, "can't remove '", path, "': ", problem.message());
}

/// Ignores errors: the next remove_partial() tries again.
template <class Work>
void try_to(const Work& work) {
  try {
    work();
  } catch (...) {
  }
}

/// Removes a checkpoint by renaming it first, so that an interrupted removal leaves no incomplete
/// checkpoint.
void discard(const std::string& from, const std::string& to) {
  remove_all(to);
  rename_file(from, to);
  remove_all(to);
}

/// Renames durably. If it throws, the old name is restored.
void rename_or_leave(const std::string& from, const std::string& to) {
  try {
    rename_file(from, to);
  } catch (...) {
    std::error_code ignored;
    if (is_missing(from)) fs::rename(to, from, ignored);  // renamed, but syncing the folder failed
    throw;
  }
}

/// Creates a folder and its parents durably.
void make_folders(const std::string& path) {
  std::error_code problem;
  if (fs::is_directory(path, problem)) return;
  const std::string parent = parent_folder(path);
  if (parent != path) make_folders(parent);
  fs::create_directory(path, problem);
  require(!problem, "can't make folder '", path, "': ", problem.message());
  sync_folder(parent);
}

void write_file(const std::string& path, const std::string& bytes) {
  PlainFile file(path, PlainFile::Mode::create);
  file.write(0, static_cast<std::int64_t>(bytes.size()), bytes.data());
  file.sync();
  file.close();
}

/// Reads a checkpoint's manifest. A manifest that was read completely and is invalid makes the
/// entry damaged; other errors are thrown.
Folder::Entry entry_of(const std::string& path, std::int64_t step) {
  Folder::Entry entry;
  entry.path = path;
  entry.step = step;
  try {
    const Manifest manifest = read_manifest(load_manifest(path), manifest_path(path));
    entry.step = manifest.progress.step;
    entry.sequence = manifest.sequence;
    entry.updates = manifest.progress.updates;
    entry.skipped_in_a_row = manifest.progress.skipped_in_a_row;
    entry.is_renamed = entry.step != step;
  } catch (const DamagedError& error) {
    entry.problem = error.what();
  }
  return entry;
}

/// Returns the step of a checkpoint, also of one that was renamed to be replaced; -1 for other
/// names.
std::int64_t listed_step_of(const std::string& name) {
  const std::int64_t step = step_of(name);
  return step >= 0 ? step : step_of(name, replaced);
}

/// Returns Folder::fallbacks of `entries`, as list() returns them.
std::vector<std::string> before_skipped_steps(const std::vector<Folder::Entry>& entries) {
  std::vector<std::string> found;
  const bool may_be_ruined = !entries.empty() && entries.front().skipped_in_a_row > 0;
  for (const Folder::Entry& entry : entries) {
    if (!may_be_ruined || !entry.problem.empty()) break;
    if (entry.skipped_in_a_row > 0) continue;
    // A finite update can make parameters non-finite. A later finite update proves that it did not.
    const bool is_proven = entry.updates < entries.front().updates;
    if (found.empty() || is_proven) found.push_back(entry.path);
    if (is_proven) break;
  }
  return found;
}

}  // namespace

std::string folder_name(std::int64_t step) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%08lld", static_cast<long long>(step));
  return prefix + std::string(digits);
}

bool is_checkpoint(const std::string& path) { return is_plain_file(manifest_path(path)); }

Folder::Stamp Folder::stamp_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return {};
  return {static_cast<std::int64_t>(status.st_dev), static_cast<std::int64_t>(status.st_ino),
          status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
}

Folder::Known Folder::known(const std::string& path, std::int64_t step) const {
  const Stamp stamp = stamp_of(manifest_path(path));  // taken before the manifest is read
  const auto before = known_.find(path);
  if (before != known_.end() && before->second.stamp == stamp && stamp != Stamp{})
    return before->second;
  return {stamp, entry_of(path, step)};
}

Folder::Names Folder::names() const {
  Names found;
  for (const std::string& name : names_in(path_)) {
    const std::int64_t step = listed_step_of(name);
    if (step < 0) continue;
    std::string& place = found[step];
    if (place.empty() || step_of(name) >= 0) place = name;
  }
  return found;
}

std::vector<Folder::Entry> Folder::list(Unreadable unreadable) const {
  return look_at(names(), unreadable);
}

std::vector<Folder::Entry> Folder::look_at(const Names& listed, Unreadable unreadable) const {
  std::vector<Entry> entries;
  std::map<std::string, Known> sound;
  for (const auto& [step, name] : listed) {
    const std::string path = path_ + "/" + name;
    Known found;
    try {
      const fs::file_type type = type_of(path);
      // A broken link may be valid on another host, or later.
      if (type != fs::file_type::directory && type != fs::file_type::not_found) continue;
      found = known(path, step);
    } catch (const Error& error) {
      // Another program may have removed the checkpoint meanwhile.
      const auto now = names();
      const auto same = now.find(step);
      if (same == now.end() || same->second != name) continue;
      if (unreadable == Unreadable::fail) throw;
      found.entry = {path, step, 0, error.what(), true};
    }
    entries.push_back(found.entry);
    // Only sound manifests are cached: damaged ones may be repaired meanwhile.
    if (found.entry.problem.empty()) sound[path] = found;
  }
  known_ = std::move(sound);
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::make_tuple(a.problem.empty(), a.sequence, a.step, !a.is_renamed) >
           std::make_tuple(b.problem.empty(), b.sequence, b.step, !b.is_renamed);
  });
  return entries;
}

std::vector<std::string> Folder::remove_partial() const {
  std::vector<std::string> renamed;
  for (const std::string& name : names_in(path_)) {
    const std::int64_t step = step_of(name, replaced);
    if (step >= 0) {
      const std::string place = path_ + "/" + folder_name(step);
      renamed.push_back(has_name(place) ? free_name(place + previous) : place);
      rename_file(path_ + "/" + name, renamed.back());
    } else if (is_left_behind(name)) {
      remove_all(path_ + "/" + name);
    }
  }
  return renamed;
}

std::string Folder::begin(std::int64_t step) const {
  require(step >= 0, "no checkpoint can be of step ", step);
  make_folders(path_);
  const std::string path = path_ + "/" + folder_name(step) + partial;
  remove_all(path);
  std::error_code problem;
  fs::create_directory(path, problem);
  require(!problem, "can't make folder '", path, "': ", problem.message());
  return path;
}

Folder::Committed Folder::commit(std::int64_t step, const std::string& manifest) const {
  const std::string path = path_ + "/" + folder_name(step);
  write_file(manifest_path(path + partial), manifest);
  sync_folder(path + partial);

  const bool replaces = has_name(path);
  if (replaces) {
    if (has_name(path + replaced)) rename_file(path + replaced, free_name(path + previous));
    rename_or_leave(path, path + replaced);
  }
  try {
    rename_or_leave(path + partial, path);
  } catch (...) {
    if (replaces) try_to([&] { rename_file(path + replaced, path); });
    throw;
  }
  known_.erase(path);
  sound_steps_.insert(step);
  Committed committed{path, replaces ? path + replaced : ""};
  if (replaces)
    try_to([&] {
      const std::string aside = free_name(path + previous);
      rename_file(path + replaced, aside);
      committed.previous = aside;
    });
  return committed;
}

std::string Folder::mark_latest(std::int64_t step) const {
  const std::string link = path_ + "/" + latest_name;
  std::error_code problem;
  const fs::path now = fs::read_symlink(link, problem);
  if (!problem && now == folder_name(step)) return "";
  std::string aside;
  if (has_name(link) && !is_link(link)) {
    aside = free_name(link + previous);
    rename_file(link, aside);
  }
  remove_all(link + partial);
  fs::create_directory_symlink(folder_name(step), link + partial, problem);
  if (!problem) {
    rename_file(link + partial, link);
    no_link_.clear();
    return aside;
  }
  const std::string why = text("can't make link '", link, "': ", problem.message(),
                               "; programs find the newest checkpoint without it");
  const bool is_known = std::exchange(no_link_, why) == why;
  require(is_known, why, aside.empty() ? "" : text("; what had its name is in ", aside, " now"));
  return aside;
}

void Folder::abandon(std::int64_t step) const {
  remove_all(path_ + "/" + folder_name(step) + partial);
}

std::vector<std::string> Folder::fallbacks() const { return before_skipped_steps(list()); }

void Folder::prune(std::int64_t keep, std::int64_t keep_every, std::int64_t audited_step) const {
  require(keep > 0, "of the checkpoints in '", path_, "' ", keep,
          " are to be kept; expected 1 or more");
  constexpr std::int64_t most_sound = 2;
  std::int64_t place = 0, sound = 0;  // kept so far: all, and sound ones
  bool has_audited = false;
  const std::vector<Entry> entries = list();
  const std::vector<std::string> kept = before_skipped_steps(entries);
  for (const Entry& entry : entries) {
    const bool has_its_name =
        !entry.is_renamed && step_of(fs::path(entry.path).filename().string()) >= 0;
    if (!entry.problem.empty() || !has_its_name || is_link(entry.path)) continue;
    const bool is_audited = !has_audited && entry.step < audited_step;
    has_audited = has_audited || is_audited;
    const bool stays = is_audited || (keep_every > 0 && entry.step % keep_every == 0) ||
                       std::find(kept.begin(), kept.end(), entry.path) != kept.end();
    const bool is_known = sound_steps_.count(entry.step) > 0;
    // A checkpoint is only removed if newer ones that are known to be sound replace it.
    const std::int64_t needed = is_known ? std::min(keep, most_sound) : 1;
    if (place++ >= keep && !stays && sound >= needed)
      discard(entry.path, entry.path + removed);
    else if (is_known)
      ++sound;
  }
}

bool Folder::record_verified(const std::string& path) const {
  std::error_code problem;
  const fs::path real = fs::canonical(path, problem);
  require(!problem, "can't look at '", path, "': ", problem.message());
  const std::int64_t step = listed_step_of(real.filename().string());
  const bool is_ours = step >= 0 && are_same(real.parent_path().string(), path_) &&
                       !known(real.string(), step).entry.is_renamed;
  if (is_ours) sound_steps_.insert(step);
  return is_ours;
}

std::string Folder::set_aside() const {
  const auto checkpoints = names();
  const auto is_one = [&](const auto& entry) {
    const fs::file_type type = type_of(path_ + "/" + entry.second);
    return type == fs::file_type::directory || type == fs::file_type::not_found;
  };
  if (std::none_of(checkpoints.begin(), checkpoints.end(), is_one)) return "";
  const std::string own = without_slashes(path_);
  const bool linked = is_link(own);
  std::error_code problem;
  const std::string from = linked ? fs::canonical(own, problem).string() : own;
  require(!problem, "can't follow link '", own, "': ", problem.message());
  const std::string to = free_name(from + ".previous");
  rename_file(from, to);
  if (linked) make_folders(from);
  return to;
}

std::string Folder::quarantine(const std::string& path) const {
  const std::string from = without_slashes(path);
  const std::string name = fs::path(from).filename().string();
  const std::int64_t step = listed_step_of(name);
  const bool is_ours =
      step >= 0 && fs::path(from).lexically_normal() == (fs::path(path_) / name).lexically_normal();
  require(is_ours, "'", path, "' is no checkpoint of folder '", path_, "'");
  const std::string to = free_name(path_ + "/" + folder_name(step) + ".damaged");
  rename_file(from, to);
  return to;
}

}  // namespace ostrakon::checkpoint
