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

/// Text files that were found, in the order in which they are read, and excluded files.
struct TextFiles {
  std::vector<std::string> paths;
  std::vector<std::string> binary;     ///< with a known binary format, or a NUL byte in 8 KiB
  std::vector<KnownFormat> formats;    ///< format of each binary file; empty if unknown
  std::vector<std::string> duplicate;  ///< the same file as an earlier one, by a link
  std::vector<std::string> empty;
  std::vector<std::string> pointers;  ///< Git LFS pointers

  // Members of `paths` that are text, but maybe not the intended text.
  std::vector<std::string> json_lines;
  std::vector<std::string> with_utf8_mark;  ///< files that begin with a byte-order mark

  std::vector<std::string> models;  ///< folders with a model: config.json and weights
};

/// Finds the files named by `arguments`, and those in the folders that they name, at any depth,
/// sorted by path. Inside folders, names that begin with a dot are skipped. Throws Error for an
/// argument that is neither a file nor a folder, and for files that can't be read.
TextFiles find_text_files(const std::vector<std::string>& arguments);

/// Receives documents piece by piece. No piece is empty; a document has at least one.
struct DocumentSink {
  std::function<void(std::string_view piece)> text;
  std::function<void()> end_document;
};

/// Reads a file in blocks. Its documents are the whole file or, with a separator, the text between
/// lines that equal it (a carriage return at their ends is ignored). Memory does not grow with the
/// length of files, documents or lines.
void read_documents(const std::string& path, const std::optional<std::string>& separator,
                    const DocumentSink& sink);

/// The corpus, split into training and validation text by a hash of the seed and the number of each
/// document. If one side would get no document, it gets the one with the nearest hash; a single
/// document is cut in two, its end for validation.
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

/// Calls `start` for new sinks, then fills them. This is repeated once if the first split left one
/// side without text; the content of the first sinks is then to be discarded.
void split_corpus(const CorpusSettings& settings, const std::function<SplitCorpus()>& start);

}  // namespace ostrakon::data
