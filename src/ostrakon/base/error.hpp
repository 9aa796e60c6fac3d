// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/base/text.hpp>
#include <stdexcept>
#include <string>

namespace ostrakon {

/// A user's mistake, or a condition of the system, that makes a run impossible: a bad key, a
/// damaged file, too little memory. The text is shown as it is, so it names what was found, where,
/// and what was expected.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What is in a file, read whole, is not what checksums and lengths say, or is no text of its kind:
/// another copy may do. Not that it is missing, which may be so on one host or for a moment, nor
/// that it can't be read, nor that it is of another version.
class DamagedError : public Error {
 public:
  using Error::Error;
};

/// An Error that every rank throws at the same point: the program may end regularly, and one rank
/// tells the user. Any other exception may be one rank's alone, and ends the job at once.
class AgreedError : public Error {
 public:
  using Error::Error;
};

/// The same, where all that went wrong on any rank was a DamagedError.
class AgreedDamage : public AgreedError {
 public:
  using AgreedError::AgreedError;
};

/// Throws Error with the joined `parts` unless `condition` holds.
template <class... Parts>
void require(bool condition, const Parts&... parts) {
  if (!condition) throw Error(text(parts...));
}

/// The same with DamagedError.
template <class... Parts>
void require_sound(bool condition, const Parts&... parts) {
  if (!condition) throw DamagedError(text(parts...));
}

}  // namespace ostrakon
