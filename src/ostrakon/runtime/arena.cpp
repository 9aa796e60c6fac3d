// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/runtime/arena.hpp>

#include <ostrakon/base/error.hpp>
#include <ostrakon/base/huge_pages.hpp>
#include <ostrakon/runtime/memory_counter.hpp>
#include <ostrakon/runtime/poison.hpp>
#include <string>

namespace ostrakon::runtime {

Arena::Arena(std::int64_t bytes, [[maybe_unused]] plan::Space space, [[maybe_unused]] bool pinned,
             bool shared)
    : bytes_(bytes) {
  if (bytes == 0) return;
#if OSTRAKON_HAS_DEVICE
  if (space == plan::Space::device) {
    device_ = device::DeviceBytes(bytes);
    data_ = device_.data();
  } else if (pinned) {
    pinned_ = device::PinnedBytes(bytes);
    data_ = pinned_.data();
  }
  if (data_ != nullptr) {
    count_allocation(bytes);
    return;
  }
#endif
  if (shared) {
    try {
      shared_ = SharedMemory(bytes);
      shared_.take_huge_pages();
      shared_.take();
    } catch (const Error& error) {
      throw Error(text(error.what(), "; with parallel.node_windows = never ranks share none"));
    }
    data_ = shared_.data();
    count_allocation(bytes);
    return;
  }
  const std::string label = space == plan::Space::device ? "ostrakon arena" : "ostrakon host arena";
  host_ = decltype(host_)(Kokkos::view_alloc(label, Kokkos::WithoutInitializing),
                          static_cast<std::size_t>(bytes));
  data_ = reinterpret_cast<std::byte*>(host_.data());
  advise_huge_pages(data_, bytes);
}

Arena::~Arena() {
  allow(data_, static_cast<std::size_t>(bytes_));
  if (data_ != nullptr && host_.data() == nullptr) count_deallocation(bytes_);
}

}  // namespace ostrakon::runtime
