// SPDX-License-Identifier: Apache-2.0
#pragma once

// Matrices in 8 bits. Numbers of a row, or of a column, have one scale, a power of two that follows
// from the largest of them alone (Fp8Scale): a maximum is exact in any order. T: float, double,
// bf16 or fp16; numbers are converted to float first.

#include <algorithm>
#include <limits>
#include <ostrakon/math/fp8/formats.hpp>
#include <ostrakon/math/vectors.hpp>
#include <ostrakon/math/view.hpp>

namespace ostrakon::math {

/// A matrix in 8 bits, (rows, columns): row r is scales[r] times the numbers of its codes.
struct Fp8Rows {
  Fp8Format format = Fp8Format::e4m3;
  View<std::uint8_t**> codes;  ///< columns past the matrix' are 0, or NaN as all of their row
  View<float*> scales;         ///< (rows)
};

/// `to` = x (rows, columns), each row with a scale.
template <class T>
void quantize_rows(const Exec& exec, View<const T**> x, const Fp8Rows& to);

/// `to` (pieces * columns, rows / pieces) = x (rows, columns), of which each piece, a run of rows,
/// is transposed: row p * columns + c has column c of piece p, with a scale of its own.
template <class T>
void quantize_columns(const Exec& exec, View<const T**> x, std::int64_t pieces, const Fp8Rows& to);

/// Elements with one scale that a device holds in registers: those of a row, and of a column of a
/// piece.
constexpr std::int64_t held_bytes_of_row = 65536;
constexpr std::int64_t held_of_column = 8192;

/// Returns how many of the `columns` elements of a longer row, of `size` bytes each, stay in a
/// team's shared memory of `memory` bytes, from which it is rounded. The rest is read twice.
constexpr std::int64_t kept_of_row(std::int64_t columns, std::int64_t size, std::int64_t memory) {
  return std::min(columns, memory / 16 * (16 / size));
}

/// Elements of a column that are rounded at once, and the bytes of shared memory that the maxima
/// and scales of a team's columns take, at most, with what it tells the other teams of a cluster.
constexpr std::int64_t rows_of_run = 16, memory_of_maxima = 8336;

/// Returns how many elements of a column of `rows` stay in a team's shared memory of `memory`
/// bytes, behind those that are held in registers: in runs, each of a vector of columns. The rest
/// is read twice.
constexpr std::int64_t kept_of_column(std::int64_t rows, std::int64_t memory) {
  if (rows <= held_of_column) return 0;
  return std::min(items_for(rows - held_of_column, rows_of_run),
                  std::max<std::int64_t>(0, memory - memory_of_maxima) / (16 * rows_of_run)) *
         rows_of_run;
}

/// How the teams of a cluster share a column.
struct ColumnParts {
  int teams;          ///< the fewest that keep the whole column; if none do, the most
  std::int64_t rows;  ///< elements of a part; the last part may have less
  std::int64_t kept;  ///< elements of a part that stay in shared memory

  /// Returns how many elements of a column of `of_column` do not stay.
  constexpr std::int64_t read_again(std::int64_t of_column) const {
    std::int64_t again = 0;
    for (std::int64_t begin = 0; begin < of_column; begin += rows)
      again += std::max<std::int64_t>(0, std::min(rows, of_column - begin) - held_of_column - kept);
    return again;
  }
};

/// Returns the parts of a column of `rows` elements, by at most `most_teams` teams with `memory`
/// bytes of shared memory each.
constexpr ColumnParts column_parts(std::int64_t rows, std::int64_t memory, int most_teams) {
  const std::int64_t stay =
      held_of_column + kept_of_column(std::numeric_limits<std::int64_t>::max() / 2, memory);
  const auto teams = static_cast<int>(std::min<std::int64_t>(most_teams, items_for(rows, stay)));
  const std::int64_t part =
      items_for(items_for(rows, std::max(teams, 1)), rows_of_run) * rows_of_run;
  return {std::max(teams, 1), part, kept_of_column(part, memory)};
}

/// How often a device reads an element, on average, of rows or columns with `inner` elements of
/// `bytes` bytes each, with the shared memory and clusters that plans count with (block_team.hpp,
/// team_cluster.hpp).
double device_reads(bool by_columns, std::int64_t inner, std::int64_t bytes);

/// Elements of the workspace of round_columns() for x (rows, columns).
std::int64_t column_maxima_workspace(std::int64_t rows, std::int64_t columns);

/// `to` = x as quantize_rows() rounds it, multiplied by the scales. It is exact in float and bf16.
template <class T>
void round_rows(const Exec& exec, Fp8Format format, View<const T**> x, View<T**> to);

/// `to` = x as quantize_columns() rounds it, multiplied by the scales, and not transposed.
template <class T>
void round_columns(const Exec& exec, Fp8Format format, View<const T**> x, View<T**> to,
                   View<std::uint32_t*> workspace);

}  // namespace ostrakon::math
