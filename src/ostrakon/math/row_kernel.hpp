// SPDX-License-Identifier: Apache-2.0
#pragma once

// One source for kernels that work row by row. On the host a row is a plain loop whose sums run in
// sixteen lanes, which compilers vectorise and which fixes the order of the additions; on a device
// a row belongs to a team of threads. For kernels whose elements share what the row has (a sum, a
// maximum, a token's id); where elements are independent, work_items.hpp wastes no team on it.

#include <ostrakon/math/view.hpp>
#include <ostrakon/math/work_items.hpp>

namespace ostrakon::math {

/// What a row kernel calls on the host.
class HostRow {
 public:
  /// body(i) for i in [0, count), in any order. All of it is done when the call returns.
  template <class Body>
  void loop(std::int64_t count, const Body& body) const {
    for (std::int64_t i = 0; i < count; ++i) body(i);
  }

  /// The sum of term(i) for i in [0, count), the same order every time.
  template <class T, class Term>
  T sum(std::int64_t count, const Term& term) const {
    constexpr int lanes = 16;
    T lane[lanes] = {};
    const std::int64_t whole = count / lanes * lanes;
    for (std::int64_t i = 0; i < whole; i += lanes)
      for (int l = 0; l < lanes; ++l) lane[l] += term(i + l);
    for (std::int64_t i = whole; i < count; ++i) lane[i - whole] += term(i);
    for (int width = lanes / 2; width > 0; width /= 2)
      for (int l = 0; l < width; ++l) lane[l] += lane[l + width];
    return lane[0];
  }

  /// The largest term(i), at least `lowest`.
  template <class T, class Term>
  T maximum(std::int64_t count, T lowest, const Term& term) const {
    constexpr int lanes = 32;  // GCC unrolls 16 whole, and then does not vectorise comparisons
    T lane[lanes];
    for (int l = 0; l < lanes; ++l) lane[l] = lowest;
    const std::int64_t whole = count / lanes * lanes;
    for (std::int64_t i = 0; i < whole; i += lanes)
      for (int l = 0; l < lanes; ++l) {
        const T value = term(i + l);
        lane[l] = value > lane[l] ? value : lane[l];
      }
    for (std::int64_t i = whole; i < count; ++i) {
      const T value = term(i);
      lane[i - whole] = value > lane[i - whole] ? value : lane[i - whole];
    }
    for (int width = lanes / 2; width > 0; width /= 2)
      for (int l = 0; l < width; ++l)
        lane[l] = lane[l + width] > lane[l] ? lane[l + width] : lane[l];
    return lane[0];
  }

  /// Runs `body` once.
  template <class Body>
  void once(const Body& body) const {
    body();
  }
};

using TeamPolicy = Kokkos::TeamPolicy<Exec>;
using TeamMember = TeamPolicy::member_type;

/// The same on a device: the threads of a team share the row.
class DeviceRow {
 public:
  KOKKOS_FUNCTION explicit DeviceRow(const TeamMember& team) : team_(team) {}

  template <class Body>
  KOKKOS_FUNCTION void loop(std::int64_t count, const Body& body) const {
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team_, count), body);
    team_.team_barrier();
  }

  template <class T, class Term>
  KOKKOS_FUNCTION T sum(std::int64_t count, const Term& term) const {
    T total = 0;
    Kokkos::parallel_reduce(
        Kokkos::TeamVectorRange(team_, count),
        [&](std::int64_t i, T& partial) { partial += term(i); }, total);
    team_.team_barrier();
    return total;
  }

  template <class T, class Term>
  KOKKOS_FUNCTION T maximum(std::int64_t count, T lowest, const Term& term) const {
    T largest = lowest;
    Kokkos::parallel_reduce(
        Kokkos::TeamVectorRange(team_, count),
        [&](std::int64_t i, T& partial) {
          const T value = term(i);
          if (value > partial) partial = value;
        },
        Kokkos::Max<T>(largest));
    team_.team_barrier();
    return largest > lowest ? largest : lowest;
  }

  template <class Body>
  KOKKOS_FUNCTION void once(const Body& body) const {
    Kokkos::single(Kokkos::PerTeam(team_), body);
    team_.team_barrier();
  }

 private:
  const TeamMember& team_;
};

using Row = std::conditional_t<on_device, DeviceRow, HostRow>;

/// Runs body(row, index) for every index in [0, rows); Body is KOKKOS_LAMBDA(const Row&, int64_t).
/// Names of at most 15 characters cost no allocation.
template <class Body>
void for_each_row(const Exec& exec, const char* name, std::int64_t rows, const Body& body) {
#if OSTRAKON_ON_DEVICE
  Kokkos::parallel_for(
      name, TeamPolicy(exec, static_cast<int>(rows), Kokkos::AUTO),
      KOKKOS_LAMBDA(const TeamMember& team) {
        body(DeviceRow(team), static_cast<std::int64_t>(team.league_rank()));
      });
#else
  for_each_item(
      exec, name, rows, KOKKOS_LAMBDA(std::int64_t index) { body(HostRow(), index); });
#endif
}

}  // namespace ostrakon::math
