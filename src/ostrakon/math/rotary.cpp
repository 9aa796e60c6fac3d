// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/rotary.hpp>

#include <ostrakon/base/error.hpp>
#include <ostrakon/math/sine_cosine.hpp>
#include <ostrakon/math/work_items.hpp>

namespace ostrakon::math {

namespace {

// An item is a block of rows by a block of pairs: it computes its frequencies once for the rows,
// and sine and cosine of a row once for all heads.
constexpr std::int64_t rows_per_item = per_item(32);
constexpr std::int64_t pairs_per_item = per_item(64);

}  // namespace

template <class T>
void rotate(const Exec& exec, Rotation rotation, View<T**> x, std::int64_t head_width, double base,
            std::int64_t tokens, std::int64_t first_position) {
  using C = compute_t<T>;
  require(head_width >= 2 && head_width % 2 == 0 && x.columns() % head_width == 0 && tokens >= 1,
          "rotate: x (", x.rows(), ", ", x.columns(), ") of heads of width ", head_width,
          " and sequences of ", tokens, " tokens, expected whole heads of an even width");
  const std::int64_t half = head_width / 2;
  const std::int64_t heads = x.columns() / head_width;
  const std::int64_t pair_blocks = items_for(half, pairs_per_item);
  const double direction = rotation == Rotation::forward ? 1.0 : -1.0;
  for_each_item(
      exec, "rotate", items_for(x.rows(), rows_per_item) * pair_blocks,
      KOKKOS_LAMBDA(std::int64_t item) {
        const std::int64_t first_pair = item % pair_blocks * pairs_per_item;
        const std::int64_t pairs = smaller(pairs_per_item, half - first_pair);
        const std::int64_t first_row = item / pair_blocks * rows_per_item;
        const std::int64_t last_row = smaller(first_row + rows_per_item, x.rows());
        // In double, since the angle's error grows with the position.
        double frequency[pairs_per_item];
        for (std::int64_t i = 0; i < pairs; ++i)
          frequency[i] = pow(
              base, -2.0 * static_cast<double>(first_pair + i) / static_cast<double>(head_width));
        for (std::int64_t r = first_row; r < last_row; ++r) {
          const double position = static_cast<double>(first_position + r % tokens);
          C sine[pairs_per_item];
          C cosine[pairs_per_item];
          for (std::int64_t i = 0; i < pairs; ++i) {
            const SineCosine turned = sine_cosine(position * frequency[i]);
            sine[i] = static_cast<C>(direction * turned.sine);
            cosine[i] = static_cast<C>(turned.cosine);
          }
          const auto row = x.row(r);
          for (std::int64_t head = 0; head < heads; ++head) {
            T* __restrict__ low =
                row.range(head * head_width, (head + 1) * head_width).data() + first_pair;
            T* __restrict__ high = low + half;
            for (std::int64_t i = 0; i < pairs; ++i) {
              const C a = low[i];
              const C b = high[i];
              low[i] = static_cast<T>(a * cosine[i] - b * sine[i]);
              high[i] = static_cast<T>(b * cosine[i] + a * sine[i]);
            }
          }
        }
      });
}

#define OSTRAKON_INSTANTIATE(T)                                                                 \
  template void rotate<T>(const Exec&, Rotation, View<T**>, std::int64_t, double, std::int64_t, \
                          std::int64_t);
OSTRAKON_INSTANTIATE(float)
OSTRAKON_INSTANTIATE(double)
OSTRAKON_INSTANTIATE(bf16)
OSTRAKON_INSTANTIATE(fp16)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::math
