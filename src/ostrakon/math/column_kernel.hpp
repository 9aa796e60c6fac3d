// SPDX-License-Identifier: Apache-2.0
#pragma once

// Sums down the columns of a matrix, on a device. On the host a kernel walks the rows and keeps a
// run of columns in registers (work_items.hpp); a device would be left with one thread a column.

#include <ostrakon/math/row_kernel.hpp>

namespace ostrakon::math {

#if OSTRAKON_ON_DEVICE

/// sums[c] = the sum of term(r, c) for r in [0, rows), for every column c: threads of a
/// team add up blocks of 64 rows each, and then the blocks, both in order, so that the result
/// depends neither on the size of the team nor on the order of threads. Term is
/// KOKKOS_LAMBDA(int64_t, int64_t) -> T. Allocates nothing: the blocks' sums are in shared memory.
template <class T, class Term>
void sum_over_rows(const Exec& exec, const char* name, std::int64_t rows, const Term& term,
                   View<T*> sums) {
  const std::int64_t columns = sums.size();
  constexpr std::int64_t rows_per_block = 64;
  constexpr std::int64_t blocks_per_round = 32;
  constexpr std::int64_t rows_per_round = rows_per_block * blocks_per_round;
  constexpr std::int64_t columns_per_team = 32;
  constexpr std::size_t scratch = blocks_per_round * columns_per_team * sizeof(T);
  const auto teams = static_cast<int>(items_for(columns, columns_per_team));
  TeamPolicy policy(exec, teams, Kokkos::AUTO);
  policy.set_scratch_size(0, Kokkos::PerTeam(scratch));
  Kokkos::parallel_for(
      name, policy, KOKKOS_LAMBDA(const TeamMember& team) {
        const std::int64_t first = team.league_rank() * columns_per_team;
        const std::int64_t width = smaller(columns_per_team, columns - first);
        T* const partial = static_cast<T*>(team.team_scratch(0).get_shmem(scratch));
        const auto total = sums.range(first, first + width);
        Kokkos::parallel_for(Kokkos::TeamVectorRange(team, width),
                             [&](std::int64_t j) { total[j] = 0; });
        for (std::int64_t begin = 0; begin < rows; begin += rows_per_round) {
          const std::int64_t end = smaller(begin + rows_per_round, rows);
          const std::int64_t blocks = (end - begin + rows_per_block - 1) / rows_per_block;
          Kokkos::parallel_for(
              Kokkos::TeamVectorRange(team, blocks * columns_per_team), [&](std::int64_t i) {
                const std::int64_t j = i % columns_per_team;
                if (j >= width) return;
                const std::int64_t top = begin + i / columns_per_team * rows_per_block;
                const std::int64_t bottom = smaller(top + rows_per_block, end);
                T sum = 0;
                for (std::int64_t r = top; r < bottom; ++r) sum += term(r, first + j);
                partial[i] = sum;
              });
          team.team_barrier();
          Kokkos::parallel_for(Kokkos::TeamVectorRange(team, width), [&](std::int64_t j) {
            for (std::int64_t block = 0; block < blocks; ++block)
              total[j] += partial[block * columns_per_team + j];
          });
          team.team_barrier();
        }
      });
}

#endif

}  // namespace ostrakon::math
