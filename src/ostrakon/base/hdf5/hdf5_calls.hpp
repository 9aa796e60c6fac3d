// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/hdf5/hdf5.hpp>
#include <ostrakon/base/hdf5/hdf5_storage.hpp>
#include <string>

// Wrappers for calls of HDF5: each call is checked, with messages that name the file. Only
// hdf5*.cpp include this file. Identifiers are HDF5's hid_t, whose header is included nowhere else.

namespace ostrakon::hdf5 {

/// Switches HDF5's own printing of errors off for this thread, for good: after a damaged file HDF5
/// prints errors even while the program ends.
void silence();

/// Returns HDF5's innermost message about its last failure, or the system's message that it quotes.
std::string last_failure();

/// Returns `result`; throws Error if it says that the HDF5 function failed.
template <class Result>
Result check(Result result, const std::string& path, const std::string& what) {
  if (result < 0) throw Error(text("'", path, "': can't ", what, ": ", last_failure()));
  return result;
}

/// Checks the results of functions that write. Storage hides failed writes from HDF5, so its
/// failure is checked, too.
template <class Result>
Result check_write(Result result, const Storage& storage, const std::string& what) {
  require(storage.failure().empty(), storage.failure());
  return check(result, storage.name(), what);
}

/// Owns the identifier that a writing function made. It is closed also if the check throws, as an
/// earlier write may have failed.
inline Id written_id(std::int64_t made, Id::Close close, const Storage& storage,
                     const std::string& what) {
  Id id(made, close);
  check_write(id.get(), storage, what);
  return id;
}

/// Checks the results of functions that read: if the system could read the bytes, a failure means
/// that the file is damaged.
template <class Result>
Result check_read(Result result, Storage& storage, const std::string& what) {
  const std::string failure = storage.take_failure();
  if (result >= 0) return result;
  require(failure.empty(), failure);
  throw Error(text("'", storage.name(), "' is truncated or damaged: can't read ", what, ": ",
                   last_failure()));
}

/// HDF5's type for stored elements; valid for the lifetime of the process.
std::int64_t stored_type(Type type);

/// Returns a string type that holds `size` bytes, at least 1, as HDF5 has no empty one.
Id string_type(std::size_t size, const std::string& path);

/// Creates an empty property list of an HDF5 class. `path` is used in messages.
Id property_list(std::int64_t list_class, const std::string& path);

/// Returns access properties for one process that accesses bytes through `storage`, in the 1.10
/// file format, whose metadata carries checksums throughout. HDF5's file locks are off: files
/// appear complete under their names, and some cluster file systems have no locks.
Id file_access(Storage& storage);

}  // namespace ostrakon::hdf5
