// SPDX-License-Identifier: Apache-2.0
#include "sources.hpp"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iostream>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/data/text_files.hpp>
#include <ostrakon/text/sources/source_stream.hpp>
#include <set>

#include "commands.hpp"

namespace ostrakon::apps::data_program {
namespace {

/// Lists the first few paths, each with a remark.
std::string few(const std::vector<std::string>& paths,
                const std::function<std::string(std::size_t)>& about) {
  std::string names;
  for (std::size_t i = 0; i < std::min<std::size_t>(paths.size(), 3); ++i)
    names += (i == 0 ? "" : ", ") + std::filesystem::path(paths[i]).filename().string() + about(i);
  return names + (paths.size() > 3 ? ", ..." : "");
}
std::string few(const std::vector<std::string>& paths) {
  return few(paths, [](std::size_t) { return std::string(); });
}

void print_skipped(const char* why, const std::vector<std::string>& paths,
                   const std::vector<data::KnownFormat>& formats = {}) {
  if (paths.empty()) return;
  const auto format = [&](std::size_t i) {
    const bool known = i < formats.size() && !formats[i].what.empty();
    return known ? " (" + formats[i].what + ")" : std::string();
  };
  std::cout << "skipped " << counted(static_cast<std::int64_t>(paths.size()), text(why, " file"))
            << ": " << printable(few(paths, format)) << "\n";
}

/// Warns of files that may contain text, but were not read.
void warn_of_hidden_text(const data::TextFiles& files) {
  constexpr int most = 3;
  int found = 0;
  for (std::size_t i = 0; i < files.binary.size(); ++i) {
    const data::KnownFormat& format = files.formats[i];
    if (format.advice.empty() || ++found > most) continue;
    warn(text("'", files.binary[i], "' is ", format.what, ", and was skipped; ", format.advice));
  }
  if (found > most) warn(text("and ", found - most, " more such files"));
}

/// Warns of text that becomes tokens unchanged, but is perhaps not intended.
void warn_of_odd_text(const data::TextFiles& files) {
  for (const std::string& model : files.models)
    warn(text("'", model, "' holds a model; its config.json and the like are read as text"));
  if (!files.json_lines.empty())
    warn(text(counted(static_cast<std::int64_t>(files.json_lines.size()), "file"),
              " of JSON lines, ", few(files.json_lines),
              ": braces, names of fields and escapes such as \\n become tokens. To train on a "
              "field alone, name it: --field text"));
  if (!files.with_utf8_mark.empty())
    warn(text("a byte-order mark (EF BB BF) begins ",
              counted(static_cast<std::int64_t>(files.with_utf8_mark.size()), "file"), ", ",
              few(files.with_utf8_mark),
              ": its three bytes become tokens. Without it: sed -i '1s/^\\xEF\\xBB\\xBF//'"));
}

/// Throws Error if a model was named, or if there are only models.
void require_no_model(const std::vector<std::string>& arguments, const data::TextFiles& files) {
  for (const std::string& model : files.models) {
    const bool is_named = std::any_of(arguments.begin(), arguments.end(),
                                      [&](const auto& name) { return are_same(name, model); });
    const bool is_all = std::all_of(files.paths.begin(), files.paths.end(), [&](const auto& path) {
      return are_same(parent_folder(path), model);
    });
    require(!is_named && !is_all, "'", model,
            "' holds a model (config.json and its weights); expected text. To train that model "
            "name it as checkpoint.initial_weights");
  }
}

/// Leaves Parquet and the files whose first letter is that of a JSON object. Throws Error if
/// another one was named itself.
void keep_json(const std::vector<std::string>& arguments, data::TextFiles& files) {
  const std::set<std::string> named(arguments.begin(), arguments.end());
  std::set<std::string> objects(files.objects.begin(), files.objects.end());
  objects.insert(files.parquet.begin(), files.parquet.end());
  std::vector<std::string> kept, others;
  for (const std::string& path : files.paths) {
    const bool is_json = path == texts::standard_input || objects.count(path) > 0;
    require(is_json || named.count(path) == 0, "'", path,
            "' has no JSON object on its first line, of which --field could name a field; expected "
            "JSON lines (`jq -c '.[]'` makes them of a JSON array), or no --field");
    (is_json ? kept : others).push_back(path);
  }
  files.paths = kept;
  print_skipped("other", others);
  require(!kept.empty() || others.empty(),
          "no JSON lines among what was named; without --field files are read as text");
}

}  // namespace

std::vector<texts::Source> find_sources(const std::vector<std::string>& arguments,
                                        const std::optional<std::string>& field) {
  data::TextFiles files =
      data::find_text_files(arguments, texts::unpacked_head, texts::reads_parquet());
  require_no_model(arguments, files);
  print_skipped("binary", files.binary, files.formats);
  print_skipped("empty", files.empty);
  print_skipped("duplicate", files.duplicate);
  print_skipped("Git LFS pointer", files.pointers);
  if (files.paths.empty() && !files.binary.empty() && !files.formats[0].what.empty())
    throw Error(text("no text files among what was named: '", files.binary[0], "' is ",
                     files.formats[0].what, files.formats[0].advice.empty() ? "" : "; ",
                     files.formats[0].advice));
  require(!files.paths.empty(), "no text files among what was named",
          files.pointers.empty() ? ""
                                 : "; `git lfs pull` in their repository fetches the files in "
                                   "place of which Git LFS pointers are there");
  warn_of_hidden_text(files);
  if (field)
    keep_json(arguments, files);
  else
    warn_of_odd_text(files);
  require(std::count(files.paths.begin(), files.paths.end(), texts::standard_input) <= 1,
          "the standard input, -, is named twice");

  const std::set<std::string> parquet(files.parquet.begin(), files.parquet.end());
  std::vector<texts::Source> sources;
  for (const std::string& path : files.paths)
    sources.push_back(texts::Source::of(path, parquet.count(path) > 0 ? texts::SourceKind::parquet
                                              : field ? texts::SourceKind::json_lines
                                                      : texts::SourceKind::text));
  return sources;
}

Option separator_option(std::optional<std::string>& to) {
  return {"--separator", "LINE", any_text(to),
          "text: documents end at lines that equal LINE; without it, each file is one"};
}

Option field_option(std::optional<std::string>& to) {
  return {"--field", "NAME", word(to, "the name of a field"),
          "JSON lines: each line is a document, the text of this field; A.B: field B of the object "
          "in field A. Parquet, where Ostrakon was built with Arrow: each row, the text of this "
          "column (text)"};
}

}  // namespace ostrakon::apps::data_program
