// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

namespace ostrakon {

/// Calls work(thread, i) for each i from 0 to count - 1, from `threads` threads including the
/// caller; each takes the lowest i that is left. If the system gives fewer threads, these do all
/// the work. `thread` is from 0 to threads - 1. After a call has failed, no further one begins; the
/// exception of the failed call with the lowest i is thrown, the same for any number of threads.
/// For copies, files and plans: `work` may not call Kokkos or MPI.
void in_threads(int threads, std::int64_t count,
                const std::function<void(int thread, std::int64_t i)>& work);

}  // namespace ostrakon
