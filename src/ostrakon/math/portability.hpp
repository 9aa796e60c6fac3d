// SPDX-License-Identifier: Apache-2.0
#pragma once

// The one place that handles the differences of Kokkos 3.4 and Kokkos 5.

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <type_traits>

namespace ostrakon {

/// Where kernels run and where their data are. Everything else derives from these two.
using Exec = Kokkos::DefaultExecutionSpace;
using Memory = Exec::memory_space;

// Whether kernels run on a device: 1 or 0. For the preprocessor where it must choose, as CUDA
// allows no kernel inside `if constexpr`; everywhere else `on_device`.
#if defined(KOKKOS_ENABLE_DEFAULT_DEVICE_TYPE_CUDA) || \
    defined(KOKKOS_ENABLE_DEFAULT_DEVICE_TYPE_HIP) ||  \
    defined(KOKKOS_ENABLE_DEFAULT_DEVICE_TYPE_SYCL)
#define OSTRAKON_ON_DEVICE 1
#else
#define OSTRAKON_ON_DEVICE 0
#endif
constexpr bool on_device = OSTRAKON_ON_DEVICE == 1;
static_assert(on_device == !std::is_same<Exec, Kokkos::DefaultHostExecutionSpace>::value,
              "OSTRAKON_ON_DEVICE does not know Kokkos's default execution space");

// 1 where the compiler makes code for a device, not for the host, of a function that runs on both.
#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__) || defined(__SYCL_DEVICE_ONLY__)
#define OSTRAKON_IN_DEVICE_CODE 1
#else
#define OSTRAKON_IN_DEVICE_CODE 0
#endif

/// Host memory that a device copies from and to directly: pinned. Where there is no device, any.
#if !OSTRAKON_ON_DEVICE
using HostMemory = Kokkos::HostSpace;
#elif KOKKOS_VERSION >= 40000
using HostMemory = Kokkos::SharedHostPinnedSpace;
#elif defined(KOKKOS_ENABLE_DEFAULT_DEVICE_TYPE_CUDA)
using HostMemory = Kokkos::CudaHostPinnedSpace;
#elif defined(KOKKOS_ENABLE_DEFAULT_DEVICE_TYPE_HIP)
using HostMemory = Kokkos::Experimental::HIPHostPinnedSpace;
#else
using HostMemory = Kokkos::HostSpace;
#endif

/// Whether host code may follow a pointer into `Memory`, which some devices share with the host.
constexpr bool memory_is_host_accessible =
    Kokkos::SpaceAccessibility<Kokkos::DefaultHostExecutionSpace, Memory>::accessible;

/// Row-major matrix of `rows` x `columns`, row i at `data + i * stride`. Owns nothing.
template <class T>
struct Matrix {
  T* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t stride = 0;

  Matrix() = default;
  KOKKOS_FUNCTION Matrix(T* data_, std::int64_t rows_, std::int64_t columns_, std::int64_t stride_)
      : data(data_), rows(rows_), columns(columns_), stride(stride_) {}
  KOKKOS_FUNCTION Matrix(T* data_, std::int64_t rows_, std::int64_t columns_)
      : Matrix(data_, rows_, columns_, columns_) {}

  /// A matrix of T is one of const T.
  template <class U,
            class = std::enable_if_t<std::is_same<const U, T>::value && !std::is_const<U>::value>>
  KOKKOS_FUNCTION Matrix(const Matrix<U>& other)
      : Matrix(other.data, other.rows, other.columns, other.stride) {}

  KOKKOS_FUNCTION T& operator()(std::int64_t row, std::int64_t column) const {
    return data[row * stride + column];
  }
  KOKKOS_FUNCTION T* row(std::int64_t index) const { return data + index * stride; }

  /// Rows [begin, end) of this matrix.
  Matrix row_range(std::int64_t begin, std::int64_t end) const {
    return {data + begin * stride, end - begin, columns, stride};
  }
  /// Columns [begin, end) of this matrix.
  Matrix column_range(std::int64_t begin, std::int64_t end) const {
    return {data + begin, rows, end - begin, stride};
  }
};

/// Keeps a function's parameter of this type out of template argument deduction.
template <class T>
struct TypeIdentity {
  using type = T;
};
template <class T>
using ConstMatrix = Matrix<const typename TypeIdentity<T>::type>;

namespace math {
// Kokkos moved its mathematical functions out of Experimental in 3.7.
#if KOKKOS_VERSION >= 30700
using Kokkos::exp;
using Kokkos::log;
using Kokkos::pow;
using Kokkos::sqrt;
#else
using Kokkos::Experimental::exp;
using Kokkos::Experimental::log;
using Kokkos::Experimental::pow;
using Kokkos::Experimental::sqrt;
#endif
}  // namespace math

}  // namespace ostrakon
