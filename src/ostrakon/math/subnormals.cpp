// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/subnormals.hpp>

#include <algorithm>
#include <cstddef>
#include <ostrakon/math/portability.hpp>

#if defined(_OPENMP)
#include <omp.h>
#endif

namespace ostrakon::math {
namespace {

/// Returns the number of threads of kernels and matrix products, which share one OpenMP pool.
int threads() {
#if defined(_OPENMP)
  return std::max(host_threads(), omp_get_max_threads());
#else
  return host_threads();
#endif
}

/// Calls work(i) on the i-th of these threads, the same thread each time.
template <class Work>
void on_each_thread(int threads, const Work& work) {
#if defined(_OPENMP)
#pragma omp parallel num_threads(threads)
  work(omp_get_thread_num());
#else
  using Policy =
      Kokkos::RangePolicy<Kokkos::DefaultHostExecutionSpace, Kokkos::Schedule<Kokkos::Static> >;
  Kokkos::parallel_for("float_mode", Policy(0, threads).set_chunk_size(1), work);
  Kokkos::DefaultHostExecutionSpace().fence();
#endif
}

}  // namespace

SubnormalsScope::SubnormalsScope(Subnormals subnormals)
    : before_(static_cast<std::size_t>(threads() > 1 ? threads() : 0), FloatMode::of_this_thread()),
      own_(subnormals) {
  if (before_.empty()) return;
  FloatMode* const before = before_.data();
  on_each_thread(static_cast<int>(before_.size()), [=](int thread) {
    if (thread == 0) return;  // 0 is the calling thread
    before[thread] = FloatMode::of_this_thread();
    before[thread].with(subnormals).use();
  });
}

SubnormalsScope::~SubnormalsScope() {
  if (before_.empty()) return;
  const FloatMode* const before = before_.data();
  on_each_thread(static_cast<int>(before_.size()), [=](int thread) {
    if (thread > 0) before[thread].use();
  });
}

}  // namespace ostrakon::math
