// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <ostrakon/data/known_format.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace ostrakon::data {

/// Text files found, in the order in which they are read, and what was excluded.
struct TextFiles {
  std::vector<std::string> paths;
  std::vector<std::string> binary;     ///< of a known format, or a NUL byte in the first 8 KiB
  std::vector<KnownFormat> formats;    ///< of each of them; empty where it is not known
  std::vector<std::string> duplicate;  ///< the same file as an earlier one, through a link
  std::vector<std::string> empty;
  std::vector<std::string> pointers;  ///< Git LFS pointers

  // Members of `paths` whose bytes are text, but maybe not the text that was meant.
  std::vector<std::string> json_lines;
  std::vector<std::string> with_utf8_mark;  ///< a byte-order mark, three bytes

  std::vector<std::string> models;  ///< folders that hold a model: config.json, and weights
};

/// Files named by `arguments`, and those in the folders that they name, at any depth, sorted by
/// path. Names that begin with a dot are passed over inside folders. Throws Error for an argument
/// that is neither a file nor a folder, and for what can't be read.
TextFiles find_text_files(const std::vector<std::string>& arguments);

/// Where documents go, piece by piece. No piece is empty; a document has at least one.
struct DocumentSink {
  std::function<void(std::string_view piece)> text;
  std::function<void()> end_document;
};

/// Reads a file in blocks. The whole file is one document or, with a separator, what lies between
/// lines that equal it (a carriage return at their ends does not count). Memory does not grow with
/// the length of files, documents or lines.
void read_documents(const std::string& path, const std::optional<std::string>& separator,
                    const DocumentSink& sink);

/// The corpus, split into training and validation text. A document goes where a hash of the seed
/// and its number sends it. Where no document would be left on one side, the one whose hash is
/// nearest goes there; a single document is cut in two, its end for validation.
struct SplitCorpus {
  DocumentSink training;
  DocumentSink validation;
};

struct CorpusSettings {
  std::vector<std::string> paths;
  std::optional<std::string> separator;
  double validation_fraction = 0.05;  ///< in [0, 1); 0: no validation text
  std::uint64_t seed = 1;
};

/// Calls `start` for fresh sinks, then fills them; at most twice, the second time because the first
/// split left one side without text. What the first sinks got is then to be forgotten.
void split_corpus(const CorpusSettings& settings, const std::function<SplitCorpus()>& start);

}  // namespace ostrakon::data
