// SPDX-License-Identifier: Apache-2.0
#pragma once

// What views check with: where they come from, and how a run ends that uses one wrongly.

#include <atomic>
#include <cstdint>
#include <ostrakon/math/portability.hpp>
#include <string>
#include <type_traits>

namespace ostrakon {

/// Where the views of a buffer come from that an action of the plan works with: for messages, and
/// to tell that they are used after the action, when the buffer may be gone.
struct ViewOrigin {
  std::string buffer;            ///< "saved of block.3"
  std::string action;            ///< that they were made for: "forward(block.3, micro-batch 0)"
  std::atomic<bool> live{true};  ///< the action runs
};

/// A view as messages name it.
struct ViewName {
  const ViewOrigin* origin;  ///< may be null
  bool exists;               ///< is a view of an array
};

/// Print what was done, to which view, and end the run. On the host.
[[noreturn]] void end_at_index(ViewName view, std::int64_t i, std::int64_t extent);
[[noreturn]] void end_at_index(ViewName view, std::int64_t row, std::int64_t column,
                               std::int64_t rows, std::int64_t columns);
[[noreturn]] void end_at_range(ViewName view, const char* of_what, std::int64_t begin,
                               std::int64_t end, std::int64_t extent);
[[noreturn]] void end_at_flat(ViewName view, std::int64_t columns, std::int64_t stride);
[[noreturn]] void end_at_use(ViewName view);

#if defined(OSTRAKON_CHECK_VIEWS)
constexpr bool views_check = true;
#else
constexpr bool views_check = false;
#endif

struct OnHost;

// Checked views differ in size; a namespace of their own makes mixing a link error, of functions
// whose signature names a view. Types that hold views are not marked: CMake's targets give the same
// definition to all that link them.
#if defined(OSTRAKON_CHECK_VIEWS)
inline namespace checked_views {

/// The origin of a view, and the checks that need it. `exists`: whether the view is of an array.
template <class Space>
class ViewSource {
 public:
  ViewSource() = default;
  KOKKOS_FUNCTION explicit ViewSource(const ViewOrigin* origin) : origin_(origin) {}
  KOKKOS_FUNCTION const ViewOrigin* origin() const { return origin_; }

 protected:
  KOKKOS_FUNCTION void check_index([[maybe_unused]] bool exists, std::int64_t i,
                                   std::int64_t extent) const {
    check_space();
    if (0 <= i && i < extent && exists && is_live()) return;
#if OSTRAKON_IN_DEVICE_CODE
    Kokkos::abort("ostrakon: index outside of a view");
#else
    end_at_index({origin_, exists}, i, extent);
#endif
  }

  KOKKOS_FUNCTION void check_index([[maybe_unused]] bool exists, std::int64_t row,
                                   std::int64_t column, std::int64_t rows,
                                   std::int64_t columns) const {
    check_space();
    if (0 <= row && row < rows && 0 <= column && column < columns && exists && is_live()) return;
#if OSTRAKON_IN_DEVICE_CODE
    Kokkos::abort("ostrakon: index outside of a view");
#else
    end_at_index({origin_, exists}, row, column, rows, columns);
#endif
  }

  KOKKOS_FUNCTION void check_range([[maybe_unused]] const char* of_what, std::int64_t begin,
                                   std::int64_t end, std::int64_t extent) const {
    check_space();
    if (0 <= begin && begin <= end && end <= extent && is_live()) return;
#if OSTRAKON_IN_DEVICE_CODE
    Kokkos::abort("ostrakon: part of a view that is outside of it");
#else
    end_at_range({origin_, true}, of_what, begin, end, extent);
#endif
  }

  KOKKOS_FUNCTION void check_flat(std::int64_t rows, std::int64_t columns,
                                  std::int64_t stride) const {
    check_space();
    if (rows <= 1 || stride == columns) return;
#if OSTRAKON_IN_DEVICE_CODE
    Kokkos::abort("ostrakon: flat() of a view whose rows don't follow each other");
#else
    end_at_flat({origin_, true}, columns, stride);
#endif
  }

  /// Checks that the pointer may be used.
  KOKKOS_FUNCTION void check_use([[maybe_unused]] bool exists) const {
    check_space();
#if !OSTRAKON_IN_DEVICE_CODE
    if (!is_live()) end_at_use({origin_, exists});
#endif
  }

 private:
  KOKKOS_FUNCTION static void check_space() {
#if OSTRAKON_IN_DEVICE_CODE
    if (std::is_same<Space, OnHost>::value)
      Kokkos::abort("ostrakon: view of host memory used on a device");
#endif
  }

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
template <class Space>
class ViewSource {
 public:
  ViewSource() = default;
  KOKKOS_FUNCTION explicit ViewSource(const ViewOrigin*) {}
  KOKKOS_FUNCTION const ViewOrigin* origin() const { return nullptr; }

 protected:
  KOKKOS_FUNCTION void check_index(bool, std::int64_t, std::int64_t) const {}
  KOKKOS_FUNCTION void check_index(bool, std::int64_t, std::int64_t, std::int64_t,
                                   std::int64_t) const {}
  KOKKOS_FUNCTION void check_range(const char*, std::int64_t, std::int64_t, std::int64_t) const {}
  KOKKOS_FUNCTION void check_flat(std::int64_t, std::int64_t, std::int64_t) const {}
  KOKKOS_FUNCTION void check_use(bool) const {}
};

#endif

}  // namespace ostrakon
