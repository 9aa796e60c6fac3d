// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <hdf5.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <limits>
#include <numeric>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/file_type.hpp>
#include <ostrakon/base/files.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/hdf5.hpp>
#include <ostrakon/base/hdf5_storage.hpp>
#include <set>
#include <utility>

namespace ostrakon::hdf5 {
namespace {

static_assert(sizeof(hid_t) == sizeof(std::int64_t), "HDF5 1.10 or newer");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "checksums are over little-endian numbers");

/// Switches HDF5's own printing of errors off, for this thread. It stays off: after a damaged file
/// HDF5 has complaints even while the program ends.
void silence() { H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr); }

/// The innermost of HDF5's own messages about its last failure, or the system's where it quotes
/// one.
std::string last_failure() {
  std::string found;
  const auto take_first = [](unsigned, const H5E_error2_t* entry, void* out) -> herr_t {
    auto& message = *static_cast<std::string*>(out);
    if (message.empty() && entry->desc != nullptr) message = entry->desc;
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_first, &found);
  const std::string quote = "error message = '";
  const std::size_t begin = found.find(quote);
  if (begin != std::string::npos) {
    found.erase(0, begin + quote.size());
    found.erase(std::min(found.find('\''), found.size()));
  }
  return found.empty() ? "unknown HDF5 failure" : found;
}

/// Where the file `path` is written until it is complete.
std::string partial_name(const std::string& path) { return path + ".partial"; }

/// Passes on what an HDF5 function returned, unless it says that the function failed.
template <class Result>
Result check(Result result, const std::string& path, const std::string& what) {
  if (result < 0) throw Error(text("'", path, "': can't ", what, ": ", last_failure()));
  return result;
}

/// The same for functions that write. HDF5 does not know of what the system could not write.
template <class Result>
Result check_write(Result result, const Storage& storage, const std::string& what) {
  require(storage.failure().empty(), storage.failure());
  return check(result, storage.name(), what);
}

/// Owns what such a function made, also where that fails: writing may have failed before.
Id written_id(hid_t made, Id::Close close, const Storage& storage, const std::string& what) {
  Id id(made, close);
  check_write(id.get(), storage, what);
  return id;
}

/// The same for functions that read: where the system could read, they fail because the file is
/// damaged.
template <class Result>
Result check_read(Result result, Storage& storage, const std::string& what) {
  const std::string failure = storage.take_failure();
  if (result >= 0) return result;
  require(failure.empty(), failure);
  throw Error(text("'", storage.name(), "' is truncated or damaged: can't read ", what, ": ",
                   last_failure()));
}

/// The upper half of an fp32: HDF5 has no such type of its own, but converts whatever is described
/// to it. Lives as long as the process.
hid_t make_bfloat16() {
  constexpr std::size_t bytes = 2, sign = 15, exponent = 7, exponent_bits = 8, mantissa_bits = 7;
  const hid_t type = H5Tcopy(H5T_IEEE_F32LE);
  const bool made = type >= 0 &&
                    H5Tset_fields(type, sign, exponent, exponent_bits, 0, mantissa_bits) >= 0 &&
                    H5Tset_size(type, bytes) >= 0 && H5Tset_ebias(type, 127) >= 0;
  require(made, "can't describe bfloat16 to HDF5: ", last_failure());
  return type;
}

hid_t bfloat16_type() {
  static const hid_t type = make_bfloat16();
  return type;
}

hid_t stored_type(Type type) {
  switch (type) {
    case Type::uint8:
      return H5T_STD_U8LE;
    case Type::uint16:
      return H5T_STD_U16LE;
    case Type::uint32:
      return H5T_STD_U32LE;
    case Type::int32:
      return H5T_STD_I32LE;
    case Type::int64:
      return H5T_STD_I64LE;
    case Type::float32:
      return H5T_IEEE_F32LE;
    case Type::bfloat16:
      return bfloat16_type();
  }
  return -1;
}

Id property_list(hid_t list_class, const std::string& path) {
  return Id(check(H5Pcreate(list_class), path, "create an HDF5 property list"), H5Pclose);
}

/// Access for one process, in the 1.10 file format, whose metadata carries checksums throughout.
/// No file locks: files appear complete under their names, and some cluster file systems have none.
Id file_access(const std::string& path) {
  Id access = property_list(H5P_FILE_ACCESS, path);
  check(H5Pset_libver_bounds(access.get(), H5F_LIBVER_V110, H5F_LIBVER_V110), path,
        "choose the HDF5 file format");
  check(H5Pset_fclose_degree(access.get(), H5F_CLOSE_STRONG), path, "set up HDF5");
#if H5_VERSION_GE(1, 12, 1) || (H5_VERSION_GE(1, 10, 7) && !H5_VERSION_GE(1, 12, 0))
  check(H5Pset_file_locking(access.get(), 0, 1), path, "switch file locks off");
#endif
  return access;
}

/// The same, to bytes that pass through our hands.
Id file_access(Storage& storage) {
  Id access = file_access(storage.name());
  require(storage.set_driver(access.get()), "'", storage.name(),
          "': can't choose the file driver: ", last_failure());
  return access;
}

/// Tells apart what HDF5 would call by one name.
void check_looks_like_hdf5(const std::string& path, const std::string& kind) {
  require_plain_file(path, kind);
  std::array<char, 8> found{};
  const PlainFile file(path, PlainFile::Mode::read);
  require(file.read_up_to(0, found.size(), found.data()) > 0, kind, " '", path,
          "' is empty (0 bytes)");
  constexpr std::array<char, 8> signature = {'\x89', 'H', 'D', 'F', '\r', '\n', '\x1a', '\n'};
  require(found == signature, "'", path, "' is not an HDF5 file; expected a ", kind);
}

/// A string type that holds `size` bytes; HDF5 knows no empty one.
Id string_type(std::size_t size, const std::string& path) {
  Id type(check(H5Tcopy(H5T_C_S1), path, "copy a type"), H5Tclose);
  check(H5Tset_size(type.get(), std::max<std::size_t>(size, 1)), path, "size a string");
  check(H5Tset_strpad(type.get(), H5T_STR_NULLPAD), path, "pad a string");
  check(H5Tset_cset(type.get(), H5T_CSET_UTF8), path, "mark a string as UTF-8");
  return type;
}

}  // namespace

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
  if (H5Tis_variable_str(type.get()) > 0) {  // as h5py writes it
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

void Dataset::read(Type memory_type, void* values) const {
  silence();
  check_read(H5Dread(id_.get(), stored_type(memory_type), H5S_ALL, H5S_ALL, H5P_DEFAULT, values),
             *storage_, name_);
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
  check_read(H5Dread(id_.get(), stored_type(memory_type), space.get(), file_space.get(),
                     H5P_DEFAULT, values),
             *storage_, name_);
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
  // Box by box: each is as many whole slices as there are, of the first dimension that allows one.
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
    check_read(H5Dread(id_.get(), stored_type(memory_type), space.get(), file_space.get(),
                       H5P_DEFAULT, out),
               *storage_, name_);
    out += taken * static_cast<std::int64_t>(H5Tget_size(stored_type(memory_type)));
    first += taken;
    count -= taken;
  }
}

// --- File ----------------------------------------------------------------------------------------

File File::create(const std::string& path, const std::string& kind) {
  silence();
  require(!is_folder(path), "can't write ", kind, " '", path, "': a folder has that name");
  const std::string partial = partial_name(path);
  auto storage = std::make_shared<Storage>(partial, PlainFile::Mode::create, path);
  const Id access = file_access(*storage);
  File file(Id(), storage, kind);
  file.partial_path_ = partial;  // removed from here on
  file.id_ = written_id(H5Fcreate(partial.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get()),
                        H5Fclose, *storage, "create the file");
  return file;
}

File File::open(const std::string& path, const std::string& kind) {
  silence();
  check_looks_like_hdf5(path, kind);
  auto storage = std::make_shared<Storage>(path, PlainFile::Mode::read, path);
  const Id access = file_access(*storage);
  Id id(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose);
  const std::string failure = storage->take_failure();
  require(id.valid() || failure.empty(), failure);
  require(id.valid(), kind, " '", path, "' is truncated or damaged: ", last_failure());
  return {std::move(id), std::move(storage), kind};
}

File::File(File&& other) noexcept
    : id_(std::move(other.id_)),
      storage_(std::move(other.storage_)),
      kind_(std::move(other.kind_)),
      partial_path_(std::exchange(other.partial_path_, "")) {}

const std::string& File::path() const { return storage_->name(); }

File::~File() {
  if (partial_path_.empty()) return;
  id_.reset();
  storage_->remove();
}

Object File::root() const {
  silence();
  return {
      Id(check_read(H5Gopen2(id_.get(), "/", H5P_DEFAULT), *storage_, "the root group"), H5Gclose),
      storage_, "the root group"};
}

Dataset File::create_series(const std::string& name, Type type, std::int64_t chunk) {
  silence();
  const hsize_t none = 0, unlimited = H5S_UNLIMITED;
  const auto chunk_size = static_cast<hsize_t>(chunk);
  const Id space(check(H5Screate_simple(1, &none, &unlimited), path(), "create a data space"),
                 H5Sclose);
  const Id properties = property_list(H5P_DATASET_CREATE, path());
  check(H5Pset_chunk(properties.get(), 1, &chunk_size), path(), "set the chunk size");
  check(H5Pset_fletcher32(properties.get()), path(), "switch chunk checksums on");
  Id id = written_id(H5Dcreate2(id_.get(), name.c_str(), stored_type(type), space.get(),
                                H5P_DEFAULT, properties.get(), H5P_DEFAULT),
                     H5Dclose, *storage_, "create a data set");
  return {std::move(id), storage_, name, type, {0}};
}

Dataset File::create_array(const std::string& name, Type type,
                           const std::vector<std::int64_t>& shape) {
  silence();
  const std::vector<hsize_t> extents(shape.begin(), shape.end());
  const Id space(check(H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr),
                       path(), "create a data space"),
                 H5Sclose);
  const Id links = property_list(H5P_LINK_CREATE, path());
  check(H5Pset_create_intermediate_group(links.get(), 1), path(), "set up HDF5");
  Id id = written_id(H5Dcreate2(id_.get(), name.c_str(), stored_type(type), space.get(),
                                links.get(), H5P_DEFAULT, H5P_DEFAULT),
                     H5Dclose, *storage_, "create " + name);
  return {std::move(id), storage_, name, type, shape};
}

bool File::has(const std::string& name) const {
  silence();
  // HDF5 wants every group on the way to be looked for by itself.
  for (std::size_t end = name.find('/', 1);; end = name.find('/', end + 1)) {
    const std::string part = name.substr(0, end);
    if (check_read(H5Lexists(id_.get(), part.c_str(), H5P_DEFAULT), *storage_, part) == 0) {
      return false;
    }
    if (end == std::string::npos) return true;
  }
}

std::vector<std::string> File::datasets(const std::string& group) const {
  silence();
  if (!has(group)) return {};
  const Id top(check_read(H5Gopen2(id_.get(), group.c_str(), H5P_DEFAULT), *storage_, group),
               H5Gclose);
  std::vector<std::string> links;
  // Only hard links: the others may lead out of the file.
  const auto take = [](hid_t, const char* name, const H5L_info_t* link, void* out) -> herr_t {
    if (link->type == H5L_TYPE_HARD) static_cast<std::vector<std::string>*>(out)->push_back(name);
    return 0;
  };
  check_read(H5Lvisit(top.get(), H5_INDEX_NAME, H5_ITER_INC, take, &links), *storage_, group);
  std::vector<std::string> names;
  for (const std::string& link : links) {
    const Id object(check_read(H5Oopen(top.get(), link.c_str(), H5P_DEFAULT), *storage_, link),
                    H5Oclose);
    if (H5Iget_type(object.get()) == H5I_DATASET) names.push_back(link);
  }
  return names;
}

Dataset File::dataset(const std::string& name) const {
  silence();
  require(has(name), kind_, " '", path(), "' has no data set ", name);
  Id id(check_read(H5Dopen2(id_.get(), name.c_str(), H5P_DEFAULT), *storage_, name), H5Dclose);
  const Id stored(check_read(H5Dget_type(id.get()), *storage_, name), H5Tclose);
  const auto type = std::find_if(
      std::begin(type_names), std::end(type_names),
      [&](const Named<Type>& one) { return H5Tequal(stored.get(), stored_type(one.value)) > 0; });
  require(type != std::end(type_names), "'", path(), "': ", name, " is of a type that no ", kind_,
          " has");

  const Id space(check_read(H5Dget_space(id.get()), *storage_, name), H5Sclose);
  const int rank = check_read(H5Sget_simple_extent_ndims(space.get()), *storage_, name);
  std::vector<hsize_t> extents(static_cast<std::size_t>(rank));
  check_read(H5Sget_simple_extent_dims(space.get(), extents.data(), nullptr), *storage_, name);
  return {std::move(id), storage_, name, type->value, {extents.begin(), extents.end()}};
}

void File::write_format(const std::string& format, std::int64_t version) {
  Object group = root();
  group.write_attribute("format", format);
  group.write_attribute("version", version);
}

void File::check_format(const std::string& format, std::int64_t version) const {
  const Object group = root();
  require(group.has_attribute("format"), "'", path(), "' is an HDF5 file, but no Ostrakon ", kind_,
          ": it has no attribute 'format'");
  const std::string found = group.text_attribute("format");
  require(found == format, "'", path(), "' is no Ostrakon ", kind_, ": its format is '", found,
          "', expected '", format, "'");
  const std::int64_t found_version = group.integer_attribute("version");
  require(found_version == version, "'", path(), "' is a ", kind_, " of version ", found_version,
          "; this program reads version ", version);
}

void File::complete() {
  require(!partial_path_.empty(), "'", path(), "' is not being written");
  silence();
  check_write(H5Fflush(id_.get(), H5F_SCOPE_GLOBAL), *storage_, "write the file");
  const bool closed = id_.reset();
  require(closed, "'", path(), "': can't close the file: ", last_failure());
  storage_->finish();
}

void File::commit() {
  if (id_.valid()) complete();
  require(!partial_path_.empty(), "'", path(), "' is not being written");
  storage_->require_name();
  rename_file(partial_path_, path());
  partial_path_.clear();
}

// --- Layout --------------------------------------------------------------------------------------

namespace {

constexpr const char* layout_name = "layout of an HDF5 file";  // for messages
constexpr std::int64_t large_array_bytes = 64 << 10;           // aligned, from here on
constexpr std::int64_t alignment = 4096;

std::int64_t value_bytes(const ArrayShape& array) {
  auto bytes = static_cast<std::int64_t>(H5Tget_size(stored_type(array.type)));
  for (const std::int64_t extent : array.shape) {
    require(extent > 0 && bytes <= std::numeric_limits<std::int64_t>::max() / extent, layout_name,
            ": ", array.name, " has the shape ", shape_text(array.shape),
            "; expected positive extents and less than 2^63 bytes");
    bytes *= extent;
  }
  return bytes;
}

/// Writes a file's objects, in memory. Nothing in it depends on anything but the arguments: no
/// times are kept.
class LayoutWriter {
 public:
  LayoutWriter(Storage& storage, std::size_t arrays) {
    const Id access = file_access(storage);
    check(H5Pset_alignment(access.get(), large_array_bytes, alignment), layout_name,
          "set the alignment");
    // Metadata together, rather than in small blocks among the arrays.
    const std::size_t block = std::min<std::size_t>(2048 + 512 * arrays, 1 << 20);
    check(H5Pset_meta_block_size(access.get(), block), layout_name, "size blocks of metadata");
    const Id properties = without_times(H5P_FILE_CREATE);
    file_ = Id(check(H5Fcreate(layout_name, H5F_ACC_TRUNC, properties.get(), access.get()),
                     layout_name, "create it"),
               H5Fclose);
    root_ = Id(check(H5Gopen2(file_.get(), "/", H5P_DEFAULT), layout_name, "open the root group"),
               H5Gclose);
    group_properties_ = without_times(H5P_GROUP_CREATE);
    array_properties_ = without_times(H5P_DATASET_CREATE);
    check(H5Pset_layout(array_properties_.get(), H5D_CONTIGUOUS), layout_name, "set up HDF5");
    check(H5Pset_alloc_time(array_properties_.get(), H5D_ALLOC_TIME_EARLY), layout_name,
          "set up HDF5");
    check(H5Pset_fill_time(array_properties_.get(), H5D_FILL_TIME_NEVER), layout_name,
          "set up HDF5");
  }

  void add_attribute(const std::string& name, const std::string& value) {
    write_attribute(root_.get(), name, value);
  }

  /// Returns where its values begin.
  std::int64_t add(const ArrayShape& array) {
    make_groups(array.name);
    const std::vector<hsize_t> extents(array.shape.begin(), array.shape.end());
    const Id space(
        check(H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr),
              layout_name, "create a data space"),
        H5Sclose);
    const Id dataset(
        check(H5Dcreate2(file_.get(), array.name.c_str(), stored_type(array.type), space.get(),
                         H5P_DEFAULT, array_properties_.get(), H5P_DEFAULT),
              layout_name, "create " + array.name),
        H5Dclose);
    for (const auto& [name, value] : array.attributes) write_attribute(dataset.get(), name, value);
    const haddr_t offset = H5Dget_offset(dataset.get());
    require(offset != HADDR_UNDEF, layout_name, ": HDF5 gave ", array.name, " no place");
    return static_cast<std::int64_t>(offset);
  }

  void close() {
    const bool closed = root_.reset() && file_.reset();
    require(closed, layout_name, ": can't close it: ", last_failure());
  }

 private:
  static Id without_times(hid_t list_class) {
    Id properties = property_list(list_class, layout_name);
    check(H5Pset_obj_track_times(properties.get(), false), layout_name, "switch times off");
    return properties;
  }

  static void write_attribute(hid_t object, const std::string& name, const std::string& value) {
    const Id type = string_type(value.size(), layout_name);
    const Id space(check(H5Screate(H5S_SCALAR), layout_name, "create a data space"), H5Sclose);
    const Id attribute(
        check(H5Acreate2(object, name.c_str(), type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT),
              layout_name, "create the attribute " + name),
        H5Aclose);
    check(H5Awrite(attribute.get(), type.get(), value.c_str()), layout_name, "write an attribute");
  }

  /// Those on the way to an array. HDF5 would make them by itself, but with the time in them.
  void make_groups(const std::string& name) {
    for (std::size_t end = name.find('/', 1); end != std::string::npos;
         end = name.find('/', end + 1)) {
      const std::string group = name.substr(0, end);
      if (!groups_.insert(group).second) continue;
      const Id made(check(H5Gcreate2(file_.get(), group.c_str(), H5P_DEFAULT,
                                     group_properties_.get(), H5P_DEFAULT),
                          layout_name, "create the group " + group),
                    H5Gclose);
    }
  }

  Id file_, root_, group_properties_, array_properties_;
  std::set<std::string> groups_;
};

/// All bytes of a file but those of the arrays.
std::vector<Layout::Extent> read_structure(Storage& storage, const std::vector<ArrayShape>& arrays,
                                           const std::vector<std::int64_t>& offsets) {
  std::vector<std::pair<std::int64_t, std::int64_t>> values;  // begin, end
  for (std::size_t i = 0; i < arrays.size(); ++i)
    values.emplace_back(offsets[i], offsets[i] + value_bytes(arrays[i]));
  std::sort(values.begin(), values.end());
  values.emplace_back(storage.size(), storage.size());

  std::vector<Layout::Extent> structure;
  std::int64_t at = 0;
  for (const auto& [begin, end] : values) {
    require(at <= begin, layout_name, ": HDF5 gave two arrays the bytes at ", begin);
    if (at < begin) {
      structure.push_back({at, std::string(static_cast<std::size_t>(begin - at), '\0')});
      storage.read(at, begin - at, structure.back().bytes.data());
    }
    at = end;
  }
  return structure;
}

}  // namespace

Layout lay_out(const std::vector<std::pair<std::string, std::string>>& attributes,
               const std::vector<ArrayShape>& arrays) {
  silence();
  const auto storage = std::make_shared<Storage>(layout_name);
  LayoutWriter writer(*storage, arrays.size());
  for (const auto& [name, value] : attributes) writer.add_attribute(name, value);
  Layout layout;
  for (const ArrayShape& array : arrays) {
    const std::int64_t bytes = value_bytes(array);
    layout.offsets.push_back(writer.add(array));
    require(layout.offsets.back() <= std::numeric_limits<std::int64_t>::max() - bytes, layout_name,
            ": ", array.name, " ends beyond 2^63 bytes");
  }
  writer.close();
  // HDF5 gives the file its length, although nothing is written to its end.
  layout.bytes = storage->size();
  layout.structure = read_structure(*storage, arrays, layout.offsets);
  return layout;
}

// --- Checksum ------------------------------------------------------------------------------------

Checksum::Checksum() : state_(XXH3_createState()) {
  require(state_ && XXH3_64bits_reset(state_.get()) == XXH_OK, "can't start a checksum");
}

Checksum::~Checksum() = default;

void Checksum::Free::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

void Checksum::add(const void* data, std::int64_t bytes) {
  if (bytes > 0) XXH3_64bits_update(state_.get(), data, static_cast<std::size_t>(bytes));
}

std::uint64_t Checksum::value() const { return XXH3_64bits_digest(state_.get()); }

std::string Checksum::hex() const { return format_hex(value()); }

}  // namespace ostrakon::hdf5
