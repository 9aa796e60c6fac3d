// SPDX-License-Identifier: Apache-2.0
#pragma once

// What views check with: where they come from, and how a run ends that uses one wrongly.

#include <atomic>
#include <cstdint>
#include <ostrakon/math/portability.hpp>
#include <string>

namespace ostrakon {

/// Where the views of a buffer come from that an action of the plan works with: for messages, and
/// to tell that they are used after the action, when the buffer may be gone.
struct ViewOrigin {
  std::string buffer;            ///< "saved of block.3"
  std::string action;            ///< that they were made for: "forward(block.3, micro-batch 0)"
  std::atomic<bool> live{true};  ///< the action runs
};

/// Print what was done, to which view, and end the run. `origin` may be null. On the host.
[[noreturn]] void end_at_index(const ViewOrigin* origin, std::int64_t i, std::int64_t extent);
[[noreturn]] void end_at_index(const ViewOrigin* origin, std::int64_t row, std::int64_t column,
                               std::int64_t rows, std::int64_t columns);
[[noreturn]] void end_at_range(const ViewOrigin* origin, const char* of_what, std::int64_t begin,
                               std::int64_t end, std::int64_t extent);

#if defined(OSTRAKON_CHECK_VIEWS)
constexpr bool views_check = true;
#else
constexpr bool views_check = false;
#endif

// Views that check have another size: other names for the linker, so that the two never mix.
#if defined(OSTRAKON_CHECK_VIEWS)
inline namespace checked_views {

/// The origin of a view, and the checks that need it.
class ViewSource {
 public:
  ViewSource() = default;
  KOKKOS_FUNCTION explicit ViewSource(const ViewOrigin* origin) : origin_(origin) {}
  KOKKOS_FUNCTION const ViewOrigin* origin() const { return origin_; }

 protected:
  KOKKOS_FUNCTION void check_index(std::int64_t i, std::int64_t extent) const {
    if (0 <= i && i < extent && is_live()) return;
#if OSTRAKON_IN_DEVICE_CODE
    Kokkos::abort("ostrakon: index outside of a view");
#else
    end_at_index(origin_, i, extent);
#endif
  }

  KOKKOS_FUNCTION void check_index(std::int64_t row, std::int64_t column, std::int64_t rows,
                                   std::int64_t columns) const {
    if (0 <= row && row < rows && 0 <= column && column < columns && is_live()) return;
#if OSTRAKON_IN_DEVICE_CODE
    Kokkos::abort("ostrakon: index outside of a view");
#else
    end_at_index(origin_, row, column, rows, columns);
#endif
  }

  KOKKOS_FUNCTION void check_range([[maybe_unused]] const char* of_what, std::int64_t begin,
                                   std::int64_t end, std::int64_t extent) const {
    if (0 <= begin && begin <= end && end <= extent && is_live()) return;
#if OSTRAKON_IN_DEVICE_CODE
    Kokkos::abort("ostrakon: part of a view that is outside of it");
#else
    end_at_range(origin_, of_what, begin, end, extent);
#endif
  }

 private:
  /// The record is in host memory: a device does not follow it.
  KOKKOS_FUNCTION bool is_live() const {
#if OSTRAKON_IN_DEVICE_CODE
    return true;
#else
    return origin_ == nullptr || origin_->live.load(std::memory_order_relaxed);
#endif
  }

  const ViewOrigin* origin_ = nullptr;
};

}  // namespace checked_views
#else

/// Nothing: a base class without a size.
class ViewSource {
 public:
  ViewSource() = default;
  KOKKOS_FUNCTION explicit ViewSource(const ViewOrigin*) {}
  KOKKOS_FUNCTION const ViewOrigin* origin() const { return nullptr; }

 protected:
  KOKKOS_FUNCTION void check_index(std::int64_t, std::int64_t) const {}
  KOKKOS_FUNCTION void check_index(std::int64_t, std::int64_t, std::int64_t, std::int64_t) const {}
  KOKKOS_FUNCTION void check_range(const char*, std::int64_t, std::int64_t, std::int64_t) const {}
};

#endif

}  // namespace ostrakon
