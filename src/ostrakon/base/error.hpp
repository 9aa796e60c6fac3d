// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/base/text.hpp>
#include <stdexcept>
#include <string>

namespace ostrakon {

/// A user's mistake, or a condition of the system, that makes a run impossible: a bad key, a
/// damaged file, too little memory. The text is shown unchanged, so it names what was found, where,
/// and what was expected.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A file was read, but its bytes do not match their checksums or lengths, or are not text of the
/// expected kind: another copy of the file may be sound. A file that is missing, unreadable, or of
/// another version throws Error, as that may hold on one host or for a moment only.
class DamagedError : public Error {
 public:
  using Error::Error;
};

/// An Error that every rank throws at the same point: the program may end regularly, and one rank
/// tells the user. Any other exception may be thrown by one rank alone, and ends the job at once.
class CollectiveError : public Error {
 public:
  using Error::Error;
};

/// A CollectiveError whose causes on all ranks were DamagedErrors.
class CollectiveDamagedError : public CollectiveError {
 public:
  using CollectiveError::CollectiveError;
};

/// Throws Error with the joined `parts` unless `condition` holds.
template <class... Parts>
void require(bool condition, const Parts&... parts) {
  if (!condition) throw Error(text(parts...));
}

/// Throws DamagedError with the joined `parts` unless `condition` holds.
template <class... Parts>
void require_undamaged(bool condition, const Parts&... parts) {
  if (!condition) throw DamagedError(text(parts...));
}

}  // namespace ostrakon
