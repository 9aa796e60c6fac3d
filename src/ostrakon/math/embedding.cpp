// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/embedding.hpp>

#include <algorithm>
#include <ostrakon/math/equal_sizes.hpp>
#include <ostrakon/math/fast_divide.hpp>
#include <ostrakon/math/rows/row_kernel.hpp>
#include <ostrakon/math/token_rows.hpp>
#include <ostrakon/math/work_items.hpp>

namespace ostrakon::math {
namespace {

/// Checks tables of the width of `rows`, whose positions begin at `first_position`; tables may be
/// empty.
template <class T>
void check_tables(const char* name, View<const std::int32_t*> ids, std::int64_t tokens,
                  std::int64_t first_position, std::int64_t rows, std::int64_t width,
                  View<const T**> token_table, View<const T**> position_table) {
  require_size(name, "ids", ids, rows);
  require(tokens >= 1 && first_position >= 0, name, ": ", tokens, " tokens from position ",
          first_position, " on, expected at least 1 from 0 on");
  if (token_table) require_shape(name, "token table", token_table, token_table.rows(), width);
  if (!position_table) return;
  const std::int64_t positions = first_position + smaller(tokens, rows);
  require(position_table.rows() >= positions && position_table.columns() == width, name,
          ": position table is (", position_table.rows(), ", ", position_table.columns(),
          "), expected at least (", positions, ", ", width, ")");
}

}  // namespace

template <class T>
void embedding_forward(const Exec& exec, View<const std::int32_t*> ids, std::int64_t tokens,
                       std::int64_t first_position, View<const T**> token_table,
                       View<const T**> position_table, View<T**> out,
                       View<const std::int32_t*> document_begins) {
  using C = compute_t<T>;
  const std::int64_t width = out.columns();
  require_size_if_any("embed_forward", "document begins", document_begins, out.rows());
  check_tables<T>("embed_forward", ids, tokens, first_position, out.rows(), width, token_table,
                  position_table);
  const FastDivide by_tokens(tokens);
  for_each_row(
      exec, "embed_forward", out.rows(), width, KOKKOS_LAMBDA(const Row& row, std::int64_t r) {
        const auto token = token_table.row(ids[r]);
        const auto sum = out.row(r);
        if (position_table) {
          const std::int64_t before = document_begins ? std::int64_t{document_begins[r]} : 0;
          const auto position = position_table.row(first_position + by_tokens.rest(r) - before);
          row.map([](std::int64_t, C a, C b) { return a + b; }, sum, token, position);
        } else {
          row.map([](std::int64_t, T element) { return element; }, sum, token);
        }
      });
}

template <class T>
void embedding_forward_some(const Exec& exec, View<const std::int32_t*> ids,
                            std::int64_t first_word, View<const T**> table,
                            View<compute_t<T>**> out) {
  const char* const name = "embed_some";
  require_size(name, "ids", ids, out.rows());
  require_shape(name, "token table", table, table.rows(), out.columns());
  for_each_row(
      exec, name, out.rows(), out.columns(), KOKKOS_LAMBDA(const Row& row, std::int64_t r) {
        const std::int64_t word = ids[r] - first_word;
        if (word < 0 || word >= table.rows()) return;
        row.map([](std::int64_t, compute_t<T> element) { return element; }, out.row(r),
                table.row(word));
      });
}

template <class T>
void add_positions(const Exec& exec, std::int64_t tokens, std::int64_t first_position,
                   View<const T**> table, View<compute_t<T>**> out,
                   View<const std::int32_t*> document_begins) {
  const char* const name = "embed_add_positions";
  require_size_if_any(name, "document begins", document_begins, out.rows());
  require(tokens >= 1 && first_position >= 0 && table.columns() == out.columns() &&
              first_position + smaller(tokens, out.rows()) <= table.rows(),
          name, ": ", tokens, " positions from ", first_position, " on of a table (", table.rows(),
          ", ", table.columns(), ") for rows of ", out.columns(), ", expected those of the table");
  const FastDivide by_tokens(tokens);
  for_each_row(
      exec, name, out.rows(), out.columns(), KOKKOS_LAMBDA(const Row& row, std::int64_t r) {
        using C = compute_t<T>;
        const auto to = out.row(r);
        const std::int64_t before = document_begins ? std::int64_t{document_begins[r]} : 0;
        row.map([](std::int64_t, C sum, C position) { return sum + position; }, to, to,
                table.row(first_position + by_tokens.rest(r) - before));
      });
}

void find_positions(const Exec& exec, std::int64_t tokens, std::int64_t first_position,
                    View<const std::int32_t*> document_begins, View<std::int32_t*> positions) {
  require_size("embed_find_positions", "document begins", document_begins, positions.size());
  const FastDivide by_tokens(tokens);
  for_each_item(
      exec, "embed_find_positions", positions.size(), KOKKOS_LAMBDA(std::int64_t r) {
        positions[r] =
            static_cast<std::int32_t>(first_position + by_tokens.rest(r)) - document_begins[r];
      });
}

void find_own_words(const Exec& exec, View<const std::int32_t*> ids, std::int64_t first_word,
                    std::int64_t words, View<std::int32_t*> own) {
  require_size("embed_own", "own words", own, ids.size());
  for_each_item(
      exec, "embed_own", ids.size(), KOKKOS_LAMBDA(std::int64_t r) {
        const std::int64_t word = ids[r] - first_word;
        own[r] = word >= 0 && word < words ? static_cast<std::int32_t>(word) : -1;
      });
}

template <class T>
void embedding_backward(const Exec& exec, View<const std::int32_t*> ids, std::int64_t tokens,
                        View<const T**> dout, View<compute_t<T>**> dtoken_table,
                        View<compute_t<T>**> dposition_table) {
  using C = compute_t<T>;
  const std::int64_t rows = dout.rows();
  const std::int64_t width = dout.columns();
  check_tables<C>("embed_backward", ids, tokens, 0, rows, width, dtoken_table, dposition_table);
#if OSTRAKON_ON_DEVICE
  // The rows of each token, and of each position, are added in order, as on the host.
  if (dtoken_table) add_token_rows<T>(exec, ids, dout, dtoken_table);
  if (!dposition_table) return;
  for_each_row(
      exec, "embed_positions", smaller(tokens, rows), width,
      KOKKOS_LAMBDA(const Row& row, std::int64_t position) {
        const auto sum = dposition_table.row(position);
        row.add_rows(
            items_for(rows - position, tokens),
            [=](std::int64_t index) { return position + index * tokens; }, dout, sum);
      });
#else
  if (!dtoken_table && !dposition_table) return;
  // Each item owns its columns of both tables and walks all rows in order: no race, and an order
  // that does not depend on the number of threads.
  constexpr std::int64_t columns_per_item = 64;
  for_each_item(
      exec, "embed_backward", items_for(width, columns_per_item), KOKKOS_LAMBDA(std::int64_t item) {
        const std::int64_t first = item * columns_per_item;
        const std::int64_t columns = smaller(columns_per_item, width - first);
        for (std::int64_t r = 0; r < rows; ++r) {
          const auto gradient = dout.row(r).range(first, first + columns);
          if (dtoken_table && ids[r] >= 0) {
            C* __restrict__ token = dtoken_table.row(ids[r]).range(first, first + columns).data();
            for (std::int64_t j = 0; j < columns; ++j) token[j] += gradient[j];
          }
          if (!dposition_table) continue;
          C* __restrict__ position =
              dposition_table.row(r % tokens).range(first, first + columns).data();
          for (std::int64_t j = 0; j < columns; ++j) position[j] += gradient[j];
        }
      });
#endif
}

namespace {

/// Sums a run of columns over pieces in ascending order; missing pieces count as zero in the tree
/// over all. Two neighbours are added first if their numbers differ only in lower bits.
template <class C, std::int64_t columns>
class PieceSums {
 public:
  /// Returns the sum of `piece`, zero at first. Must be called in the order of pieces.
  KOKKOS_INLINE_FUNCTION C* of_piece(std::int64_t piece) {
    if (used_ > 0 && piece == last_) return sums_[used_ - 1];
    const int bit = used_ > 0 ? highest_bit(piece ^ last_) : most_bits;
    while (used_ > 1 && bits_[used_ - 1] < bit) merge();
    last_ = piece;
    bits_[used_] = bit;
    for (std::int64_t j = 0; j < columns; ++j) sums_[used_][j] = C(0);
    return sums_[used_++];
  }

  KOKKOS_INLINE_FUNCTION const C* total() {
    while (used_ > 1) merge();
    return sums_[0];
  }

 private:
  static constexpr int most_bits = 31;

  KOKKOS_INLINE_FUNCTION static int highest_bit(std::int64_t number) {
    int bit = 0;
    while (number >>= 1) ++bit;
    return bit;
  }
  KOKKOS_INLINE_FUNCTION void merge() {
    --used_;
    for (std::int64_t j = 0; j < columns; ++j) sums_[used_ - 1][j] += sums_[used_][j];
  }

  C sums_[most_bits + 1][columns];
  int bits_[most_bits + 1];  ///< the highest bit in which a sum's pieces differ from those before
  int used_ = 0;
  std::int64_t last_ = 0;
};

constexpr std::int64_t columns_at_once = per_item(64, 4);

/// Runs body(r, column, columns) for runs of columns of `rows` rows: as items on the host, as
/// threads of the row's team on a device.
template <class Body>
void for_each_run(const Exec& exec, const char* name, std::int64_t rows, std::int64_t width,
                  const Body& body) {
  const std::int64_t runs = items_for(width, columns_at_once);
#if OSTRAKON_ON_DEVICE
  for_each_row(
      exec, name, rows, width, KOKKOS_LAMBDA(const Row& row, std::int64_t r) {
        row.loop(runs, [&](std::int64_t run) {
          const std::int64_t column = run * columns_at_once;
          body(r, column, smaller(columns_at_once, width - column));
        });
      });
#else
  for_each_item(
      exec, name, rows * runs, KOKKOS_LAMBDA(std::int64_t item) {
        const std::int64_t column = item % runs * columns_at_once;
        body(item / runs, column, smaller(columns_at_once, width - column));
      });
#endif
}

/// Adds a run of columns, at most columns_at_once, to `sum`.
template <class T, class C>
KOKKOS_INLINE_FUNCTION void add_run(const View<const T*>& gradient, C* sum) {
  constexpr int n = static_cast<int>(columns_at_once);
  const T* const from = gradient.data();
  if constexpr (on_device) {
    if (gradient.size() == n && begin_vectors<n>(from)) {
      const Vector<T, n> values = load_vector<n>(from);
      for (int j = 0; j < n; ++j) sum[j] += static_cast<C>(values.at[j]);
      return;
    }
  }
  for (std::int64_t j = 0; j < gradient.size(); ++j) sum[j] += from[j];
}

/// next[r] = the next row with the id of row r, or -1. first[r] = whether no earlier row has it.
void list_rows_by_id(const Exec& exec, View<const std::int32_t*> ids, View<std::int32_t*> next,
                     View<std::int32_t*> first, [[maybe_unused]] View<std::int32_t*> latest) {
  const std::int64_t rows = ids.size();
#if OSTRAKON_ON_DEVICE
  for_each_item(
      exec, "embed_lists", rows, KOKKOS_LAMBDA(std::int64_t r) {
        next[r] = -1;
        first[r] = 0;
        if (ids[r] < 0) return;
        std::int64_t other = r - 1;
        while (other >= 0 && ids[other] != ids[r]) --other;
        first[r] = other < 0 ? 1 : 0;
        other = r + 1;
        while (other < rows && ids[other] != ids[r]) ++other;
        next[r] = other < rows ? static_cast<std::int32_t>(other) : -1;
      });
#else
  for_each_item(
      exec, "embed_lists", 1, KOKKOS_LAMBDA(std::int64_t) {
        for (std::int64_t id = 0; id < latest.size(); ++id) latest[id] = -1;
        for (std::int64_t r = 0; r < rows; ++r) {
          next[r] = -1;
          first[r] = 0;
          if (ids[r] < 0) continue;
          std::int32_t& before = latest[ids[r]];
          first[r] = before < 0 ? 1 : 0;
          if (before >= 0) next[before] = static_cast<std::int32_t>(r);
          before = static_cast<std::int32_t>(r);
        }
      });
#endif
}

}  // namespace

std::int64_t embedding_by_piece_workspace(std::int64_t rows, std::int64_t vocabulary,
                                          KernelForm form) {
  return 2 * rows + (is_of_device(form) ? 0 : vocabulary);
}

template <class T>
void embedding_backward_by_piece(const Exec& exec, View<const std::int32_t*> ids,
                                 View<const T**> dout, View<compute_t<T>**> dtoken_table,
                                 std::int64_t pieces, View<std::int32_t*> workspace) {
  using C = compute_t<T>;
  const char* const name = "embed_pieces";
  const std::int64_t rows = dout.rows(), width = dout.columns();
  require_size(name, "ids", ids, rows);
  require_shape(name, "token table", dtoken_table, dtoken_table.rows(), width);
  require(pieces >= 1 && pieces <= std::int64_t{1} << 31 && rows % pieces == 0, name, ": ", rows,
          " rows in ", pieces, " pieces, expected a multiple of a number below 2^31");
  const std::int64_t elements = embedding_by_piece_workspace(rows, dtoken_table.rows());
  require(workspace.size() >= elements, name, ": workspace of ", workspace.size(),
          " elements, expected at least ", elements);
  const View<std::int32_t*> next = workspace.range(0, rows);
  const View<std::int32_t*> first = workspace.range(rows, 2 * rows);
  list_rows_by_id(exec, ids, next, first, workspace.range(2 * rows, elements));
  if (rows == 0) return;
  const FastDivide of_piece(rows / pieces);
  for_each_run(
      exec, name, rows, width,
      KOKKOS_LAMBDA(std::int64_t begin, std::int64_t column, std::int64_t columns) {
        if (first[begin] == 0) return;
        PieceSums<C, columns_at_once> sums;
        for (std::int64_t r = begin; r >= 0; r = next[r])
          add_run<T>(dout.row(r).range(column, column + columns),
                     sums.of_piece(of_piece.quotient(r)));
        const C* const total = sums.total();
        const auto token = dtoken_table.row(ids[begin]).range(column, column + columns);
        for (std::int64_t j = 0; j < columns; ++j) token[j] += total[j];
      });
}

template <class T>
void embedding_positions_backward(const Exec& exec, View<const T**> dout, std::int64_t pieces,
                                  std::int64_t first, View<compute_t<T>**> dpositions) {
  using C = compute_t<T>;
  const char* const name = "embed_positions";
  const std::int64_t width = dout.columns(), count = dpositions.rows();
  require(pieces >= 1 && dout.rows() % pieces == 0 && first >= 0 &&
              first + count <= dout.rows() / pieces && dpositions.columns() == width,
          name, ": rows [", first, ", ", first + count, ") of ", pieces, " pieces of (",
          dout.rows(), ", ", width, ") and positions of width ", dpositions.columns(),
          ", expected whole pieces that have these rows, of one width");
  const std::int64_t of_piece = dout.rows() / pieces;
  for_each_run(
      exec, name, count, width,
      KOKKOS_LAMBDA(std::int64_t row, std::int64_t column, std::int64_t columns) {
        PieceSums<C, columns_at_once> sums;
        for (std::int64_t piece = 0; piece < pieces; ++piece)
          add_run<T>(dout.row(piece * of_piece + first + row).range(column, column + columns),
                     sums.of_piece(piece));
        const C* const total = sums.total();
        const auto to = dpositions.row(row).range(column, column + columns);
        for (std::int64_t j = 0; j < columns; ++j) to[j] += total[j];
      });
}

#define OSTRAKON_INSTANTIATE(T)                                                                 \
  template void embedding_forward_some<T>(const Exec&, View<const std::int32_t*>, std::int64_t, \
                                          View<const T**>, View<compute_t<T>**>);               \
  template void add_positions<T>(const Exec&, std::int64_t, std::int64_t, View<const T**>,      \
                                 View<compute_t<T>**>, View<const std::int32_t*>);              \
  template void embedding_forward<T>(const Exec&, View<const std::int32_t*>, std::int64_t,      \
                                     std::int64_t, View<const T**>, View<const T**>, View<T**>, \
                                     View<const std::int32_t*>);                                \
  template void embedding_backward<T>(const Exec&, View<const std::int32_t*>, std::int64_t,     \
                                      View<const T**>, View<compute_t<T>**>,                    \
                                      View<compute_t<T>**>);                                    \
  template void embedding_backward_by_piece<T>(const Exec&, View<const std::int32_t*>,          \
                                               View<const T**>, View<compute_t<T>**>,           \
                                               std::int64_t, View<std::int32_t*>);              \
  template void embedding_positions_backward<T>(const Exec&, View<const T**>, std::int64_t,     \
                                                std::int64_t, View<compute_t<T>**>);
OSTRAKON_FOR_ALL_NUMBERS(OSTRAKON_INSTANTIATE)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::math
