// SPDX-License-Identifier: Apache-2.0
#pragma once

// The data for checks of views: where a view comes from, and how a run ends that misuses it.

#include <atomic>
#include <cstdint>
#include <ostrakon/math/portability.hpp>
#include <string>
#include <type_traits>

namespace ostrakon {

/// The buffer of a view, and the plan action that uses it: for messages, and to detect a use after
/// the action, when the buffer may be freed.
struct ViewOrigin {
  std::string buffer;            ///< "saved of block.3"
  std::string action;            ///< action that uses it: "forward(block.3, micro-batch 0)"
  std::atomic<bool> live{true};  ///< whether the action is running
};

/// A view in messages.
struct ViewName {
  const ViewOrigin* origin;  ///< may be null
  bool exists;               ///< whether the view is not null
};

/// Print the access and the view, and end the run. For the host.
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

// Checked views differ in size; a separate namespace makes mixing builds a link error for functions
// with views in their signature. Types that hold views are not in it: CMake's targets give the same
// definition to all code that links them.
#if defined(OSTRAKON_CHECK_VIEWS)
inline namespace checked_views {

/// The origin of a view, and the checks that need it. `exists`: whether the view is not null.
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

  /// Whether the action is running. The record is in host memory, so a device does not read it.
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

/// An empty base class without checks.
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
