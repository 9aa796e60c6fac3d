// SPDX-License-Identifier: Apache-2.0
#include <hdf5.h>

#include <algorithm>
#include <limits>
#include <ostrakon/base/hdf5/hdf5.hpp>
#include <ostrakon/base/hdf5/hdf5_calls.hpp>
#include <set>
#include <utility>

namespace ostrakon::hdf5 {
namespace {

constexpr const char* template_name = "layout of an HDF5 file";  // for messages
constexpr std::int64_t large_array_bytes = 64 << 10;             // aligned from this size on
constexpr std::int64_t alignment = 4096;

std::int64_t value_bytes(const ArrayShape& array) {
  auto bytes = static_cast<std::int64_t>(H5Tget_size(stored_type(array.type)));
  for (const std::int64_t extent : array.shape) {
    require(extent > 0 && bytes <= std::numeric_limits<std::int64_t>::max() / extent, template_name,
            ": ", array.name, " has the shape ", shape_text(array.shape),
            "; expected positive extents and less than 2^63 bytes");
    bytes *= extent;
  }
  return bytes;
}

/// Writes a file's objects in memory. The bytes depend only on the arguments: no times are stored.
class LayoutWriter {
 public:
  LayoutWriter(Storage& storage, std::size_t arrays) {
    const Id access = file_access(storage);
    check(H5Pset_alignment(access.get(), large_array_bytes, alignment), template_name,
          "set the alignment");
    // One large metadata block keeps the metadata together, not in small blocks among the arrays.
    const std::size_t block = std::min<std::size_t>(2048 + 512 * arrays, 1 << 20);
    check(H5Pset_meta_block_size(access.get(), block), template_name, "size blocks of metadata");
    const Id properties = without_times(H5P_FILE_CREATE);
    file_ = Id(check(H5Fcreate(template_name, H5F_ACC_TRUNC, properties.get(), access.get()),
                     template_name, "create it"),
               H5Fclose);
    root_ = Id(check(H5Gopen2(file_.get(), "/", H5P_DEFAULT), template_name, "open the root group"),
               H5Gclose);
    group_properties_ = without_times(H5P_GROUP_CREATE);
    array_properties_ = without_times(H5P_DATASET_CREATE);
    check(H5Pset_layout(array_properties_.get(), H5D_CONTIGUOUS), template_name, "set up HDF5");
    check(H5Pset_alloc_time(array_properties_.get(), H5D_ALLOC_TIME_EARLY), template_name,
          "set up HDF5");
    check(H5Pset_fill_time(array_properties_.get(), H5D_FILL_TIME_NEVER), template_name,
          "set up HDF5");
  }

  void add_attribute(const std::string& name, const std::string& value) {
    write_attribute(root_.get(), name, value);
  }

  /// Adds an array, and returns the offset of its values.
  std::int64_t add(const ArrayShape& array) {
    make_groups(array.name);
    const std::vector<hsize_t> extents(array.shape.begin(), array.shape.end());
    const Id space(
        check(H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr),
              template_name, "create a data space"),
        H5Sclose);
    const Id dataset(
        check(H5Dcreate2(file_.get(), array.name.c_str(), stored_type(array.type), space.get(),
                         H5P_DEFAULT, array_properties_.get(), H5P_DEFAULT),
              template_name, "create " + array.name),
        H5Dclose);
    for (const auto& [name, value] : array.attributes) write_attribute(dataset.get(), name, value);
    const haddr_t offset = H5Dget_offset(dataset.get());
    require(offset != HADDR_UNDEF, template_name, ": HDF5 gave ", array.name, " no place");
    return static_cast<std::int64_t>(offset);
  }

  void close() {
    const bool closed = root_.reset() && file_.reset();
    require(closed, template_name, ": can't close it: ", last_failure());
  }

 private:
  static Id without_times(hid_t list_class) {
    Id properties = property_list(list_class, template_name);
    check(H5Pset_obj_track_times(properties.get(), false), template_name, "switch times off");
    return properties;
  }

  static void write_attribute(hid_t object, const std::string& name, const std::string& value) {
    const Id type = string_type(value.size(), template_name);
    const Id space(check(H5Screate(H5S_SCALAR), template_name, "create a data space"), H5Sclose);
    const Id attribute(
        check(H5Acreate2(object, name.c_str(), type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT),
              template_name, "create the attribute " + name),
        H5Aclose);
    check(H5Awrite(attribute.get(), type.get(), value.c_str()), template_name,
          "write an attribute");
  }

  /// Creates the groups on the path of an array. HDF5 would create them itself, but store the time.
  void make_groups(const std::string& name) {
    for (std::size_t end = name.find('/', 1); end != std::string::npos;
         end = name.find('/', end + 1)) {
      const std::string group = name.substr(0, end);
      if (!groups_.insert(group).second) continue;
      const Id made(check(H5Gcreate2(file_.get(), group.c_str(), H5P_DEFAULT,
                                     group_properties_.get(), H5P_DEFAULT),
                          template_name, "create the group " + group),
                    H5Gclose);
    }
  }

  Id file_, root_, group_properties_, array_properties_;
  std::set<std::string> groups_;
};

/// Reads all bytes of a file except those of the arrays' values.
std::vector<FileTemplate::Extent> read_structure(Storage& storage,
                                                 const std::vector<ArrayShape>& arrays,
                                                 const std::vector<std::int64_t>& offsets) {
  std::vector<std::pair<std::int64_t, std::int64_t>> values;  // begin, end
  for (std::size_t i = 0; i < arrays.size(); ++i)
    values.emplace_back(offsets[i], offsets[i] + value_bytes(arrays[i]));
  std::sort(values.begin(), values.end());
  values.emplace_back(storage.size(), storage.size());

  std::vector<FileTemplate::Extent> structure;
  std::int64_t at = 0;
  for (const auto& [begin, end] : values) {
    require(at <= begin, template_name, ": HDF5 gave two arrays the bytes at ", begin);
    if (at < begin) {
      structure.push_back({at, std::string(static_cast<std::size_t>(begin - at), '\0')});
      storage.read(at, begin - at, structure.back().bytes.data());
    }
    at = end;
  }
  return structure;
}

}  // namespace

FileTemplate make_template(const std::vector<std::pair<std::string, std::string>>& attributes,
                           const std::vector<ArrayShape>& arrays) {
  silence();
  const auto storage = std::make_shared<Storage>(template_name);
  LayoutWriter writer(*storage, arrays.size());
  for (const auto& [name, value] : attributes) writer.add_attribute(name, value);
  FileTemplate made;
  // The arrays' bytes are limited here, as HDF5 1.10 reads freed memory after it ran out of
  // addresses. The structure fits into 2^40 bytes.
  std::int64_t left = std::numeric_limits<std::int64_t>::max() - (std::int64_t{1} << 40);
  for (const ArrayShape& array : arrays) {
    const std::int64_t bytes = value_bytes(array);
    require(bytes <= left, template_name, ": with ", array.name,
            " its arrays have more than 2^63 - 2^40 bytes");
    left -= bytes;
    made.offsets.push_back(writer.add(array));
  }
  writer.close();
  // HDF5 sets the file's length, although nothing is written at its end.
  made.bytes = storage->size();
  made.structure = read_structure(*storage, arrays, made.offsets);
  return made;
}

}  // namespace ostrakon::hdf5
