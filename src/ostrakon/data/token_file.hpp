// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <ostrakon/base/facts.hpp>
#include <ostrakon/base/hdf5/hdf5.hpp>
#include <string>
#include <vector>

namespace ostrakon::data {

// A token file, `ostrakon-tokens` version 1 or 2, is an HDF5 file:
//   /tokens            (token_count)     uint8, uint16 or uint32, the smallest for the vocabulary
//   /document_offsets  (documents + 1)   int64: where each document begins; ends with token_count
//   /loss_mask         (token_count)     uint8, version 2 only: whether predicting a token counts
// Datasets written here are chunked, each chunk with a Fletcher checksum. Attributes of the root
// group: format, version, vocabulary, tokenizer, token_count, checksum (XXH3, 64 bits, of the
// tokens as little-endian uint32); if known, byte_count (of text), document_begin and document_end;
// in version 2 counted_token_count and loss_mask_checksum; of pairs of answers their number, pairs;
// and, for people, the origin: sources,
// created, program, command_line. See docs/token-files.md.

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
  std::optional<std::int64_t> byte_count;                    ///< bytes of text
  std::optional<std::int64_t> document_begin, document_end;  ///< ids that are at documents' ends
  std::optional<std::int64_t>
      pairs;  ///< if documents are pairs, a chosen answer and a rejected one
  std::string checksum;
  bool has_mask = false;       ///< whether some tokens may not count
  std::int64_t counted = 0;    ///< tokens that count; all without a mask
  std::string mask_checksum;   ///< empty without a mask
  std::string stored_as;       ///< "uint16"
  std::string missing_filter;  ///< as hdf5::Dataset::missing_filter()
  std::string sources;         ///< one per line
  std::string created;         ///< UTC, ISO 8601
  std::string program;
  std::string command_line;

  std::optional<double> bytes_per_token() const;
  /// Facts that identify the tokens, independent of the file that holds them.
  Facts identity() const;
};

/// Writes a token file of any size in bounded memory. The file appears under its name only after
/// finish(). It is of version 1 unless a token does not count.
class TokenFileWriter {
 public:
  TokenFileWriter(const std::string& path, const std::string& tokenizer, std::int64_t vocabulary,
                  const Provenance& provenance);

  /// Appends tokens to the current document. `counts`: for each of them whether predicting it
  /// counts in the loss, 0 or 1; null: all do. Throws Error for a token outside the vocabulary, and
  /// for another value of `counts`.
  void append(const std::int32_t* tokens, std::int64_t count, const std::uint8_t* counts = nullptr);
  /// Notes the ids with which documents begin and end, for people. To be called at most once.
  void note_ends(std::optional<std::int32_t> begin, std::optional<std::int32_t> end);
  /// Notes that documents are pairs: a prompt with the chosen answer, then with the rejected one.
  void note_pairs() { has_pairs_ = true; }
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
  /// Tokens that count.
  std::int64_t counted() const { return counted_; }

 private:
  void begin_mask();
  void flush_tokens();
  void flush_offsets();

  hdf5::File file_;
  hdf5::Dataset tokens_;
  hdf5::Dataset offsets_;
  std::optional<hdf5::Dataset> mask_;  ///< none until a token does not count
  hdf5::Checksum checksum_, mask_checksum_;
  std::int64_t vocabulary_;
  std::int64_t token_count_ = 0;
  std::int64_t counted_ = 0;
  std::int64_t byte_count_ = 0;
  std::int64_t document_count_ = 0;
  std::int64_t document_begin_ = 0;
  std::vector<std::int32_t> token_buffer_;
  std::vector<std::uint8_t> count_buffer_;
  std::vector<std::int64_t> offset_buffer_;
  bool has_pairs_ = false;
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

  /// Reads tokens [begin, begin + count), each in [0, vocabulary), and, unless `counts` is null,
  /// for each of them whether it counts: 0 or 1. Throws Error if the range exceeds the file, or the
  /// tokens fail their checksum or exceed the vocabulary.
  void read(std::int64_t begin, std::int64_t count, std::int32_t* tokens,
            std::uint8_t* counts = nullptr) const;
  /// The tokens [begin, end) of a document.
  struct Range {
    std::int64_t begin, end;
  };
  Range document(std::int64_t index) const;
  /// Returns where each document begins, and token_count. Throws Error where they do not ascend
  /// from 0 to token_count.
  std::vector<std::int64_t> document_offsets() const;

  /// Reads and checks all of the file: checksums, vocabulary, offsets, the number of tokens that
  /// count, and the bytes of text if the file gives their number. Throws Error that says what is
  /// wrong.
  void verify() const;

 private:
  template <class Work>
  void for_offsets(const Work& work) const;

  hdf5::File file_;
  hdf5::Dataset tokens_;
  hdf5::Dataset offsets_;
  std::optional<hdf5::Dataset> mask_;
  TokenFileInfo info_;
};

}  // namespace ostrakon::data
