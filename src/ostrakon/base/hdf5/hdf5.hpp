// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <ostrakon/base/names.hpp>
#include <string>
#include <utility>
#include <vector>

struct XXH3_state_s;

/// The part of HDF5 that Ostrakon's files need: whole files of one process, checked at every call.
/// Files are written under a temporary name and renamed when they are complete; their metadata
/// carries checksums (the 1.10 file format), so damage is found, not read. No other module includes
/// hdf5.h. Failures throw ostrakon::Error that names the file; HDF5's own printing of errors is
/// switched off, for the whole process.
namespace ostrakon::hdf5 {

class Storage;

/// The type of an element in a file or in memory. Stored elements are little-endian.
enum class Type { uint8, uint16, uint32, int32, int64, float32, bfloat16 };
constexpr Named<Type> type_names[] = {{Type::uint8, "uint8"},      {Type::uint16, "uint16"},
                                      {Type::uint32, "uint32"},    {Type::int32, "int32"},
                                      {Type::int64, "int64"},      {Type::float32, "float32"},
                                      {Type::bfloat16, "bfloat16"}};
constexpr const char* name(Type type) { return name_in(type_names, type); }

/// Owns one HDF5 identifier (hid_t).
class Id {
 public:
  using Close = int (*)(std::int64_t);

  Id() = default;
  Id(std::int64_t value, Close close) : value_(value), close_(close) {}
  Id(Id&& other) noexcept : value_(other.value_), close_(other.close_) { other.value_ = -1; }
  Id& operator=(Id&& other) noexcept;
  ~Id() { reset(); }

  std::int64_t get() const { return value_; }
  bool valid() const { return value_ >= 0; }
  /// Closes the identifier; returns false if HDF5 could not close it.
  bool reset();

 private:
  std::int64_t value_ = -1;
  Close close_ = nullptr;
};

/// An object in a file that carries attributes: the root group or a data set.
class Object {
 public:
  void write_attribute(const std::string& name, const std::string& value);
  void write_attribute(const std::string& name, std::int64_t value);

  bool has_attribute(const std::string& name) const;
  /// These throw Error if the attribute is missing or of another type.
  std::string text_attribute(const std::string& name) const;
  std::int64_t integer_attribute(const std::string& name) const;

 protected:
  Object(Id id, std::shared_ptr<Storage> storage, std::string name)
      : id_(std::move(id)), storage_(std::move(storage)), name_(std::move(name)) {}
  const std::string& path() const;  ///< path of the file, for messages
  Id open_attribute(const std::string& name) const;
  void create_attribute(const std::string& name, std::int64_t type, const void* value);

  Id id_;
  std::shared_ptr<Storage> storage_;
  std::string name_;  ///< path inside the file, for messages

  friend class File;
};

/// An array in a file.
class Dataset : public Object {
 public:
  Type type() const { return type_; }
  const std::vector<std::int64_t>& shape() const { return shape_; }
  /// The HDF5 filter that the elements were stored with and that this HDF5 lacks, for messages:
  /// "lzf (32000)"; empty if there is none.
  const std::string& missing_filter() const { return missing_filter_; }

  /// Appends `count` elements to a series. Values that `type()` can't hold are clipped.
  void append(Type memory_type, const void* values, std::int64_t count);
  /// Writes or reads the whole array.
  void write(Type memory_type, const void* values);
  void read(Type memory_type, void* values) const;
  /// Reads elements [first, first + count) of a series.
  void read(Type memory_type, std::int64_t first, std::int64_t count, void* values) const;
  /// Reads elements [first, first + count) of an array, row-major.
  void read_elements(Type memory_type, std::int64_t first, std::int64_t count, void* values) const;

 private:
  Dataset(Id id, std::shared_ptr<Storage> storage, std::string name, Type type,
          std::vector<std::int64_t> shape, std::string missing_filter = "")
      : Object(std::move(id), std::move(storage), std::move(name)),
        type_(type),
        shape_(std::move(shape)),
        missing_filter_(std::move(missing_filter)) {}
  Id select(std::int64_t first, std::int64_t count) const;
  void check_elements(int result) const;

  Type type_;
  std::vector<std::int64_t> shape_;
  std::string missing_filter_;

  friend class File;
};

/// A file, and its root group. Its data sets can't be used after the File is destroyed.
class File {
 public:
  /// Creates a file, written as "<path>.partial" until commit(). Throws Error if another process
  /// writes it. `kind` ("token file") is used in messages.
  static File create(const std::string& path, const std::string& kind);
  /// Opens a file read-only. Throws a specific Error for each case: missing, a folder, empty, not
  /// HDF5, truncated.
  static File open(const std::string& path, const std::string& kind);

  File(File&& other) noexcept;
  File& operator=(File&& other) = delete;
  /// Removes the partial file if it was not committed.
  ~File();

  const std::string& path() const;
  /// Path of the file until commit(); empty if the file is not being written.
  const std::string& partial_path() const { return partial_path_; }
  const std::string& kind() const { return kind_; }
  Object root() const;

  /// Creates a one-dimensional, growing data set in chunks of `chunk` elements, each with a
  /// checksum. `compressed`: with deflate, where this HDF5 has it.
  Dataset create_series(const std::string& name, Type type, std::int64_t chunk,
                        bool compressed = false);
  /// Creates an array of fixed shape with contiguous layout, and the groups on the path `name`.
  Dataset create_array(const std::string& name, Type type, const std::vector<std::int64_t>& shape);

  bool has(const std::string& name) const;
  /// Lists the names of the data sets in a group and its subgroups, sorted within each group:
  /// "block.3/weight". Empty if there is no such group.
  std::vector<std::string> datasets(const std::string& group) const;
  Dataset dataset(const std::string& name) const;

  /// write_format() stores the file's format as attributes of the root; check_format() requires it.
  void write_format(const std::string& format, std::int64_t version);
  void check_format(const std::string& format, std::int64_t version) const;
  /// Requires a version from `first` to `last`, and returns it.
  std::int64_t check_format(const std::string& format, std::int64_t first, std::int64_t last) const;

  /// Flushes, closes and syncs the file. Nothing can be written to it afterwards. Throws Error also
  /// if an earlier write failed.
  void complete();
  /// Calls complete() if needed, then renames the file to path() and syncs the folder.
  void commit();

 private:
  File(Id id, std::shared_ptr<Storage> storage, std::string kind)
      : id_(std::move(id)), storage_(std::move(storage)), kind_(std::move(kind)) {}

  Id id_;
  std::shared_ptr<Storage> storage_;
  std::string kind_;
  std::string partial_path_;  ///< empty: there is nothing to commit or remove
};

/// An array that a file gets space for before its values exist.
struct ArrayShape {
  std::string name;  ///< path in the file, with its groups
  Type type = Type::float32;
  std::vector<std::int64_t> shape;
  std::vector<std::pair<std::string, std::string>> attributes;
};

/// An HDF5 file of contiguous arrays without their values: all other bytes, and the offsets of the
/// values. Writing `structure`, and the values at their offsets, gives a valid HDF5 file.
struct FileTemplate {
  struct Extent {
    std::int64_t offset = 0;
    std::string bytes;
  };
  std::int64_t bytes = 0;             ///< size of the file
  std::vector<std::int64_t> offsets;  ///< file offset of each array's values
  std::vector<Extent> structure;      ///< ascending by offset
};

/// Lays out a file with these text attributes of its root and these arrays, in this order. Large
/// arrays begin at multiples of 4 KiB. Equal arguments give equal bytes. Throws Error.
FileTemplate make_template(const std::vector<std::pair<std::string, std::string>>& attributes,
                           const std::vector<ArrayShape>& arrays);

/// XXH3 (64 bits) of bytes that are added in parts. Elements are hashed in little-endian order,
/// which every supported machine has.
class Checksum {
 public:
  Checksum();
  Checksum(Checksum&&) noexcept = default;
  ~Checksum();

  void add(const void* data, std::int64_t bytes);
  /// The checksum of all bytes so far; more may be added afterwards.
  std::uint64_t value() const;
  /// The checksum as sixteen hexadecimal digits.
  std::string hex() const;

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

/// Formats a shape: "(768, 3)".
std::string shape_text(const std::vector<std::int64_t>& shape);

}  // namespace ostrakon::hdf5
