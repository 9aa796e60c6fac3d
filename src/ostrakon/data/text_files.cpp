// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/data/text_files.hpp>

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <optional>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/files/lfs_pointer.hpp>
#include <ostrakon/data/random_integer.hpp>
#include <set>
#include <utility>

namespace ostrakon::data {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t bytes_at_once = 1 << 20;

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

void sort_in(const std::string& path, std::set<FileIdentity>& seen, TextFiles& files) {
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
  const std::string head = head_of(*file);
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

/// Finds separator lines in text that comes in blocks.
class LineSplitter {
 public:
  LineSplitter(std::string separator, const DocumentSink& sink)
      : separator_(std::move(separator)), sink_(sink) {}

  void add(std::string_view block) {
    while (!block.empty()) {
      const std::size_t newline = block.find('\n');
      const bool complete = newline != std::string_view::npos;
      const std::string_view part = complete ? block.substr(0, newline + 1) : block;
      block.remove_prefix(part.size());
      if (inside_line_) {
        emit(part);
      } else {
        begin_line(part, complete);
      }
      if (complete) inside_line_ = false;
    }
  }

  void finish() {
    if (!is_separator(line_)) emit(line_);
    end_document();
  }

 private:
  /// Adds to a line, which is held back as long as it may still be a separator.
  void begin_line(std::string_view part, bool complete) {
    line_ += part.substr(0, separator_.size() + 3);
    const bool shown_in_full = line_.size() <= separator_.size() + 2;
    if (complete && shown_in_full && is_separator(line_)) {
      end_document();
      line_.clear();
    } else if (complete || !shown_in_full) {
      // A prefix of `part` was copied to `line_`; the rest follows it.
      const std::size_t copied = std::min(part.size(), separator_.size() + 3);
      emit(line_);
      if (copied < part.size()) emit(part.substr(copied));
      line_.clear();
      inside_line_ = true;
    }
  }

  bool is_separator(std::string_view line) const {
    if (!line.empty() && line.back() == '\n') line.remove_suffix(1);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    return line == separator_;
  }

  void emit(std::string_view piece) {
    if (piece.empty()) return;
    sink_.text(piece);
    document_open_ = true;
  }

  void end_document() {
    if (document_open_) sink_.end_document();
    document_open_ = false;
  }

  std::string separator_;
  const DocumentSink& sink_;
  std::string line_;  ///< beginning of a line that may be a separator
  bool inside_line_ = false;
  bool document_open_ = false;
};

void for_each_block(const std::string& path,
                    const std::function<void(std::string_view block)>& use) {
  const PlainFile file(path, PlainFile::Mode::read);
  std::string block(bytes_at_once, '\0');
  for (std::int64_t at = 0, got = 0;; at += got) {
    got = file.read_up_to(at, static_cast<std::int64_t>(block.size()), block.data());
    if (got == 0) return;
    use(std::string_view(block).substr(0, static_cast<std::size_t>(got)));
  }
}

/// Sends each document to training or validation, and records what a second attempt needs.
class Splitter {
 public:
  /// A document goes to validation if its hash is below `limit`, or from byte `cut` on.
  Splitter(std::uint64_t key, std::uint64_t limit, std::int64_t cut)
      : key_(key), limit_(limit), cut_(cut) {}

  void run(const CorpusSettings& settings, const SplitCorpus& sides) {
    const DocumentSink sink{[&](std::string_view piece) { add(piece, sides); },
                            [&] { end_document(sides); }};
    for (const std::string& path : settings.paths) {
      read_documents(path, settings.separator, sink);
    }
  }

  std::uint64_t documents() const { return documents_; }
  std::int64_t bytes() const { return bytes_; }
  std::uint64_t smallest_hash() const { return smallest_hash_; }
  std::uint64_t largest_hash() const { return largest_hash_; }

 private:
  void add(std::string_view piece, const SplitCorpus& sides) {
    if (!open_) begin_document();
    if (cut_ >= 0 && !to_validation_ && bytes_ + size(piece) > cut_) {
      // The cut is moved to the beginning of a UTF-8 character.
      auto at = static_cast<std::size_t>(std::max<std::int64_t>(cut_ - bytes_, 0));
      while (at < piece.size() && (static_cast<unsigned char>(piece[at]) & 0xC0) == 0x80) ++at;
      if (at > 0) send(piece.substr(0, at), sides.training);
      piece.remove_prefix(at);
      if (piece.empty()) return;
      sides.training.end_document();
      to_validation_ = true;
    }
    send(piece, to_validation_ ? sides.validation : sides.training);
  }

  void begin_document() {
    open_ = true;
    const std::uint64_t hash = random_integer(key_, documents_, 0);
    smallest_hash_ = std::min(smallest_hash_, hash);
    largest_hash_ = std::max(largest_hash_, hash);
    to_validation_ = cut_ < 0 && hash < limit_;
  }

  void end_document(const SplitCorpus& sides) {
    (to_validation_ ? sides.validation : sides.training).end_document();
    open_ = false;
    ++documents_;
  }

  void send(std::string_view piece, const DocumentSink& sink) {
    sink.text(piece);
    bytes_ += size(piece);
  }

  static std::int64_t size(std::string_view piece) {
    return static_cast<std::int64_t>(piece.size());
  }

  std::uint64_t key_;
  std::uint64_t limit_;
  std::int64_t cut_;
  std::uint64_t documents_ = 0;
  std::int64_t bytes_ = 0;
  std::uint64_t smallest_hash_ = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t largest_hash_ = 0;
  bool open_ = false;
  bool to_validation_ = false;
};

}  // namespace

TextFiles find_text_files(const std::vector<std::string>& arguments) {
  TextFiles files;
  std::set<FileIdentity> seen;
  for (const std::string& argument : arguments) {
    const fs::file_type type = type_of(argument);
    require(type != fs::file_type::not_found, "'", argument, "' does not exist");
    if (type == fs::file_type::directory) {
      for (const std::string& path : files_in_folder(argument)) sort_in(path, seen, files);
    } else {
      require(type == fs::file_type::regular, "'", argument, "' is neither a file nor a folder");
      sort_in(argument, seen, files);
    }
  }
  files.models = find_models(files);
  return files;
}

void read_documents(const std::string& path, const std::optional<std::string>& separator,
                    const DocumentSink& sink) {
  if (separator) {
    LineSplitter splitter(*separator, sink);
    for_each_block(path, [&](std::string_view block) { splitter.add(block); });
    splitter.finish();
    return;
  }
  bool any = false;
  for_each_block(path, [&](std::string_view block) {
    sink.text(block);
    any = true;
  });
  if (any) sink.end_document();
}

void split_corpus(const CorpusSettings& settings, const std::function<SplitCorpus()>& start) {
  const double fraction = settings.validation_fraction;
  require(fraction >= 0.0 && fraction < 1.0, "a validation fraction of ", fraction,
          "; expected at least 0 and less than 1");
  const std::uint64_t key = math::random_key(settings.seed, "validation split");
  const auto limit = static_cast<std::uint64_t>(fraction * 0x1p64);

  Splitter first(key, limit, -1);
  first.run(settings, start());
  require(first.documents() > 0, "no text found");
  if (fraction == 0.0) return;

  if (first.documents() == 1) {
    const std::int64_t bytes = first.bytes();
    require(bytes >= 2, "one document of ", bytes, " byte can't be split");
    const auto share = static_cast<std::int64_t>(fraction * static_cast<double>(bytes));
    const std::int64_t validation = std::clamp<std::int64_t>(share, 1, bytes - 1);
    Splitter(key, 0, bytes - validation).run(settings, start());
  } else if (first.smallest_hash() >= limit) {
    Splitter(key, first.smallest_hash() + 1, -1).run(settings, start());
  } else if (first.largest_hash() < limit) {
    Splitter(key, first.largest_hash(), -1).run(settings, start());
  }
}

}  // namespace ostrakon::data
