// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

namespace ostrakon {

/// Calls work(thread, i) for each i from 0 to count - 1, from `threads` threads, this one among
/// them; each takes the lowest i that none has taken yet. Where the system gives fewer threads,
/// those do it. `thread` is from 0 to threads - 1. Throws what the call with the lowest i that
/// fails throws, on any number of threads; none begins after one has failed. For copying, files and
/// plans: `work` may not call Kokkos or MPI.
void in_threads(int threads, std::int64_t count,
                const std::function<void(int thread, std::int64_t i)>& work);

}  // namespace ostrakon
