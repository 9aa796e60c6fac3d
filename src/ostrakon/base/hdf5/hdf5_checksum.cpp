// SPDX-License-Identifier: Apache-2.0
#include <xxhash.h>

#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/hdf5/hdf5.hpp>

namespace ostrakon::hdf5 {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "checksums are over little-endian numbers");

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
