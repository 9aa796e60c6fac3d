// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/base/hdf5/hdf5_calls.hpp>

#include <hdf5.h>

#include <algorithm>
#include <ostrakon/base/format.hpp>

namespace ostrakon::hdf5 {

static_assert(sizeof(hid_t) == sizeof(std::int64_t), "HDF5 1.10 or newer");

namespace {

/// Creates the type bf16 as the upper half of an fp32: HDF5 has no such type, but converts any
/// floating-point layout that is described to it. The identifier is never closed.
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

/// Returns a property list for files that HDF5 opens itself, without Storage.
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

}  // namespace

void silence() { H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr); }

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

std::int64_t stored_type(Type type) {
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

Id string_type(std::size_t size, const std::string& path) {
  Id type(check(H5Tcopy(H5T_C_S1), path, "copy a type"), H5Tclose);
  check(H5Tset_size(type.get(), std::max<std::size_t>(size, 1)), path, "size a string");
  check(H5Tset_strpad(type.get(), H5T_STR_NULLPAD), path, "pad a string");
  check(H5Tset_cset(type.get(), H5T_CSET_UTF8), path, "mark a string as UTF-8");
  return type;
}

Id property_list(std::int64_t list_class, const std::string& path) {
  return Id(check(H5Pcreate(list_class), path, "create an HDF5 property list"), H5Pclose);
}

Id file_access(Storage& storage) {
  Id access = file_access(storage.name());
  require(storage.set_driver(access.get()), "'", storage.name(),
          "': can't choose the file driver: ", last_failure());
  return access;
}

}  // namespace ostrakon::hdf5
