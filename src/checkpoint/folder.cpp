// SPDX-License-Identifier: Apache-2.0
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

/// Removes a checkpoint so that no half of it can be taken for a whole one.
void discard(const std::string& from, const std::string& to) {
  remove_all(to);
  rename_file(from, to);
  remove_all(to);
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

std::vector<Folder::Entry> Folder::list() const {
  std::vector<Entry> entries;
  for (const std::string& name : names_in(path_)) {
    const std::string path = path_ + "/" + name;
    const std::int64_t step = step_of(name);
    std::error_code ignored;
    if (step >= 0 && fs::is_directory(path, ignored)) entries.push_back(entry_of(path, step));
  }
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
    rename_file(path, path + replaced);
  }
  rename_file(path + partial, path);

  const std::string link = path_ + "/" + latest;
  std::error_code problem;
  remove_all(link + partial);
  fs::create_directory_symlink(folder_name(step), link + partial, problem);
  require(!problem, "can't make link '", link, partial, "': ", problem.message());
  rename_file(link + partial, link);

  if (replaces) discard(path + replaced, path + removed);
  return path;
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
  const std::string from = path_.substr(0, path_.find_last_not_of('/') + 1);
  const std::string name = from + ".previous";
  std::string to = name;
  for (int number = 2; is_there(to); ++number) to = text(name, "-", number);
  rename_file(from, to);
  return to;
}

}  // namespace ostrakon::checkpoint
