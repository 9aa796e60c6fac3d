// SPDX-License-Identifier: Apache-2.0
#include <hdf5.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/hdf5/hdf5.hpp>
#include <ostrakon/base/hdf5/hdf5_calls.hpp>
#include <utility>

namespace ostrakon::hdf5 {
namespace {

/// The name of the file `path` while it is written.
std::string partial_name(const std::string& path) { return path + ".partial"; }

/// Throws a specific Error for each file that HDF5 would only call "not HDF5".
void check_looks_like_hdf5(const std::string& path, const std::string& kind) {
  require_plain_file(path, kind);
  std::array<char, 8> found{};
  const PlainFile file(path, PlainFile::Mode::read);
  require(file.read_up_to(0, found.size(), found.data()) > 0, kind, " '", path,
          "' is empty (0 bytes)");
  constexpr std::array<char, 8> signature = {'\x89', 'H', 'D', 'F', '\r', '\n', '\x1a', '\n'};
  require(found == signature, "'", path, "' is not an HDF5 file; expected a ", kind);
}

/// Returns the first filter of a data set that this HDF5 lacks; empty if it has all.
std::string find_missing_filter(hid_t dataset, Storage& storage, const std::string& name) {
  const Id creation(check_read(H5Dget_create_plist(dataset), storage, name), H5Pclose);
  const int filters = check_read(H5Pget_nfilters(creation.get()), storage, name);
  for (int i = 0; i < filters; ++i) {
    unsigned flags = 0, config = 0;
    std::size_t values = 0;
    std::array<char, 64> called{};
    const H5Z_filter_t filter =
        check_read(H5Pget_filter2(creation.get(), static_cast<unsigned>(i), &flags, &values,
                                  nullptr, called.size() - 1, called.data(), &config),
                   storage, name);
    if (H5Zfilter_avail(filter) > 0) continue;
    return text(called.data(), called[0] == '\0' ? "number " : " (", filter,
                called[0] == '\0' ? "" : ")");
  }
  return "";
}

}  // namespace

File File::create(const std::string& path, const std::string& kind) {
  silence();
  require(!is_folder(path), "can't write ", kind, " '", path, "': a folder has that name");
  const std::string partial = partial_name(path);
  auto storage = std::make_shared<Storage>(partial, PlainFile::Mode::create, path);
  const Id access = file_access(*storage);
  File file(Id(), storage, kind);
  file.partial_path_ = partial;  // from here on the destructor removes the file
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

Dataset File::create_series(const std::string& name, Type type, std::int64_t chunk,
                            bool compressed) {
  silence();
  const hsize_t none = 0, unlimited = H5S_UNLIMITED;
  const auto chunk_size = static_cast<hsize_t>(chunk);
  const Id space(check(H5Screate_simple(1, &none, &unlimited), path(), "create a data space"),
                 H5Sclose);
  const Id properties = property_list(H5P_DATASET_CREATE, path());
  check(H5Pset_chunk(properties.get(), 1, &chunk_size), path(), "set the chunk size");
  constexpr unsigned fastest = 1;
  if (compressed && H5Zfilter_avail(H5Z_FILTER_DEFLATE) > 0)
    check(H5Pset_deflate(properties.get(), fastest), path(), "switch compression on");
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
  // HDF5 looks up one link at a time, so each group on the path is checked.
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
  // Only hard links are followed: soft and external links may lead out of the file.
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
  std::string missing_filter = find_missing_filter(id.get(), *storage_, name);
  return {std::move(id),
          storage_,
          name,
          type->value,
          {extents.begin(), extents.end()},
          std::move(missing_filter)};
}

void File::write_format(const std::string& format, std::int64_t version) {
  Object group = root();
  group.write_attribute("format", format);
  group.write_attribute("version", version);
}

void File::check_format(const std::string& format, std::int64_t version) const {
  check_format(format, version, version);
}

std::int64_t File::check_format(const std::string& format, std::int64_t first,
                                std::int64_t last) const {
  const Object group = root();
  require(group.has_attribute("format"), "'", path(), "' is an HDF5 file, but no Ostrakon ", kind_,
          ": it has no attribute 'format'");
  const std::string found = group.text_attribute("format");
  require(found == format, "'", path(), "' is no Ostrakon ", kind_, ": its format is '", found,
          "', expected '", format, "'");
  const std::int64_t version = group.integer_attribute("version");
  const std::string known =
      first == last ? text("version ", first) : text("versions ", first, " to ", last);
  require(version >= first && version <= last, "'", path(), "' is a ", kind_, " of version ",
          version, "; this program reads ", known);
  return version;
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

}  // namespace ostrakon::hdf5
