// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ostrakon/text/sources/parquet_source.hpp>
#include <ostrakon/text/sources/source_stream.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace ostrakon::texts {

enum class SourceKind {
  text,        ///< a document, or several between lines that equal the separator
  json_lines,  ///< a JSON value on each line, which is a document; empty lines are passed over
  parquet      ///< a table, each row of which is a document
};

/// A file that is read, or the standard input.
struct Source {
  std::string path;
  SourceKind kind = SourceKind::text;
  std::int64_t bytes = 0;     ///< size of the file; 0 for the standard input
  std::int64_t modified = 0;  ///< time of its last change, in nanoseconds

  /// Looks at the file. Throws Error.
  static Source of(const std::string& path, SourceKind kind);
};

/// A name of a source for messages: "'a.txt'", "the standard input".
std::string quoted(const Source& source);
/// A place in a source for messages: "'a.txt', line 7", "'a.parquet', row 7".
std::string place_of(const Source& source, std::int64_t line);

struct ReadSettings {
  std::vector<Source> sources;
  std::optional<std::string> separator;  ///< of documents in text
  ParquetColumns columns;                ///< of Parquet files
  /// Whether each document of text comes in one stretch, which has at most most_document_bytes, as
  /// those of JSON and Parquet do.
  bool whole_documents = true;
  /// A document of text that begins before this byte of all text and ends after it is cut in two
  /// there, at the beginning of the next character of UTF-8; -1: nowhere.
  std::int64_t cut = -1;
  std::int64_t portion_bytes = 1 << 20;  ///< of text that a portion has about
};

constexpr std::int64_t most_document_bytes = std::int64_t{1} << 30;

/// A point of all text at which reading can begin.
struct Place {
  std::size_t source = 0;
  std::int64_t offset = 0;  ///< of the source's decompressed bytes; of Parquet: of its text
  std::int64_t line = 1;    ///< of Parquet: the row, counted from 1
  bool inside_line = false;
  bool inside_document = false;
  std::int64_t text_bytes = 0;  ///< text of documents before it
};

/// Consecutive bytes of one document.
struct Stretch {
  std::size_t begin = 0, end = 0;  ///< in Portion::bytes
  std::size_t source = 0;
  std::int64_t line = 1;            ///< of its first byte; of Parquet: the row
  bool begins = true, ends = true;  ///< whether it has the document's beginning and its end
};

/// What is processed at once: the stretches of documents between two places.
struct Portion {
  std::string bytes;
  std::vector<Stretch> stretches;  ///< of text perhaps without bytes; of JSON lines perhaps blank
  Place after;
  std::int64_t taken = 0;  ///< bytes of files that were read up to its end, for people
};

/// Reads sources one after the other and finds their documents. Memory grows with the length of
/// documents only where these come as a whole. The portions depend on the settings alone. Used by
/// one thread.
class RecordReader {
 public:
  /// Begins at a place that another reader of the same sources has reached. `stops`: as
  /// SourceStream's.
  RecordReader(ReadSettings settings, const Place& begin, std::function<bool()> stops = {});
  ~RecordReader();

  /// Reads the next portion; returns false at the end. Throws Error that names the source and, for
  /// damaged compressed data, the line.
  bool next(Portion& portion);

 private:
  class Splitter;
  class Whole;
  class Lines;
  class AtSeparators;
  class Rows;

  bool comes_whole() const;
  void open_source();
  void pass_over_read_part();
  bool read_block();
  std::int64_t taken() const;
  void finish_source();
  void add(std::string_view bytes);
  void add_uncut(std::string_view bytes);
  void pass(std::int64_t bytes);
  void end_document();
  Place here() const;
  void hand_out(Portion& portion);

  ReadSettings settings_;
  std::function<bool()> stops_;
  std::unique_ptr<SourceStream> stream_;  // null in Parquet
  std::unique_ptr<ParquetRows> rows_;     // null in others
  std::unique_ptr<Splitter> splitter_;
  std::string block_;
  Place place_;           // where what comes next is; its line is the splitter's
  Place open_;            // where the open stretch begins
  bool is_open_ = false;  // whether the last stretch may go on
  Portion portion_;
  std::int64_t taken_before_ = 0;  // bytes of former files
};

}  // namespace ostrakon::texts
