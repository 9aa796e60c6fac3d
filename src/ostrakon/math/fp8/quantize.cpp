// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/fp8/quantize.hpp>

#include <ostrakon/math/equal_sizes.hpp>
#include <ostrakon/math/row_kernel.hpp>
#include <ostrakon/math/work_items.hpp>

namespace ostrakon::math {
namespace {

/// Returns the bits of |x| as a float.
template <class T>
KOKKOS_INLINE_FUNCTION std::uint32_t magnitude_bits(T x) {
  return half_bits::of_float(static_cast<float>(x)) & ~half_bits::float_sign;
}
KOKKOS_INLINE_FUNCTION std::uint32_t larger(std::uint32_t a, std::uint32_t b) {
  return a > b ? a : b;
}

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
/// Columns and rows of a tile that a team transposes in shared memory, whose rows are one word
/// longer, so that the lanes of a warp write to different banks.
constexpr int tile_columns = 64, tile_rows = 128, tile_stride = tile_rows + 4;
#endif

}  // namespace

std::int64_t column_maxima_workspace(std::int64_t rows, std::int64_t columns) {
  return items_for(rows, rows_at_once) * columns;
}

template <class T>
void quantize_rows(const Exec& exec, View<const T**> x, const Fp8Rows& to) {
  require_codes("quantize_rows", x, to, x.rows(), x.columns());
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
void quantize_columns(const Exec& exec, View<const T**> x, const Fp8Rows& to,
                      View<std::uint32_t*> workspace) {
  const std::int64_t rows = x.rows(), columns = x.columns();
  require_codes("quantize_columns", x, to, columns, rows);
  find_column_maxima(exec, x, workspace);
  const Fp8Format format = to.format;
  const View<std::uint8_t**> codes = to.codes;
  const View<float*> scales = to.scales;
  const std::int64_t padded = codes.columns();
#if OSTRAKON_ON_DEVICE
  const std::int64_t across = items_for(columns, tile_columns);
  constexpr std::size_t bytes = sizeof(float) * tile_columns + tile_columns * tile_stride;
  for_each_team(
      exec, "quantize_columns", across * items_for(padded, tile_rows), 256, bytes,
      KOKKOS_LAMBDA(const TeamMember& team) {
        // Named, as calls take references.
        constexpr std::size_t all_bytes = bytes;
        constexpr int width = tile_columns;
        float* const inverse = static_cast<float*>(team.team_scratch(0).get_shmem(all_bytes));
        std::uint8_t* const tile = reinterpret_cast<std::uint8_t*>(inverse + width);
        const std::int64_t first_column = team.league_rank() % across * width;
        const std::int64_t first_row = team.league_rank() / across * tile_rows;
        Kokkos::parallel_for(Kokkos::TeamVectorRange(team, width), [&](int j) {
          const std::int64_t column = first_column + j;
          if (column >= columns) return;
          const Fp8Scale scale(format, workspace[column]);
          inverse[j] = scale.inverse;
          if (first_row == 0) scales[column] = scale.scale;
        });
        team.team_barrier();
        constexpr int n = 4, groups = width / n;
        Kokkos::parallel_for(Kokkos::TeamVectorRange(team, tile_rows * groups), [&](int item) {
          const int r = item / groups, j = item % groups * n;
          Vector<T, n> values = {};
          if (first_row + r < rows)
            values = load_lanes<n>(x.row(first_row + r).data(), first_column + j, columns);
          for (int k = 0; k < n; ++k)
            tile[(j + k) * tile_stride + r] =
                fp8_of(format, static_cast<float>(values.at[k]) * inverse[j + k]);
        });
        team.team_barrier();
        constexpr int run = 16, runs = tile_rows / run;
        Kokkos::parallel_for(Kokkos::TeamVectorRange(team, width * runs), [&](int item) {
          const int j = item / runs, r = item % runs * run;
          if (first_column + j >= columns) return;
          Vector<std::uint8_t, run> out;
          for (int k = 0; k < run; ++k)
            out.at[k] = first_row + r + k < rows ? tile[j * tile_stride + r + k] : 0;
          store_lanes<run>(codes.row(first_column + j).data(), first_row + r, padded, out);
        });
      });
#else
  for_each_item(
      exec, "quantize_columns", columns, KOKKOS_LAMBDA(std::int64_t column) {
        const Fp8Scale scale(format, workspace[column]);
        scales[column] = scale.scale;
        for (std::int64_t r = 0; r < padded; ++r)
          codes(column, r) =
              r < rows ? fp8_of(format, static_cast<float>(x(r, column)) * scale.inverse) : 0;
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

#define OSTRAKON_INSTANTIATE(T)                                                      \
  template void quantize_rows<T>(const Exec&, View<const T**>, const Fp8Rows&);      \
  template void quantize_columns<T>(const Exec&, View<const T**>, const Fp8Rows&,    \
                                    View<std::uint32_t*>);                           \
  template void round_rows<T>(const Exec&, Fp8Format, View<const T**>, View<T**>);   \
  template void round_columns<T>(const Exec&, Fp8Format, View<const T**>, View<T**>, \
                                 View<std::uint32_t*>);
OSTRAKON_INSTANTIATE(float)
OSTRAKON_INSTANTIATE(double)
OSTRAKON_INSTANTIATE(bf16)
OSTRAKON_INSTANTIATE(fp16)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::math
