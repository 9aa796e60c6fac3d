// SPDX-License-Identifier: Apache-2.0
#pragma once

// Clusters: some teams of a device's threads that share a row which is too long for one of them.
// They run at the same time, wait for each other and read what each has put into its shared memory:
// those of CUDA from compute capability 9.0 on. Elsewhere a cluster is one team. In tests on a host
// one thread plays all teams of a cluster, in turn.

#include <cstddef>
#include <ostrakon/math/block_team.hpp>

namespace ostrakon::math {

/// Teams of a cluster, at most; CUDA has up to 8 on all devices that have clusters.
constexpr int most_teams_of_cluster = 4;

/// Returns how many teams of a cluster plans for kernels of `form` count with, at most.
constexpr int planned_teams_of_cluster(KernelForm form) {
  return form == KernelForm::device_on_chip ? most_teams_of_cluster : 1;
}

#if OSTRAKON_ON_DEVICE

// Devices of 9.0 and later are those from 8.0 on, which have tiles of a warp, without Ampere and
// Ada.
#if OSTRAKON_CUDA_TEAMS && OSTRAKON_WARP_TILES && !defined(KOKKOS_ARCH_AMPERE) && \
    !defined(KOKKOS_ARCH_ADA89)
#define OSTRAKON_CUDA_CLUSTERS 1
#else
#define OSTRAKON_CUDA_CLUSTERS 0
#endif

/// While one exists, clusters have at most so many teams: for tests.
class ClusterLimit {
 public:
  explicit ClusterLimit(int teams) : outer_(current) { current = teams; }
  ~ClusterLimit() { current = outer_; }
  ClusterLimit(const ClusterLimit&) = delete;
  ClusterLimit& operator=(const ClusterLimit&) = delete;

  static int of(int teams) { return std::min(teams, current); }

 private:
  static inline thread_local int current = most_teams_of_cluster;

  int outer_;
};

/// Returns how many teams a cluster of the device may have; in tests on a host those of a plan.
inline int teams_of_cluster([[maybe_unused]] const Exec& exec) {
#if OSTRAKON_CUDA_CLUSTERS
  return ClusterLimit::of(exec.cuda_device_prop().clusterLaunch != 0 ? most_teams_of_cluster : 1);
#else
  return ClusterLimit::of(products_on_device ? 1 : planned_teams_of_cluster(kernel_form));
#endif
}

/// A cluster as one of its threads sees it.
class TeamCluster {
 public:
  /// Bytes of each team's shared memory that share() takes.
  static constexpr std::int64_t bytes_of_share = 16;

  /// `bytes`: those of each team's shared memory, with those of share().
  KOKKOS_FUNCTION TeamCluster(const BlockTeam& team, int teams, std::int64_t bytes)
      : team_(team),
        teams_(teams),
        bytes_(static_cast<int>(bytes)),
        memory_(static_cast<std::byte*>(team.memory(plays_all ? bytes * teams : bytes))) {}

  KOKKOS_FUNCTION const BlockTeam& team() const { return team_; }
  KOKKOS_FUNCTION int teams() const { return teams_; }
  /// Returns the cluster's index among all.
  KOKKOS_FUNCTION std::int64_t index() const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    return static_cast<std::int64_t>(__clusterIdx().x);
#else
    return team_.index();
#endif
  }
  /// Runs body(t) for the team t of the calling thread, or for all teams that it plays.
  template <class Body>
  KOKKOS_FUNCTION void for_own_teams(const Body& body) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    body(static_cast<int>(__clusterRelativeBlockRank()));
#elif OSTRAKON_IN_DEVICE_CODE
    body(0);
#else
    for (int t = 0; t < teams_; ++t) body(t);
#endif
  }
  /// Returns the shared memory of team t, one of the calling thread's, behind that of share().
  KOKKOS_FUNCTION void* memory(int t) const { return begin_of(t) + bytes_of_share; }
  /// Lets all teams read what team t, one of the calling thread's, has: equal in all its threads.
  template <class S>
  KOKKOS_FUNCTION void share(int t, const S& own) const {
    static_assert(sizeof(S) <= bytes_of_share, "a small struct");
    if (team_.rank() == 0) *reinterpret_cast<S*>(begin_of(t)) = own;
  }
  /// Returns what team t shared; between the two all teams wait().
  template <class S>
  KOKKOS_FUNCTION S shared_by(int t) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    return *static_cast<const S*>(__cluster_map_shared_rank(begin_of(0), static_cast<unsigned>(t)));
#else
    return *reinterpret_cast<const S*>(begin_of(t));
#endif
  }
  /// Waits for all threads of all teams. A team must not end before others have read what it
  /// shared.
  KOKKOS_FUNCTION void wait() const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    __cluster_barrier_arrive();
    __cluster_barrier_wait();
#else
    team_.barrier();
#endif
  }
  /// Runs `body` once per cluster.
  template <class Body>
  KOKKOS_FUNCTION void once(const Body& body) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (__clusterRelativeBlockRank() != 0) return;
#endif
    team_.once(body);
  }

 private:
  /// Whether the calling thread plays all teams.
  static constexpr bool plays_all = OSTRAKON_IN_DEVICE_CODE == 0;

  KOKKOS_FUNCTION std::byte* begin_of(int t) const {
    return memory_ + static_cast<std::ptrdiff_t>(plays_all ? t : 0) * bytes_;
  }

  const BlockTeam& team_;
  int teams_, bytes_;
  std::byte* memory_;
};

/// Runs body(cluster) for `clusters` clusters of `teams` teams, each with `threads` threads and
/// `memory` bytes of shared memory; see for_each_block_team(). Body is KOKKOS_LAMBDA(const
/// TeamCluster&).
template <int most, class Body>
static void for_each_cluster(const Exec& exec, const char* name, std::int64_t clusters, int teams,
                             int threads, std::int64_t memory, const Body& body) {
  const std::int64_t bytes = memory + TeamCluster::bytes_of_share;
  const int played = products_on_device ? 1 : teams;  // by one thread
  for_each_block_team<most>(
      exec, name, clusters * (teams / played), threads, bytes * played,
      KOKKOS_LAMBDA(const BlockTeam& team) { body(TeamCluster(team, teams, bytes)); },
      teams / played);
}

#endif

}  // namespace ostrakon::math
