// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/delta_net/convolution.hpp>

#include <ostrakon/base/error.hpp>
#include <ostrakon/math/elementary.hpp>
#include <ostrakon/math/equal_sizes.hpp>
#include <ostrakon/math/work_items.hpp>

namespace ostrakon::math {
namespace {

// An item of work has some channels of some rows; on a device one element.
constexpr std::int64_t channels_of_item = per_item(64), rows_of_item = per_item(64);

template <class T>
void require_weight(const char* name, const View<T**>& weight, std::int64_t channels) {
  require_shape(name, "weight", weight, channels, weight.columns());
  require(weight.columns() >= 1 && weight.columns() <= most_taps, name, " has ", weight.columns(),
          " taps; expected 1 to ", most_taps);
}

/// Taps of the channels of an item, side by side for each tap.
template <class T>
struct Taps {
  using C = compute_t<T>;
  C of[most_taps][channels_of_item];

  KOKKOS_INLINE_FUNCTION Taps(const View<const T**>& weight, std::int64_t first,
                              std::int64_t channels) {
    for (std::int64_t j = 0; j < weight.columns(); ++j)
      for (std::int64_t c = 0; c < channels; ++c) of[j][c] = C(weight(first + c, j));
  }
};

/// sum (channels) = those of row r of x, and of the rows before it in its sequence, of which
/// `before` may have some.
template <class T>
KOKKOS_INLINE_FUNCTION void add_taps(const View<const T**>& before, const View<const T**>& x,
                                     std::int64_t r, std::int64_t tokens, std::int64_t taps,
                                     const Taps<T>& weight, std::int64_t first,
                                     std::int64_t channels, compute_t<T> (&sum)[channels_of_item]) {
  using C = compute_t<T>;
  for (std::int64_t c = 0; c < channels; ++c) sum[c] = C(0);
  const std::int64_t place = r % tokens;
  for (std::int64_t j = place < taps - 1 && !before ? taps - 1 - place : 0; j < taps; ++j) {
    const T* const in =
        place - taps + 1 + j < 0 ? &before(place + j, first) : &x(r - taps + 1 + j, first);
    for (std::int64_t c = 0; c < channels; ++c)
      sum[c] = multiply_add(weight.of[j][c], C(in[c]), sum[c]);
  }
}

/// body(first row, end, first channel, number of channels) for each item.
template <class Body>
void for_each_part(const Exec& exec, const char* name, std::int64_t rows, std::int64_t channels,
                   const Body& body) {
  const std::int64_t across = items_for(channels, channels_of_item);
  for_each_item(
      exec, name, items_for(rows, rows_of_item) * across, KOKKOS_LAMBDA(std::int64_t item) {
        const std::int64_t row = item / across * rows_of_item;
        const std::int64_t channel = item % across * channels_of_item;
        body(row, smaller(row + rows_of_item, rows), channel,
             smaller(channels_of_item, channels - channel));
      });
}

}  // namespace

template <class T>
void convolution_forward(const Exec& exec, std::int64_t tokens, View<const T**> before,
                         View<const T**> x, View<const T**> weight, View<T**> y) {
  using C = compute_t<T>;
  const char* const name = "convolution";
  const std::int64_t taps = weight.columns();
  require_weight(name, weight, x.columns());
  require_shape(name, "y", y, x.rows(), x.columns());
  if (before) require_shape(name, "before", before, taps - 1, x.columns());
  for_each_part(
      exec, name, y.rows(), y.columns(),
      KOKKOS_LAMBDA(std::int64_t begin, std::int64_t end, std::int64_t channel,
                    std::int64_t channels) {
        const Taps<T> of(weight, channel, channels);
        C sum[channels_of_item];
        for (std::int64_t r = begin; r < end; ++r) {
          add_taps<T>(before, x, r, tokens, taps, of, channel, channels, sum);
          T* const to = &y(r, channel);
          for (std::int64_t c = 0; c < channels; ++c)
            to[c] = static_cast<T>(sum[c] * fast_sigmoid(sum[c]));
        }
      });
}

template <class T>
void keep_last_rows(const Exec& exec, View<const T**> x, View<T**> before) {
  const char* const name = "last_rows";
  require_shape(name, "before", before, before.rows(), x.columns());
  for_each_item(
      exec, name, x.columns(), KOKKOS_LAMBDA(std::int64_t c) {
        for (std::int64_t i = 0; i < before.rows(); ++i) {
          const std::int64_t of_x = i + x.rows() - before.rows();
          before(i, c) = of_x < 0 ? before(i + x.rows(), c) : x(of_x, c);
        }
      });
}

template <class T>
void convolution_backward_sums(const Exec& exec, std::int64_t tokens, View<const T**> x,
                               View<const T**> weight, View<const T**> dy, View<T**> dp) {
  using C = compute_t<T>;
  const char* const name = "convolution_dp";
  const std::int64_t taps = weight.columns();
  require_weight(name, weight, x.columns());
  require_shape(name, "dy", dy, x.rows(), x.columns());
  require_shape(name, "dp", dp, x.rows(), x.columns());
  for_each_part(
      exec, name, x.rows(), x.columns(),
      KOKKOS_LAMBDA(std::int64_t begin, std::int64_t end, std::int64_t channel,
                    std::int64_t channels) {
        const Taps<T> of(weight, channel, channels);
        C sum[channels_of_item];
        for (std::int64_t r = begin; r < end; ++r) {
          add_taps<T>({}, x, r, tokens, taps, of, channel, channels, sum);
          const T* const d = &dy(r, channel);
          T* const to = &dp(r, channel);
          for (std::int64_t c = 0; c < channels; ++c) {
            const C open = fast_sigmoid(sum[c]);
            to[c] = static_cast<T>(C(d[c]) * open * multiply_add(sum[c], C(1) - open, C(1)));
          }
        }
      });
}

template <class T>
void convolution_backward_input(const Exec& exec, std::int64_t tokens, View<const T**> weight,
                                View<const T**> dp, View<T**> dx) {
  using C = compute_t<T>;
  const char* const name = "convolution_dx";
  const std::int64_t taps = weight.columns();
  require_weight(name, weight, dx.columns());
  require_shape(name, "dp", dp, dx.rows(), dx.columns());
  for_each_part(
      exec, name, dx.rows(), dx.columns(),
      KOKKOS_LAMBDA(std::int64_t begin, std::int64_t end, std::int64_t channel,
                    std::int64_t channels) {
        const Taps<T> of(weight, channel, channels);
        C sum[channels_of_item] = {};
        for (std::int64_t r = begin; r < end; ++r) {
          for (std::int64_t c = 0; c < channels; ++c) sum[c] = C(0);
          const std::int64_t behind = tokens - 1 - r % tokens;
          for (std::int64_t j = 0; j < taps && j <= behind; ++j) {
            const T* const d = &dp(r + j, channel);
            for (std::int64_t c = 0; c < channels; ++c)
              sum[c] = multiply_add(of.of[taps - 1 - j][c], C(d[c]), sum[c]);
          }
          T* const to = &dx(r, channel);
          for (std::int64_t c = 0; c < channels; ++c) to[c] = static_cast<T>(sum[c]);
        }
      });
}

template <class T>
void convolution_backward_weight(const Exec& exec, std::int64_t tokens, View<const T**> x,
                                 View<const T**> dp, View<compute_t<T>**> dweight) {
  using C = compute_t<T>;
  const char* const name = "convolution_dw";
  const std::int64_t rows = x.rows(), taps = dweight.columns();
  require_weight(name, dweight, x.columns());
  require_shape(name, "dp", dp, rows, x.columns());
  require(rows % tokens == 0, name, ": ", rows, " rows, expected whole sequences of ", tokens);
  // An item has one tap of its channels. Rows are summed in blocks, as in sum_norm_gradients().
  const std::int64_t across = items_for(x.columns(), channels_of_item);
  for_each_item(
      exec, name, taps * across, KOKKOS_LAMBDA(std::int64_t item) {
        constexpr std::int64_t rows_per_block = 64;
        const std::int64_t tap = item / across, first = item % across * channels_of_item;
        const std::int64_t channels = smaller(channels_of_item, x.columns() - first);
        const std::int64_t back = taps - 1 - tap;
        C sum[channels_of_item] = {};
        for (std::int64_t begin = 0; begin < rows; begin += rows_per_block) {
          C block[channels_of_item] = {};
          for (std::int64_t r = begin; r < smaller(begin + rows_per_block, rows); ++r) {
            if (r % tokens < back) continue;
            const T* const in = &x(r - back, first);
            const T* const d = &dp(r, first);
            for (std::int64_t c = 0; c < channels; ++c)
              block[c] = multiply_add(C(in[c]), C(d[c]), block[c]);
          }
          for (std::int64_t c = 0; c < channels; ++c) sum[c] += block[c];
        }
        for (std::int64_t c = 0; c < channels; ++c) dweight(first + c, tap) = sum[c];
      });
}

#define OSTRAKON_INSTANTIATE(T)                                                            \
  template void convolution_forward<T>(const Exec&, std::int64_t, View<const T**>,         \
                                       View<const T**>, View<const T**>, View<T**>);       \
  template void keep_last_rows<T>(const Exec&, View<const T**>, View<T**>);                \
  template void convolution_backward_sums<T>(const Exec&, std::int64_t, View<const T**>,   \
                                             View<const T**>, View<const T**>, View<T**>); \
  template void convolution_backward_input<T>(const Exec&, std::int64_t, View<const T**>,  \
                                              View<const T**>, View<T**>);                 \
  template void convolution_backward_weight<T>(const Exec&, std::int64_t, View<const T**>, \
                                               View<const T**>, View<compute_t<T>**>);
OSTRAKON_FOR_ALL_NUMBERS(OSTRAKON_INSTANTIATE)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::math
