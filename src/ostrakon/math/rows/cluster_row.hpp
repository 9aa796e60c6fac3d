// SPDX-License-Identifier: Apache-2.0
#pragma once

// Rows that the teams of a cluster hold together, in registers, where one team can't.

#include <ostrakon/math/rows/held_row.hpp>
#include <ostrakon/math/team_cluster.hpp>
#include <ostrakon/math/unrolled.hpp>

namespace ostrakon::math {

#if OSTRAKON_ON_DEVICE

/// The teams of a cluster as one team, whose threads are those of the first team, then those of the
/// next. A sum adds what the teams have in this order. In tests on a host it is one thread.
class JoinedTeams {
 public:
  KOKKOS_FUNCTION explicit JoinedTeams(const TeamCluster& cluster) : cluster_(cluster) {}

  KOKKOS_FUNCTION int rank() const { return own_team() * cluster_.team().size() + own_rank(); }
  KOKKOS_FUNCTION int size() const { return cluster_.teams() * cluster_.team().size(); }

  template <class C>
  KOKKOS_FUNCTION C sum(C own) const {
    cluster_.share(own_team(), cluster_.team().sum(own));
    cluster_.wait();
    C total = cluster_.shared_by<C>(0);
    rolled(cluster_.teams() - 1, [&](int before) { total += cluster_.shared_by<C>(before + 1); });
    cluster_.wait();  // until all have read, as the next sum overwrites it
    return total;
  }

 private:
  KOKKOS_FUNCTION int own_rank() const { return cluster_.team().rank(); }
  KOKKOS_FUNCTION int own_team() const {
    int team = 0;
    cluster_.for_own_teams([&](int own) { team = own; });
    return team;
  }

  const TeamCluster& cluster_;
};

/// Vectors of each thread: a host has one thread in place of a cluster's teams.
template <int vectors>
constexpr int vectors_of_joined = products_on_device ? vectors : vectors* most_teams_of_cluster;

/// A row that joined teams hold, each thread `vectors` vectors of n elements of it.
template <int n, int vectors>
using ClusterRow = HeldRow<n, vectors_of_joined<vectors>, JoinedTeams>;

/// Runs body(ClusterRow, index) for every index in [0, count), for rows of `width` elements; Body
/// is KOKKOS_LAMBDA(const ClusterRow<n, vectors>&, int64_t). Each of teams_of_cluster() teams has
/// up to `most` threads.
template <int n, int vectors, int most, class Body>
static void for_each_held_by_cluster(const Exec& exec, const char* name, std::int64_t count,
                                     std::int64_t width, const Body& body) {
  const int teams = products_on_device ? teams_of_cluster(exec) : 1;
  for_each_cluster<most>(
      exec, name, count, teams, threads_of_held_row<n, vectors>(items_for(width, teams)), 0,
      KOKKOS_LAMBDA(const TeamCluster& cluster) {
        const JoinedTeams joined(cluster);
        body(ClusterRow<n, vectors>(joined, width), cluster.index());
      });
}

#endif

}  // namespace ostrakon::math
