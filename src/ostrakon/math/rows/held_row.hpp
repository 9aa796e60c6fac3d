// SPDX-License-Identifier: Apache-2.0
#pragma once

// Rows that a team of a device's threads holds in registers: what is summed over a row and then
// mapped is read once. Each thread has some vectors of a row, which it loads before it waits for
// others, so that many loads are under way. Longer rows are read again (row_kernel.hpp).

#include <ostrakon/math/block_team.hpp>

namespace ostrakon::math {

#if OSTRAKON_ON_DEVICE

/// Threads of a team, at most, that holds a row: each then has up to 128 registers.
constexpr int most_threads_of_held_row = 512;

/// Whether a team of up to `most` threads can hold a row of so many elements with `vectors` vectors
/// of n of them in each thread.
template <int n, int vectors, int most = most_threads_of_held_row>
constexpr bool can_hold(std::int64_t width) {
  return width <= std::int64_t{n} * vectors * most;
}

/// What a thread holds of a row; in tests on a host one thread holds all of it. On a device it is
/// zero at first: registers that are set in some branch only would be occupied from the begin of
/// the loop over rows that Kokkos makes of a kernel to its end.
template <class T, int n, int vectors>
struct Held {
#if OSTRAKON_IN_DEVICE_CODE
  Vector<T, n> at[vectors] = {};
#else
  Vector<T, n> at[vectors * 1024];  // of all threads that a team may have
#endif
};

/// A row of `width` elements, of which each thread has up to `vectors` vectors of n. Elements past
/// the end count for nothing. The order of a sum depends on the width, n and vectors alone.
template <int n, int vectors, class Team = BlockTeam>
class HeldRow {
 public:
  static constexpr int vectors_of_thread = vectors;
  template <class T>
  using Of = Held<T, n, vectors>;

  KOKKOS_FUNCTION HeldRow(const Team& team, std::int64_t width)
      : team_(team), width_(static_cast<int>(width)) {}

  template <class T>
  KOKKOS_FUNCTION auto load(const View<T*>& row) const {
    using Element = std::remove_const_t<T>;
    const Element* const from = row.data();
    Of<Element> held;
    const bool aligned = begin_vectors<n>(from);
    for_each([&](int v, int begin) {
      held.at[v] = aligned && is_whole(begin) ? load_vector<n>(from + begin)
                                              : load_lanes<n>(from, begin, width_);
    });
    return held;
  }

  /// Returns the sum of f(in...) over the row.
  template <class C, class F, class... In>
  KOKKOS_FUNCTION C sum(const F& f, const Of<In>&... in) const {
    return sum_of_threads(own_sum<C>(f, in...));
  }
  /// Returns that over the elements of this thread.
  template <class C, class F, class... In>
  KOKKOS_FUNCTION C own_sum(const F& f, const Of<In>&... in) const {
    C own = 0;
    for_each_lane([&](int v, int k) { own = plus<C>(own, f(in.at[v].at[k]...)); });
    return own;
  }
  template <class C>
  KOKKOS_FUNCTION C sum_of_threads(C own) const {
    return team_.sum(own);
  }

  /// Returns the largest of the elements of this thread, at least `lowest`.
  template <class C>
  KOKKOS_FUNCTION C own_maximum(const Of<C>& in, C lowest) const {
    C own = lowest;
    for_each_lane([&](int v, int k) { own = in.at[v].at[k] > own ? in.at[v].at[k] : own; });
    return own;
  }
  /// Returns the largest f(in...) of those elements.
  template <class C, class F, class... In>
  KOKKOS_FUNCTION C own_maximum(const F& f, C lowest, const Of<In>&... in) const {
    C own = lowest;
    for_each_lane([&](int v, int k) {
      const C value = f(in.at[v].at[k]...);
      own = value > own ? value : own;
    });
    return own;
  }
  template <class C>
  KOKKOS_FUNCTION C maximum_of_threads(C own) const {
    return team_.maximum(own);
  }

  /// out[i] = f(i, in...), rounded.
  template <class F, class Out, class... In>
  KOKKOS_FUNCTION void store(const View<Out*>& out, const F& f, const Of<In>&... in) const {
    Out* const to = out.data();
    const bool aligned = begin_vectors<n>(to);
    for_each([&](int v, int begin) {
      Vector<Out, n> values;
      for (int k = 0; k < n; ++k) values.at[k] = static_cast<Out>(f(begin + k, in.at[v].at[k]...));
      if (aligned && is_whole(begin))
        store_vector<n>(to + begin, values);
      else
        store_lanes<n>(to, begin, width_, values);
    });
  }

  /// held = f(held, in...), element by element. The elements of `held` past the end are undefined.
  template <class F, class C, class... In>
  KOKKOS_FUNCTION void update(Of<C>& held, const F& f, const Of<In>&... in) const {
    for_each([&](int v, int) {
      for (int k = 0; k < n; ++k) held.at[v].at[k] = f(held.at[v].at[k], in.at[v].at[k]...);
    });
  }

  template <class C>
  KOKKOS_FUNCTION Of<C> filled(C value) const {
    Of<C> held;
    for_each([&](int v, int) {
      for (int k = 0; k < n; ++k) held.at[v].at[k] = value;
    });
    return held;
  }

  template <class Body>
  KOKKOS_FUNCTION void once(const Body& body) const {
    team_.once(body);
  }

  KOKKOS_FUNCTION const Team& team() const { return team_; }

 private:
  /// Whether the vector that begins there ends in the row.
  KOKKOS_FUNCTION bool is_whole(int begin) const { return begin + n <= width_; }

  /// body(v, k) for element k of vector v, of all that are in the row.
  template <class Body>
  KOKKOS_FUNCTION void for_each_lane(const Body& body) const {
    for_each([&](int v, int begin) {
      if (is_whole(begin)) {
        for (int k = 0; k < n; ++k) body(v, k);
      } else {
        for (int k = 0; k < n; ++k)
          if (begin + k < width_) body(v, k);
      }
    });
  }

  /// body(v, first element) for the vectors of this thread.
  template <class Body>
  KOKKOS_FUNCTION void for_each(const Body& body) const {
#if OSTRAKON_IN_DEVICE_CODE
    const int step = team_.size() * n;
    int begin = team_.rank() * n;
#pragma unroll
    for (int v = 0; v < vectors; ++v, begin += step)
      if (begin < width_) body(v, begin);
#else
    for (int v = 0; v * n < width_; ++v) body(v, v * n);
#endif
  }

  const Team& team_;
  int width_;
};

/// Threads that hold a row of so many elements; a host has one thread for a row.
template <int n, int vectors>
int threads_of_held_row(std::int64_t width) {
  constexpr std::int64_t warp = 32;
  return products_on_device
             ? static_cast<int>(items_for(items_for(width, std::int64_t{n} * vectors), warp) * warp)
             : 1;
}

/// Runs body(HeldRow, index) for every index in [0, count), for rows of `width` elements; Body is
/// KOKKOS_LAMBDA(const HeldRow<n, vectors>&, int64_t). A multiprocessor has at least `blocks` teams
/// of `most` threads: the fewer, the more registers each thread may have.
template <int n, int vectors, int most = most_threads_of_held_row, int blocks = 1, class Body>
static void for_each_held(const Exec& exec, const char* name, std::int64_t count,
                          std::int64_t width, const Body& body) {
  for_each_block_team<most, blocks>(
      exec, name, count, threads_of_held_row<n, vectors>(width), 0,
      KOKKOS_LAMBDA(const BlockTeam& team) {
        body(HeldRow<n, vectors>(team, width), team.index());
      });
}

#endif

}  // namespace ostrakon::math
