// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/guarded_buffer.hpp>

#include <algorithm>
#include <array>

namespace ostrakon::model {
namespace {

/// Host memory, to copy from or to.
template <class Byte>
auto host_bytes(Byte* data, std::int64_t count) {
  return HostView<Byte*>(data, count).kokkos();
}

}  // namespace

GuardedBuffer::GuardedBuffer(std::int64_t bytes)
    : size_(bytes),
      bytes_(Kokkos::view_alloc(Kokkos::WithoutInitializing, "guarded buffer"),
             static_cast<std::size_t>(bytes + 2 * guard_bytes)) {
  for (const std::int64_t first : {std::int64_t{0}, guard_bytes + size_})
    Kokkos::deep_copy(range(first, guard_bytes), guard_byte);
  unset();
}

void GuardedBuffer::unset() const {
  if (size_ > 0) Kokkos::deep_copy(range(guard_bytes, size_), unset_byte);
}

void GuardedBuffer::set(std::int64_t first, const void* host, std::int64_t count) const {
  if (count == 0) return;
  Kokkos::deep_copy(range(guard_bytes + first, count),
                    host_bytes(static_cast<const unsigned char*>(host), count));
}

void GuardedBuffer::copy_to(void* host, std::int64_t count) const {
  if (count == 0) return;
  Kokkos::deep_copy(host_bytes(static_cast<unsigned char*>(host), count),
                    range(guard_bytes, count));
}

bool GuardedBuffer::has_whole_guards() const {
  const auto is_whole = [&](std::int64_t first) {
    std::array<unsigned char, guard_bytes> guard;
    Kokkos::deep_copy(host_bytes(guard.data(), guard_bytes), range(first, guard_bytes));
    return std::all_of(guard.begin(), guard.end(), [](unsigned char b) { return b == guard_byte; });
  };
  return is_whole(0) && is_whole(guard_bytes + size_);
}

bool is_unset(const void* bytes, std::size_t count) {
  const auto* const first = static_cast<const unsigned char*>(bytes);
  return std::all_of(first, first + count,
                     [](unsigned char b) { return b == GuardedBuffer::unset_byte; });
}

}  // namespace ostrakon::model
