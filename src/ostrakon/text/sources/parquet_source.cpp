// SPDX-License-Identifier: Apache-2.0
// The one file that knows Arrow, whose versions since 22 need C++20.
#include <ostrakon/text/sources/parquet_source.hpp>

#include <arrow/array.h>
#include <arrow/io/file.h>
#include <arrow/record_batch.h>
#include <arrow/type.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>

#include <algorithm>
#include <exception>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <stdexcept>
#include <utility>
#include <vector>

namespace ostrakon::texts {
namespace {

// --- what Arrow returns --------------------------------------------------------------------------

void require_good(const arrow::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.message());
}

template <class T>
T value_of(arrow::Result<T> result) {
  require_good(result.status());
  return std::move(result).ValueUnsafe();
}

using Batches = std::unique_ptr<arrow::RecordBatchReader>;

/// The batches of a row group. Arrow returns them as a result, and up to version 20 in an argument.
template <class Reader>
auto batches_of(Reader& reader, int group, const std::vector<int>& leaves, int)
    -> decltype(Batches(reader.GetRecordBatchReader(std::vector<int>(), leaves).ValueUnsafe())) {
  return value_of(reader.GetRecordBatchReader(std::vector<int>{group}, leaves));
}
template <class Reader>
Batches batches_of(Reader& reader, int group, const std::vector<int>& leaves, long) {
  Batches batches;
  require_good(reader.GetRecordBatchReader(std::vector<int>{group}, leaves, &batches));
  return batches;
}

// --- types ---------------------------------------------------------------------------------------

bool holds_strings(const arrow::DataType& type) {
  switch (type.id()) {
    case arrow::Type::STRING:
    case arrow::Type::LARGE_STRING:
    case arrow::Type::STRING_VIEW:
      return true;
    case arrow::Type::DICTIONARY:
      return holds_strings(*static_cast<const arrow::DictionaryType&>(type).value_type());
    default:
      return false;
  }
}

bool holds_nulls(const arrow::DataType& type) { return type.id() == arrow::Type::NA; }

/// Whether values are lists of objects whose fields are strings.
bool holds_messages(const arrow::DataType& type) {
  if (type.id() != arrow::Type::LIST && type.id() != arrow::Type::LARGE_LIST) return false;
  const arrow::DataType& message = *static_cast<const arrow::BaseListType&>(type).value_type();
  const auto& fields = message.fields();
  return message.id() == arrow::Type::STRUCT &&
         std::all_of(fields.begin(), fields.end(), [](const auto& field) {
           return holds_strings(*field->type()) || holds_nulls(*field->type());
         });
}

/// The columns that make the documents of a file. Throws Error, without the file's name.
std::vector<std::string> find_columns(const arrow::Schema& schema, const ParquetColumns& wanted) {
  const auto count = [&](const std::string& name) {
    return schema.GetAllFieldIndices(name).size();
  };
  std::vector<std::string> names = {wanted.field};
  if (wanted.chats && count(wanted.field) == 0) names = {"prompt", "completion"};
  const bool is_there = std::all_of(names.begin(), names.end(), count);
  if (!is_there) {
    std::string others;
    for (const std::string& name : schema.field_names())
      others += (others.empty() ? "" : ", ") + shown(name);
    throw Error(text("no column ", shown(wanted.field),
                     wanted.chats ? ", nor \"prompt\" and \"completion\"" : "", "; the file has ",
                     others.empty() ? "none" : without_middle(others, 300)));
  }
  if (wanted.chats)
    for (const char* name : {"tools", "chat_template_kwargs"})
      if (count(name) > 0) names.emplace_back(name);
  for (const std::string& name : names) {
    require(count(name) == 1, "several columns have the name ", shown(name));
    const arrow::DataType& type = *schema.GetFieldByName(name)->type();
    const bool has_messages = name == wanted.field || name == "prompt" || name == "completion";
    const char* expected = !wanted.chats   ? "strings"
                           : !has_messages ? "strings of JSON"
                           : name == wanted.field
                               ? "lists of structs of strings, or strings of JSON"
                               : "strings, or lists of structs of strings";
    require(holds_strings(type) || holds_nulls(type) ||
                (wanted.chats && has_messages && holds_messages(type)),
            "column ", shown(name), " is of type ", without_middle(printable(type.ToString()), 120),
            "; expected ", expected);
  }
  return names;
}

// --- values --------------------------------------------------------------------------------------

/// The dictionary's row of a value that is not null.
std::int64_t dictionary_row(const arrow::DictionaryArray& array, std::int64_t row) {
  const std::int64_t index = array.GetValueIndex(row);
  if (index < 0 || index >= array.dictionary()->length())
    throw std::runtime_error("an index is outside of its dictionary");
  return index;
}

/// Whether a row is null.
bool lacks(const arrow::Array& array, std::int64_t row) {
  if (array.type_id() == arrow::Type::NA || array.IsNull(row)) return true;
  if (array.type_id() != arrow::Type::DICTIONARY) return false;
  const auto& codes = static_cast<const arrow::DictionaryArray&>(array);
  return codes.dictionary()->IsNull(dictionary_row(codes, row));
}

/// The string in a row, which is not null.
std::string_view string_at(const arrow::Array& array, std::int64_t row) {
  switch (array.type_id()) {
    case arrow::Type::STRING:
      return static_cast<const arrow::StringArray&>(array).GetView(row);
    case arrow::Type::LARGE_STRING:
      return static_cast<const arrow::LargeStringArray&>(array).GetView(row);
    case arrow::Type::STRING_VIEW:
      return static_cast<const arrow::StringViewArray&>(array).GetView(row);
    case arrow::Type::DICTIONARY: {
      const auto& codes = static_cast<const arrow::DictionaryArray&>(array);
      return string_at(*codes.dictionary(), dictionary_row(codes, row));
    }
    default:
      throw std::runtime_error("a column changes its type to " + array.type()->ToString());
  }
}

/// Appends a string as JSON. Bytes that are no UTF-8 stay: who parses it refuses them.
void append_string(std::string_view value, std::string& to) {
  constexpr const char* digits = "0123456789abcdef";
  to += '"';
  for (const char byte : value) {
    const auto code = static_cast<unsigned char>(byte);
    if (byte == '"' || byte == '\\')
      (to += '\\') += byte;
    else if (code < 0x20)
      ((to += "\\u00") += digits[code >> 4]) += digits[code & 15];
    else
      to += byte;
  }
  to += '"';
}

void append_value(const arrow::Array& array, std::int64_t row, std::string& to);

template <class List>
void append_list(const List& array, std::int64_t row, std::string& to) {
  const std::int64_t begin = array.value_offset(row), end = array.value_offset(row + 1);
  if (begin < 0 || begin > end || end > array.values()->length())
    throw std::runtime_error("a list reaches out of its values");
  to += '[';
  for (std::int64_t i = begin; i < end; ++i) {
    if (i > begin) to += ',';
    append_value(*array.values(), i, to);
  }
  to += ']';
}

void append_struct(const arrow::StructArray& array, std::int64_t row, std::string& to) {
  to += '{';
  for (int i = 0; i < array.num_fields(); ++i) {
    if (i > 0) to += ',';
    append_string(array.struct_type()->field(i)->name(), to);
    to += ':';
    append_value(*array.field(i), row, to);
  }
  to += '}';
}

void append_value(const arrow::Array& array, std::int64_t row, std::string& to) {
  if (lacks(array, row))
    to += "null";
  else if (array.type_id() == arrow::Type::LIST)
    append_list(static_cast<const arrow::ListArray&>(array), row, to);
  else if (array.type_id() == arrow::Type::LARGE_LIST)
    append_list(static_cast<const arrow::LargeListArray&>(array), row, to);
  else if (array.type_id() == arrow::Type::STRUCT)
    append_struct(static_cast<const arrow::StructArray&>(array), row, to);
  else
    append_string(string_at(array, row), to);
}

// --- rows ----------------------------------------------------------------------------------------

void add_leaves(const parquet::arrow::SchemaField& field, std::vector<int>& leaves) {
  if (field.is_leaf()) leaves.push_back(field.column_index);
  for (const auto& child : field.children) add_leaves(child, leaves);
}

class ArrowRows : public ParquetRows {
 public:
  ArrowRows(const std::string& path, const ParquetColumns& columns, std::int64_t row)
      : path_(path), chats_(columns.chats) {
    guarded(false, [&] {
      open();
      std::shared_ptr<arrow::Schema> schema;
      require_good(reader_->GetSchema(&schema));
      try {
        names_ = find_columns(*schema, columns);
      } catch (const Error& error) {
        throw Error(text("'", path_, "': ", error.what()));
      }
      for (const auto& field : reader_->manifest().schema_fields)
        if (std::count(names_.begin(), names_.end(), field.field->name()) > 0)
          add_leaves(field, leaves_);
      require(row <= metadata_->num_rows(), "'", path_, "' has ", metadata_->num_rows(),
              " rows, but ", row, " were read of it before; it has changed");
      go_to(row);
    });
  }

  bool next(std::optional<std::string_view>& document) override {
    bool is_there = false;
    guarded(true, [&] {
      while (!batch_ || at_ == batch_->num_rows())
        if (!next_batch()) return;
      document = document_at(at_++);
      ++row_;
      is_there = true;
    });
    return is_there;
  }

  std::int64_t taken() const override {
    const auto rows = static_cast<double>(std::max<std::int64_t>(metadata_->num_rows(), 1));
    return static_cast<std::int64_t>(static_cast<double>(bytes_) * static_cast<double>(row_) /
                                     rows);
  }

 private:
  /// Makes an Error that names the file of what Arrow throws.
  template <class Work>
  void guarded(bool names_row, const Work& work) {
    try {
      work();
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      const std::string reason = error.what();
      throw Error(text("'", path_, "'", names_row ? text(", row ", row_ + 1) : "",
                       ": Arrow can't read this Parquet file: ",
                       without_middle(printable(reason.substr(0, reason.find('\n'))), 300)));
    }
  }

  void open() {
    const auto file = value_of(arrow::io::ReadableFile::Open(path_));
    bytes_ = value_of(file->GetSize());
    parquet::ReaderProperties properties = parquet::default_reader_properties();
    properties.enable_buffered_stream();  // pages one by one, not all of a row group
    properties.set_page_checksum_verification(true);
    parquet::ArrowReaderProperties arrow_properties;
    arrow_properties.set_use_threads(false);
    arrow_properties.set_pre_buffer(false);
    parquet::arrow::FileReaderBuilder builder;
    require_good(builder.Open(file, properties));
    builder.properties(arrow_properties);
    require_good(builder.Build(&reader_));
    metadata_ = reader_->parquet_reader()->metadata();
    std::int64_t rows = 0;
    for (int group = 0; group < metadata_->num_row_groups(); ++group) {
      const std::int64_t of_group = metadata_->RowGroup(group)->num_rows();
      if (of_group < 0) throw std::runtime_error(text("a row group has ", of_group, " rows"));
      rows += of_group;
    }
    if (rows != metadata_->num_rows())
      throw std::runtime_error(
          text("its row groups have ", rows, " rows, not ", metadata_->num_rows()));
  }

  void go_to(std::int64_t row) {
    row_ = row;
    skipped_ = row;
    for (; group_ < metadata_->num_row_groups(); ++group_) {
      const std::int64_t rows = metadata_->RowGroup(group_)->num_rows();
      if (skipped_ < rows) return;
      skipped_ -= rows;
    }
  }

  /// Rows of a batch: few where they are long.
  std::int64_t batch_rows() const {
    constexpr std::int64_t most_rows = 4096, most_bytes = 1 << 24;
    const auto group = metadata_->RowGroup(group_);
    std::int64_t bytes = 1;
    for (const int leaf : leaves_)
      bytes += std::max<std::int64_t>(group->ColumnChunk(leaf)->total_uncompressed_size(), 0);
    const std::int64_t row_bytes = bytes / std::max<std::int64_t>(group->num_rows(), 1) + 1;
    return std::clamp<std::int64_t>(most_bytes / row_bytes, 1, most_rows);
  }

  /// Goes on to the next rows; returns false at the end.
  bool next_batch() {
    columns_.clear();
    batch_.reset();
    if (!batches_) {
      if (group_ >= metadata_->num_row_groups()) return false;
      reader_->set_batch_size(batch_rows());
      batches_ = batches_of(*reader_, group_, leaves_, 0);
      group_rows_ = 0;
    }
    batch_ = value_of(batches_->Next());
    if (!batch_) {
      const std::int64_t expected = metadata_->RowGroup(group_)->num_rows();
      if (group_rows_ != expected)
        throw std::runtime_error(
            text("row group ", group_ + 1, " has ", group_rows_, " rows, not ", expected));
      batches_.reset();
      ++group_;
      return true;
    }
    require_good(batch_->Validate());
    group_rows_ += batch_->num_rows();
    at_ = std::min(skipped_, batch_->num_rows());
    skipped_ -= at_;
    for (const std::string& name : names_) {
      columns_.push_back(batch_->GetColumnByName(name));
      if (!columns_.back()) throw std::runtime_error("a row group has no column " + name);
    }
    return true;
  }

  std::optional<std::string_view> document_at(std::int64_t row) {
    if (!chats_) {
      const arrow::Array& column = *columns_[0];
      if (lacks(column, row)) return std::nullopt;
      return string_at(column, row);
    }
    const std::size_t chat_columns = names_.size() > 1 && names_[1] == "completion" ? 2 : 1;
    chat_ = "{";
    bool is_chat = false;
    for (std::size_t i = 0; i < names_.size(); ++i) {
      if (lacks(*columns_[i], row)) continue;
      is_chat = is_chat || i < chat_columns;
      if (chat_.size() > 1) chat_ += ',';
      append_string(names_[i], chat_);
      chat_ += ':';
      append_value(*columns_[i], row, chat_);
    }
    chat_ += '}';
    if (!is_chat) return std::nullopt;
    return chat_;
  }

  std::string path_;
  bool chats_;
  std::vector<std::string> names_;  // of the columns
  std::vector<int> leaves_;         // columns as Parquet numbers them
  std::int64_t bytes_ = 0;
  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::shared_ptr<parquet::FileMetaData> metadata_;
  int group_ = 0;
  std::int64_t group_rows_ = 0;  // read of the row group
  std::int64_t skipped_ = 0;     // rows of the row group that were read by another reader
  Batches batches_;
  std::shared_ptr<arrow::RecordBatch> batch_;
  std::vector<std::shared_ptr<arrow::Array>> columns_;  // of the batch, by names_
  std::int64_t at_ = 0, row_ = 0;                       // in the batch, in the file
  std::string chat_;
};

}  // namespace

bool reads_parquet() { return true; }

std::unique_ptr<ParquetRows> open_parquet(const std::string& path, const ParquetColumns& columns,
                                          std::int64_t row) {
  return std::make_unique<ArrowRows>(path, columns, row);
}

}  // namespace ostrakon::texts
