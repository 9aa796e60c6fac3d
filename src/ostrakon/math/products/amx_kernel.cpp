// SPDX-License-Identifier: Apache-2.0
#if !defined(__clang__)
// GCC 12 takes the undefined operand of an intrinsic for an uninitialized variable.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include <ostrakon/math/products/amx_kernel.hpp>

namespace ostrakon::math {
namespace {

using Bits = std::uint16_t;  // bits of a bf16

// A tile of A has 16 rows of 32 terms; a tile of B 16 columns of 32 terms, pairs of terms of a
// column being adjacent; a tile of C 16 rows of 16 sums. Two tiles of A are multiplied by two of B
// at a time, which uses all registers. A and B are packed in slivers of two tiles, in the order in
// which they are read.
constexpr std::int64_t side = 16;
constexpr std::int64_t terms_of_tile = 32;
constexpr std::int64_t tile = side * terms_of_tile;
constexpr std::int64_t sliver = 2 * side;
constexpr std::int64_t step = 2 * tile;  // elements of a sliver for 32 terms

inline std::int64_t least(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
inline std::int64_t pieces(std::int64_t size, std::int64_t of) { return (size + of - 1) / of; }

/// Divides `size` into equal pieces of at most `largest`, and returns their size; each piece except
/// the last is a multiple of `granule`.
inline std::int64_t equal_pieces(std::int64_t size, std::int64_t largest, std::int64_t granule) {
  const std::int64_t each = pieces(size, pieces(size, largest));
  return pieces(each, granule) * granule;
}

inline __mmask32 first_of_32(std::int64_t count) {
  return count >= 32 ? 0xffffffffu : (__mmask32{1} << count) - 1;
}

/// Loads the first `count` of 32 elements, then zeros.
inline __m512i load(const Bits* from, std::int64_t count) {
  return count >= 32 ? _mm512_loadu_si512(from)
                     : _mm512_maskz_loadu_epi16(first_of_32(count), from);
}
inline void store(Bits* to, __m512i x) { _mm512_store_si512(to, x); }

/// Interleaves two rows into pairs of terms: element c of `first` and of `second` go to pair c of
/// 32, 16 per tile.
inline void interleave(__m512i first, __m512i second, Bits* to, Bits* to_other) {
  const __m512i low = _mm512_unpacklo_epi16(first, second);
  const __m512i high = _mm512_unpackhi_epi16(first, second);
  const __m512i lower_half = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
  const __m512i upper_half = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  store(to, _mm512_permutex2var_epi64(low, lower_half, high));
  store(to_other, _mm512_permutex2var_epi64(low, upper_half, high));
}

/// Transposes 16 lines of 16 pairs: pair i of line j goes to pair j of line i.
inline void transpose(const Bits* const (&lines)[side], Bits* to) {
#pragma GCC unroll 4
  for (std::int64_t c = 0; c < side; c += 4) {
    // Lane l of four[i] has 4 pairs of line 4 l + i, where the loads put them.
    __m512i four[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const auto part = [&](int line) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(lines[line] + 2 * c));
      };
      four[i] = _mm512_castsi128_si512(part(i));
      four[i] = _mm512_mask_broadcast_i32x4(four[i], 0x00f0, part(4 + i));
      four[i] = _mm512_mask_broadcast_i32x4(four[i], 0x0f00, part(8 + i));
      four[i] = _mm512_mask_broadcast_i32x4(four[i], 0xf000, part(12 + i));
    }
    const __m512i low = _mm512_unpacklo_epi32(four[0], four[1]);
    const __m512i high = _mm512_unpackhi_epi32(four[0], four[1]);
    const __m512i other_low = _mm512_unpacklo_epi32(four[2], four[3]);
    const __m512i other_high = _mm512_unpackhi_epi32(four[2], four[3]);
    Bits* const line = to + c * terms_of_tile;
    store(line, _mm512_unpacklo_epi64(low, other_low));
    store(line + terms_of_tile, _mm512_unpackhi_epi64(low, other_low));
    store(line + 2 * terms_of_tile, _mm512_unpacklo_epi64(high, other_high));
    store(line + 3 * terms_of_tile, _mm512_unpackhi_epi64(high, other_high));
  }
}

/// Packs `count` lines of `terms` neighbouring elements, `apart` from one to the next, in slivers
/// of `steps` steps. Lines beyond the last repeat it; terms beyond the last are zero. turned: the
/// lines are columns of B, else rows of A.
template <bool turned>
void pack_lines(const Bits* from, std::int64_t apart, std::int64_t count, std::int64_t terms,
                Bits* to) {
  const std::int64_t steps = pieces(terms, terms_of_tile);
  for (std::int64_t line = 0; line < count; line += side) {
    Bits* const tiles = to + line / sliver * steps * step + line % sliver * terms_of_tile;
    const Bits* lines[side];
    for (int i = 0; i < side; ++i) lines[i] = from + least(line + i, count - 1) * apart;
    for (std::int64_t s = 0; s < steps; ++s) {
      Bits* const packed = tiles + s * step;
      const std::int64_t used = terms - s * terms_of_tile;
      if (!turned) {
#pragma GCC unroll 16
        for (int i = 0; i < side; ++i) store(packed + i * terms_of_tile, load(lines[i], used));
      } else if (used >= terms_of_tile) {
        transpose(lines, packed);
      } else {
        alignas(64) Bits copy[tile];
        const Bits* copied[side];
        for (int i = 0; i < side; ++i) {
          copied[i] = copy + i * terms_of_tile;
          store(copy + i * terms_of_tile, load(lines[i], used));
        }
        transpose(copied, packed);
      }
      for (const Bits*& one : lines) one += terms_of_tile;
    }
  }
}

/// Packs `terms` rows, `apart` from one to the next, of `count` neighbouring elements, each element
/// being one of the lines, in slivers as pack_lines() does, with zeros for missing lines.
template <bool turned>
void pack_rows(const Bits* from, std::int64_t apart, std::int64_t count, std::int64_t terms,
               Bits* to) {
  const std::int64_t steps = pieces(terms, terms_of_tile);
  for (std::int64_t s = 0; s < steps; ++s, to += step, from += terms_of_tile * apart) {
    const std::int64_t used = least(terms_of_tile, terms - s * terms_of_tile);
    const auto interleave_pair = [&](std::int64_t pair, std::int64_t column, Bits* packed) {
      const std::int64_t left = count - column, term = 2 * pair;
      const __m512i none = _mm512_setzero_si512();
      const __m512i first = term < used ? load(from + term * apart + column, left) : none;
      const __m512i second =
          term + 1 < used ? load(from + (term + 1) * apart + column, left) : none;
      interleave(first, second, packed + pair * terms_of_tile,
                 packed + tile + pair * terms_of_tile);
    };
    if (turned) {
      for (std::int64_t column = 0; column < count; column += sliver) {
        alignas(64) Bits copy[step];
        for (std::int64_t pair = 0; pair < side; ++pair) interleave_pair(pair, column, copy);
        for (int t = 0; t < 2; ++t) {
          const Bits* lines[side];
          for (int i = 0; i < side; ++i) lines[i] = copy + t * tile + i * terms_of_tile;
          transpose(lines, to + column / sliver * steps * step + t * tile);
        }
      }
    } else {
      for (std::int64_t pair = 0; pair < side; ++pair)
        for (std::int64_t column = 0; column < count; column += sliver)
          interleave_pair(pair, column, to + column / sliver * steps * step);
    }
  }
}

void pack_a(const Strides& a, const Bits* from, std::int64_t rows, std::int64_t terms, Bits* to) {
  if (a.column == 1)
    pack_lines<false>(from, a.row, rows, terms, to);
  else
    pack_rows<true>(from, a.column, rows, terms, to);
}

void pack_b(const Strides& b, const Bits* from, std::int64_t terms, std::int64_t columns,
            Bits* to) {
  if (b.row == 1)
    pack_lines<true>(from, b.column, columns, terms, to);
  else
    pack_rows<false>(from, b.row, columns, terms, to);
}

/// Configures this thread's tiles during its lifetime.
class Tiles {
 public:
  Tiles() {
    struct alignas(64) {
      std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
      std::uint16_t row_bytes[16] = {};
      std::uint8_t rows[16] = {};
    } shapes;
    for (int i = 0; i < 8; ++i) {
      shapes.row_bytes[i] = 64;
      shapes.rows[i] = side;
    }
    // GCC 12 assumes that only the first bytes are read.
    __asm__ volatile("" : : "r"(&shapes) : "memory");
    _tile_loadconfig(&shapes);
  }
  ~Tiles() { _tile_release(); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
};

/// sums (+)= packed A times packed B. Rows of `sums` are `apart` bytes apart.
template <int row_tiles, int column_tiles>
void add_product(std::int64_t steps, const Bits* a, const Bits* b, bool onto, float* sums,
                 std::int64_t apart) {
  __asm__ volatile("" ::: "memory");      // GCC does not know what a tile load reads
  float* const lower = sums + 4 * apart;  // 16 rows further
  if (onto) {
    _tile_loadd(0, sums, apart);
    if (column_tiles > 1) _tile_loadd(1, sums + side, apart);
    if (row_tiles > 1) _tile_loadd(2, lower, apart);
    if (row_tiles > 1 && column_tiles > 1) _tile_loadd(3, lower + side, apart);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  constexpr int line = 64;
  for (std::int64_t s = 0; s < steps; ++s, a += step, b += step) {
    _tile_loadd(4, a, line);
    _tile_loadd(6, b, line);
    if (row_tiles > 1) _tile_loadd(5, a + tile, line);
    if (column_tiles > 1) _tile_loadd(7, b + tile, line);
    _tile_dpbf16ps(0, 4, 6);
    if (row_tiles > 1) _tile_dpbf16ps(2, 5, 6);
    if (column_tiles > 1) _tile_dpbf16ps(1, 4, 7);
    if (row_tiles > 1 && column_tiles > 1) _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, sums, apart);
  if (column_tiles > 1) _tile_stored(1, sums + side, apart);
  if (row_tiles > 1) _tile_stored(2, lower, apart);
  if (row_tiles > 1 && column_tiles > 1) _tile_stored(3, lower + side, apart);
  __asm__ volatile("" ::: "memory");
}

using AddProduct = void (*)(std::int64_t, const Bits*, const Bits*, bool, float*, std::int64_t);
AddProduct add_product_of(std::int64_t rows, std::int64_t columns) {
  if (rows > side) return columns > side ? add_product<2, 2> : add_product<2, 1>;
  return columns > side ? add_product<1, 2> : add_product<1, 1>;
}

inline __mmask16 first_of_16(std::int64_t count) {
  return count >= 16  ? __mmask16{0xffff}
         : count <= 0 ? __mmask16{0}
                      : static_cast<__mmask16>((1u << count) - 1);
}
inline __m512 load_masked(const float* from, __mmask16 mask) {
  return _mm512_maskz_loadu_ps(mask, from);
}
inline __m512 load_masked(const Bits* from, __mmask16 mask) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
inline void store_masked(float* to, __mmask16 mask, __m512 x) {
  _mm512_mask_storeu_ps(to, mask, x);
}
inline void store_masked(Bits* to, __mmask16 mask, __m512 x) {
  _mm256_mask_storeu_epi16(to, mask, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)));
}

/// C = alpha sums + beta C, for a (rows, columns) part of C of at most one sliver each way.
template <class C>
void store_sums(const float* sums, std::int64_t rows, std::int64_t columns, float alpha, float beta,
                C* c, std::int64_t c_row) {
  const __m512 scale = _mm512_set1_ps(alpha), keep = _mm512_set1_ps(beta);
  const __mmask16 masks[2] = {first_of_16(columns), first_of_16(columns - side)};
  for (std::int64_t i = 0; i < rows; ++i, sums += sliver, c += c_row)
#pragma GCC unroll 2
    for (int t = 0; t < 2; ++t) {
      C* const to = c + t * side;
      __m512 x = _mm512_load_ps(sums + t * side);
      if (beta != 0)
        x = _mm512_fmadd_ps(scale, x, _mm512_mul_ps(keep, load_masked(to, masks[t])));
      else if (alpha != 1)
        x = _mm512_mul_ps(scale, x);
      store_masked(to, masks[t], x);
    }
}

/// C = alpha sums by non-temporal stores, for whole lines of a C that is larger than the caches.
void stream_sums(const float* sums, std::int64_t rows, float alpha, float* c, std::int64_t c_row) {
  const __m512 scale = _mm512_set1_ps(alpha);
  for (std::int64_t i = 0; i < rows; ++i, sums += sliver, c += c_row)
    for (int t = 0; t < 2; ++t)
      _mm512_stream_ps(c + t * side, _mm512_mul_ps(scale, _mm512_load_ps(sums + t * side)));
}

void load_sums(const float* c, std::int64_t c_row, std::int64_t rows, std::int64_t columns,
               float* sums) {
  const __mmask16 masks[2] = {first_of_16(columns), first_of_16(columns - side)};
  for (std::int64_t i = 0; i < rows; ++i, sums += sliver, c += c_row)
    for (int t = 0; t < 2; ++t)
      _mm512_store_ps(sums + t * side, load_masked(c + t * side, masks[t]));
}

/// The terms that are multiplied in one pass.
struct Pass {
  std::int64_t steps;
  bool is_first, is_last;
};

/// Whether the sums begin with the content of C.
inline bool begins_with_c(const float*, const OrderedProduct& p) {
  return p.alpha == 1 && p.beta == 1;
}
inline bool begins_with_c(const Bits*, const OrderedProduct&) { return false; }

/// Multiplies one (rows, columns) part of C of at most one sliver each way. `kept`: its sums
/// between passes.
template <class C>
void multiply_part(const OrderedProduct& p, const Pass& pass, const Bits* a, const Bits* b,
                   std::int64_t rows, std::int64_t columns, float* kept, C* c) {
  const AddProduct add = add_product_of(rows, columns);
  const bool onto_c = begins_with_c(c, p);
  const bool one_pass = pass.is_first && pass.is_last;
  if constexpr (sizeof(C) == sizeof(float))
    if (one_pass && p.alpha == 1 && (onto_c || p.beta == 0) && rows % side == 0 &&
        columns % side == 0)
      return add(pass.steps, a, b, onto_c, c, 4 * p.c_row);
  alignas(64) float copy[sliver * sliver];
  float* const sums = one_pass ? copy : kept;
  if constexpr (sizeof(C) == sizeof(float))
    if (pass.is_first && onto_c) load_sums(c, p.c_row, rows, columns, sums);
  add(pass.steps, a, b, !pass.is_first || onto_c, sums, 4 * sliver);
  if (!pass.is_last) return;
  if constexpr (sizeof(C) == sizeof(float))
    if (p.beta == 0 && columns == sliver && p.m * p.n >= amx_streamed &&
        reinterpret_cast<std::uintptr_t>(c) % 64 == 0 && p.c_row % side == 0)
      return stream_sums(sums, rows, p.alpha, c, p.c_row);
  store_sums(sums, rows, columns, p.alpha, onto_c ? 0 : p.beta, c, p.c_row);
}

/// Multiplies packed A by packed B for a (rows, columns) block of C, at most amx_block_rows by
/// amx_panel_columns, in one pass over terms. `kept`: the sums of all its parts between passes.
template <class C>
void multiply_block(const OrderedProduct& p, const Pass& pass, const Bits* a, const Bits* b,
                    std::int64_t rows, std::int64_t columns, float* kept, C* c) {
  const std::int64_t apart = pass.steps * terms_of_tile;
  // A sliver of A stays in the L1 cache, slivers of B come from L2.
  for (std::int64_t i = 0; i < rows; i += sliver)
    for (std::int64_t j = 0; j < columns; j += sliver, kept += sliver * sliver)
      multiply_part(p, pass, a + i * apart, b + j * apart, least(sliver, rows - i),
                    least(sliver, columns - j), kept, c + i * p.c_row + j);
}

template <class C>
void multiply(const OrderedProduct& p, const Bits* a, const Bits* b, C* c, void* room) {
  const Tiles tiles;
  Bits* const packed_a = static_cast<Bits*>(room);
  Bits* const packed_b = packed_a + amx_packed_a;
  float* const sums = reinterpret_cast<float*>(packed_b + amx_packed_b);
  const std::int64_t pass_terms = equal_pieces(p.k, amx_pass_terms, terms_of_tile);
  const auto pass_at = [&](std::int64_t k0) {
    const std::int64_t terms = least(pass_terms, p.k - k0);
    return Pass{pieces(terms, terms_of_tile), k0 == 0, k0 + terms == p.k};
  };
  // Number of packed terms: passes begin at multiples of 32, so they are adjacent.
  const std::int64_t all_terms = pieces(p.k, terms_of_tile) * terms_of_tile;
  const auto pack_rows_of_a = [&](std::int64_t m0, std::int64_t rows, std::int64_t k0, Bits* to) {
    pack_a(p.a, a + m0 * p.a.row + k0 * p.a.column, rows, least(pass_terms, p.k - k0), to);
  };
  const auto pack_panel = [&](std::int64_t n0, std::int64_t columns, std::int64_t k0, Bits* to) {
    pack_b(p.b, b + k0 * p.b.row + n0 * p.b.column, least(pass_terms, p.k - k0), columns, to);
  };
  if (all_terms <= amx_most_terms) {
    // With few terms, all terms of some blocks of A are packed, then those of a panel of B.
    const std::int64_t most_rows = all_terms <= amx_few_terms ? amx_rows_of_few : amx_block_rows;
    const std::int64_t block_rows = equal_pieces(p.m, most_rows, sliver);
    const std::int64_t most_blocks = amx_packed_a / (all_terms * block_rows);
    for (std::int64_t m0 = 0; m0 < p.m; m0 += most_blocks * block_rows) {
      const std::int64_t m1 = least(p.m, m0 + most_blocks * block_rows);
      const auto block_at = [&](std::int64_t m) { return packed_a + (m - m0) * all_terms; };
      const auto pass_in_block = [&](std::int64_t m, std::int64_t k0) {
        return block_at(m) + pieces(least(block_rows, m1 - m), sliver) * sliver * k0;
      };
      for (std::int64_t m = m0; m < m1; m += block_rows)
        for (std::int64_t k0 = 0; k0 < p.k; k0 += pass_terms)
          pack_rows_of_a(m, least(block_rows, m1 - m), k0, pass_in_block(m, k0));
      for (std::int64_t n0 = 0; n0 < p.n; n0 += amx_panel_columns) {
        const std::int64_t columns = least(amx_panel_columns, p.n - n0);
        const std::int64_t padded_columns = pieces(columns, sliver) * sliver;
        for (std::int64_t k0 = 0; k0 < p.k; k0 += pass_terms)
          pack_panel(n0, columns, k0, packed_b + padded_columns * k0);
        for (std::int64_t m = m0; m < m1; m += block_rows)
          for (std::int64_t k0 = 0; k0 < p.k; k0 += pass_terms)
            multiply_block(p, pass_at(k0), pass_in_block(m, k0), packed_b + padded_columns * k0,
                           least(block_rows, m1 - m), columns, sums, c + m * p.c_row + n0);
      }
    }
    return;
  }
  // With more terms, those of one pass are packed at a time, and sums of more columns are kept.
  const std::int64_t block_rows = equal_pieces(p.m, amx_block_rows, sliver);
  for (std::int64_t m0 = 0; m0 < p.m; m0 += block_rows) {
    const std::int64_t rows = least(block_rows, p.m - m0);
    const std::int64_t padded_rows = pieces(rows, sliver) * sliver;
    for (std::int64_t n0 = 0; n0 < p.n; n0 += amx_kept_columns) {
      const std::int64_t n1 = least(p.n, n0 + amx_kept_columns);
      for (std::int64_t k0 = 0; k0 < p.k; k0 += pass_terms) {
        pack_rows_of_a(m0, rows, k0, packed_a);
        for (std::int64_t n = n0; n < n1; n += amx_panel_columns) {
          const std::int64_t columns = least(amx_panel_columns, n1 - n);
          pack_panel(n, columns, k0, packed_b);
          multiply_block(p, pass_at(k0), packed_a, packed_b, rows, columns,
                         sums + padded_rows * (n - n0), c + m0 * p.c_row + n);
        }
      }
    }
  }
}

}  // namespace

void amx_multiply(const OrderedProduct& product, const std::uint16_t* a, const std::uint16_t* b,
                  float* c, void* room) {
  multiply(product, a, b, c, room);
  _mm_sfence();  // orders the non-temporal stores before later stores of this thread
}

void amx_multiply(const OrderedProduct& product, const std::uint16_t* a, const std::uint16_t* b,
                  std::uint16_t* c, void* room) {
  multiply(product, a, b, c, room);
}

}  // namespace ostrakon::math
