// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/attention/rotary.hpp>

#include <ostrakon/base/error.hpp>
#include <ostrakon/math/attention/rotary_rows.hpp>
#include <ostrakon/math/block_team.hpp>
#include <type_traits>

namespace ostrakon::math {

namespace {

// An item is a block of rows by a block of pairs: it computes sine and cosine of a row once for all
// heads.
constexpr std::int64_t rows_per_item = per_item(32);
constexpr std::int64_t pairs_per_item = per_item(64);

/// Radians per position. They are double, as the angle's error grows with the position.
struct Radians {
  double of_pair[most_pairs] = {};

  Radians(const RotaryFrequencies& frequencies, const Pairs& pairs) {
    for (std::int64_t i = 0; i < pairs.count; ++i)
      of_pair[i] = frequencies.radians[static_cast<std::size_t>(pairs.first + i)];
  }
};

template <class T>
void rotate_rows(const Exec& exec, bool inverse, const View<T**>& all, std::int64_t head_width,
                 const Radians& radians, double factor, const Pairs& pairs_of_all,
                 const RowPositions& row_positions) {
  using C = compute_t<T>;
  const RowPositions positions = row_positions;
  const View<T**> x = all;
  const Radians frequency = radians;
  const Pairs rotated = pairs_of_all;
  const std::int64_t heads = x.columns() / head_width;
  const std::int64_t pair_blocks = items_for(rotated.count, pairs_per_item);
  const double sine_factor = inverse ? -factor : factor;
  for_each_item(
      exec, "rotate", items_for(x.rows(), rows_per_item) * pair_blocks,
      KOKKOS_LAMBDA(std::int64_t item) {
        const std::int64_t first_pair = item % pair_blocks * pairs_per_item;
        const std::int64_t pairs = smaller(pairs_per_item, rotated.count - first_pair);
        const std::int64_t first_row = item / pair_blocks * rows_per_item;
        const std::int64_t last_row = smaller(first_row + rows_per_item, x.rows());
        for (std::int64_t r = first_row; r < last_row; ++r) {
          const auto position = static_cast<double>(positions.of(r));
          C sine[pairs_per_item] = {};
          C cosine[pairs_per_item] = {};
          for (std::int64_t i = 0; i < pairs; ++i) {
            const SineCosine turned = sine_cosine(position * frequency.of_pair[first_pair + i]);
            sine[i] = static_cast<C>(sine_factor * turned.sine);
            cosine[i] = static_cast<C>(factor * turned.cosine);
          }
          const auto row = x.row(r);
          for (std::int64_t head = 0; head < heads; ++head) {
            T* __restrict__ low = row.range(head * head_width, (head + 1) * head_width).data() +
                                  rotated.first + first_pair;
            T* __restrict__ high = low + rotated.all;
            for (std::int64_t i = 0; i < pairs; ++i) {
              const C a = low[i];
              const C b = high[i];
              low[i] = static_cast<T>(multiply_add(a, cosine[i], -(b * sine[i])));
              high[i] = static_cast<T>(multiply_add(b, cosine[i], a * sine[i]));
            }
          }
        }
      });
}

#if OSTRAKON_ON_DEVICE

/// Rotates pairs of every head of x, n neighbouring ones at a time. A team has some rows, of which
/// it makes sines and cosines once for all heads.
template <int n, class T>
void rotate_pairs(const Exec& exec, const View<T**>& x, std::int64_t head_width,
                  const Pairs& of_heads, const RowRotation& of_rows) {
  constexpr int rows_of_team = 8, threads = 256;
  const auto count = static_cast<int>(of_heads.count), vectors = count / n;
  const auto of_row = static_cast<int>(x.columns() / head_width) * vectors;
  const FastDivide by_row(of_row), by_head(vectors), by_pairs(count);
  const std::int64_t bytes = std::int64_t{2} * rows_of_team * count * std::int64_t{sizeof(float)};
  const View<T**> all = x;
  const Pairs pairs = of_heads;
  const RowRotation rotation = of_rows;
  for_each_block_team<threads>(
      exec, "rotate", items_for(x.rows(), rows_of_team), products_on_device ? threads : 1, bytes,
      KOKKOS_LAMBDA(const BlockTeam& team) {
        const std::int64_t begin = team.index() * rows_of_team;
        const auto rows = static_cast<int>(smaller(rows_of_team, all.rows() - begin));
        auto* const table = static_cast<float*>(team.memory(bytes));
        rotation.fill(team, begin, rows, count, by_pairs, table);
        for (int item = team.rank(); item < rows * of_row; item += team.size()) {
          // Neighbouring threads have neighbouring pairs, for coalesced access.
          const auto row = static_cast<int>(by_row.quotient(item)), in_row = item - row * of_row;
          const auto head = static_cast<int>(by_head.quotient(in_row));
          const int pair = (in_row - head * vectors) * n;
          T* const low =
              all.data() + (begin + row) * all.stride() + head * head_width + pairs.first + pair;
          T* const high = low + pairs.all;
          const float* const turned = table + 2 * row * count + pair;
          const Vector<float, n> sine = load_vector<n>(turned),
                                 cosine = load_vector<n>(turned + count);
          Vector<T, n> a = load_vector<n>(low), b = load_vector<n>(high);
          for (int i = 0; i < n; ++i) rotate_pair(a.at[i], b.at[i], sine.at[i], cosine.at[i]);
          store_vector<n>(low, a);
          store_vector<n>(high, b);
        }
      });
}

#endif

}  // namespace

template <class T>
void rotate(const Exec& exec, Rotation rotation, const RotaryFrequencies& frequencies, View<T**> x,
            std::int64_t head_width, std::int64_t tokens, std::int64_t first_position,
            View<const std::int32_t*> document_begins) {
  const std::int64_t half = frequencies.pairs();
  require(head_width >= 1 && x.columns() % head_width == 0 && half >= 1 && 2 * half <= head_width &&
              tokens >= 1,
          "rotate: x (", x.rows(), ", ", x.columns(), ") of heads of width ", head_width, " with ",
          half, " pairs and sequences of ", tokens,
          " tokens, expected whole heads with 1 pair or more, of two elements each");
  require(!document_begins || document_begins.size() == x.rows(),
          "rotate: begins of the documents ", "of ", document_begins.size(), " rows of ", x.rows(),
          "; expected as many, or none");
  const RowPositions positions{FastDivide(tokens), first_position, document_begins};
  const bool inverse = rotation == Rotation::inverse;
  for (std::int64_t first = 0; first < half; first += most_pairs) {
    const Pairs pairs = {first, smaller(most_pairs, half - first), half};
#if OSTRAKON_ON_DEVICE
    if constexpr (!std::is_same<T, double>::value) {
      constexpr int n = vector_elements<T>();
      const bool in_vectors =
          begin_vectors<n>(x.data()) && x.stride() % n == 0 && half % n == 0 && head_width % n == 0;
      const RowRotation of_rows{Turns(frequencies, pairs, inverse), positions};
      if (in_vectors)
        rotate_pairs<n>(exec, x, head_width, pairs, of_rows);
      else
        rotate_pairs<1>(exec, x, head_width, pairs, of_rows);
    } else
#endif
      rotate_rows<T>(exec, inverse, x, head_width, Radians(frequencies, pairs), frequencies.factor,
                     pairs, positions);
  }
}

#define OSTRAKON_INSTANTIATE(T)                                                       \
  template void rotate<T>(const Exec&, Rotation, const RotaryFrequencies&, View<T**>, \
                          std::int64_t, std::int64_t, std::int64_t, View<const std::int32_t*>);
OSTRAKON_FOR_ALL_NUMBERS(OSTRAKON_INSTANTIATE)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::math
