// SPDX-License-Identifier: Apache-2.0
#pragma once

// A common source for kernels that work row by row. On the host a row is a plain loop whose sums
// use sixteen lanes, which compilers vectorise and which fixes the order of the additions; on a
// device a team of threads has a row. Use it if the elements of a row share something (a sum, a
// maximum, a token's id); for independent elements work_items.hpp needs no teams.

#include <algorithm>
#include <ostrakon/math/vectors.hpp>
#include <ostrakon/math/view.hpp>
#include <ostrakon/math/work_items.hpp>
#include <type_traits>

namespace ostrakon::math {

/// A term of a sum on the host that is added by multiply_add.
template <class T>
struct Product {
  T a, b;
  KOKKOS_INLINE_FUNCTION operator T() const { return a * b; }
};
template <class T>
KOKKOS_INLINE_FUNCTION T plus(T sum, T term) {
  return sum + term;
}
template <class T>
KOKKOS_INLINE_FUNCTION T plus(T sum, const Product<T>& term) {
  return multiply_add(term.a, term.b, sum);
}

/// Adds term(i) to lane[0], term(i + 1) to lane[1], and so on. Factors are taken into arrays first:
/// GCC makes no vectors of them otherwise.
template <class T, class Term, int lanes>
void add_terms(const Term& term, std::int64_t i, T (&lane)[lanes]) {
  if constexpr (std::is_same_v<std::decay_t<decltype(term(i))>, Product<T>>) {
    T a[lanes], b[lanes];
    for (int l = 0; l < lanes; ++l) {
      const Product<T> product = term(i + l);
      a[l] = product.a;
      b[l] = product.b;
    }
    for (int l = 0; l < lanes; ++l) lane[l] = multiply_add(a[l], b[l], lane[l]);
  } else {
    for (int l = 0; l < lanes; ++l) lane[l] += term(i + l);
  }
}

/// The interface of a row on the host.
class HostRow {
 public:
  /// Runs body(i) for i in [0, count), in any order; all are done when the call returns.
  template <class Body>
  void loop(std::int64_t count, const Body& body) const {
    for (std::int64_t i = 0; i < count; ++i) body(i);
  }

  // The next functions loop over arrays of one size, whose elements f receives after their index.
  // On a device they are read and written in vectors.

  /// out[i] = f(i, in[i]...); `out` may be one of `in`.
  template <class F, class Out, class... In>
  void map(const F& f, const View<Out*>& out, const View<In*>&... in) const {
    for (std::int64_t i = 0; i < out.size(); ++i) out[i] = static_cast<Out>(f(i, in[i]...));
  }

  /// Does what map does for two outputs: f returns a Two.
  template <class F, class A, class B, class... In>
  void map_two(const F& f, const View<A*>& a, const View<B*>& b, const View<In*>&... in) const {
    for (std::int64_t i = 0; i < a.size(); ++i) {
      const auto two = f(i, in[i]...);
      a[i] = static_cast<A>(two.first);
      b[i] = static_cast<B>(two.second);
    }
  }

  /// Returns the sum of f(i, in[i]...).
  template <class T, class F, class First, class... In>
  T sum_of(const F& f, const View<First*>& first, const View<In*>&... in) const {
    return sum<T>(first.size(), [&](std::int64_t i) { return f(i, first[i], in[i]...); });
  }

  /// Returns the largest f(i, x[i]), at least `lowest`.
  template <class T, class F, class In>
  T maximum_of(const F& f, T lowest, const View<In*>& x) const {
    return maximum(x.size(), lowest, [&](std::int64_t i) { return f(i, x[i]); });
  }

  /// Returns the sum of term(i) for i in [0, count), in a fixed order.
  template <class T, class Term>
  T sum(std::int64_t count, const Term& term) const {
    constexpr int lanes = 16;
    T lane[lanes] = {};
    const std::int64_t whole = count / lanes * lanes;
    for (std::int64_t i = 0; i < whole; i += lanes) add_terms<T>(term, i, lane);
    for (std::int64_t i = whole; i < count; ++i)
      lane[i - whole] = plus<T>(lane[i - whole], term(i));
    for (int width = lanes / 2; width > 0; width /= 2)
      for (int l = 0; l < width; ++l) lane[l] += lane[l + width];
    return lane[0];
  }

  /// Returns the largest term(i), at least `lowest`.
  template <class T, class Term>
  T maximum(std::int64_t count, T lowest, const Term& term) const {
    constexpr int lanes = 32;  // GCC unrolls 16 fully, and then does not vectorise
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

  /// Runs `body` once per row.
  template <class Body>
  void once(const Body& body) const {
    body();
  }
};

using TeamPolicy = Kokkos::TeamPolicy<KernelSpace, CapturesAsArgument>;
using TeamMember = TeamPolicy::member_type;

/// A row on a device, which the threads of a team share.
class DeviceRow {
  /// Counts in 32 bits: loops over 64 bits begin with a division.
  KOKKOS_FUNCTION auto range(std::int64_t count) const {
    return Kokkos::TeamVectorRange(team_, static_cast<int>(count));
  }

 public:
  KOKKOS_FUNCTION explicit DeviceRow(const TeamMember& team) : team_(team) {}

  template <class Body>
  KOKKOS_FUNCTION void loop(std::int64_t count, const Body& body) const {
    Kokkos::parallel_for(range(count), body);
    team_.team_barrier();
  }

  template <class F, class Out, class... In>
  KOKKOS_FUNCTION void map(const F& f, const View<Out*>& out, const View<In*>&... in) const {
    map_all(out.size(), f, out.data(), in.data()...);
    team_.team_barrier();
  }

  template <class F, class A, class B, class... In>
  KOKKOS_FUNCTION void map_two(const F& f, const View<A*>& a, const View<B*>& b,
                               const View<In*>&... in) const {
    map_all_two(a.size(), f, a.data(), b.data(), in.data()...);
    team_.team_barrier();
  }

  template <class T, class F, class First, class... In>
  KOKKOS_FUNCTION T sum_of(const F& f, const View<First*>& first, const View<In*>&... in) const {
    const T total = sum_all<T>(first.size(), f, first.data(), in.data()...);
    team_.team_barrier();
    return total;
  }

  template <class T, class F, class In>
  KOKKOS_FUNCTION T maximum_of(const F& f, T lowest, const View<In*>& x) const {
    constexpr int n = vector_elements<In>();
    const std::remove_const_t<In>* const data = x.data();
    const std::int64_t first = first_vector<n>(data), count = x.size();
    T largest = lowest;
    Kokkos::parallel_reduce(
        range(items_for(count - first, n)),
        [&](int item, T& partial) {
          const std::int64_t begin = first + std::int64_t{item} * n;
          const auto values = values_of_lanes<T, n>(begin, count, f, data);
          for (int k = 0; k < n; ++k)
            if (begin + k >= 0 && begin + k < count && values.at[k] > partial)
              partial = values.at[k];
        },
        Kokkos::Max<T>(largest));
    team_.team_barrier();
    return largest > lowest ? largest : lowest;
  }

  /// to[j] += from(row_of(k), j) for k in [0, count), in order.
  template <class RowOf, class T, class C>
  KOKKOS_FUNCTION void add_rows(std::int64_t count, const RowOf& row_of, const View<T**>& from,
                                const View<C*>& to) const {
    constexpr int n = vector_elements<T, C>();
    Kokkos::parallel_for(range(items_for(to.size(), n)), [&](int item) {
      const std::int64_t column = std::int64_t{item} * n;
      auto sum = load_lanes<n>(to.data(), column, to.size());
      for (std::int64_t k = 0; k < count; ++k) {
        const auto values =
            load_lanes<n>(from.data() + row_of(k) * from.stride(), column, to.size());
        for (int j = 0; j < n; ++j) sum.at[j] += static_cast<C>(values.at[j]);
      }
      store_lanes<n>(to.data(), column, to.size(), sum);
    });
    team_.team_barrier();
  }

  template <class T, class Term>
  KOKKOS_FUNCTION T sum(std::int64_t count, const Term& term) const {
    T total = 0;
    Kokkos::parallel_reduce(
        range(count), [&](int i, T& partial) { partial += term(i); }, total);
    team_.team_barrier();
    return total;
  }

  template <class T, class Term>
  KOKKOS_FUNCTION T maximum(std::int64_t count, T lowest, const Term& term) const {
    T largest = lowest;
    Kokkos::parallel_reduce(
        range(count),
        [&](int i, T& partial) {
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
  template <class F, class Out, class... In>
  KOKKOS_FUNCTION void map_all(std::int64_t count, const F& f, Out* out, const In*... in) const {
    constexpr int n = vector_elements<Out, In...>();
    const std::int64_t first = first_vector<n>(out);
    Kokkos::parallel_for(range(items_for(count - first, n)), [&](int item) {
      map_lanes<n>(first + std::int64_t{item} * n, count, f, out, in...);
    });
  }

  template <class F, class A, class B, class... In>
  KOKKOS_FUNCTION void map_all_two(std::int64_t count, const F& f, A* a, B* b,
                                   const In*... in) const {
    constexpr int n = vector_elements<A, B, In...>();
    const std::int64_t first = first_vector<n>(a);
    Kokkos::parallel_for(range(items_for(count - first, n)), [&](int item) {
      map_two_lanes<n>(first + std::int64_t{item} * n, count, f, a, b, in...);
    });
  }

  /// Sums in vectors from the first element on, for any alignment: the order of the additions must
  /// not depend on the address.
  template <class T, class F, class... In>
  KOKKOS_FUNCTION T sum_all(std::int64_t count, const F& f, const In*... in) const {
    constexpr int n = vector_elements<In...>();
    T total = 0;
    Kokkos::parallel_reduce(
        range(items_for(count, n)),
        [&](int item, T& partial) {
          const std::int64_t begin = std::int64_t{item} * n;
          const auto values = values_of_lanes<T, n>(begin, count, f, in...);
          for (int k = 0; k < n; ++k)
            if (begin + k < count) partial += values.at[k];
        },
        total);
    return total;
  }

  const TeamMember& team_;
};

using Row = std::conditional_t<on_device, DeviceRow, HostRow>;

#if OSTRAKON_ON_DEVICE
/// Runs body(team) for `teams` teams of about `threads` threads, with `scratch` bytes of shared
/// memory each; Body is KOKKOS_LAMBDA(const TeamMember&). Results must not depend on the number of
/// threads of a team.
template <class Body>
void for_each_team(const Exec& exec, const char* name, std::int64_t teams, int threads,
                   std::size_t scratch, const Body& body) {
  if (teams == 0 || LaunchCount::takes_one(name)) return;
  const ObservedKernel observed(name);
  TeamPolicy policy(exec, static_cast<int>(teams), 1);
  if (scratch > 0) policy.set_scratch_size(0, Kokkos::PerTeam(static_cast<int>(scratch)));
  const int most = policy.team_size_max(body, Kokkos::ParallelForTag());
  TeamPolicy sized(exec, static_cast<int>(teams), std::max(1, std::min(threads, most)));
  if (scratch > 0) sized.set_scratch_size(0, Kokkos::PerTeam(static_cast<int>(scratch)));
  Kokkos::parallel_for(name, sized, body);
}

/// Elements of a row per thread: two vectors of 16 bits.
constexpr std::int64_t elements_of_thread = 16;

inline int threads_for_row(std::int64_t width) {
  constexpr std::int64_t warp = 32, most = 1024;
  return static_cast<int>(std::clamp(
      (width + elements_of_thread * warp - 1) / (elements_of_thread * warp) * warp, warp, most));
}
#endif

/// Runs body(row, index) for every index in [0, rows); Body is KOKKOS_LAMBDA(const Row&, int64_t).
/// `width`: approximate number of elements of a row, for the number of threads of a device. Names
/// of at most 15 characters need no allocation.
template <class Body>
static void for_each_row(const Exec& exec, const char* name, std::int64_t rows,
                         [[maybe_unused]] std::int64_t width, const Body& body) {
#if OSTRAKON_ON_DEVICE
  for_each_team(
      exec, name, rows, threads_for_row(width), 0, KOKKOS_LAMBDA(const TeamMember& team) {
        body(DeviceRow(team), static_cast<std::int64_t>(team.league_rank()));
      });
#else
  for_each_item(
      exec, name, rows, KOKKOS_LAMBDA(std::int64_t index) { body(HostRow(), index); });
#endif
}

}  // namespace ostrakon::math
