// SPDX-License-Identifier: Apache-2.0
#pragma once

// Kernels over independent elements: on the host an item of work is a run of them, in a loop that
// compilers vectorise; on a device it is one element, or a vector (vectors.hpp), for coalesced
// access. If the elements of a row share a sum or a maximum, use row_kernel.hpp, with a team of
// threads per row.

#include <ostrakon/math/view.hpp>

namespace ostrakon::math {

/// Returns the elements per item of work.
constexpr std::int64_t per_item(std::int64_t of_host, std::int64_t of_device = 1) {
  return on_device ? of_device : of_host;
}

/// Returns the number of items of `size` that cover `count` elements.
KOKKOS_INLINE_FUNCTION constexpr std::int64_t items_for(std::int64_t count, std::int64_t size) {
  return (count + size - 1) / size;
}

KOKKOS_INLINE_FUNCTION std::int64_t smaller(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}

/// Stands for an execution space: the calling thread, which Kokkos need not know.
struct CallingThread {};

/// The executor for views of a memory space: Exec, or for host memory the calling thread.
template <class Space>
using ExecutorFor = std::conditional_t<std::is_same<Space, OnHost>::value, CallingThread, Exec>;

/// Returns the elements per item of work for `Where`.
template <class Where>
constexpr std::int64_t per_item_on(std::int64_t of_host, std::int64_t of_device = 1) {
  return std::is_same<Where, CallingThread>::value ? of_host : per_item(of_host, of_device);
}

/// A property of policies: Kokkos passes what a kernel captures as an argument of its launch. Else,
/// from 512 bytes on, it goes through a buffer of constant memory, for which the host waits, and
/// which later launches overwrite before a graph (device/graph.hpp) reads it.
using CapturesAsArgument = Kokkos::Experimental::WorkItemProperty::HintLightWeight_t;

/// Runs body(item) for every item in [0, items); Body is KOKKOS_LAMBDA(int64_t). Names of at most
/// 15 characters need no allocation.
template <class Body>
void for_each_item(const Exec& exec, const char* name, std::int64_t items, const Body& body) {
  using Policy =
      Kokkos::RangePolicy<KernelSpace, Kokkos::IndexType<std::int64_t>, CapturesAsArgument>;
  launch(exec, name, [=](const KernelSpace& where) {
    Kokkos::parallel_for(name, Policy(where, 0, items), body);
  });
}

template <class Body>
void for_each_item(const CallingThread&, const char*, std::int64_t items, const Body& body) {
  for (std::int64_t item = 0; item < items; ++item) body(item);
}

}  // namespace ostrakon::math
