// SPDX-License-Identifier: Apache-2.0
#pragma once

// Teams of a device's threads that sum, find a maximum and have shared memory. Kokkos gives a team
// of CUDA at most 48 KiB of it, and a device up to 227 to a kernel that asks for more. Kernels that
// do are launched by CUDA itself, here; all others, and those of HIP, by Kokkos.

#include <algorithm>
#include <ostrakon/math/kernel_form.hpp>
#include <ostrakon/math/rows/row_kernel.hpp>

namespace ostrakon::math {

/// Bytes of shared memory that CudaTeam needs itself, at most.
constexpr std::int64_t memory_of_sums = 1024;

/// Bytes of shared memory that plans for kernels of `form` count with. NVIDIA's compute
/// capabilities 9.0 and 10.0 have 227 KiB for a team, 8.0 has 163 (CUDA Programming Guide,
/// "Technical Specifications per Compute Capability"); CDNA GPUs of AMD 64, of which Kokkos keeps
/// 8,216 bytes.
constexpr std::int64_t planned_team_memory(KernelForm form) {
  constexpr std::int64_t of_cuda = (227 << 10) - memory_of_sums, of_hip = (64 << 10) - 8216;
  return form == KernelForm::device_on_chip ? of_cuda : is_of_device(form) ? of_hip : 0;
}

#if OSTRAKON_ON_DEVICE

#if defined(KOKKOS_ENABLE_DEFAULT_DEVICE_TYPE_CUDA)
#define OSTRAKON_CUDA_TEAMS 1
#else
#define OSTRAKON_CUDA_TEAMS 0
#endif

/// While one exists, teams get at most so many bytes of shared memory: for tests.
class TeamMemoryLimit {
 public:
  explicit TeamMemoryLimit(std::int64_t bytes) : outer_(current) { current = bytes; }
  ~TeamMemoryLimit() { current = outer_; }
  TeamMemoryLimit(const TeamMemoryLimit&) = delete;
  TeamMemoryLimit& operator=(const TeamMemoryLimit&) = delete;

  static std::int64_t of(std::int64_t bytes) { return std::min(bytes, current); }

 private:
  static inline thread_local std::int64_t current = std::int64_t{1} << 40;

  std::int64_t outer_;
};

/// Returns the bytes of shared memory that a team of the device may have besides what it sums by;
/// in tests on a host those of a plan.
inline std::int64_t team_memory([[maybe_unused]] const Exec& exec) {
#if OSTRAKON_CUDA_TEAMS
  const auto bytes = static_cast<std::int64_t>(exec.cuda_device_prop().sharedMemPerBlockOptin);
  return TeamMemoryLimit::of(bytes - memory_of_sums);
#else
  return TeamMemoryLimit::of(products_on_device ? TeamPolicy::scratch_size_max(0)
                                                : planned_team_memory(kernel_form));
#endif
}

/// A team that Kokkos has launched.
class KokkosTeam {
 public:
  KOKKOS_FUNCTION explicit KokkosTeam(const TeamMember& member) : member_(member) {}

  KOKKOS_FUNCTION int rank() const { return member_.team_rank(); }
  KOKKOS_FUNCTION int size() const { return member_.team_size(); }
  KOKKOS_FUNCTION std::int64_t index() const { return member_.league_rank(); }

  /// Returns the sum of `own` of all threads, whose order depends on their number alone.
  template <class C>
  KOKKOS_FUNCTION C sum(C own) const {
    C total = 0;
    Kokkos::parallel_reduce(
        Kokkos::TeamThreadRange(member_, member_.team_size()),
        [&](int, C& partial) { partial += own; }, total);
    return total;
  }
  template <class C>
  KOKKOS_FUNCTION C maximum(C own) const {
    C largest = own;
    Kokkos::parallel_reduce(
        Kokkos::TeamThreadRange(member_, member_.team_size()),
        [&](int, C& partial) {
          if (own > partial) partial = own;
        },
        Kokkos::Max<C>(largest));
    return largest;
  }
  template <class Body>
  KOKKOS_FUNCTION void once(const Body& body) const {
    Kokkos::single(Kokkos::PerTeam(member_), body);
  }
  KOKKOS_FUNCTION void barrier() const { member_.team_barrier(); }
  /// Returns the `bytes` of shared memory of the launch, aligned to 16.
  KOKKOS_FUNCTION void* memory(std::int64_t bytes) const {
    return bytes > 0
               ? member_.team_scratch(0).get_shmem_aligned(static_cast<std::size_t>(bytes), 16)
               : nullptr;
  }

 private:
  const TeamMember& member_;
};

#if OSTRAKON_CUDA_TEAMS

/// A team that CUDA has launched: a block, of whole warps.
class CudaTeam {
 public:
  KOKKOS_FUNCTION int rank() const { return in_block(Place::rank); }
  KOKKOS_FUNCTION int size() const { return in_block(Place::size); }
  KOKKOS_FUNCTION std::int64_t index() const { return in_block(Place::index); }

  template <class C>
  KOKKOS_FUNCTION C sum(C own) const {
    return joined(own, [](C a, C b) { return a + b; });
  }
  template <class C>
  KOKKOS_FUNCTION C maximum(C own) const {
    return joined(own, [](C a, C b) { return b > a ? b : a; });
  }
  template <class Body>
  KOKKOS_FUNCTION void once(const Body& body) const {
    if (rank() == 0) body();
  }
  KOKKOS_FUNCTION void barrier() const {
#if defined(__CUDA_ARCH__)
    __syncthreads();
#endif
  }
  KOKKOS_FUNCTION void* memory(std::int64_t) const {
#if defined(__CUDA_ARCH__)
    extern __shared__ float4 shared[];  // its alignment is that of vectors
    return shared;
#else
    return nullptr;
#endif
  }

 private:
  enum class Place { rank, size, index };

  // nvcc compiles what follows for the host, too, where it is not called.
  KOKKOS_FUNCTION static int in_block([[maybe_unused]] Place place) {
#if defined(__CUDA_ARCH__)
    return static_cast<int>(place == Place::rank   ? threadIdx.x
                            : place == Place::size ? blockDim.x
                                                   : blockIdx.x);
#else
    return 0;
#endif
  }

  /// Joins what threads have: by warp in a tree, then the warps in order. It waits for all threads
  /// twice.
  template <class C, class Join>
  KOKKOS_FUNCTION static C joined(C own, [[maybe_unused]] const Join& join) {
#if defined(__CUDA_ARCH__)
    constexpr int warp = 32;
    __shared__ C of_warps[warp];
    for (int distance = warp / 2; distance > 0; distance /= 2)
      own = join(own, __shfl_down_sync(0xFFFFFFFFu, own, distance));
    __syncthreads();  // all threads have read what was here before
    if (threadIdx.x % warp == 0) of_warps[threadIdx.x / warp] = own;
    __syncthreads();
    own = of_warps[0];
    const int warps = static_cast<int>(blockDim.x) / warp;
    for (int w = 1; w < warps; ++w) own = join(own, of_warps[w]);
#endif
    return own;
  }
};

using BlockTeam = CudaTeam;

template <int most, int blocks, class Body>
__global__ __launch_bounds__(most, blocks) void run_block(const Body body) {
  body(CudaTeam());
}

#else
using BlockTeam = KokkosTeam;
#endif

/// Returns the sum of `own` over `lanes` neighbouring threads, a power of two in a warp, in a tree;
/// all threads of the warp call it. In tests on a host `own` is the sum of one thread.
template <class C>
KOKKOS_FUNCTION C sum_of_lanes(C own, [[maybe_unused]] int lanes) {
#if defined(__CUDA_ARCH__)
  for (int distance = 1; distance < lanes; distance *= 2)
    own += __shfl_xor_sync(0xFFFFFFFFu, own, distance);
#elif defined(__HIP_DEVICE_COMPILE__)
  for (int distance = 1; distance < lanes; distance *= 2) own += __shfl_xor(own, distance);
#endif
  return own;
}

/// Runs body(team) for `teams` teams of `threads` threads, whole warps and at most `most`, with
/// `memory` bytes of shared memory each, at most team_memory(); Body is KOKKOS_LAMBDA(const
/// BlockTeam&). A multiprocessor has at least `blocks` teams of `most` threads, so that registers
/// are divided by as many. With CUDA `cluster` successive teams are a cluster (team_cluster.hpp).
template <int most, int blocks = 1, class Body>
static void for_each_block_team(const Exec& exec, const char* name, std::int64_t teams, int threads,
                                std::int64_t memory, const Body& body,
                                [[maybe_unused]] int cluster = 1) {
  if (teams == 0 || LaunchCount::takes_one(name)) return;
  const ObservedKernel observed(name);
#if OSTRAKON_CUDA_TEAMS
  const auto bytes = static_cast<int>(memory);
  device::check(cudaFuncSetAttribute(run_block<most, blocks, Body>,
                                     cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
                "cudaFuncSetAttribute");
  cudaLaunchAttribute in_clusters = {};
  in_clusters.id = cudaLaunchAttributeClusterDimension;
  in_clusters.val.clusterDim.x = static_cast<unsigned>(cluster);
  in_clusters.val.clusterDim.y = in_clusters.val.clusterDim.z = 1;
  cudaLaunchConfig_t launch = {};
  launch.gridDim = dim3(static_cast<unsigned>(teams));
  launch.blockDim = dim3(static_cast<unsigned>(threads));
  launch.dynamicSmemBytes = static_cast<std::size_t>(bytes);
  launch.stream = stream_of(exec);
  launch.attrs = &in_clusters;
  launch.numAttrs = cluster > 1 ? 1 : 0;
  device::check(cudaLaunchKernelEx(&launch, run_block<most, blocks, Body>, body), name);
#else
  using Policy =
      Kokkos::TeamPolicy<KernelSpace, Kokkos::LaunchBounds<most, blocks>, CapturesAsArgument>;
  Policy policy(exec, static_cast<int>(teams), threads);
  policy.set_scratch_size(0, Kokkos::PerTeam(static_cast<int>(memory)));
  Kokkos::parallel_for(
      name, policy, KOKKOS_LAMBDA(const TeamMember& member) { body(KokkosTeam(member)); });
#endif
}

#endif

}  // namespace ostrakon::math
