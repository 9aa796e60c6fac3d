// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/base/hdf5/hdf5_storage.hpp>

#include <hdf5.h>
#if H5_VERSION_GE(1, 13, 0)
#include <H5FDdevelop.h>
#endif

#include <algorithm>
#include <cstring>
#include <exception>
#include <limits>
#include <ostrakon/base/error.hpp>

namespace ostrakon::hdf5 {
namespace {

// --- The file driver: functions that HDF5 calls --------------------------------------------------

/// The driver's data in the property list that opens a file; HDF5 copies it byte for byte.
struct Choice {
  Storage* storage;
};

/// An open file. It begins with H5FD_t, HDF5's own part.
struct OpenFile {
  H5FD_t base;
  std::shared_ptr<Storage> storage;  // HDF5 may keep the file open for longer than its owner
  haddr_t end_of_addresses;
};

/// Largest write of raw data that counts as structure: HDF5 writes text of any length as if it were
/// values.
constexpr std::int64_t small_bytes = 64 << 10;

constexpr haddr_t largest_address = std::numeric_limits<std::int64_t>::max();

OpenFile& of(H5FD_t* file) { return *reinterpret_cast<OpenFile*>(file); }
const OpenFile& of(const H5FD_t* file) { return *reinterpret_cast<const OpenFile*>(file); }

H5FD_t* open_file(const char*, unsigned, hid_t access, haddr_t) {
  const auto* const choice = static_cast<const Choice*>(H5Pget_driver_info(access));
  if (choice == nullptr) return nullptr;
  try {
    auto* const file = new OpenFile{{}, choice->storage->shared_from_this(), 0};
    return &file->base;
  } catch (const std::exception&) {
    return nullptr;
  }
}

herr_t close_file(H5FD_t* file) {
  delete &of(file);
  return 0;
}

/// Reports the same features as HDF5's default driver.
herr_t query(const H5FD_t*, unsigned long* flags) {
  if (flags == nullptr) return 0;
  *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
           H5FD_FEAT_AGGREGATE_SMALLDATA;
#ifdef H5FD_FEAT_DEFAULT_VFD_COMPATIBLE
  *flags |= H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
#endif
  return 0;
}

haddr_t end_of_addresses(const H5FD_t* file, H5FD_mem_t) { return of(file).end_of_addresses; }

herr_t set_end_of_addresses(H5FD_t* file, H5FD_mem_t, haddr_t address) {
  of(file).end_of_addresses = address;
  return 0;
}

haddr_t end_of_file(const H5FD_t* file, H5FD_mem_t) {
  return static_cast<haddr_t>(of(file).storage->size());
}

bool is_range(haddr_t address, std::size_t bytes) {
  return address <= largest_address && bytes <= largest_address - address;
}

herr_t read_file(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t address, std::size_t bytes, void* data) {
  const bool done =
      is_range(address, bytes) && of(file).storage->read(static_cast<std::int64_t>(address),
                                                         static_cast<std::int64_t>(bytes), data);
  return done ? 0 : -1;
}

herr_t write_file(H5FD_t* file, H5FD_mem_t type, hid_t, haddr_t address, std::size_t bytes,
                  const void* data) {
  const auto content =
      type == H5FD_MEM_DRAW ? Storage::Content::values : Storage::Content::structure;
  const bool done = is_range(address, bytes) &&
                    of(file).storage->write(static_cast<std::int64_t>(address),
                                            static_cast<std::int64_t>(bytes), data, content);
  return done ? 0 : -1;
}

/// Sets the file's length to HDF5's end of addresses.
herr_t truncate_file(H5FD_t* file, hid_t, hbool_t) {
  of(file).storage->resize(static_cast<std::int64_t>(of(file).end_of_addresses));
  return 0;
}

/// Fills the members by name, as their number and order depend on HDF5's version.
H5FD_class_t make_driver() {
  H5FD_class_t driver{};
#if H5_VERSION_GE(1, 13, 0)
  driver.version = H5FD_CLASS_VERSION;
  driver.value = H5FD_class_value_t{600};  // an id not used by HDF5's own drivers
#endif
  driver.name = "ostrakon";
  driver.maxaddr = largest_address;
  driver.fc_degree = H5F_CLOSE_WEAK;
  driver.fapl_size = sizeof(Choice);
  driver.open = open_file;
  driver.close = close_file;
  driver.query = query;
  driver.get_eoa = end_of_addresses;
  driver.set_eoa = set_end_of_addresses;
  driver.get_eof = end_of_file;
  driver.read = read_file;
  driver.write = write_file;
  driver.truncate = truncate_file;
  // Metadata and raw data are allocated apart, as in HDF5's default driver.
  std::fill(std::begin(driver.fl_map), std::end(driver.fl_map), H5FD_MEM_SUPER);
  driver.fl_map[H5FD_MEM_DRAW] = driver.fl_map[H5FD_MEM_GHEAP] = H5FD_MEM_DRAW;
  return driver;
}

/// Returns the driver, which is registered once for the lifetime of the process.
hid_t driver() {
  static const H5FD_class_t description = make_driver();
  static const hid_t id = H5FDregister(&description);
  return id;
}

}  // namespace

// --- Storage -------------------------------------------------------------------------------------

Storage::Storage(const std::string& path, PlainFile::Mode mode, const std::string& name)
    : lock_(mode == PlainFile::Mode::read ? std::optional<WriterLock>() : WriterLock(path)),
      file_(std::in_place, path, mode),
      name_(name),
      size_(file_->size()) {}

Storage::Storage(const std::string& name) : name_(name) {}

std::string Storage::take_failure() { return is_lost_ ? failure_ : std::exchange(failure_, ""); }

bool Storage::set_driver(std::int64_t access) {
  const Choice choice = {this};
  return driver() >= 0 && H5Pset_driver(access, driver(), &choice) >= 0;
}

void Storage::note_failure() noexcept {
  if (!failure_.empty()) return;
  try {
    try {
      throw;
    } catch (const std::exception& error) {
      failure_ = error.what();
    }
  } catch (...) {
    failure_ = "no memory";  // short enough to need no allocation
  }
}

bool Storage::read(std::int64_t offset, std::int64_t bytes, void* data) noexcept {
  auto* const out = static_cast<char*>(data);
  try {
    const std::int64_t found = file_ ? file_->read_up_to(offset, bytes, out) : 0;
    std::memset(out + found, 0, static_cast<std::size_t>(bytes - found));
  } catch (...) {
    note_failure();
    if (!is_lost_) return false;
    std::memset(out, 0, static_cast<std::size_t>(bytes));
  }
  for (const auto& [at, kept] : kept_) {
    const std::int64_t begin = std::max(at, offset);
    const std::int64_t end = std::min(at + static_cast<std::int64_t>(kept.size()), offset + bytes);
    if (begin < end)
      std::memcpy(out + (begin - offset), kept.data() + (begin - at),
                  static_cast<std::size_t>(end - begin));
  }
  return true;
}

bool Storage::write(std::int64_t offset, std::int64_t bytes, const void* data,
                    Content content) noexcept {
  size_ = std::max(size_, offset + bytes);
  if (file_ && !is_lost_) {
    try {
      file_->write(offset, bytes, data);
      return true;
    } catch (...) {
      note_failure();
      is_lost_ = true;
    }
  }
  if (is_lost_ && content == Content::values && bytes > small_bytes) return true;
  try {
    kept_.emplace_back(
        offset, std::string(static_cast<const char*>(data), static_cast<std::size_t>(bytes)));
    return true;
  } catch (...) {
    return false;
  }
}

void Storage::resize(std::int64_t bytes) noexcept {
  try {
    if (file_ && !is_lost_ && bytes != size_) file_->resize(bytes);
  } catch (...) {
    note_failure();
    is_lost_ = true;
  }
  size_ = bytes;
}

void Storage::finish() {
  require(failure_.empty(), failure_);
  if (!file_) return;
  file_->sync();
  // The cache is dropped so that a read-back reads from the disk.
  file_->drop_cache(0, size_);
  file_->close();
}

}  // namespace ostrakon::hdf5
