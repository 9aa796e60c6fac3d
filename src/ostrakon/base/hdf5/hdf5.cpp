// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/base/hdf5/hdf5.hpp>

#include <hdf5.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/hdf5/hdf5_calls.hpp>
#include <utility>

namespace ostrakon::hdf5 {

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string joined;
  for (const std::int64_t extent : shape) {
    joined += (joined.empty() ? "" : ", ") + std::to_string(extent);
  }
  return "(" + joined + ")";
}

Id& Id::operator=(Id&& other) noexcept {
  std::swap(value_, other.value_);
  std::swap(close_, other.close_);
  return *this;
}

bool Id::reset() {
  if (value_ < 0) return true;
  silence();
  const bool closed = close_(value_) >= 0;
  value_ = -1;
  return closed;
}

// --- Object --------------------------------------------------------------------------------------

const std::string& Object::path() const { return storage_->name(); }

void Object::create_attribute(const std::string& name, std::int64_t type, const void* value) {
  const Id space(check(H5Screate(H5S_SCALAR), path(), "create a data space"), H5Sclose);
  const Id attribute =
      written_id(H5Acreate2(id_.get(), name.c_str(), type, space.get(), H5P_DEFAULT, H5P_DEFAULT),
                 H5Aclose, *storage_, "create an attribute");
  check_write(H5Awrite(attribute.get(), type, value), *storage_, "write an attribute");
}

void Object::write_attribute(const std::string& name, const std::string& value) {
  silence();
  const Id type = string_type(value.size(), path());
  create_attribute(name, type.get(), value.c_str());
}

void Object::write_attribute(const std::string& name, std::int64_t value) {
  silence();
  create_attribute(name, H5T_STD_I64LE, &value);
}

bool Object::has_attribute(const std::string& name) const {
  silence();
  return check_read(H5Aexists(id_.get(), name.c_str()), *storage_, name_) > 0;
}

Id Object::open_attribute(const std::string& name) const {
  require(has_attribute(name), "'", path(), "': ", name_, " has no attribute '", name, "'");
  Id attribute(check_read(H5Aopen(id_.get(), name.c_str(), H5P_DEFAULT), *storage_, name),
               H5Aclose);
  const Id space(check_read(H5Aget_space(attribute.get()), *storage_, name), H5Sclose);
  require(H5Sget_simple_extent_npoints(space.get()) == 1, "'", path(), "': attribute '", name,
          "' of ", name_, " is not a single value");
  return attribute;
}

std::string Object::text_attribute(const std::string& name) const {
  silence();
  const Id attribute = open_attribute(name);
  const Id type(check_read(H5Aget_type(attribute.get()), *storage_, name), H5Tclose);
  require(H5Tget_class(type.get()) == H5T_STRING, "'", path(), "': attribute '", name, "' of ",
          name_, " is not text");
  if (H5Tis_variable_str(type.get()) > 0) {  // h5py writes variable-length strings
    char* characters = nullptr;
    check_read(H5Aread(attribute.get(), type.get(), static_cast<void*>(&characters)), *storage_,
               name);
    const std::unique_ptr<char, decltype(&H5free_memory)> owner(characters, H5free_memory);
    return characters == nullptr ? "" : characters;
  }
  std::string value(H5Tget_size(type.get()), '\0');
  check_read(H5Aread(attribute.get(), type.get(), value.data()), *storage_, name);
  value.resize(value.find_last_not_of('\0') + 1);
  return value;
}

std::int64_t Object::integer_attribute(const std::string& name) const {
  silence();
  const Id attribute = open_attribute(name);
  const Id type(check_read(H5Aget_type(attribute.get()), *storage_, name), H5Tclose);
  require(H5Tget_class(type.get()) == H5T_INTEGER, "'", path(), "': attribute '", name, "' of ",
          name_, " is not an integer");
  std::int64_t value = 0;
  check_read(H5Aread(attribute.get(), H5T_NATIVE_INT64, &value), *storage_, name);
  return value;
}

// --- Dataset -------------------------------------------------------------------------------------

Id Dataset::select(std::int64_t first, std::int64_t count) const {
  Id space(check(H5Dget_space(id_.get()), path(), "read a data set's shape"), H5Sclose);
  const auto start = static_cast<hsize_t>(first);
  const auto size = static_cast<hsize_t>(count);
  check(H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, &start, nullptr, &size, nullptr), path(),
        "select a part of a data set");
  return space;
}

void Dataset::append(Type memory_type, const void* values, std::int64_t count) {
  if (count == 0) return;
  silence();
  const std::int64_t first = shape_.at(0);
  const auto extent = static_cast<hsize_t>(first + count);
  check_write(H5Dset_extent(id_.get(), &extent), *storage_, "extend a data set");
  shape_[0] = first + count;

  const Id file_space = select(first, count);
  const auto size = static_cast<hsize_t>(count);
  const Id space(check(H5Screate_simple(1, &size, nullptr), path(), "create a data space"),
                 H5Sclose);
  check_write(H5Dwrite(id_.get(), stored_type(memory_type), space.get(), file_space.get(),
                       H5P_DEFAULT, values),
              *storage_, "write");
}

void Dataset::write(Type memory_type, const void* values) {
  silence();
  check_write(H5Dwrite(id_.get(), stored_type(memory_type), H5S_ALL, H5S_ALL, H5P_DEFAULT, values),
              *storage_, "write");
}

/// Checks the result of an access to elements. A missing filter is reported as such, not as damage.
void Dataset::check_elements(int result) const {
  if (result < 0 && storage_->failure().empty())
    require(missing_filter_.empty(), "'", path(), "': ", name_, " is stored with the HDF5 filter ",
            missing_filter_,
            ", which is not available in this HDF5; expected none, or one that is, ",
            "such as gzip");
  check_read(result, *storage_, name_);
}

void Dataset::read(Type memory_type, void* values) const {
  silence();
  check_elements(
      H5Dread(id_.get(), stored_type(memory_type), H5S_ALL, H5S_ALL, H5P_DEFAULT, values));
}

void Dataset::read(Type memory_type, std::int64_t first, std::int64_t count, void* values) const {
  require(first >= 0 && count >= 0 && first <= shape_.at(0) - count, "'", path(), "': elements ",
          first, " to ", first + count, " of ", name_, " asked for; it has ", shape_.at(0));
  if (count == 0) return;
  silence();
  const Id file_space = select(first, count);
  const auto size = static_cast<hsize_t>(count);
  const Id space(check(H5Screate_simple(1, &size, nullptr), path(), "create a data space"),
                 H5Sclose);
  check_elements(H5Dread(id_.get(), stored_type(memory_type), space.get(), file_space.get(),
                         H5P_DEFAULT, values));
}

void Dataset::read_elements(Type memory_type, std::int64_t first, std::int64_t count,
                            void* values) const {
  const std::int64_t elements = std::accumulate(shape_.begin(), shape_.end(), std::int64_t{1},
                                                std::multiplies<std::int64_t>());
  require(!shape_.empty() && first >= 0 && count >= 0 && first <= elements - count, "'", path(),
          "': elements ", first, " to ", first + count, " of ", name_, " asked for; its shape is ",
          shape_text(shape_));
  silence();
  const Id file_space(check(H5Dget_space(id_.get()), path(), "read a data set's shape"), H5Sclose);
  const std::size_t rank = shape_.size();
  std::vector<hsize_t> start(rank), size(rank);
  char* out = static_cast<char*>(values);
  // A range of elements is transferred box by box: each box is as many whole slices as fit, along
  // the first dimension that allows one.
  while (count > 0) {
    std::int64_t slice = elements;
    std::int64_t taken = 0;
    for (std::size_t d = 0; d < rank; ++d) {
      slice /= shape_[d];
      start[d] = static_cast<hsize_t>(first / slice % shape_[d]);
      const bool whole = taken > 0;
      if (!whole && first % slice == 0 && slice <= count) {
        const std::int64_t slices =
            std::min(count / slice, shape_[d] - static_cast<std::int64_t>(start[d]));
        taken = slices * slice;
        size[d] = static_cast<hsize_t>(slices);
      } else {
        size[d] = whole ? static_cast<hsize_t>(shape_[d]) : 1;
      }
    }
    check(H5Sselect_hyperslab(file_space.get(), H5S_SELECT_SET, start.data(), nullptr, size.data(),
                              nullptr),
          path(), "select a part of a data set");
    const auto memory_size = static_cast<hsize_t>(taken);
    const Id space(check(H5Screate_simple(1, &memory_size, nullptr), path(), "create a data space"),
                   H5Sclose);
    check_elements(H5Dread(id_.get(), stored_type(memory_type), space.get(), file_space.get(),
                           H5P_DEFAULT, out));
    out += taken * static_cast<std::int64_t>(H5Tget_size(stored_type(memory_type)));
    first += taken;
    count -= taken;
  }
}

}  // namespace ostrakon::hdf5
