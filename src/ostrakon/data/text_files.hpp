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

  std::vector<std::string> parquet;  ///< members of `paths`, if they are asked for
  std::vector<std::string>
      objects;  ///< members of `paths` whose first letter is a brace, as JSON's

  // Members of `paths` that are text, but maybe not the intended text.
  std::vector<std::string> json_lines;
  std::vector<std::string> with_utf8_mark;  ///< files that begin with a byte-order mark

  std::vector<std::string> models;  ///< folders with a model: config.json and weights
};

/// Returns the first bytes of what a compressed file holds; nothing if it is not compressed.
/// `head`: the file's own first bytes.
using UnpackHead =
    std::function<std::optional<std::string>(const PlainFile& file, const std::string& head)>;

/// Finds the files named by `arguments`, and those in the folders that they name, at any depth,
/// sorted by path. Inside folders, names that begin with a dot are skipped. "-", the standard
/// input, is taken for text unseen. With `unpack` compressed files are sorted by what they hold.
/// With `takes_parquet` Parquet files are among the paths. Throws Error for an argument that is
/// neither a file nor a folder, and for files that can't be read.
TextFiles find_text_files(const std::vector<std::string>& arguments, const UnpackHead& unpack = {},
                          bool takes_parquet = false);

}  // namespace ostrakon::data
