// SPDX-License-Identifier: Apache-2.0
#pragma once

// Arrays as arguments of kernels, units and optimizers: address, extents and memory space. A view
// owns nothing and is captured by value.
//
//     View<const float**> x     a matrix in device memory, row-major, read only
//     HostView<double*> sums    an array in host memory
//
// A host view is a different type from a device view, also in builds without a device: a function
// that takes one does not compile with the other. The compiler does not check what a KOKKOS_LAMBDA
// captures: a host view in your own kernel compiles, and works without a device.
//
// With OSTRAKON_CHECK_VIEWS (CMake: Ostrakon_ENABLE_VIEW_CHECKS) each index and each part is
// checked; each of them, and data(), also checks that the plan has not freed the buffer. An error
// ends the run with the buffer, the extents and the action. On a device indices, parts and the
// memory space are checked, without names. Without the option nothing is checked, and a view is as
// small and fast as a pointer and extents.

#include <cstddef>
#include <ostrakon/math/portability.hpp>
#include <ostrakon/math/view_origin.hpp>
#include <type_traits>
#include <vector>

namespace ostrakon {

/// Memory spaces of views.
struct OnDevice {
  using MemorySpace = Memory;  ///< memory of kernels
};
struct OnHost {
  using MemorySpace = Kokkos::HostSpace;  ///< memory of host code, pinned or not
};

// Checked views differ in size; a separate namespace makes mixing builds a link error.
#if defined(OSTRAKON_CHECK_VIEWS)
inline namespace checked_views {
#endif

/// Data: T* for an array, T** for a matrix. Space: OnDevice or OnHost.
template <class Data, class Space = OnDevice>
class View;

template <class Data>
using DeviceView = View<Data, OnDevice>;
template <class Data>
using HostView = View<Data, OnHost>;

/// An array. A missing array, such as the bias of a layer without one, is null: it has no elements,
/// and converts to false. Indices and extents are in elements.
template <class T, class Space>
class View<T*, Space> : private ViewSource<Space> {
  using Source = ViewSource<Space>;

 public:
  using Element = T;

  View() = default;
  /// `from`, if not null, must outlive the view.
  KOKKOS_FUNCTION View(T* data, std::int64_t extent, const ViewOrigin* from = nullptr)
      : Source(from), data_(data), extent_(extent) {}

  /// Converts a view of T to a view of const T.
  template <class U, class = std::enable_if_t<std::is_same<const U, T>::value>>
  KOKKOS_FUNCTION View(const View<U*, Space>& other)
      : View(other.data_, other.extent_, other.origin()) {}

  KOKKOS_FUNCTION T& operator()(std::int64_t i) const {
    Source::check_index(data_ != nullptr, i, extent_);
    return data_[i];
  }
  KOKKOS_FUNCTION T& operator[](std::int64_t i) const { return (*this)(i); }

  KOKKOS_FUNCTION T* data() const {
    Source::check_use(data_ != nullptr);
    return data_;
  }
  KOKKOS_FUNCTION std::int64_t size() const { return extent_; }
  KOKKOS_FUNCTION std::int64_t extent(int) const { return extent_; }
  KOKKOS_FUNCTION explicit operator bool() const { return data_ != nullptr; }
  using Source::origin;

  /// Returns elements [begin, end); a null array returns itself.
  KOKKOS_FUNCTION View range(std::int64_t begin, std::int64_t end) const {
    if (!data_) return *this;
    Source::check_range("elements", begin, end, extent_);
    return {data_ + begin, end - begin, origin()};
  }

  /// Returns the first rows x columns elements as a matrix; a null array returns a null matrix of
  /// that shape.
  KOKKOS_FUNCTION View<T**, Space> matrix(std::int64_t rows, std::int64_t columns) const {
    if (data_) Source::check_range("elements", 0, rows * columns, extent_);
    return {data_, rows, columns, columns, origin()};
  }

  /// Returns a Kokkos view, for deep_copy and your own kernels.
  auto kokkos() const {
    return Kokkos::View<T*, Kokkos::LayoutRight, typename Space::MemorySpace,
                        Kokkos::MemoryTraits<Kokkos::Unmanaged>>(data(),
                                                                 static_cast<std::size_t>(extent_));
  }

 private:
  template <class, class>
  friend class View;

  T* data_ = nullptr;
  std::int64_t extent_ = 0;
};

/// A row-major matrix: element (i, j) is at data() + i * stride() + j.
template <class T, class Space>
class View<T**, Space> : private ViewSource<Space> {
  using Source = ViewSource<Space>;

 public:
  using Element = T;

  View() = default;
  KOKKOS_FUNCTION View(T* data, std::int64_t rows, std::int64_t columns)
      : View(data, rows, columns, columns) {}
  /// Rows begin `stride` elements apart. `from`, if not null, must outlive the view.
  KOKKOS_FUNCTION View(T* data, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                       const ViewOrigin* from = nullptr)
      : Source(from), data_(data), rows_(rows), columns_(columns), stride_(stride) {}

  /// Converts a view of T to a view of const T.
  template <class U, class = std::enable_if_t<std::is_same<const U, T>::value>>
  KOKKOS_FUNCTION View(const View<U**, Space>& other)
      : View(other.data_, other.rows_, other.columns_, other.stride_, other.origin()) {}

  KOKKOS_FUNCTION T& operator()(std::int64_t row, std::int64_t column) const {
    Source::check_index(data_ != nullptr, row, column, rows_, columns_);
    return data_[row * stride_ + column];
  }

  KOKKOS_FUNCTION T* data() const {
    Source::check_use(data_ != nullptr);
    return data_;
  }
  KOKKOS_FUNCTION std::int64_t rows() const { return rows_; }
  KOKKOS_FUNCTION std::int64_t columns() const { return columns_; }
  KOKKOS_FUNCTION std::int64_t stride() const { return stride_; }
  /// rows() for dimension 0, columns() for 1.
  KOKKOS_FUNCTION std::int64_t extent(int dimension) const {
    return dimension == 0 ? rows_ : columns_;
  }
  KOKKOS_FUNCTION explicit operator bool() const { return data_ != nullptr; }
  using Source::origin;

  /// Returns row i: (columns).
  KOKKOS_FUNCTION View<T*, Space> row(std::int64_t i) const {
    Source::check_index(data_ != nullptr || columns_ == 0, i, rows_);
    return {data_ + i * stride_, columns_, origin()};
  }

  /// Returns rows [begin, end); a null matrix returns itself.
  KOKKOS_FUNCTION View row_range(std::int64_t begin, std::int64_t end) const {
    if (!data_) return *this;
    Source::check_range("rows", begin, end, rows_);
    return {data_ + begin * stride_, end - begin, columns_, stride_, origin()};
  }
  /// Returns columns [begin, end); a null matrix returns itself.
  KOKKOS_FUNCTION View column_range(std::int64_t begin, std::int64_t end) const {
    if (!data_) return *this;
    Source::check_range("columns", begin, end, columns_);
    return {data_ + begin, rows_, end - begin, stride_, origin()};
  }

  /// Returns all elements, row by row. Rows must be contiguous: stride() is columns(), or there is
  /// one row.
  KOKKOS_FUNCTION View<T*, Space> flat() const {
    Source::check_flat(rows_, columns_, stride_);
    return {data_, rows_ * columns_, origin()};
  }

  /// Returns a Kokkos view, for deep_copy and your own kernels.
  auto kokkos() const {
    return Kokkos::View<T**, Kokkos::LayoutStride, typename Space::MemorySpace,
                        Kokkos::MemoryTraits<Kokkos::Unmanaged>>(
        data(),
        Kokkos::LayoutStride(static_cast<std::size_t>(rows_), static_cast<std::size_t>(stride_),
                             static_cast<std::size_t>(columns_), 1));
  }

 private:
  template <class, class>
  friend class View;

  T* data_ = nullptr;
  std::int64_t rows_ = 0;
  std::int64_t columns_ = 0;
  std::int64_t stride_ = 0;
};

#if defined(OSTRAKON_CHECK_VIEWS)
}  // namespace checked_views
#endif

/// Reinterprets an array as whole elements of type A, which share its bytes. std::byte works for
/// every array.
template <class A, class T, class Space>
auto view_as(const View<T*, Space>& array) {
  using Element = std::conditional_t<std::is_const<T>::value, const A, A>;
  const auto bytes = array.size() * static_cast<std::int64_t>(sizeof(T));
  return View<Element*, Space>(reinterpret_cast<Element*>(array.data()),
                               bytes / static_cast<std::int64_t>(sizeof(A)), array.origin());
}

/// Returns a view of a vector, which must outlive the view and keep its size.
template <class T>
HostView<T*> host_view(std::vector<T>& values) {
  return {values.data(), static_cast<std::int64_t>(values.size())};
}
template <class T>
HostView<const T*> host_view(const std::vector<T>& values) {
  return {values.data(), static_cast<std::int64_t>(values.size())};
}

/// Returns a view of a Kokkos array in device memory, which must outlive the view.
template <class T, class... Properties>
DeviceView<T*> device_view(const Kokkos::View<T*, Properties...>& array) {
  static_assert(
      Kokkos::SpaceAccessibility<
          KernelSpace, typename Kokkos::View<T*, Properties...>::memory_space>::accessible,
      "kernels don't reach this array");
  return {array.data(), static_cast<std::int64_t>(array.extent(0))};
}

}  // namespace ostrakon
