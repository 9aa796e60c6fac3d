// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace ostrakon::texts {

/// What of a Parquet file makes the documents, one of each row.
struct ParquetColumns {
  std::string field = "text";  ///< the column of strings, or of messages
  bool chats = false;          ///< whether rows are chats, as ChatDocuments has them
};

/// The rows of a Parquet file, in order, read from one row group after the other. Memory grows with
/// a batch of rows, not with row groups. Used by one thread.
class ParquetRows {
 public:
  virtual ~ParquetRows() = default;

  /// Reads the next row; returns false at the end. `document`, valid until the next call, is the
  /// string in the column, or the JSON object of a chat; nothing if that is null. Strings of JSON
  /// in the columns of messages, of `tools` and of `chat_template_kwargs` are strings in that
  /// object, too. Throws Error that names the file and the row.
  virtual bool next(std::optional<std::string_view>& document) = 0;
  /// Bytes of the file that the rows so far take, for people.
  virtual std::int64_t taken() const = 0;
};

/// Whether Ostrakon was built with Arrow, which reads Parquet.
bool reads_parquet();

/// Opens a Parquet file at a row, counted from 0. Throws Error, naming the file, if it can't be
/// read or is damaged, has fewer rows, lacks the columns or has other types of them, or if Ostrakon
/// was built without Arrow.
std::unique_ptr<ParquetRows> open_parquet(const std::string& path, const ParquetColumns& columns,
                                          std::int64_t row);

}  // namespace ostrakon::texts
