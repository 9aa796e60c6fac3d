// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/fp8/quantize.hpp>

#include <ostrakon/math/block_team.hpp>
#include <ostrakon/math/equal_sizes.hpp>
#include <ostrakon/math/fp8/held_columns.hpp>
#include <ostrakon/math/fp8/packed_elements.hpp>
#include <ostrakon/math/rows/held_row.hpp>
#include <ostrakon/math/rows/row_kernel.hpp>
#include <ostrakon/math/shared_copies.hpp>
#include <ostrakon/math/work_items.hpp>

namespace ostrakon::math {
namespace {

template <class T>
KOKKOS_INLINE_FUNCTION Fp8Scale scale_of_row(const Row& row, Fp8Format format,
                                             const View<const T*>& x) {
  return {format, row.template maximum_of<std::uint32_t>(
                      [](std::int64_t, T value) { return magnitude_bits(value); }, 0u, x)};
}

/// Rows whose maxima one item of work finds.
constexpr std::int64_t rows_at_once = 64;

/// The first elements of `workspace` become the bits of the largest absolute value of each column:
/// first those of runs of rows, one run after the other, and then of all runs.
template <class T>
void find_column_maxima(const Exec& exec, View<const T**> x, View<std::uint32_t*> workspace) {
  constexpr int n = static_cast<int>(per_item(64, 4));
  const std::int64_t rows = x.rows(), columns = x.columns();
  const std::int64_t groups = items_for(columns, n), runs = items_for(rows, rows_at_once);
  const View<std::uint32_t**> maxima = workspace.range(0, runs * columns).matrix(runs, columns);
  for_each_item(
      exec, "column_maxima", runs * groups, KOKKOS_LAMBDA(std::int64_t item) {
        const std::int64_t run = item / groups, first = item % groups * n;
        const std::int64_t end = smaller((run + 1) * rows_at_once, rows);
        Vector<std::uint32_t, n> largest = {};
        for (std::int64_t r = run * rows_at_once; r < end; ++r) {
          const Vector<T, n> values = load_lanes<n>(x.row(r).data(), first, columns);
          for (int j = 0; j < n; ++j)
            largest.at[j] = larger(largest.at[j], magnitude_bits(values.at[j]));
        }
        store_lanes<n>(maxima.row(run).data(), first, columns, largest);
      });
  if (runs == 1) return;
  for_each_item(
      exec, "join_maxima", groups, KOKKOS_LAMBDA(std::int64_t item) {
        const std::int64_t first = item * n;
        Vector<std::uint32_t, n> largest = {};
        for (std::int64_t run = 0; run < runs; ++run) {
          const auto values = load_lanes<n>(maxima.row(run).data(), first, columns);
          for (int j = 0; j < n; ++j) largest.at[j] = larger(largest.at[j], values.at[j]);
        }
        store_lanes<n>(maxima.row(0).data(), first, columns, largest);
      });
}

template <class T>
void require_codes(const char* name, const View<const T**>& x, const Fp8Rows& to, std::int64_t rows,
                   std::int64_t columns) {
  require(to.codes.rows() == rows && to.codes.columns() >= columns, name, ": codes are (",
          to.codes.rows(), ", ", to.codes.columns(), "), expected (", rows, ", ", columns,
          ") or more columns for a matrix (", x.rows(), ", ", x.columns(), ")");
  require_size(name, "scales", to.scales, rows);
}

#if OSTRAKON_ON_DEVICE

/// Rows without padding, with up to `vectors` vectors in each thread of a team.
template <int vectors, class T>
void quantize_held_rows(const Exec& exec, View<const T**> x, const Fp8Rows& to) {
  constexpr int n = vector_elements<T>();
  const Fp8Format format = to.format;
  const View<std::uint8_t**> codes = to.codes;
  const View<float*> scales = to.scales;
  const std::int64_t columns = x.columns();
  using Held = HeldRow<n, vectors>;
  for_each_held<n, vectors>(
      exec, "quantize_rows", x.rows(), columns, KOKKOS_LAMBDA(const Held& row, std::int64_t r) {
        const auto held = row.load(x.row(r));
        const std::uint32_t own =
            row.own_maximum([](T value) { return magnitude_bits(value); }, std::uint32_t{0}, held);
        const Fp8Scale scale(format, row.maximum_of_threads(own));
        row.store(
            codes.row(r),
            [=](int, T value) { return fp8_of(format, static_cast<float>(value) * scale.inverse); },
            held);
        row.once([=]() { scales[r] = scale.scale; });
      });
}

/// Longer rows without padding, of which the first elements stay in shared memory, and the rest is
/// read twice.
template <class T>
void quantize_kept_rows(const Exec& exec, View<const T**> x, const Fp8Rows& to) {
  constexpr int n = vector_elements<T>();
  const Fp8Format format = to.format;
  const View<std::uint8_t**> codes = to.codes;
  const View<float*> scales = to.scales;
  const auto columns = static_cast<int>(x.columns());
  const auto kept = static_cast<int>(kept_of_row(x.columns(), sizeof(T), team_memory(exec)));
  const std::int64_t bytes = items_for(kept, n) * 16;
  for_each_block_team<most_threads_of_codes>(
      exec, "quantize_rows", x.rows(), products_on_device ? most_threads_of_codes : 1, bytes,
      KOKKOS_LAMBDA(const BlockTeam& team) {
        const std::int64_t r = team.index();
        const T* const from = x.row(r).data();
        T* const memory = static_cast<T*>(team.memory(bytes));
        std::uint8_t* const out = codes.row(r).data();
        const auto for_own_vectors = [&](int begin, int end, const auto& body) {
          for (int i = begin + team.rank() * n; i < end; i += team.size() * n) body(i);
        };
        for_own_vectors(0, kept, [&](int i) { begin_lanes_copy<n>(memory, from, i, kept); });
        std::uint32_t largest = 0;
        const auto add = [&](const Vector<T, n>& values) {
          for (int j = 0; j < n; ++j) largest = larger(largest, magnitude_bits(values.at[j]));
        };
        for_own_vectors(kept, columns, [&](int i) { add(load_lanes<n>(from, i, columns)); });
        end_own_copies();
        for_own_vectors(0, kept, [&](int i) { add(load_vector<n>(memory + i)); });
        const Fp8Scale scale(format, team.maximum(largest));
        const auto store = [&](int i, const Vector<T, n>& values) {
          Vector<std::uint8_t, n> rounded;
          for (int j = 0; j < n; ++j)
            rounded.at[j] = fp8_of(format, static_cast<float>(values.at[j]) * scale.inverse);
          store_lanes<n>(out, i, columns, rounded);
        };
        for_own_vectors(0, kept, [&](int i) { store(i, load_vector<n>(memory + i)); });
        for_own_vectors(kept, columns, [&](int i) { store(i, load_lanes<n>(from, i, columns)); });
        team.once([&] { scales[r] = scale.scale; });
      });
}

template <Fp8Format format, class T>
void quantize_held_columns(const Exec& exec, View<const T**> x, std::int64_t pieces,
                           const Fp8Rows& to) {
  constexpr int n = vector_elements<T>();
  const std::int64_t rows = x.rows() / pieces, columns = x.columns();
  const View<std::uint8_t**> codes = to.codes;
  const View<float*> scales = to.scales;
  require(!codes || (codes.stride() % run_rows == 0 && codes.columns() % run_rows == 0 &&
                     begin_vectors<run_rows>(codes.data())),
          "quantize_columns: rows of ", codes.columns(), " codes, ", codes.stride(),
          " apart, expected multiples of ", run_rows);
  require(columns % n == 0 && (!x || (x.stride() % n == 0 && begin_vectors<n>(x.data()))),
          "quantize_columns: rows of ", columns, " elements, ", x.stride(),
          " apart, expected multiples of ", n);
  const ColumnParts parts =
      column_parts(codes.columns(), team_memory(exec), teams_of_cluster(exec));
  // A team reads up to 64 adjacent bytes of a row, if its threads hold so many columns.
  const std::int64_t runs = parts.rows / run_rows;
  int most_groups = 4;
  while (most_groups > 1 && runs * most_groups > most_threads_of_codes) most_groups /= 2;
  const int groups = most_groups;
  const int lanes = static_cast<int>(smaller(runs, most_threads_of_codes / groups));
  const std::int64_t across = items_for(columns, std::int64_t{groups} * n);
  const int warps = (lanes * groups + 31) / 32;
  const std::int64_t of_maxima = items_for(std::int64_t{4} * groups * (lanes * 4 + n), 16) * 16;
  for_each_cluster<most_threads_of_codes>(
      exec, "quantize_columns", pieces * across, parts.teams, products_on_device ? warps * 32 : 1,
      of_maxima + parts.kept * 16, KOKKOS_LAMBDA(const TeamCluster& cluster) {
        using Tile = ColumnsOfTeam<T, format>;
        const std::int64_t piece = cluster.index() / across;
        const std::int64_t first = cluster.index() % across * groups * n;
        const std::int64_t end = smaller(first + std::int64_t{groups} * n, columns);
        const auto tile_of = [&](int t) {
          auto* const memory = static_cast<std::uint32_t*>(cluster.memory(t));
          auto* const maxima = memory + parts.kept * 4;
          const std::int64_t top = t * parts.rows, bottom = top + parts.rows;
          return Tile{
              cluster.team(),
              x.row_range(piece * rows + top, piece * rows + smaller(bottom, rows))
                  .column_range(first, end),
              codes.row_range(piece * columns + first, piece * columns + end)
                  .column_range(top, smaller(bottom, codes.columns())),
              scales.range(piece * columns + first, piece * columns + end),
              groups,
              lanes,
              lanes + static_cast<int>(parts.kept / run_rows),
              memory,
              maxima,
              reinterpret_cast<float*>(maxima + static_cast<std::ptrdiff_t>(lanes * groups * 4))};
        };
        OwnColumns<T> held;
        cluster.for_own_teams([&](int t) { tile_of(t).find_maxima(held.at(t)); });
        if (parts.teams > 1) join_maxima<Tile>(cluster, tile_of);
        cluster.for_own_teams([&](int t) { tile_of(t).store_codes(held.at(t)); });
      });
}

#endif

}  // namespace

std::int64_t column_maxima_workspace(std::int64_t rows, std::int64_t columns) {
  return items_for(rows, rows_at_once) * columns;
}

template <class T>
void quantize_rows(const Exec& exec, View<const T**> x, const Fp8Rows& to) {
  require_codes("quantize_rows", x, to, x.rows(), x.columns());
#if OSTRAKON_ON_DEVICE
  if (to.codes.columns() == x.columns()) {
    constexpr int n = vector_elements<T>(), most = 8;
    constexpr auto held = held_bytes_of_row / static_cast<std::int64_t>(sizeof(T));
    static_assert(can_hold<n, most>(held) && !can_hold<n, most>(held + 1), "the longest held row");
    if (can_hold<n, 4>(x.columns())) return quantize_held_rows<4, T>(exec, x, to);
    if (can_hold<n, most>(x.columns())) return quantize_held_rows<most, T>(exec, x, to);
    return quantize_kept_rows<T>(exec, x, to);
  }
#endif
  const Fp8Format format = to.format;
  const View<std::uint8_t**> codes = to.codes;
  const View<float*> scales = to.scales;
  const std::int64_t columns = x.columns(), padding = codes.columns() - columns;
  for_each_row(
      exec, "quantize_rows", x.rows(), columns, KOKKOS_LAMBDA(const Row& row, std::int64_t r) {
        const auto in = x.row(r);
        const Fp8Scale scale = scale_of_row<T>(row, format, in);
        row.map([=](std::int64_t,
                    T value) { return fp8_of(format, static_cast<float>(value) * scale.inverse); },
                codes.row(r).range(0, columns), in);
        if (padding > 0) {
          const auto rest = codes.row(r).range(columns, columns + padding);
          row.loop(padding, [=](std::int64_t i) { rest[i] = 0; });
        }
        row.once([=]() { scales[r] = scale.scale; });
      });
}

template <class T>
void quantize_columns(const Exec& exec, View<const T**> x, std::int64_t pieces, const Fp8Rows& to) {
  const std::int64_t rows = x.rows() / pieces, columns = x.columns();
  require(rows * pieces == x.rows(), "quantize_columns: ", x.rows(),
          " rows, expected a multiple of ", pieces, " pieces");
  require_codes("quantize_columns", x, to, pieces * columns, rows);
#if OSTRAKON_ON_DEVICE
  if (to.format == Fp8Format::e4m3)
    quantize_held_columns<Fp8Format::e4m3, T>(exec, x, pieces, to);
  else
    quantize_held_columns<Fp8Format::e5m2, T>(exec, x, pieces, to);
#else
  const Fp8Format format = to.format;
  const View<std::uint8_t**> codes = to.codes;
  const View<float*> scales = to.scales;
  const std::int64_t padded = codes.columns();
  for_each_item(
      exec, "quantize_columns", pieces * columns, KOKKOS_LAMBDA(std::int64_t item) {
        const auto column = x.row_range(item / columns * rows, (item / columns + 1) * rows);
        const std::int64_t c = item % columns;
        std::uint32_t largest = 0;
        for (std::int64_t r = 0; r < rows; ++r)
          largest = larger(largest, magnitude_bits(column(r, c)));
        const Fp8Scale scale(format, largest);
        scales[item] = scale.scale;
        for (std::int64_t r = 0; r < padded; ++r)
          codes(item, r) =
              r < rows ? fp8_of(format, static_cast<float>(column(r, c)) * scale.inverse) : 0;
      });
#endif
}

template <class T>
void round_rows(const Exec& exec, Fp8Format format, View<const T**> x, View<T**> to) {
  require_shape("round_rows", "to", to, x.rows(), x.columns());
  for_each_row(
      exec, "round_rows", x.rows(), x.columns(), KOKKOS_LAMBDA(const Row& row, std::int64_t r) {
        const auto in = x.row(r);
        const Fp8Scale scale = scale_of_row<T>(row, format, in);
        row.map(
            [=](std::int64_t, T value) {
              return rounded_to(format, static_cast<float>(value) * scale.inverse) * scale.scale;
            },
            to.row(r), in);
      });
}

template <class T>
void round_columns(const Exec& exec, Fp8Format format, View<const T**> x, View<T**> to,
                   View<std::uint32_t*> workspace) {
  require_shape("round_columns", "to", to, x.rows(), x.columns());
  find_column_maxima(exec, x, workspace);
  const View<const std::uint32_t*> maxima = workspace.range(0, x.columns());
  for_each_row(
      exec, "round_columns", x.rows(), x.columns(), KOKKOS_LAMBDA(const Row& row, std::int64_t r) {
        row.map(
            [=](std::int64_t, T value, std::uint32_t largest) {
              const Fp8Scale scale(format, largest);
              return rounded_to(format, static_cast<float>(value) * scale.inverse) * scale.scale;
            },
            to.row(r), x.row(r), maxima);
      });
}

#define OSTRAKON_INSTANTIATE(T)                                                                  \
  template void quantize_rows<T>(const Exec&, View<const T**>, const Fp8Rows&);                  \
  template void quantize_columns<T>(const Exec&, View<const T**>, std::int64_t, const Fp8Rows&); \
  template void round_rows<T>(const Exec&, Fp8Format, View<const T**>, View<T**>);               \
  template void round_columns<T>(const Exec&, Fp8Format, View<const T**>, View<T**>,             \
                                 View<std::uint32_t*>);
OSTRAKON_FOR_ALL_NUMBERS(OSTRAKON_INSTANTIATE)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::math
