// SPDX-License-Identifier: Apache-2.0
#pragma once

// ordered_gemm() for one set of vector instructions. Included only by the sources
// tile_kernels_*.cpp, which are compiled for these instructions. Other sources may not share
// anything from here, so all is in an unnamed namespace, and no header of the standard library adds
// inline functions.

#include <cstdint>
#include <ostrakon/math/products/tile_kernels.hpp>

namespace ostrakon::math {
namespace {

inline std::int64_t least(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

/// Divides [0, size) into the fewest parts of at most `largest`, whose lengths differ by at most
/// one. Part i begins at begin(i).
struct Parts {
  Parts(std::int64_t size, std::int64_t largest)
      : count((size + largest - 1) / largest), shorter(size / count), longer(size % count) {}
  std::int64_t begin(std::int64_t i) const { return i * shorter + least(i, longer); }
  std::int64_t length(std::int64_t i) const { return shorter + (i < longer ? 1 : 0); }

  std::int64_t count;            ///< the first `longer` have length `shorter` + 1
  std::int64_t shorter, longer;  ///< the other parts have length `shorter`
};

/// I provides Vector, `width` floats of it, zero(), load(), store(), broadcast(), multiply(),
/// multiply_add(), transpose() of `width` lines of `width` floats or pairs of halves, and split()
/// of such pairs; load() and store() convert from and to 16 bits. A tile of C is `rows` by
/// `vectors` vectors: as many as fit into registers. With `reads_in_place`, products of few rows
/// read a B of float without packing.
///
/// The method is the usual one: A is packed in slivers of `rows` rows, B in slivers of `columns`
/// columns, each in the order in which a tile reads it. Packed elements are float.
template <class I>
struct TileKernel {
  using Vector = typename I::Vector;
  static constexpr std::int64_t width = I::width;
  static constexpr int rows = I::rows;
  static constexpr std::int64_t columns = I::vectors * width;
  static_assert(panel_columns % columns == 0 && rows <= width, "whole slivers");

  template <class T>
  static constexpr bool is_float = sizeof(T) == sizeof(float);

  /// Loads lines: element i of vector j is element j of line i, or its j-th pair of halves. The
  /// last of `count` lines is repeated for missing ones.
  template <class T>
  static void load_lines(const T* from, std::int64_t apart, std::int64_t count,
                         Vector (&to)[width]) {
    const T* lines[width];
#pragma GCC unroll 16
    for (int i = 0; i < width; ++i) lines[i] = from + least(i, count - 1) * apart;
    I::transpose(lines, to);
  }

  /// Transposes `count` <= width lines of `length` elements, `apart` from one to the next: element
  /// j of line i goes to to[j * to_row + i]. Writes `width` elements in each row; those beyond
  /// `count` are undefined.
  template <class T>
  static void pack_lines(const T* from, std::int64_t apart, std::int64_t count, std::int64_t length,
                         float* to, std::int64_t to_row) {
    constexpr std::int64_t at_once = is_float<T> ? width : 2 * width;
    std::int64_t j = 0;
    for (; j + at_once <= length; j += at_once) {
      Vector block[width];
      load_lines(from + j, apart, count, block);
#pragma GCC unroll 16
      for (int i = 0; i < width; ++i)
        if constexpr (is_float<T>) {
          I::store(to + (j + i) * to_row, block[i]);
        } else {
          Vector even, odd;
          I::split(T{}, block[i], even, odd);
          I::store(to + (j + std::int64_t{2} * i) * to_row, even);
          I::store(to + (j + std::int64_t{2} * i + 1) * to_row, odd);
        }
    }
    for (; j < length; ++j)
      for (int i = 0; i < width; ++i)
        to[j * to_row + i] = float_of(from[least(i, count - 1) * apart + j]);
  }

  static float float_of(float x) { return x; }
  /// Converts through a vector, with the processor's conversion.
  template <class T>
  static float float_of(T x) {
    const T copies[width] = {x};
    float values[width];
    I::store(values, I::load(copies));
    return values[0];
  }

  /// Packs a part of A, (slivers.size, terms), sliver by sliver: element (i, j) of one goes to to[j
  /// * rows + i]. Whole vectors are written: elements beyond a sliver's rows are overwritten by the
  /// next sliver, and the buffer has space after the last one.
  template <class T>
  static void pack_a(const Strides& strides, const T* from, const Parts& slivers,
                     std::int64_t terms, float* to) {
    std::int64_t whole = 0;
    const auto copy_a = [&](std::int64_t i, std::int64_t j) {
      I::store(to + (i * terms + j) * rows, I::load(from + slivers.begin(i) + j * strides.column));
    };
    if (strides.row == 1) {
      // Elements are read along the terms, which are contiguous. A vector has more elements than a
      // sliver has rows, so the last elements are packed one by one, to stay in the buffer.
      whole = terms - least(terms, (width + strides.column - 1) / strides.column);
      if constexpr (width * sizeof(float) == 64) {  // a cache line
        for (std::int64_t j = 0; j < whole; ++j)
          for (std::int64_t i = 0; i < slivers.count; ++i) copy_a(i, j);
      } else {
        for (std::int64_t i = 0; i < slivers.count; ++i)
          for (std::int64_t j = 0; j < whole; ++j) copy_a(i, j);
      }
    }
    for (std::int64_t i = 0; i < slivers.count; ++i) {
      const T* const first = from + slivers.begin(i) * strides.row;
      float* const packed = to + i * terms * rows;
      if (strides.column == 1 && strides.row != 1)
        pack_lines(first, strides.row, slivers.length(i), terms, packed, rows);
      else
        for (std::int64_t j = whole; j < terms; ++j)
          for (std::int64_t l = 0; l < slivers.length(i); ++l)
            packed[j * rows + l] = float_of(first[l * strides.row + j * strides.column]);
    }
  }

  /// Packs a (terms, count) part of B in slivers of `columns` columns, one after the other: element
  /// (i, j) of a sliver goes to to[i * columns + j]. Elements that pad the last sliver are
  /// undefined.
  template <class T>
  static void pack_b(const Strides& strides, const T* from, std::int64_t terms, std::int64_t count,
                     float* to) {
    const std::int64_t whole = count - count % columns;
    if (strides.column == 1)  // rows of B are contiguous
      for (std::int64_t i = 0; i < terms; ++i)
        for (std::int64_t j = 0; j < whole; j += columns)
          for (int v = 0; v < I::vectors; ++v)
            I::store(to + j * terms + i * columns + v * width,
                     I::load(from + i * strides.row + j + v * width));
    for (std::int64_t j = strides.column == 1 ? whole : 0; j < count; j += columns) {
      const T* const first = from + j * strides.column;
      float* const packed = to + j * terms;
      const std::int64_t used = least(columns, count - j);
      if (strides.row == 1)
        for (std::int64_t v = 0; v < columns; v += width)
          pack_lines(first + (used > v ? v : 0) * strides.column, strides.column,
                     used > v ? least(used - v, width) : 1, terms, packed + v, columns);
      else
        for (std::int64_t i = 0; i < terms; ++i)
          for (std::int64_t l = 0; l < columns; ++l)
            packed[i * columns + l] =
                l < used ? float_of(first[i * strides.row + l * strides.column]) : 0.0f;
    }
  }

  /// Where partial sums are read and written; rows are `row` elements apart. Both are C if C is
  /// float.
  template <class C>
  struct Target {
    const float* onto;
    std::int64_t onto_row;
    C* c;
    std::int64_t row;
    Target at(std::int64_t i, std::int64_t j) const {
      return {onto + i * onto_row + j, onto_row, c + i * row + j, row};
    }
  };

  /// C = alpha A B + beta onto, for a packed (count, terms) A, a packed B and a tile of C.
  template <int count, class C>
  static void whole_tile(std::int64_t terms, const float* a, std::int64_t a_term, const float* b,
                         std::int64_t b_row, float alpha, float beta, const Target<C>& to) {
    C* const c = to.c;
    const std::int64_t c_row = to.row;
    Vector sums[count][I::vectors];
#pragma GCC unroll 16
    for (int i = 0; i < count; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < I::vectors; ++v) sums[i][v] = I::zero();
    // The function is always inlined, as the compiler might otherwise keep the sums in memory, not
    // in registers.
    const auto add_terms = [&](std::int64_t number) __attribute__((always_inline)) {
      for (std::int64_t term = 0; term < number; ++term, a += a_term, b += b_row) {
        // The next sliver of B is adjacent, and is prefetched.
        if constexpr (I::reads_in_place) {
          __builtin_prefetch(b + columns, 0, 2);
          __builtin_prefetch(b + 2 * columns - 1, 0, 2);
        }
        Vector factors[I::vectors];
#pragma GCC unroll 4
        for (int v = 0; v < I::vectors; ++v) factors[v] = I::load(b + v * width);
#pragma GCC unroll 16
        for (int i = 0; i < count; ++i) {
          const Vector factor = I::broadcast(a[i]);
#pragma GCC unroll 4
          for (int v = 0; v < I::vectors; ++v)
            sums[i][v] = I::multiply_add(factor, factors[v], sums[i][v]);
        }
      }
    };
    // C is prefetched meanwhile, a row at a time.
    const std::int64_t terms_a_row = terms / count;
    for (int i = 0; i < count; ++i) {
      __builtin_prefetch(c + i * c_row, 1);
      __builtin_prefetch(c + i * c_row + columns - 1, 1);
      add_terms(terms_a_row);
    }
    add_terms(terms - count * terms_a_row);
    const Vector scale = I::broadcast(alpha);
    if (beta == 0) {
#pragma GCC unroll 16
      for (int i = 0; i < count; ++i)
#pragma GCC unroll 4
        for (int v = 0; v < I::vectors; ++v)
          I::store(c + i * c_row + v * width, I::multiply(scale, sums[i][v]));
      return;
    }
    const Vector keep = I::broadcast(beta);
#pragma GCC unroll 16
    for (int i = 0; i < count; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < I::vectors; ++v)
        I::store(
            c + i * c_row + v * width,
            I::multiply_add(scale, sums[i][v],
                            I::multiply(keep, I::load(to.onto + i * to.onto_row + v * width))));
  }

  /// Computes a tile of fewer columns with the same instructions, on a copy.
  template <int count, class C>
  static void tile(std::int64_t terms, const float* a, std::int64_t a_term, const float* b,
                   std::int64_t b_row, float alpha, float beta, const Target<C>& to,
                   std::int64_t used) {
    if (used == columns) {
      whole_tile<count>(terms, a, a_term, b, b_row, alpha, beta, to);
      return;
    }
    float onto[count * columns] = {};
    C copy[count * columns];
    if (beta != 0)
      for (int i = 0; i < count; ++i)
        for (std::int64_t j = 0; j < used; ++j)
          onto[i * columns + j] = to.onto[i * to.onto_row + j];
    whole_tile<count>(terms, a, a_term, b, b_row, alpha, beta,
                      Target<C>{onto, columns, copy, columns});
    for (int i = 0; i < count; ++i)
      for (std::int64_t j = 0; j < used; ++j) to.c[i * to.row + j] = copy[i * columns + j];
  }

  template <class C>
  using Tile = void (*)(std::int64_t, const float*, std::int64_t, const float*, std::int64_t, float,
                        float, const Target<C>&, std::int64_t);
  template <class C, int count = 1>
  static Tile<C> tile_of(std::int64_t wanted) {
    if constexpr (count == rows)
      return tile<count, C>;
    else
      return wanted == count ? tile<count, C> : tile_of<C, count + 1>(wanted);
  }

  /// Multiplies one chunk of terms: rows of A, packed unless they are read in place, by `count`
  /// columns of B, which are packed here unless they are read in place. `a`: null if A is packed.
  template <class T, class C>
  static void multiply_panel(const OrderedProduct& p, const Parts& slivers, std::int64_t terms,
                             const T* a, const float* packed_a, const T* b, bool b_in_place,
                             float beta, const Target<C>& to, std::int64_t count, float* packed_b) {
    const float* panel = packed_b;
    std::int64_t b_row = columns, sliver = columns * terms;
    bool packs = true;
    if constexpr (is_float<T>)
      if (b_in_place && count >= columns) {
        packs = false;
        panel = b;
        b_row = p.b.row, sliver = columns;
      }
    if (packs) pack_b(p.b, b, terms, count, packed_b);
    // A sliver of B stays in the L1 cache, slivers of A come from L2: a few at a time, so that few
    // rows of C are written at once.
    const Tile<C> multiply_longer = tile_of<C>(slivers.shorter + 1);
    const Tile<C> multiply_shorter = tile_of<C>(slivers.shorter);
    constexpr std::int64_t slivers_at_once = 4;
    for (std::int64_t first = 0; first < slivers.count; first += slivers_at_once)
      for (std::int64_t j = 0; j < count; j += columns)
        for (std::int64_t i = first; i < least(slivers.count, first + slivers_at_once); ++i) {
          const float* rows_of_a = packed_a + i * rows * terms;
          std::int64_t a_term = rows;
          if constexpr (is_float<T>)
            if (a != nullptr) {
              rows_of_a = a + slivers.begin(i) * p.a.row;
              a_term = p.a.column;
            }
          (i < slivers.longer ? multiply_longer : multiply_shorter)(
              terms, rows_of_a, a_term, panel + j / columns * sliver, b_row, p.alpha, beta,
              to.at(slivers.begin(i), j), least(columns, count - j));
        }
  }

  /// Multiplies few rows of A by lines of B, `width` at a time: B is transposed in registers.
  template <int count>
  static void multiply_lines(const OrderedProduct& p, const float* a, const float* b, float* c) {
    const Vector scale = I::broadcast(p.alpha);
    for (std::int64_t j = 0; j < p.n; j += width) {
      const std::int64_t used = least(width, p.n - j);
      for (std::int64_t k0 = 0; k0 < p.k; k0 += product_chunk) {
        const std::int64_t k1 = least(p.k, k0 + product_chunk);
        Vector sums[count];
        for (int i = 0; i < count; ++i) sums[i] = I::zero();
        for (std::int64_t k = k0; k < k1; k += width) {
          const std::int64_t terms = least(width, k1 - k);
          Vector block[width];
          if (terms == width) {
            load_lines(b + j * p.b.column + k, p.b.column, used, block);
          } else {
            for (std::int64_t t = 0; t < terms; ++t) {
              float term[width];
              for (int l = 0; l < width; ++l)
                term[l] = b[(j + least(l, used - 1)) * p.b.column + k + t];
              block[t] = I::load(term);
            }
          }
          const auto add_term = [&](int t) {
#pragma GCC unroll 8
            for (int i = 0; i < count; ++i)
              sums[i] = I::multiply_add(I::broadcast(a[i * p.a.row + (k + t) * p.a.column]),
                                        block[t], sums[i]);
          };
          if (terms == width) {
#pragma GCC unroll 16
            for (int t = 0; t < width; ++t) add_term(t);
          } else {
            for (int t = 0; t < terms; ++t) add_term(t);
          }
        }
        const float beta = k0 == 0 ? p.beta : 1.0f;
        for (int i = 0; i < count; ++i) {
          float* const to = c + i * p.c_row + j;
          float copy[width] = {};
          if (beta != 0)
            for (std::int64_t l = 0; l < used; ++l) copy[l] = to[l];
          I::store(copy, beta == 0
                             ? I::multiply(scale, sums[i])
                             : I::multiply_add(scale, sums[i],
                                               I::multiply(I::broadcast(beta), I::load(copy))));
          for (std::int64_t l = 0; l < used; ++l) to[l] = copy[l];
        }
      }
    }
  }

  using Lines = void (*)(const OrderedProduct&, const float*, const float*, float*);
  template <int count = 1>
  static Lines lines_of(std::int64_t wanted) {
    if constexpr (count == line_rows)
      return multiply_lines<count>;
    else
      return wanted == count ? multiply_lines<count> : lines_of<count + 1>(wanted);
  }

  /// Loads (rows_of_c, count) elements of C as sums.
  template <class C>
  static void load_sums(const C* c, std::int64_t c_row, std::int64_t rows_of_c, std::int64_t count,
                        float* sums, std::int64_t sums_row) {
    for (std::int64_t i = 0; i < rows_of_c; ++i)
      for (std::int64_t j = 0; j < count; ++j) sums[i * sums_row + j] = float_of(c[i * c_row + j]);
  }

  template <class T, class C>
  static void multiply(const OrderedProduct& p, const T* a, const T* b, C* c, float* room) {
    if constexpr (is_float<T>)
      if (p.m <= line_rows && p.b.row == 1 && p.b.column != 1) {
        lines_of(p.m)(p, a, b, c);
        return;
      }
    float* const packed_b = room;
    float* const packed_a = room + panel_columns * product_chunk;
    float* const all_sums = room + tile_room;  // used if C is in 16 bits
    const bool few = p.m <= few_rows;
    const bool a_in_place = is_float<T> && p.a.row == 1 && p.n <= few_columns;
    const bool b_in_place =
        is_float<T> && few && p.b.column == 1 && (I::reads_in_place || p.n * p.k <= small_matrix);
    const std::int64_t panel = few && (b_in_place || p.b.column != 1) ? columns : panel_columns;
    const Parts blocks(p.m, block_rows);
    for (std::int64_t block = 0; block < blocks.count; ++block) {
      const std::int64_t m0 = blocks.begin(block);
      const Parts slivers(blocks.length(block), rows);
      const std::int64_t padded_rows = slivers.count * rows;
      // All terms of few rows are packed: then B is read, and C written, sequentially.
      const bool holds_all = padded_rows * p.k + width <= packed_a_floats;
      const std::int64_t held = holds_all ? p.k : product_chunk;
      const std::int64_t group = is_float<C> || holds_all ? p.n : kept_columns;
      for (std::int64_t g0 = 0; g0 < p.n; g0 += group)
        for (std::int64_t h0 = 0; h0 < p.k; h0 += held) {
          const std::int64_t h1 = least(p.k, h0 + held);
          if (!a_in_place)
            for (std::int64_t k0 = h0; k0 < h1; k0 += product_chunk)
              pack_a(p.a, a + m0 * p.a.row + k0 * p.a.column, slivers,
                     least(product_chunk, h1 - k0), packed_a + padded_rows * (k0 - h0));
          for (std::int64_t n0 = g0; n0 < least(p.n, g0 + group); n0 += panel) {
            const std::int64_t count = least(panel, p.n - n0);
            C* const c_panel = c + m0 * p.c_row + n0;
            for (std::int64_t k0 = h0; k0 < h1; k0 += product_chunk) {
              const std::int64_t terms = least(product_chunk, h1 - k0);
              const float beta = k0 == 0 ? p.beta : 1.0f;
              const auto multiply_into = [&](const auto& to) {
                multiply_panel(
                    p, slivers, terms, a_in_place ? a + m0 * p.a.row + k0 * p.a.column : nullptr,
                    packed_a + padded_rows * (k0 - h0), b + k0 * p.b.row + n0 * p.b.column,
                    b_in_place, beta, to, count, packed_b);
              };
              if constexpr (is_float<C>) {
                multiply_into(Target<C>{c_panel, p.c_row, c_panel, p.c_row});
              } else {
                // Sums of a panel stay in place until the last terms are added.
                float* const sums = all_sums + (holds_all ? 0 : (n0 - g0) * block_rows);
                if (k0 == 0 && beta != 0)
                  load_sums(c_panel, p.c_row, blocks.length(block), count, sums, panel);
                if (k0 + terms == p.k)
                  multiply_into(Target<C>{sums, panel, c_panel, p.c_row});
                else
                  multiply_into(Target<float>{sums, panel, sums, panel});
              }
            }
          }
        }
    }
  }
};

/// multiply() for all element types.
template <class I>
constexpr TileKernels tile_kernels_of(const char* name) {
  using Kernel = TileKernel<I>;
  return {name,
          Kernel::template multiply<float, float>,
          Kernel::template multiply<Bf16Bits, float>,
          Kernel::template multiply<Bf16Bits, Bf16Bits>,
          Kernel::template multiply<Fp16Bits, float>,
          Kernel::template multiply<Fp16Bits, Fp16Bits>};
}

}  // namespace
}  // namespace ostrakon::math
