// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/embedding.hpp>

#include <ostrakon/math/equal_sizes.hpp>
#include <ostrakon/math/row_kernel.hpp>
#include <ostrakon/math/work_items.hpp>

namespace ostrakon::math {
namespace {

/// Of tables as wide as `rows` rows, whose positions begin at `first_position`; tables need not
/// exist.
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
                       View<const T**> position_table, View<T**> out) {
  const std::int64_t width = out.columns();
  check_tables<T>("embed_forward", ids, tokens, first_position, out.rows(), width, token_table,
                  position_table);
  for_each_row(
      exec, "embed_forward", out.rows(), KOKKOS_LAMBDA(const Row& row, std::int64_t r) {
        const auto token = token_table.row(ids[r]);
        const auto sum = out.row(r);
        if (position_table) {
          const auto position = position_table.row(first_position + r % tokens);
          row.loop(width, [=](std::int64_t i) { sum[i] = static_cast<T>(token[i] + position[i]); });
        } else {
          row.loop(width, [=](std::int64_t i) { sum[i] = token[i]; });
        }
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
  // The first row of each token adds up all of that token's rows in order, and every element of a
  // position its sequences: as on the host, with more to do at a time.
  if (dtoken_table)
    for_each_row(
        exec, "embed_backward", rows, KOKKOS_LAMBDA(const Row& row, std::int64_t first) {
          const std::int32_t id = ids[first];
          const int earlier =
              row.maximum(first, 0, [=](std::int64_t r) { return ids[r] == id ? 1 : 0; });
          if (earlier == 1) return;
          const auto token = dtoken_table.row(id);
          for (std::int64_t r = first; r < rows; ++r) {
            if (ids[r] != id) continue;
            const auto gradient = dout.row(r);
            row.loop(width, [=](std::int64_t j) { token[j] += gradient[j]; });
          }
        });
  if (!dposition_table) return;
  for_each_item(
      exec, "embed_positions", smaller(tokens, rows) * width, KOKKOS_LAMBDA(std::int64_t item) {
        const std::int64_t j = item % width;
        for (std::int64_t r = item / width; r < rows; r += tokens)
          dposition_table(item / width, j) += dout(r, j);
      });
#else
  if (!dtoken_table && !dposition_table) return;
  // An item owns its columns of both tables and walks all rows in order: neither a race nor an
  // order that depends on the number of threads.
  constexpr std::int64_t columns_per_item = 64;
  for_each_item(
      exec, "embed_backward", items_for(width, columns_per_item), KOKKOS_LAMBDA(std::int64_t item) {
        const std::int64_t first = item * columns_per_item;
        const std::int64_t columns = smaller(columns_per_item, width - first);
        for (std::int64_t r = 0; r < rows; ++r) {
          const auto gradient = dout.row(r).range(first, first + columns);
          if (dtoken_table) {
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

#define OSTRAKON_INSTANTIATE(T)                                                                  \
  template void embedding_forward<T>(const Exec&, View<const std::int32_t*>, std::int64_t,       \
                                     std::int64_t, View<const T**>, View<const T**>, View<T**>); \
  template void embedding_backward<T>(const Exec&, View<const std::int32_t*>, std::int64_t,      \
                                      View<const T**>, View<compute_t<T>**>,                     \
                                      View<compute_t<T>**>);
OSTRAKON_INSTANTIATE(float)
OSTRAKON_INSTANTIATE(double)
OSTRAKON_INSTANTIATE(bf16)
OSTRAKON_INSTANTIATE(fp16)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::math
