// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/runtime/arena.hpp>
#include <ostrakon/runtime/poison.hpp>

namespace ostrakon::runtime {

Arena::Arena(std::int64_t bytes)
    : view_(Kokkos::view_alloc("ostrakon arena", Kokkos::WithoutInitializing),
            static_cast<std::size_t>(bytes)) {}

Arena::~Arena() { allow(data(), static_cast<std::size_t>(bytes())); }

}  // namespace ostrakon::runtime
