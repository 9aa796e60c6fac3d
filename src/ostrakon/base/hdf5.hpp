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
  /// False where HDF5 could not close it.
  bool reset();

 private:
  std::int64_t value_ = -1;
  Close close_ = nullptr;
};

/// Something in a file that carries attributes: the root group or a data set.
class Object {
 public:
  void write_attribute(const std::string& name, const std::string& value);
  void write_attribute(const std::string& name, std::int64_t value);

  bool has_attribute(const std::string& name) const;
  /// Throw Error where the attribute is missing or of another type.
  std::string text_attribute(const std::string& name) const;
  std::int64_t integer_attribute(const std::string& name) const;

 protected:
  Object(Id id, std::shared_ptr<Storage> storage, std::string name)
      : id_(std::move(id)), storage_(std::move(storage)), name_(std::move(name)) {}
  const std::string& path() const;  ///< of the file, for messages
  Id open_attribute(const std::string& name) const;
  void create_attribute(const std::string& name, std::int64_t type, const void* value);

  Id id_;
  std::shared_ptr<Storage> storage_;
  std::string name_;  ///< inside the file, for messages

  friend class File;
};

/// An array in a file.
class Dataset : public Object {
 public:
  Type type() const { return type_; }
  const std::vector<std::int64_t>& shape() const { return shape_; }
  /// A filter of HDF5 that the elements were stored with and that can't be used here, for messages:
  /// "lzf (32000)"; empty where there is none.
  const std::string& missing_filter() const { return missing_filter_; }

  /// Adds `count` elements to a series. Values that `type()` can't hold are clipped.
  void append(Type memory_type, const void* values, std::int64_t count);
  /// The whole array.
  void write(Type memory_type, const void* values);
  void read(Type memory_type, void* values) const;
  /// Elements [first, first + count) of a series.
  void read(Type memory_type, std::int64_t first, std::int64_t count, void* values) const;
  /// Elements [first, first + count) of an array, row-major.
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

/// A file, and its root group. Its data sets can't be used after it is gone.
class File {
 public:
  /// Writes to "<path>.partial" until commit(); throws Error where another process does so. `kind`
  /// ("token file") is for messages.
  static File create(const std::string& path, const std::string& kind);
  /// Read-only. Missing, a folder, empty, not HDF5, truncated: each throws its own message.
  static File open(const std::string& path, const std::string& kind);

  File(File&& other) noexcept;
  File& operator=(File&& other) = delete;
  /// Removes what was not committed.
  ~File();

  const std::string& path() const;
  /// Where it is until commit(); empty where it is not being written.
  const std::string& partial_path() const { return partial_path_; }
  const std::string& kind() const { return kind_; }
  Object root() const;

  /// A one-dimensional, growing data set in chunks of `chunk` elements, each with a checksum.
  Dataset create_series(const std::string& name, Type type, std::int64_t chunk);
  /// An array of fixed shape, laid out in one piece. Groups on the way to `name` are made.
  Dataset create_array(const std::string& name, Type type, const std::vector<std::int64_t>& shape);

  bool has(const std::string& name) const;
  /// Lists the names of the data sets in a group and the groups in it, sorted within each group:
  /// "block.3/weight". Empty where there is no such group.
  std::vector<std::string> datasets(const std::string& group) const;
  Dataset dataset(const std::string& name) const;

  /// Marks the root with the file's format; check_format requires it.
  void write_format(const std::string& format, std::int64_t version);
  void check_format(const std::string& format, std::int64_t version) const;

  /// Flushes, closes and syncs the file. Nothing can be written to it afterwards. Throws Error also
  /// for what could not be written before.
  void complete();
  /// complete(), where that was not called, then renames it to path() and syncs the folder.
  void commit();

 private:
  File(Id id, std::shared_ptr<Storage> storage, std::string kind)
      : id_(std::move(id)), storage_(std::move(storage)), kind_(std::move(kind)) {}

  Id id_;
  std::shared_ptr<Storage> storage_;
  std::string kind_;
  std::string partial_path_;  ///< empty: nothing to commit or remove
};

/// An array of a file that is laid out before there are values.
struct ArrayShape {
  std::string name;  ///< with the groups on the way to it
  Type type = Type::float32;
  std::vector<std::int64_t> shape;
  std::vector<std::pair<std::string, std::string>> attributes;
};

/// All bytes of an HDF5 file of contiguous arrays but their values, and where those go. Writing
/// `structure`, and the values at their offsets, gives that HDF5 file.
struct FileTemplate {
  struct Extent {
    std::int64_t offset = 0;
    std::string bytes;
  };
  std::int64_t bytes = 0;             ///< of the file
  std::vector<std::int64_t> offsets;  ///< of each array's values
  std::vector<Extent> structure;      ///< in order
};

/// Lays out a file with these text attributes of its root and these arrays, in this order, of which
/// large ones begin at multiples of 4 KiB. The same arguments give the same bytes. Throws Error.
FileTemplate make_template(const std::vector<std::pair<std::string, std::string>>& attributes,
                           const std::vector<ArrayShape>& arrays);

/// XXH3 (64 bits) of bytes that come in parts. The algorithm reads bytes, so elements are hashed in
/// the little-endian order that every supported machine has.
class Checksum {
 public:
  Checksum();
  Checksum(Checksum&&) noexcept = default;
  ~Checksum();

  void add(const void* data, std::int64_t bytes);
  /// More may be added afterwards.
  std::uint64_t value() const;
  /// The checksum as sixteen hexadecimal digits.
  std::string hex() const;

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

/// "(768, 3)"
std::string shape_text(const std::vector<std::int64_t>& shape);

}  // namespace ostrakon::hdf5
