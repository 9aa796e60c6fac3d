// SPDX-License-Identifier: Apache-2.0
#pragma once

// Products of 16 x 16 tiles of 16-bit elements, summed in float, in the registers of a warp. All
// use of tensor cores is here. On CUDA from sm_80 on they are the instructions mma.sync and
// ldmatrix; in the device form on a host (OSTRAKON_DEVICE_KERNELS) a warp is one thread, which
// holds whole tiles. Other devices have no tiles: a HIP warp would need its own instructions, and
// older CUDA devices have no mma.sync of this shape.

#include <cmath>
#include <limits>
#include <ostrakon/math/rows/row_kernel.hpp>
#include <ostrakon/math/shared_copies.hpp>
#include <ostrakon/math/unrolled.hpp>

namespace ostrakon::math {

/// Rows and columns of a tile.
constexpr int tile_size = 16;

/// The elements of a tile that each lane of a warp holds: `rows` x `columns`. PTX ISA, "Matrix
/// Fragments for mma.m16n8k16", two such products side by side.
struct WarpTileLayout {
  static constexpr int lanes = 32;
  static constexpr int rows = 2;
  static constexpr int columns = 4;

  // For sums and left operands: position in the tile of row r and column c of a lane's elements,
  // and their index in its registers.
  KOKKOS_INLINE_FUNCTION static constexpr int row(int lane, int r) { return lane / 4 + 8 * r; }
  KOKKOS_INLINE_FUNCTION static constexpr int column(int lane, int c) {
    return lane % 4 * 2 + c % 2 + c / 2 * 8;
  }
  KOKKOS_INLINE_FUNCTION static constexpr int element(int r, int c) {
    return c / 2 * 4 + r * 2 + c % 2;
  }
  /// Whether this is the first lane with elements of its rows.
  KOKKOS_INLINE_FUNCTION static constexpr bool is_first_of_row(int lane) { return lane % 4 == 0; }

  // Row, and first of eight columns, whose address a lane passes to ldmatrix, for a left operand,
  // or for a right operand (transposed by the load).
  KOKKOS_INLINE_FUNCTION static constexpr int load_row(int lane) {
    return lane % 8 + lane / 8 % 2 * 8;
  }
  KOKKOS_INLINE_FUNCTION static constexpr int load_column(int lane) { return lane / 16 * 8; }
  // Row and first column for a right operand whose columns are rows in memory.
  KOKKOS_INLINE_FUNCTION static constexpr int load_row_transposed(int lane) {
    return lane % 8 + lane / 16 * 8;
  }
  KOKKOS_INLINE_FUNCTION static constexpr int load_column_transposed(int lane) {
    return lane / 8 % 2 * 8;
  }
};

/// The layout on a host: one lane holds the whole tile.
struct WholeTileLayout {
  static constexpr int lanes = 1;
  static constexpr int rows = tile_size;
  static constexpr int columns = tile_size;

  KOKKOS_INLINE_FUNCTION static constexpr int row(int, int r) { return r; }
  KOKKOS_INLINE_FUNCTION static constexpr int column(int, int c) { return c; }
  KOKKOS_INLINE_FUNCTION static constexpr int element(int r, int c) { return r * tile_size + c; }
  KOKKOS_INLINE_FUNCTION static constexpr bool is_first_of_row(int) { return true; }
};

#if OSTRAKON_MATRIX_TILES

using TileLayout = std::conditional_t<OSTRAKON_WARP_TILES == 1, WarpTileLayout, WholeTileLayout>;

constexpr int tile_elements = TileLayout::rows * TileLayout::columns;  ///< per lane
/// Threads and warps of a team that computes tiles.
constexpr int tile_team_threads = OSTRAKON_WARP_TILES == 1 ? 128 : 1;
constexpr int tile_team_warps = tile_team_threads / TileLayout::lanes;

/// Runs body(r, c, e) for each element of a tile that a lane has: its row and column among the
/// lane's, and its register.
template <class Body>
KOKKOS_INLINE_FUNCTION void for_each_own(const Body& body) {
  unrolled<TileLayout::rows>([&](int r) {
    unrolled<TileLayout::columns>([&](int c) { body(r, c, TileLayout::element(r, c)); });
  });
}

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

/// Returns 2^x within 2 units in the last place; 0 below 2^-126.
KOKKOS_INLINE_FUNCTION float tile_exp2(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return std::exp2(x);
#endif
}

/// Packs two elements into a word, the first in its lower half, rounded to nearest.
template <class T>
KOKKOS_INLINE_FUNCTION std::uint32_t packed_pair(float first, float second) {
#if defined(__CUDA_ARCH__)
  std::uint32_t pair;
  if constexpr (std::is_same<T, bf16>::value)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
#else
  return T(first).bits | static_cast<std::uint32_t>(T(second).bits) << 16;
#endif
}

/// One float per row of a tile of which a lane has elements.
struct TileRows {
  float at[TileLayout::rows];

  KOKKOS_INLINE_FUNCTION explicit TileRows(float value) {
    unrolled<TileLayout::rows>([&](int r) { at[r] = value; });
  }

  /// at[r] = the combination over the lanes that share the row, in all of these lanes.
  template <class Combine>
  KOKKOS_INLINE_FUNCTION void combine_lanes([[maybe_unused]] const Combine& combine) {
#if defined(__CUDA_ARCH__)
    unrolled<TileLayout::rows>([&](int r) {
      at[r] = combine(at[r], __shfl_xor_sync(0xFFFFFFFFu, at[r], 1));
      at[r] = combine(at[r], __shfl_xor_sync(0xFFFFFFFFu, at[r], 2));
    });
#endif
  }
};

/// Rows of `width` elements in shared memory, aligned to `shared_alignment`. Groups of eight
/// elements are swizzled within a row, so that the same columns of eight rows are in different
/// banks.
template <class T, int width>
class SharedRows {
 public:
  static constexpr int groups = width / 8;
  static constexpr int row_bytes = width * static_cast<int>(sizeof(T));

  KOKKOS_INLINE_FUNCTION explicit SharedRows(T* data) : data_(data) {}

  /// Returns the rows from `row`, a multiple of 16, on.
  KOKKOS_INLINE_FUNCTION SharedRows from(int row) const { return SharedRows(data_ + row * width); }
  /// Returns the address of eight elements from `column`, a multiple of 8, on.
  KOKKOS_INLINE_FUNCTION T* at(int row, int column) const {
    return data_ + row * width + ((column / 8) ^ (row & 7)) * 8;
  }
  KOKKOS_INLINE_FUNCTION T& element(int row, int column) const {
    return at(row, column / 8 * 8)[column % 8];
  }

 private:
  T* data_;
};
constexpr int shared_alignment = 256;

/// Copies rows of arrays that are not aligned to vectors of 16 bytes.
template <int rows, class T, int width>
KOKKOS_INLINE_FUNCTION void copy_rows_by_element(const TeamMember& team,
                                                 const SharedRows<T, width>& to, const T* from,
                                                 std::int64_t stride, int count) {
#if defined(__CUDA_ARCH__)
#pragma unroll 1
#endif
  for (int i = team.team_rank(); i < rows * width; i += tile_team_threads) {
    const int row = i / width, column = i % width;
    to.element(row, column) = row < count ? from[row * stride + column] : T(0.0f);
  }
}

/// Begins to copy to rows [0, rows): `count` of them from `from`, `stride` elements apart, the
/// others become zero. All threads of the team take part.
template <int rows, class T, int width>
KOKKOS_INLINE_FUNCTION void begin_copy_rows(const TeamMember& team, const SharedRows<T, width>& to,
                                            const T* from, std::int64_t stride, int count) {
  // A thread copies the same columns of every row, which limits the number of addresses.
  constexpr int groups = SharedRows<T, width>::groups;
  constexpr int across = groups < tile_team_threads ? groups : tile_team_threads;
  constexpr int down = tile_team_threads / across;
  const int first_row = team.team_rank() / across, first_group = team.team_rank() % across;
  if (!begin_vectors<8>(from) || stride % 8 != 0) {
    copy_rows_by_element<rows>(team, to, from, stride, count);
    return;
  }
  unrolled<groups / across>([&](int g) {
    const int column = (g * across + first_group) * 8;
    const T* source = from + first_row * stride + column;
    unrolled<rows / down>([&](int r) {
      const bool exists = r * down + first_row < count;
      // The swizzle repeats every eight rows.
      T* const place = to.at(r * down % 8 + first_row, column);
      begin_copy<16>(place, r * down / 8 * 8 * SharedRows<T, width>::row_bytes,
                     exists ? source : from, exists);
      source += down * stride;
    });
  });
}

/// Waits for the copies that the team's threads have begun. It is a barrier: afterwards all threads
/// may read the data, and overwrite data that was read before.
KOKKOS_INLINE_FUNCTION void end_copies(const TeamMember& team) {
  end_own_copies();
  team.team_barrier();
}

/// Stores rows [row, row + 16) of `from` in the `count` valid rows at `to`, by one warp.
template <class T, int width>
KOKKOS_INLINE_FUNCTION void store_rows(int lane, const SharedRows<T, width>& from, int row, T* to,
                                       std::int64_t stride, int count) {
  constexpr int groups = SharedRows<T, width>::groups;
  for (int i = lane; i < tile_size * groups; i += TileLayout::lanes) {
    const int r = row + i / groups, column = i % groups * 8;
    if (r < count)
      store_lanes<8>(to + r * stride + column, 0, 8, load_vector<8>(from.at(r, column)));
  }
}

#if OSTRAKON_WARP_TILES
/// Loads four matrices of 8 x 8 elements of the tile at (row, column) of x; each lane gives the
/// address of a row: (lane_row, lane_column) in the tile.
template <bool transposed, class T, int width>
KOKKOS_INLINE_FUNCTION void load_matrices([[maybe_unused]] const SharedRows<T, width>& x,
                                          [[maybe_unused]] int row, [[maybe_unused]] int column,
                                          [[maybe_unused]] int lane_row,
                                          [[maybe_unused]] int lane_column,
                                          [[maybe_unused]] std::uint32_t (&packed)[4]) {
#if defined(__CUDA_ARCH__)
  // The address is x.at(row + lane_row, column + lane_column), as row and column are multiples of
  // 16. It is added here for the same reason as in begin_copy.
  const std::uint32_t of_lane = shared_address(x.at(lane_row, lane_column));
  const int column_bytes = column * static_cast<int>(sizeof(T));
  const int row_bytes = row * SharedRows<T, width>::row_bytes;
  if constexpr (transposed)
    asm volatile(
        "{ .reg .u32 a; xor.b32 a, %4, %5; add.u32 a, a, %6;"
        " ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [a]; }"
        : "=r"(packed[0]), "=r"(packed[1]), "=r"(packed[2]), "=r"(packed[3])
        : "r"(of_lane), "r"(column_bytes), "r"(row_bytes)
        : "memory");
  else
    asm volatile(
        "{ .reg .u32 a; xor.b32 a, %4, %5; add.u32 a, a, %6;"
        " ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [a]; }"
        : "=r"(packed[0]), "=r"(packed[1]), "=r"(packed[2]), "=r"(packed[3])
        : "r"(of_lane), "r"(column_bytes), "r"(row_bytes)
        : "memory");
#endif
}
#endif

/// An operand of products, opaque except for the functions below.
template <class T>
struct OperandTile {
#if OSTRAKON_WARP_TILES
  std::uint32_t packed[4];
#else
  float at[tile_elements];  ///< values of T
#endif
};
template <class T>
struct LeftTile : OperandTile<T> {};
template <class T>
struct RightTile : OperandTile<T> {};

/// Loads left(i, k) = x(row + i, column + k).
template <class T, int width>
KOKKOS_INLINE_FUNCTION LeftTile<T> load_left(int lane, const SharedRows<T, width>& x, int row,
                                             int column) {
  LeftTile<T> tile;
#if OSTRAKON_WARP_TILES
  load_matrices<false>(x, row, column, TileLayout::load_row(lane), TileLayout::load_column(lane),
                       tile.packed);
#else
  for (int i = lane; i < tile_elements; ++i)
    tile.at[i] = x.element(row + i / tile_size, column + i % tile_size);
#endif
  return tile;
}

/// Loads right(k, j) = x(row + k, column + j).
template <class T, int width>
KOKKOS_INLINE_FUNCTION RightTile<T> load_right(int lane, const SharedRows<T, width>& x, int row,
                                               int column) {
  RightTile<T> tile;
#if OSTRAKON_WARP_TILES
  load_matrices<true>(x, row, column, TileLayout::load_row(lane), TileLayout::load_column(lane),
                      tile.packed);
#else
  for (int i = lane; i < tile_elements; ++i)
    tile.at[i] = x.element(row + i / tile_size, column + i % tile_size);
#endif
  return tile;
}

/// Loads right(k, j) = x(row + j, column + k).
template <class T, int width>
KOKKOS_INLINE_FUNCTION RightTile<T> load_right_transposed(int lane, const SharedRows<T, width>& x,
                                                          int row, int column) {
  RightTile<T> tile;
#if OSTRAKON_WARP_TILES
  load_matrices<false>(x, row, column, TileLayout::load_row_transposed(lane),
                       TileLayout::load_column_transposed(lane), tile.packed);
#else
  for (int i = lane; i < tile_elements; ++i)
    tile.at[i] = x.element(row + i % tile_size, column + i / tile_size);
#endif
  return tile;
}

/// sums[r] += the sum of a(i, k) b(i, k) over this lane's elements k of row r, where i is its row
/// in the tile.
template <class T>
KOKKOS_INLINE_FUNCTION void add_row_products(const LeftTile<T>& a, const LeftTile<T>& b,
                                             TileRows& sums) {
  for_each_own([&](int r, int, int e) {
#if OSTRAKON_WARP_TILES
    const int shift = e % 2 * 16;
    const float x = T::from_bits(static_cast<std::uint16_t>(a.packed[e / 2] >> shift));
    const float y = T::from_bits(static_cast<std::uint16_t>(b.packed[e / 2] >> shift));
    sums.at[r] += x * y;
#else
    sums.at[r] += a.at[e] * b.at[e];
#endif
  });
}

/// A tile of sums in float.
struct SumTile {
  float at[tile_elements];

  KOKKOS_INLINE_FUNCTION SumTile() {
    unrolled<tile_elements>([&](int e) { at[e] = 0; });
  }

  /// x = f(r, j, x, others...) for each element of this lane: r is its row among the lane's, j its
  /// column, others are the same element of other tiles.
  template <class F, class... Others>
  KOKKOS_INLINE_FUNCTION void map(int lane, const F& f, const Others&... others) {
    for_each_own([&](int r, int c, int e) {
      at[e] = f(r, TileLayout::column(lane, c), at[e], others.at[e]...);
    });
  }

  /// this += left * right.
  template <class T>
  KOKKOS_INLINE_FUNCTION void add_product(const LeftTile<T>& left, const RightTile<T>& right) {
#if !OSTRAKON_WARP_TILES
    for (int i = 0; i < tile_size; ++i)
      for (int k = 0; k < tile_size; ++k)
        for (int j = 0; j < tile_size; ++j)
          at[i * tile_size + j] += left.at[i * tile_size + k] * right.at[k * tile_size + j];
#else
    multiply<T>(left.packed, right.packed[0], right.packed[1], at[0], at[1], at[2], at[3]);
    multiply<T>(left.packed, right.packed[2], right.packed[3], at[4], at[5], at[6], at[7]);
#endif
  }

  /// Returns the sums as a left operand, rounded to T.
  template <class T>
  KOKKOS_INLINE_FUNCTION LeftTile<T> as_left() const {
    LeftTile<T> tile;
#if OSTRAKON_WARP_TILES
    unrolled<4>([&](int i) { tile.packed[i] = packed_pair<T>(at[2 * i], at[2 * i + 1]); });
#else
    for (int i = 0; i < tile_elements; ++i) tile.at[i] = static_cast<float>(T(at[i]));
#endif
    return tile;
  }

  /// Stores to(row + i, column + j) = this(i, j), rounded to T.
  template <class T, int width>
  KOKKOS_INLINE_FUNCTION void store(int lane, const SharedRows<T, width>& to, int row,
                                    int column) const {
    for_each_pair([&](int r, int c, float first, float second) {
      const std::uint32_t pair = packed_pair<T>(first, second);
      std::memcpy(&to.element(row + TileLayout::row(lane, r), column + TileLayout::column(lane, c)),
                  &pair, sizeof pair);
    });
  }

  /// Stores the rows below `count`, `stride` elements apart, beginning with `row`.
  KOKKOS_INLINE_FUNCTION void store_wide(int lane, float* to, std::int64_t stride, int row,
                                         int count) const {
    for_each_pair([&](int r, int c, float first, float second) {
      const int to_row = row + TileLayout::row(lane, r);
      float* const place = to + to_row * stride + TileLayout::column(lane, c);
      if (to_row >= count) return;
      if (begin_vectors<2>(place)) {
        store_vector<2>(place, Vector<float, 2>{{first, second}});
      } else {
        place[0] = first;
        place[1] = second;
      }
    });
  }

 private:
  template <class Body>
  KOKKOS_INLINE_FUNCTION void for_each_pair(const Body& body) const {
    for_each_own([&](int r, int c, int e) {
      if (c % 2 == 0) body(r, c, at[e], at[TileLayout::element(r, c + 1)]);
    });
  }

#if OSTRAKON_WARP_TILES
  /// 16 x 8 sums += the product of 16 x 16 and 16 x 8 elements.
  template <class T>
  KOKKOS_INLINE_FUNCTION static void multiply(
      [[maybe_unused]] const std::uint32_t (&a)[4], [[maybe_unused]] std::uint32_t b0,
      [[maybe_unused]] std::uint32_t b1, [[maybe_unused]] float& c0, [[maybe_unused]] float& c1,
      [[maybe_unused]] float& c2, [[maybe_unused]] float& c3) {
#if defined(__CUDA_ARCH__)
    if constexpr (std::is_same<T, bf16>::value)
      asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
          "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
          : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
      asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
          "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
          : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
  }
#endif
};

#endif

}  // namespace ostrakon::math
