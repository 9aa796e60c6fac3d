// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/hdf5.hpp>
#include <ostrakon/base/hdf5_storage.hpp>
#include <string>

// How this module calls HDF5: each call checked, with messages that name the file. For hdf5*.cpp
// alone. Identifiers are HDF5's hid_t, whose header is included nowhere else.

namespace ostrakon::hdf5 {

/// Switches HDF5's own printing of errors off, for this thread. It stays off: after a damaged file
/// HDF5 has complaints even while the program ends.
void silence();

/// The innermost of HDF5's own messages about its last failure, or the system's where it quotes
/// one.
std::string last_failure();

/// Passes on what an HDF5 function returned, unless it says that the function failed.
template <class Result>
Result check(Result result, const std::string& path, const std::string& what) {
  if (result < 0) throw Error(text("'", path, "': can't ", what, ": ", last_failure()));
  return result;
}

/// Checks the results of functions that write. HDF5 does not know of what the system could not
/// write.
template <class Result>
Result check_write(Result result, const Storage& storage, const std::string& what) {
  require(storage.failure().empty(), storage.failure());
  return check(result, storage.name(), what);
}

/// Owns what such a function made, also where that fails: writing may have failed before.
inline Id written_id(std::int64_t made, Id::Close close, const Storage& storage,
                     const std::string& what) {
  Id id(made, close);
  check_write(id.get(), storage, what);
  return id;
}

/// Checks the results of functions that read: where the system could read, they fail because the
/// file is damaged.
template <class Result>
Result check_read(Result result, Storage& storage, const std::string& what) {
  const std::string failure = storage.take_failure();
  if (result >= 0) return result;
  require(failure.empty(), failure);
  throw Error(text("'", storage.name(), "' is truncated or damaged: can't read ", what, ": ",
                   last_failure()));
}

/// HDF5's type for stored elements; it exists as long as the process.
std::int64_t stored_type(Type type);

/// A string type that holds `size` bytes; HDF5 has no empty one.
Id string_type(std::size_t size, const std::string& path);

/// An empty property list of an HDF5 class. `path` is for messages.
Id property_list(std::int64_t list_class, const std::string& path);

/// Access for one process to bytes that pass through `storage`, in the 1.10 file format, whose
/// metadata carries checksums throughout. No file locks: files appear complete under their names,
/// and some cluster file systems have none.
Id file_access(Storage& storage);

}  // namespace ostrakon::hdf5
