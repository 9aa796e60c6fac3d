// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/runtime/arena.hpp>

#include <ostrakon/runtime/poison.hpp>
#include <string>

namespace ostrakon::runtime {
namespace {

template <class View>
std::byte* allocate(View& view, const std::string& label, std::int64_t bytes) {
  view =
      View(Kokkos::view_alloc(label, Kokkos::WithoutInitializing), static_cast<std::size_t>(bytes));
  return reinterpret_cast<std::byte*>(view.data());
}

}  // namespace

Arena::Arena(std::int64_t bytes, plan::Space space, bool pinned) : bytes_(bytes) {
  if (bytes == 0) return;
  constexpr const char* on_host = "ostrakon host arena";
  data_ = space == plan::Space::device ? allocate(device_, "ostrakon arena", bytes)
          : pinned                     ? allocate(host_, on_host, bytes)
                                       : allocate(pageable_, on_host, bytes);
}

Arena::~Arena() { allow(data_, static_cast<std::size_t>(bytes_)); }

}  // namespace ostrakon::runtime
