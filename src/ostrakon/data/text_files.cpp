// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/data/text_files.hpp>

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/files/lfs_pointer.hpp>
#include <set>
#include <utility>

namespace ostrakon::data {
namespace {

namespace fs = std::filesystem;

bool hidden(const fs::path& path) { return path.filename().string().front() == '.'; }

std::vector<std::string> files_in_folder(const std::string& folder) {
  std::vector<std::string> found;
  try {
    for (auto entry = fs::recursive_directory_iterator(folder);
         entry != fs::recursive_directory_iterator(); ++entry) {
      if (hidden(entry->path())) {
        entry.disable_recursion_pending();
      } else if (entry->is_regular_file()) {
        found.push_back(entry->path().string());
      }
    }
  } catch (const fs::filesystem_error& error) {
    throw Error(text("can't read folder '", folder, "': ", error.code().message()));
  }
  std::sort(found.begin(), found.end());
  return found;
}

using FileIdentity = std::pair<dev_t, ino_t>;

FileIdentity identity(const std::string& path) {
  struct stat status = {};
  const bool known = ::stat(path.c_str(), &status) == 0;
  require(known, "can't read '", path, "': ", system_error());
  return {status.st_dev, status.st_ino};
}

/// Returns the format of a file that is not text, without a name if it is unknown; nothing for
/// text.
std::optional<KnownFormat> binary_format(const PlainFile& file, const std::string& head) {
  auto format = known_format(file, head);
  if (format || head.find('\0') == std::string::npos) return format;
  return begins_as_utf16(head) ? utf16() : KnownFormat{};
}

/// Whether the first letter is that of a JSON object.
bool begins_with_brace(const std::string& head) {
  const std::size_t first = head.find_first_not_of(" \t\r\n", begins_with_utf8_mark(head) ? 3 : 0);
  return first != std::string::npos && head[first] == '{';
}

void sort_in(const std::string& path, const UnpackHead& unpack, bool takes_parquet,
             std::set<FileIdentity>& seen, TextFiles& files) {
  if (!seen.insert(identity(path)).second) {
    files.duplicate.push_back(path);
    return;
  }
  std::optional<PlainFile> file;
  try {
    file.emplace(path, PlainFile::Mode::read);
  } catch (const LfsPointer&) {
    files.pointers.push_back(path);
    return;
  }
  std::string head = head_of(*file);
  if (takes_parquet && is_parquet(head)) {
    files.paths.push_back(path);
    files.parquet.push_back(path);
    return;
  }
  if (unpack) head = unpack(*file, head).value_or(head);
  if (head.empty()) {
    files.empty.push_back(path);
    return;
  }
  const auto format = binary_format(*file, head);
  if (format) {
    files.binary.push_back(path);
    files.formats.push_back(*format);
    return;
  }
  files.paths.push_back(path);
  if (begins_with_brace(head)) files.objects.push_back(path);
  if (begins_as_json_lines(head)) files.json_lines.push_back(path);
  if (begins_with_utf8_mark(head)) files.with_utf8_mark.push_back(path);
}

bool is_named_as_weights(const fs::path& path) {
  const std::string ending = path.extension().string();
  return ending == ".safetensors" || ending == ".gguf" ||
         (ending == ".bin" && path.filename().string().rfind("pytorch_model", 0) == 0);
}

/// Returns the folders that directly contain config.json and a weight file.
std::vector<std::string> find_models(const TextFiles& files) {
  std::set<std::string> configured, found;
  for (const std::string& path : files.paths)
    if (fs::path(path).filename() == "config.json") configured.insert(parent_folder(path));
  for (const std::string& path : files.binary)
    if (is_named_as_weights(path) && configured.count(parent_folder(path)) > 0)
      found.insert(parent_folder(path));
  return {found.begin(), found.end()};
}

}  // namespace

TextFiles find_text_files(const std::vector<std::string>& arguments, const UnpackHead& unpack,
                          bool takes_parquet) {
  TextFiles files;
  std::set<FileIdentity> seen;
  for (const std::string& argument : arguments) {
    if (argument == "-") {
      files.paths.push_back(argument);
      continue;
    }
    const fs::file_type type = type_of(argument);
    require(type != fs::file_type::not_found, "'", argument, "' does not exist");
    if (type == fs::file_type::directory) {
      for (const std::string& path : files_in_folder(argument))
        sort_in(path, unpack, takes_parquet, seen, files);
    } else {
      require(type == fs::file_type::regular, "'", argument, "' is neither a file nor a folder");
      sort_in(argument, unpack, takes_parquet, seen, files);
    }
  }
  files.models = find_models(files);
  return files;
}

}  // namespace ostrakon::data
