// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files.hpp>
#include <ostrakon/checkpoint/folder.hpp>
#include <ostrakon/checkpoint/manifest.hpp>
#include <system_error>
#include <tuple>
#include <utility>

namespace ostrakon::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* prefix = "step-";
constexpr const char* latest = "latest";

// What a folder is called that is no checkpoint yet, for the moment none, or no more.
constexpr const char* partial = ".partial";
constexpr const char* replaced = ".replaced.partial";
constexpr const char* removed = ".removed.partial";

bool ends_with(const std::string& name, const std::string& end) {
  return name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
}

/// -1 unless `name` is what folder_name makes of a step.
std::int64_t step_of(const std::string& name) {
  const std::string start = prefix;
  if (name.compare(0, start.size(), start) != 0) return -1;
  std::int64_t step = -1;
  const auto [end, problem] =
      std::from_chars(name.data() + start.size(), name.data() + name.size(), step);
  return problem == std::errc() && step >= 0 && name == folder_name(step) ? step : -1;
}

/// Of the folder that a name with this ending once was; -1 where it is no such name.
std::int64_t step_of(const std::string& name, const std::string& ending) {
  return ends_with(name, ending) ? step_of(name.substr(0, name.size() - ending.size())) : -1;
}

bool is_left_behind(const std::string& name) {
  return step_of(name, partial) >= 0 || step_of(name, replaced) >= 0 ||
         step_of(name, removed) >= 0 || name == latest + std::string(partial);
}

/// Whether anything has that name, a link without an end among it.
bool is_there(const std::string& path) {
  std::error_code problem;
  const fs::file_status status = fs::symlink_status(path, problem);
  require(status.type() != fs::file_type::none, "can't look at '", path, "': ", problem.message());
  return fs::exists(status);
}

bool is_link(const std::string& path) {
  std::error_code ignored;
  return fs::is_symlink(path, ignored);
}

/// Names in a folder; none where it is not there.
std::vector<std::string> names_in(const std::string& path) {
  std::vector<std::string> names;
  std::error_code problem;
  fs::directory_iterator entry(path, problem);
  while (!problem && entry != fs::directory_iterator()) {
    names.push_back(entry->path().filename().string());
    entry.increment(problem);
  }
  require(!problem || problem == std::errc::no_such_file_or_directory, "can't list folder '", path,
          "': ", problem.message());
  return names;
}

/// A file, a folder with all that is in it, or a link, but not what it links to.
void remove_all(const std::string& path) {
  std::error_code problem;
  fs::remove_all(path, problem);
  require(!problem, "can't remove '", path, "': ", problem.message());
}

/// What fails is left to the next remove_partial().
template <class Work>
void try_to(const Work& work) {
  try {
    work();
  } catch (...) {
  }
}

/// Removes a checkpoint so that no half of it can be taken for a whole one.
void discard(const std::string& from, const std::string& to) {
  remove_all(to);
  rename_file(from, to);
  remove_all(to);
}

/// Gives something another name, for good, or, where it throws, none but its own.
void rename_or_leave(const std::string& from, const std::string& to) {
  try {
    rename_file(from, to);
  } catch (...) {
    std::error_code ignored;
    if (is_missing(from)) fs::rename(to, from, ignored);  // the folder's list failed to be written
    throw;
  }
}

/// "<start>", or "<start>-2" and so on where that is taken.
std::string free_name(const std::string& start) {
  std::string name = start;
  for (int number = 2; is_there(name); ++number) name = text(start, "-", number);
  return name;
}

std::string without_slashes(const std::string& path) {
  return path.substr(0, path.find_last_not_of('/') + 1);
}

/// Makes a folder, and those around it, for good.
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

/// Looks at a checkpoint's manifest.
Folder::Entry entry_of(const std::string& path, std::int64_t step) {
  Folder::Entry entry;
  entry.path = path;
  entry.step = step;
  try {
    const Manifest manifest = read_manifest(load_manifest(path), manifest_path(path));
    require(manifest.progress.step == step, "'", manifest_path(path), "' is of step ",
            manifest.progress.step, ", but its folder's name is of step ", step);
    entry.sequence = manifest.sequence;
  } catch (const std::exception& error) {
    entry.problem = error.what();
  }
  return entry;
}

}  // namespace

std::string folder_name(std::int64_t step) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%08lld", static_cast<long long>(step));
  return prefix + std::string(digits);
}

bool is_checkpoint(const std::string& path) {
  std::error_code ignored;
  return fs::is_regular_file(manifest_path(path), ignored);
}

Folder::Stamp Folder::stamp_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return {};
  return {static_cast<std::int64_t>(status.st_dev), static_cast<std::int64_t>(status.st_ino),
          status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
}

Folder::Known Folder::look_at(const std::string& path, std::int64_t step) const {
  const Stamp stamp = stamp_of(manifest_path(path));  // before what it stamps is read
  const auto known = known_.find(path);
  if (known != known_.end() && known->second.stamp == stamp && stamp != Stamp{})
    return known->second;
  return {stamp, entry_of(path, step)};
}

std::vector<Folder::Entry> Folder::list() const {
  std::vector<Entry> entries;
  std::map<std::string, Known> sound;
  for (const std::string& name : names_in(path_)) {
    const std::string path = path_ + "/" + name;
    const std::int64_t step = step_of(name);
    std::error_code ignored;
    if (step < 0 || !fs::is_directory(path, ignored)) continue;
    const Known found = look_at(path, step);
    entries.push_back(found.entry);
    // Others may only not have been readable.
    if (found.entry.problem.empty()) sound[path] = found;
  }
  known_ = std::move(sound);
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::make_tuple(a.problem.empty(), a.sequence, a.step) >
           std::make_tuple(b.problem.empty(), b.sequence, b.step);
  });
  return entries;
}

void Folder::remove_partial() const {
  for (const std::string& name : names_in(path_)) {
    // A checkpoint that made room for one that did not come gets its name back.
    const std::int64_t step = step_of(name, replaced);
    const std::string place = path_ + "/" + folder_name(step);
    if (step >= 0 && !is_there(place)) {
      rename_file(path_ + "/" + name, place);
    } else if (is_left_behind(name)) {
      remove_all(path_ + "/" + name);
    }
  }
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

std::string Folder::commit(std::int64_t step, const std::string& manifest) const {
  const std::string path = path_ + "/" + folder_name(step);
  write_file(manifest_path(path + partial), manifest);
  sync_folder(path + partial);

  const bool replaces = is_there(path);
  if (replaces) {
    if (is_there(path + replaced)) discard(path + replaced, path + removed);
    rename_or_leave(path, path + replaced);
  }
  try {
    rename_or_leave(path + partial, path);
  } catch (...) {
    if (replaces) try_to([&] { rename_file(path + replaced, path); });
    throw;
  }
  known_.erase(path);
  if (replaces) try_to([&] { discard(path + replaced, path + removed); });
  return path;
}

void Folder::mark_latest(std::int64_t step) const {
  const std::string link = path_ + "/" + latest;
  std::error_code problem;
  const fs::path now = fs::read_symlink(link, problem);
  if (!problem && now == folder_name(step)) return;
  remove_all(link + partial);
  fs::create_directory_symlink(folder_name(step), link + partial, problem);
  require(!problem, "can't make link '", link, partial, "': ", problem.message());
  rename_file(link + partial, link);
}

void Folder::abandon(std::int64_t step) const {
  remove_all(path_ + "/" + folder_name(step) + partial);
}

void Folder::prune(std::int64_t keep, std::int64_t keep_every) const {
  require(keep > 0, "of the checkpoints in '", path_, "' ", keep,
          " are to be kept; expected 1 or more");
  std::int64_t sound = 0;
  for (const Entry& entry : list()) {
    if (!entry.problem.empty() || is_link(entry.path)) continue;
    const bool is_milestone = keep_every > 0 && entry.step % keep_every == 0;
    if (++sound <= keep || is_milestone) continue;
    discard(entry.path, entry.path + removed);
  }
}

std::string Folder::set_aside() const {
  if (list().empty()) return "";
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

std::string Folder::set_damaged_aside(const std::string& path) const {
  const std::string from = without_slashes(path);
  const std::string name = fs::path(from).filename().string();
  const bool is_ours = step_of(name) >= 0 && fs::path(from).lexically_normal() ==
                                                 (fs::path(path_) / name).lexically_normal();
  require(is_ours, "'", path, "' is no checkpoint of folder '", path_, "'");
  const std::string to = free_name(from + ".damaged");
  rename_file(from, to);
  return to;
}

}  // namespace ostrakon::checkpoint
