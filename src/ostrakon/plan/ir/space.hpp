// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/base/names.hpp>

namespace ostrakon::plan {

/// The memory that bytes are in. Each has an arena of its own; on a build without devices both are
/// host memory.
enum class Space : std::uint8_t { device, host };
constexpr int spaces = 2;
constexpr Named<Space> space_names[] = {{Space::device, "device"}, {Space::host, "host"}};
constexpr const char* name(Space space) { return name_in(space_names, space); }

}  // namespace ostrakon::plan
