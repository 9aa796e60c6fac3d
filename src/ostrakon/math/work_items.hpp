// SPDX-License-Identifier: Apache-2.0
#pragma once

// Kernels over neighbouring elements: on the host an item of work is a run of them, in a loop that
// compilers vectorise; on a device it is one, or a vector (vectors.hpp), so that neighbouring
// threads touch neighbouring memory. For kernels whose items need nothing of each other; where the
// elements of a row share a sum or a maximum, row_kernel.hpp has a team of threads for the row.

#include <ostrakon/math/view.hpp>

namespace ostrakon::math {

/// Elements in one item of work.
constexpr std::int64_t per_item(std::int64_t of_host, std::int64_t of_device = 1) {
  return on_device ? of_device : of_host;
}

/// Items of `size` that cover `count` elements.
KOKKOS_INLINE_FUNCTION constexpr std::int64_t items_for(std::int64_t count, std::int64_t size) {
  return (count + size - 1) / size;
}

KOKKOS_INLINE_FUNCTION std::int64_t smaller(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}

/// In place of an execution space: the calling thread, which Kokkos need not know.
struct CallingThread {};

/// What works on views of a memory space: Exec, or on host memory the calling thread.
template <class Space>
using WorksOn = std::conditional_t<std::is_same<Space, OnHost>::value, CallingThread, Exec>;

/// Elements in one item of work there.
template <class Where>
constexpr std::int64_t per_item_on(std::int64_t of_host, std::int64_t of_device = 1) {
  return std::is_same<Where, CallingThread>::value ? of_host : per_item(of_host, of_device);
}

/// Runs body(item) for every item in [0, items); Body is KOKKOS_LAMBDA(int64_t). Names of at most
/// 15 characters cost no allocation.
template <class Body>
void for_each_item(const Exec& exec, const char* name, std::int64_t items, const Body& body) {
  launch(exec, [=](const KernelSpace& where) {
    Kokkos::parallel_for(
        name, Kokkos::RangePolicy<KernelSpace, Kokkos::IndexType<std::int64_t>>(where, 0, items),
        body);
  });
}

template <class Body>
void for_each_item(const CallingThread&, const char*, std::int64_t items, const Body& body) {
  for (std::int64_t item = 0; item < items; ++item) body(item);
}

}  // namespace ostrakon::math
