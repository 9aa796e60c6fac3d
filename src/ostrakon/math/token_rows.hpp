// SPDX-License-Identifier: Apache-2.0
#pragma once

// The gradient of a table of tokens on a device: the rows of each token are added in order.

#include <ostrakon/math/row_set.hpp>
#include <ostrakon/math/rows/row_kernel.hpp>

namespace ostrakon::math {

#if OSTRAKON_ON_DEVICE

/// Adds rows of dout to a vector of `token` from column `first` on, in order: of rows begin + index
/// for the indices of a set. Loads several before it adds them, as each takes long.
template <class T, class C>
KOKKOS_INLINE_FUNCTION void add_set(const RowSet& set, std::int64_t begin, std::int64_t first,
                                    const View<const T**>& dout, const View<C*>& token) {
  constexpr int n = vector_elements<T, C>(), at_once = 8;
  auto sum = load_lanes<n>(token.data(), first, token.size());
  RowSet::Reader rows(set);
  for (bool is_last = false; !is_last;) {
    Vector<T, n> values[at_once];
    int count = 0;
#if OSTRAKON_IN_DEVICE_CODE
#pragma unroll
#endif
    for (int i = 0; i < at_once; ++i) {
      const int index = is_last ? -1 : rows.next();
      is_last = index < 0;
      if (is_last) continue;
      values[i] = load_lanes<n>(dout.data() + (begin + index) * dout.stride(), first, token.size());
      count = i + 1;
    }
#if OSTRAKON_IN_DEVICE_CODE
#pragma unroll
#endif
    for (int i = 0; i < at_once; ++i)
      if (i < count)
        for (int j = 0; j < n; ++j) sum.at[j] += static_cast<C>(values[i].at[j]);
  }
  store_lanes<n>(token.data(), first, token.size(), sum);
}

/// The first row of each token sums all rows of that token in order. A team notes the matching rows
/// in shared memory, and adds them.
template <class T>
static void add_token_rows(const Exec& exec, View<const std::int32_t*> ids, View<const T**> dout,
                           View<compute_t<T>**> dtoken_table) {
  const std::int64_t rows = ids.size(), width = dout.columns();
  constexpr int n = vector_elements<T, compute_t<T>>(), of_id = vector_elements<std::int32_t>();
  const int vectors = static_cast<int>(items_for(width, n));
  for_each_team(
      exec, "embed_backward", rows, std::max(256, threads_for_row(width)), RowSet::bytes,
      KOKKOS_LAMBDA(const TeamMember& team) {
        constexpr std::size_t bytes = RowSet::bytes;
        const RowSet set(team.team_scratch(0).get_shmem(bytes));
        const DeviceRow row(team);
        const std::int64_t first = team.league_rank();
        const std::int32_t id = ids[first];
        if (id < 0) return;
        // From the row backward, as frequent tokens are near.
        constexpr std::int64_t step = 4096;
        for (std::int64_t end = first; end > 0; end -= step) {
          const int earlier = row.template maximum_of<std::int32_t>(
              [=](std::int64_t, std::int32_t other) { return other == id ? 1 : 0; }, 0,
              ids.range(end > step ? end - step : 0, end));
          if (earlier == 1) return;
        }
        const auto token = dtoken_table.row(id);
        for (std::int64_t begin = first; begin < rows; begin += RowSet::capacity) {
          const std::int64_t count = smaller(RowSet::capacity, rows - begin);
          const auto some = ids.range(begin, begin + count);
          Kokkos::parallel_for(Kokkos::TeamVectorRange(team, RowSet::words + RowSet::groups),
                               [&](int i) { set.clear(i); });
          team.team_barrier();
          Kokkos::parallel_for(
              Kokkos::TeamVectorRange(team, static_cast<int>(items_for(count, of_id))),
              [&](int item) {
                const auto values = load_lanes<of_id>(some.data(), item * of_id, count);
                for (int i = 0; i < of_id; ++i)
                  if (item * of_id + i < count && values.at[i] == id) set.add(item * of_id + i);
              });
          team.team_barrier();
          Kokkos::parallel_for(Kokkos::TeamVectorRange(team, vectors), [&](int item) {
            add_set<T>(set, begin, std::int64_t{item} * n, dout, token);
          });
          team.team_barrier();
        }
      });
}

#endif

}  // namespace ostrakon::math
