// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/guarded_buffer.hpp>

#include <algorithm>
#include <cstring>

namespace ostrakon::model {

GuardedBuffer::GuardedBuffer(std::int64_t bytes)
    : size_(bytes), bytes_("guarded buffer", static_cast<std::size_t>(bytes + 2 * guard_bytes)) {
  Kokkos::deep_copy(bytes_, guard_byte);
  unset();
}

void GuardedBuffer::unset() const {
  const std::vector<unsigned char> host(static_cast<std::size_t>(size_), unset_byte);
  set(host.data());
}

void GuardedBuffer::set(const void* host) const {
  if (size_ == 0) return;
  const auto all = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), bytes_);
  std::memcpy(all.data() + guard_bytes, host, static_cast<std::size_t>(size_));
  Kokkos::deep_copy(bytes_, all);
}

std::vector<unsigned char> GuardedBuffer::get() const {
  Kokkos::fence();
  const auto all = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), bytes_);
  return {all.data() + guard_bytes, all.data() + guard_bytes + size_};
}

bool GuardedBuffer::has_whole_guards() const {
  Kokkos::fence();
  const auto all = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), bytes_);
  const auto is_whole = [&](const unsigned char* begin) {
    return std::all_of(begin, begin + guard_bytes, [](unsigned char b) { return b == guard_byte; });
  };
  return is_whole(all.data()) && is_whole(all.data() + guard_bytes + size_);
}

bool is_unset(const void* bytes, std::size_t count) {
  const auto* const first = static_cast<const unsigned char*>(bytes);
  return std::all_of(first, first + count,
                     [](unsigned char b) { return b == GuardedBuffer::unset_byte; });
}

}  // namespace ostrakon::model
