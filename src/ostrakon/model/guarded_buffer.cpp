// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/guarded_buffer.hpp>

#include <algorithm>

namespace ostrakon::model {
namespace {

/// Host memory, to copy from or to.
template <class Byte>
auto host_bytes(Byte* data, std::int64_t count) {
  return HostView<Byte*>(data, count).kokkos();
}

}  // namespace

GuardedBuffer::GuardedBuffer(std::int64_t bytes, std::int64_t after)
    : size_(bytes),
      after_(after),
      bytes_(Kokkos::view_alloc(Kokkos::WithoutInitializing, "guarded buffer"),
             static_cast<std::size_t>(guard_bytes + bytes + after)) {
  Kokkos::deep_copy(range(0, guard_bytes), guard_byte);
  Kokkos::deep_copy(range(guard_bytes + size_, after_), guard_byte);
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

std::int64_t GuardedBuffer::first_written_guard() const {
  // The first written byte of a guard, or its size.
  const auto first_written = [&](std::int64_t first, std::int64_t count) {
    std::vector<unsigned char> guard(static_cast<std::size_t>(count));
    Kokkos::deep_copy(host_bytes(guard.data(), count), range(first, count));
    const auto is_written = [](unsigned char b) { return b != guard_byte; };
    return std::find_if(guard.begin(), guard.end(), is_written) - guard.begin();
  };
  const std::int64_t before = first_written(0, guard_bytes);
  if (before < guard_bytes) return before - guard_bytes - size_;
  const std::int64_t behind = first_written(guard_bytes + size_, after_);
  return behind < after_ ? behind : none;
}

bool is_unset(const void* bytes, std::size_t count) {
  const auto* const first = static_cast<const unsigned char*>(bytes);
  return std::all_of(first, first + count,
                     [](unsigned char b) { return b == GuardedBuffer::unset_byte; });
}

}  // namespace ostrakon::model
