// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the kernels of attention_on_chip.hpp share.

#include <algorithm>
#include <ostrakon/math/attention/attention_on_chip.hpp>

#if OSTRAKON_MATRIX_TILES

namespace ostrakon::math {
namespace {

// Kokkos gives a team 48 KiB of shared memory, of which it uses 1,040 bytes itself. The tiles below
// need 32 KiB for heads of 128.

// NOLINTBEGIN(misc-definitions-in-headers): constants have internal linkage.
/// Queries of a team, or keys of a team in the backward of keys and values: a band of 16 for each
/// of four warps. On the host one warp processes the bands one after the other.
constexpr int team_rows = 64;
constexpr int bands = team_rows / tile_size;
static_assert(bands % tile_team_warps == 0, "teams wait for all of their warps");

constexpr float log2_e = 1.44269504f;
// NOLINTEND(misc-definitions-in-headers)

/// Returns the next `bytes` bytes of the shared memory that run() requests.
template <class T>
KOKKOS_FUNCTION T* shared_memory(const TeamMember& team, std::size_t bytes) {
  return static_cast<T*>(team.team_scratch(0).get_shmem_aligned(bytes, shared_alignment));
}

/// Runs body(lane, band) for each band of a warp; `band` is its first row.
template <class Body>
KOKKOS_FUNCTION void for_each_band(const TeamMember& team, const Body& body) {
  const int warp = team.team_rank() / TileLayout::lanes;
  unrolled<bands / tile_team_warps>([&](int i) {
    body(team.team_rank() % TileLayout::lanes, (i * tile_team_warps + warp) * tile_size);
  });
}

/// Queries [first, first + count) of a sequence's rows, at positions [position, position + count).
struct QueryTile {
  std::int64_t row;       ///< row of the first query in q and out
  std::int64_t head_row;  ///< row of the first query in arrays (batch, heads, rows)
  int head, kv_head;
  std::int64_t kv_row;  ///< row of the sequence's first key
  int position, count;
};

/// Divides each run of queries into tiles, for every head and sequence.
struct QueryTiles {
  QueryRuns runs;
  int batch, heads, group, tokens, rows;
  int of_run, of_sequence;

  QueryTiles(const AttentionShape& shape, const QueryRuns& runs_)
      : runs(runs_),
        batch(static_cast<int>(shape.batch)),
        heads(static_cast<int>(shape.heads)),
        group(static_cast<int>(shape.heads / shape.kv_heads)),
        tokens(static_cast<int>(shape.tokens)),
        rows(static_cast<int>(runs.rows())),
        of_run(static_cast<int>(items_for(runs.run(0).count, team_rows))),
        of_sequence(of_run * static_cast<int>(runs.runs())) {}

  std::int64_t count() const { return std::int64_t{of_sequence} * batch * heads; }

  /// Returns a tile. The last tiles, which see the most keys, have the lowest indices.
  KOKKOS_FUNCTION QueryTile at(int index) const {
    const int head = index % heads, sequence = index / heads % batch;
    const int tile = of_sequence - 1 - index / heads / batch;
    const int first = tile % of_run * team_rows;
    const TokenRun run = runs.run(tile / of_run);
    const int left = static_cast<int>(run.count) - first;
    const std::int64_t row = run.row + first;
    return {std::int64_t{sequence} * rows + row,
            (std::int64_t{sequence} * heads + head) * rows + row,
            head,
            head / group,
            std::int64_t{sequence} * tokens,
            static_cast<int>(run.position) + first,
            left < team_rows ? left : team_rows};
  }
};

/// Where the documents of a lane's rows of a tile begin, if there are documents.
template <bool exist>
struct RowDocuments {
  int at[exist ? TileLayout::rows : 1] = {};

  KOKKOS_INLINE_FUNCTION RowDocuments(const QueryTiles& tiles, const QueryTile& tile, int lane,
                                      int band) {
    if constexpr (exist)
      unrolled<TileLayout::rows>([&](int r) {
        const int row = band + TileLayout::row(lane, r);
        at[r] = tiles.runs.document_begins()[tile.row + (row < tile.count ? row : tile.count - 1)];
      });
  }
  /// Whether the document of the lane's row r has this key, or begins before it.
  KOKKOS_INLINE_FUNCTION bool reach([[maybe_unused]] int r, [[maybe_unused]] int key) const {
    if constexpr (exist) return key >= at[r];
    return true;
  }
};

/// Returns the first key of the first tile of `key_rows` keys that some query of a tile sees.
template <bool in_documents>
KOKKOS_FUNCTION int first_key_tile(const QueryTiles& tiles, const QueryTile& tile, int window,
                                   int key_rows) {
  std::int64_t document = 0;
  if constexpr (in_documents) document = tiles.runs.document_begins()[tile.row];
  const std::int64_t first = first_key_of(tile.position, window, document);
  return static_cast<int>(first / key_rows * key_rows);
}

/// Returns the window; without one, more tokens than any sequence has.
inline int window_of(const AttentionShape& shape) {
  constexpr std::int64_t all = std::int64_t{1} << 30;
  return static_cast<int>(shape.scores.window > 0 ? std::min(shape.scores.window, all) : all);
}

/// Whether a query sees a key that is `distance` positions before it; window <= 2^30.
KOKKOS_INLINE_FUNCTION bool is_within(int distance, int window) {
  return static_cast<unsigned>(distance) < static_cast<unsigned>(window);
}
/// Whether all queries of a tile see all keys of another one, whose first key is `ahead` positions
/// before the first query.
KOKKOS_INLINE_FUNCTION bool tile_sees_tile(int ahead, int window) {
  return ahead >= tile_size - 1 && ahead + tile_size <= window;
}

/// Returns the address of row `row` and head `head` of a matrix that has heads side by side.
template <class T>
KOKKOS_FUNCTION T* head_at(const View<T**>& x, std::int64_t row, int head, int width) {
  return x.data() + row * x.stride() + head * width;
}

/// Calls kernel(w, d) with constants: the head width, and whether there are documents.
template <int w>
using Width = std::integral_constant<int, w>;
template <class Kernel>
void with_constants(const AttentionShape& shape, const QueryRuns& runs, const Kernel& kernel) {
  const auto with_width = [&](auto width) {
    if (runs.document_begins())
      kernel(width, std::true_type());
    else
      kernel(width, std::false_type());
  };
  if (shape.head_width == 64)
    with_width(Width<64>());
  else
    with_width(Width<128>());
}

template <class Kernel>
void run(const Exec& exec, const char* name, std::int64_t teams, const Kernel& kernel) {
  constexpr std::size_t bytes = Kernel::bytes + shared_alignment;
  static_assert(bytes <= 47104, "Kokkos gives no more than 48 KiB");
  for_each_team(exec, name, teams, tile_team_threads, bytes, kernel);
}

}  // namespace
}  // namespace ostrakon::math

#endif
