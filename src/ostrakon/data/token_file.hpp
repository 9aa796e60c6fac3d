// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <ostrakon/base/hdf5/hdf5.hpp>
#include <string>
#include <vector>

namespace ostrakon::data {

// A token file, `ostrakon-tokens` version 1, is an HDF5 file:
//   /tokens            (token_count)     uint8, uint16 or uint32, the smallest for the vocabulary
//   /document_offsets  (documents + 1)   int64: where each document begins; ends with token_count
// Datasets written here are chunked, each chunk with a Fletcher checksum. Attributes of the root
// group: format, version, vocabulary, tokenizer, token_count, checksum (XXH3, 64 bits, of the
// tokens as little-endian uint32); if known, byte_count (of text); and, for people, the origin:
// sources, created, program, command_line. See docs/token-files.md.

/// The origin of a token file.
struct Provenance {
  std::vector<std::string> sources;  ///< paths of the text files
  std::string program;               ///< name and version of the writer
  std::string command_line;
};

struct TokenFileInfo {
  std::string tokenizer;
  std::int64_t vocabulary = 0;  ///< every token is less than this
  std::int64_t token_count = 0;
  std::int64_t document_count = 0;
  std::optional<std::int64_t> byte_count;  ///< bytes of text
  std::string checksum;
  std::string stored_as;       ///< "uint16"
  std::string missing_filter;  ///< as hdf5::Dataset::missing_filter()
  std::string sources;         ///< one per line
  std::string created;         ///< UTC, ISO 8601
  std::string program;
  std::string command_line;

  std::optional<double> bytes_per_token() const;
};

/// Writes a token file of any size in bounded memory. The file appears under its name only after
/// finish().
class TokenFileWriter {
 public:
  TokenFileWriter(const std::string& path, const std::string& tokenizer, std::int64_t vocabulary,
                  const Provenance& provenance);

  /// Appends tokens to the current document. Throws Error for a token outside the vocabulary.
  void append(const std::int32_t* tokens, std::int64_t count);
  /// Counts the bytes of text that the tokens stand for; if never called, the number is unknown.
  void add_text_bytes(std::int64_t bytes) { byte_count_ += bytes; }
  /// Ends the current document. Documents without tokens are not counted.
  void end_document();
  /// Finishes everything but the name: the data is on the disk, and was read back correctly. Throws
  /// Error if there are no tokens, or they can't be written.
  void complete();
  /// Calls complete() if needed, then renames the file to its name.
  void finish();

  std::int64_t token_count() const { return token_count_; }
  std::int64_t byte_count() const { return byte_count_; }
  std::int64_t document_count() const { return document_count_; }

 private:
  void flush_tokens();
  void flush_offsets();

  hdf5::File file_;
  hdf5::Dataset tokens_;
  hdf5::Dataset offsets_;
  hdf5::Checksum checksum_;
  std::int64_t vocabulary_;
  std::int64_t token_count_ = 0;
  std::int64_t byte_count_ = 0;
  std::int64_t document_count_ = 0;
  std::int64_t document_begin_ = 0;
  std::vector<std::int32_t> token_buffer_;
  std::vector<std::int64_t> offset_buffer_;
  bool complete_ = false;
};

/// Random access to a token file, by one process.
class TokenFile {
 public:
  /// Throws Error if `path` is missing, a folder, empty, not HDF5, truncated, not a token file, of
  /// another version, or inconsistent.
  explicit TokenFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const TokenFileInfo& info() const { return info_; }

  /// Reads tokens [begin, begin + count), each in [0, vocabulary). Throws Error if the range
  /// exceeds the file, or the tokens fail their checksum or exceed the vocabulary.
  void read(std::int64_t begin, std::int64_t count, std::int32_t* tokens) const;
  /// The tokens [begin, end) of a document.
  struct Range {
    std::int64_t begin, end;
  };
  Range document(std::int64_t index) const;

  /// Reads and checks all of the file: checksum, vocabulary, offsets, and the bytes of text if the
  /// file gives their number. Throws Error that says what is wrong.
  void verify() const;

 private:
  hdf5::File file_;
  hdf5::Dataset tokens_;
  hdf5::Dataset offsets_;
  TokenFileInfo info_;
};

}  // namespace ostrakon::data
