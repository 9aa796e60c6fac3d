// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/equal_sizes.hpp>
#include <ostrakon/math/fp8/blocks.hpp>
#include <ostrakon/math/fp8/packed_elements.hpp>
#include <ostrakon/math/unrolled.hpp>

namespace ostrakon::math {
namespace {

constexpr int block = static_cast<int>(mx_block);

void require_blocks(const char* name, std::int64_t numbers) {
  require(numbers % mx_block == 0, name, ": sums of ", numbers, " numbers, expected a multiple of ",
          mx_block);
}
void require_mx(const char* name, const MxRows& to, std::int64_t matrices, std::int64_t rows,
                std::int64_t columns) {
  require_blocks(name, columns);
  require_shape(name, "codes", to.codes, matrices * rows, columns);
  require_size(name, "scales", to.scales, matrices * block_scales_bytes(rows, columns));
  require(!to.codes || (to.codes.stride() % 16 == 0 && begin_vectors<16>(to.codes.data())), name,
          ": rows of codes ", to.codes.stride(), " apart, expected a multiple of 16");
}

/// Writes the codes of one block from words, at a multiple of 16 bytes.
KOKKOS_INLINE_FUNCTION void store_codes(std::uint8_t* to, const std::uint32_t* words) {
  for (int half = 0; half < 2; ++half) {
    Vector<std::uint32_t, 4> out;
    for (int w = 0; w < 4; ++w) out.at[w] = words[4 * half + w];
    store_vector<4>(reinterpret_cast<std::uint32_t*>(to) + std::ptrdiff_t{4} * half, out);
  }
}

}  // namespace

template <class T>
void quantize_row_blocks(const Exec& exec, View<const T**> x, const MxRows& to) {
  const std::int64_t rows = x.rows(), columns = x.columns();
  require_mx("quantize_row_blocks", to, 1, rows, columns);
  const Fp8Format format = to.format;
  const View<std::uint8_t**> codes = to.codes;
  const View<std::uint8_t*> scales = to.scales;
  const std::int64_t blocks = columns / mx_block;
  // All scales of tiles are written, those outside of the matrix as 0.
  const std::int64_t all_blocks = items_for(blocks, scale_tile_blocks) * scale_tile_blocks;
  const std::int64_t all_rows = items_for(rows, scale_tile_rows) * scale_tile_rows;
  for_each_item(
      exec, "quantize_blocks", all_rows * all_blocks, KOKKOS_LAMBDA(std::int64_t item) {
        const std::int64_t r = item / all_blocks, b = item % all_blocks;
        const std::int64_t at = scale_index(r, b, columns);
        if (r >= rows || b >= blocks) {
          scales[at] = 0;
          return;
        }
        constexpr int n = vector_elements<T>();
        Vector<T, n> values[block / n];
        std::uint32_t largest = 0;
        unrolled<block / n>([&](int v) {
          values[v] =
              load_lanes<n>(x.row(r).data(), b * block + static_cast<std::int64_t>(v * n), columns);
          for (int k = 0; k < n; ++k) largest = larger(largest, magnitude_bits(values[v].at[k]));
        });
        const Fp8Scale scale(format, largest);
        scales[at] = scale.exponent();
        std::uint32_t words[block / 4];
        unrolled<block / 4>([&](int w) {
          const auto scaled = [&](int i) {
            return static_cast<float>(values[(4 * w + i) / n].at[(4 * w + i) % n]) * scale.inverse;
          };
          words[w] = fp8_word_of(format, scaled(0), scaled(1), scaled(2), scaled(3));
        });
        store_codes(codes.row(r).data() + b * block, words);
      });
}

template <class T>
void quantize_column_blocks(const Exec& exec, View<const T**> x, std::int64_t pieces,
                            const MxRows& to) {
  const std::int64_t columns = x.columns(), terms = x.rows() / pieces;
  require_mx("quantize_column_blocks", to, pieces, columns, terms);
  require_shape("quantize_column_blocks", "x", x, pieces * terms, columns);
  const Fp8Format format = to.format;
  const View<std::uint8_t**> codes = to.codes;
  const View<std::uint8_t*> scales = to.scales;
  // An item has 32 rows of 8 bytes. Of 32 adjacent items eight read adjacent bytes, and four write
  // adjacent codes.
  constexpr int words = 2, n = 8 / static_cast<int>(sizeof(T)), across = 8, down = 4;
  const std::int64_t blocks = terms / mx_block;
  const std::int64_t tiles_down = items_for(blocks, scale_tile_blocks);
  const std::int64_t tiles_across =
      items_for(columns, scale_tile_rows) * scale_tile_rows / (std::int64_t{across} * n);
  const std::int64_t bytes = block_scales_bytes(columns, terms);
  for_each_item(
      exec, "quantize_blocks", pieces * tiles_down * tiles_across * across * down,
      KOKKOS_LAMBDA(std::int64_t item) {
        const std::int64_t tile = item / (std::int64_t{across} * down);
        const std::int64_t c = (tile % tiles_across * across + item % across) * n;
        const std::int64_t b = tile / tiles_across % tiles_down * down + item / across % down;
        const std::int64_t piece = tile / tiles_across / tiles_down;
        const View<std::uint8_t*> of_piece = scales.range(piece * bytes, (piece + 1) * bytes);
        Vector<std::uint32_t, words> values[block] = {};
        Maxima<T, words> maxima;
        if (b < blocks)
          unrolled<block>([&](int r) {
            const T* const from = x.row(piece * terms + b * block + r).data();
            values[r] = bits_as<Vector<std::uint32_t, words>>(load_lanes<n>(from, c, columns));
            maxima.add(values[r]);
          });
        float inverse[n];
        for (int k = 0; k < n; ++k) {
          const Fp8Scale scale(format, Maxima<T, words>::of(maxima.word, k));
          inverse[k] = scale.inverse;
          of_piece[scale_index(c + k, b, terms)] =
              b < blocks && c + k < columns ? scale.exponent() : std::uint8_t{0};
        }
        std::uint32_t out[n][block / 4];
        unrolled<block / 4>([&](int w) {
          for (int k = 0; k < n; ++k) {
            const auto scaled = [&](int i) {
              return static_cast<float>(element<T>(values[4 * w + i].at, k)) * inverse[k];
            };
            out[k][w] = fp8_word_of(format, scaled(0), scaled(1), scaled(2), scaled(3));
          }
        });
        for (int k = 0; k < n; ++k)
          if (b < blocks && c + k < columns)
            store_codes(codes.row(piece * columns + c + k).data() + b * block, out[k]);
      });
}

template <class T>
void round_row_blocks(const Exec& exec, Fp8Format format, View<const T**> x, View<T**> to) {
  require_shape("round_row_blocks", "to", to, x.rows(), x.columns());
  require_blocks("round_row_blocks", x.columns());
  const std::int64_t blocks = x.columns() / mx_block;
  for_each_item(
      exec, "round_row_blocks", x.rows() * blocks, KOKKOS_LAMBDA(std::int64_t item) {
        const std::int64_t r = item / blocks, first = item % blocks * block;
        const auto in = x.row(r).range(first, first + block);
        const auto out = to.row(r).range(first, first + block);
        std::uint32_t largest = 0;
        for (int i = 0; i < block; ++i) largest = larger(largest, magnitude_bits(in[i]));
        const Fp8Scale scale(format, largest);
        for (int i = 0; i < block; ++i)
          out[i] = static_cast<T>(rounded_to(format, static_cast<float>(in[i]) * scale.inverse) *
                                  scale.scale);
      });
}

template <class T>
void round_column_blocks(const Exec& exec, Fp8Format format, View<const T**> x, View<T**> to) {
  require_shape("round_column_blocks", "to", to, x.rows(), x.columns());
  require_blocks("round_column_blocks", x.rows());
  constexpr int n = static_cast<int>(per_item(64, 4));
  const std::int64_t columns = x.columns(), groups = items_for(columns, n);
  for_each_item(
      exec, "round_columns", x.rows() / mx_block * groups, KOKKOS_LAMBDA(std::int64_t item) {
        const std::int64_t first_row = item / groups * block, first = item % groups * n;
        Vector<std::uint32_t, n> largest = {};
        for (int r = 0; r < block; ++r) {
          const auto values = load_lanes<n>(x.row(first_row + r).data(), first, columns);
          for (int j = 0; j < n; ++j)
            largest.at[j] = larger(largest.at[j], magnitude_bits(values.at[j]));
        }
        for (int r = 0; r < block; ++r) {
          const auto values = load_lanes<n>(x.row(first_row + r).data(), first, columns);
          Vector<T, n> out;
          for (int j = 0; j < n; ++j) {
            const Fp8Scale scale(format, largest.at[j]);
            out.at[j] = static_cast<T>(
                rounded_to(format, static_cast<float>(values.at[j]) * scale.inverse) * scale.scale);
          }
          store_lanes<n>(to.row(first_row + r).data(), first, columns, out);
        }
      });
}

#define OSTRAKON_INSTANTIATE(T)                                                          \
  template void quantize_row_blocks<T>(const Exec&, View<const T**>, const MxRows&);     \
  template void quantize_column_blocks<T>(const Exec&, View<const T**>, std::int64_t,    \
                                          const MxRows&);                                \
  template void round_row_blocks<T>(const Exec&, Fp8Format, View<const T**>, View<T**>); \
  template void round_column_blocks<T>(const Exec&, Fp8Format, View<const T**>, View<T**>);
OSTRAKON_FOR_ALL_NUMBERS(OSTRAKON_INSTANTIATE)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::math
