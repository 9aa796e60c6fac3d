// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <ostrakon/base/files/files.hpp>
#include <string>

namespace ostrakon::texts {

/// The name for the standard input among sources of text.
constexpr const char* standard_input = "-";

enum class Compression { none, gzip, zstd };

/// The compression that a file's first bytes identify.
Compression compression_of(const std::string& head);

/// The bytes of a source, in order: of a file or the standard input, decompressed where its first
/// bytes are those of gzip or zstd. Used by one thread.
class SourceStream {
 public:
  /// `stops`: asked a few times a second while the standard input gives nothing; then it ends.
  /// Throws Error if the file can't be opened.
  explicit SourceStream(const std::string& path, std::function<bool()> stops = {});
  ~SourceStream();

  /// Reads up to `bytes` bytes, fewer only at the end or before damage. Returns their number.
  /// Throws DamagedError, without the path, if compressed data is truncated or damaged, and Error
  /// if it can't be read.
  std::int64_t read(char* to, std::int64_t bytes);
  /// Bytes of the file itself that were taken so far.
  std::int64_t taken() const;

 private:
  class Raw;
  class File;
  class StandardInput;
  class Decoder;
  class Plain;
  class Gzip;
  class Zstd;
  std::unique_ptr<Raw> raw_;
  std::unique_ptr<Decoder> decoder_;
  std::exception_ptr failure_;  // of the next read
};

/// Returns the first bytes of what a compressed file holds, at most data::head_bytes; nothing if it
/// is not compressed. `head`: the file's own first bytes. Throws DamagedError that names the file.
std::optional<std::string> unpacked_head(const PlainFile& file, const std::string& head);

}  // namespace ostrakon::texts
