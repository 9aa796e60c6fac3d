// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/attention/rotary.hpp>

#include <cmath>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/attention/sine_cosine.hpp>
#include <ostrakon/math/fast_divide.hpp>
#include <ostrakon/math/row_kernel.hpp>
#include <type_traits>

namespace ostrakon::math {

namespace {

// An item is a block of rows by a block of pairs: it computes frequencies once for its rows, and
// sine and cosine of a row once for all heads.
constexpr std::int64_t rows_per_item = per_item(32);
constexpr std::int64_t pairs_per_item = per_item(64);

template <class T>
void rotate_rows(const Exec& exec, Rotation rotation, View<T**> x, std::int64_t head_width,
                 double base, std::int64_t tokens, std::int64_t first_position) {
  using C = compute_t<T>;
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
        // Frequencies are double, as the angle's error grows with the position.
        double frequency[pairs_per_item];
        for (std::int64_t i = 0; i < pairs; ++i)
          frequency[i] = pow(
              base, -2.0 * static_cast<double>(first_pair + i) / static_cast<double>(head_width));
        for (std::int64_t r = first_row; r < last_row; ++r) {
          const double position = static_cast<double>(first_position + r % tokens);
          C sine[pairs_per_item] = {};
          C cosine[pairs_per_item] = {};
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
              low[i] = static_cast<T>(multiply_add(a, cosine[i], -(b * sine[i])));
              high[i] = static_cast<T>(multiply_add(b, cosine[i], a * sine[i]));
            }
          }
        }
      });
}

#if OSTRAKON_ON_DEVICE

// For 16-bit and float arrays a device computes angles as integers and sines in float, as it has
// little throughput in double.

/// Returns the upper 64 bits of a product.
KOKKOS_INLINE_FUNCTION std::uint64_t high_product(std::uint64_t a, std::uint64_t b) {
  const std::uint64_t a_low = a & 0xFFFFFFFFu, a_high = a >> 32;
  const std::uint64_t b_low = b & 0xFFFFFFFFu, b_high = b >> 32;
  const std::uint64_t middle = a_high * b_low + (a_low * b_low >> 32);
  const std::uint64_t other = a_low * b_high + (middle & 0xFFFFFFFFu);
  return a_high * b_high + (middle >> 32) + (other >> 32);
}

/// Rotation per position of each pair, in 2^-64 turns: multiplied by a position, modulo 2^64, it is
/// the angle without whole turns, with an error of at most position * 2^-61. Stored as products of
/// two factors, so that they fit into a kernel's arguments.
class Frequencies {
 public:
  static constexpr std::int64_t pairs = 128;

  /// Computes the frequencies of pairs from `first` on.
  Frequencies(double base, std::int64_t head_width, std::int64_t first) {
    require(base >= 1.0, "rotate: base ", base, ", expected at least 1");
    const auto power = [&](std::int64_t pair) {
      return std::pow(base, -2.0 * static_cast<double>(pair) / static_cast<double>(head_width));
    };
    constexpr double turn = 6.283185307179586;
    for (std::int64_t i = 0; i < pairs / fine; ++i)
      coarse_[i] = static_cast<std::uint64_t>(power(first + i * fine) / turn * 0x1p64);
    for (std::int64_t i = 0; i < fine; ++i)
      fine_[i] = static_cast<std::uint64_t>(power(i) * 0x1p63);
  }

  KOKKOS_INLINE_FUNCTION std::uint64_t of_pair(std::int64_t i) const {
    return high_product(coarse_[i / fine], fine_[i % fine]) << 1;
  }

 private:
  static constexpr std::int64_t fine = 8;
  std::uint64_t coarse_[pairs / fine], fine_[fine];
};

/// Rotates pairs [first_pair, first_pair + pairs) of every head of x; a thread has n pairs of some
/// heads.
template <int n, class T>
void rotate_pairs(const Exec& exec, bool inverse, const View<T**>& x, std::int64_t head_width,
                  const Frequencies& frequencies, std::int64_t first_pair, std::int64_t pairs,
                  std::int64_t tokens, std::int64_t first_position) {
  constexpr std::int64_t heads_of_thread = 4;
  const std::int64_t half = head_width / 2, heads = x.columns() / head_width;
  const std::int64_t groups = items_for(heads, heads_of_thread), threads = groups * pairs / n;
  const FastDivide by_tokens(tokens), by_pairs(pairs / n);
  const View<T**> all = x;
  const Frequencies table = frequencies;
  for_each_row(
      exec, "rotate", x.rows(), threads * elements_of_thread,
      KOKKOS_LAMBDA(const Row& row, std::int64_t r) {
        const auto position = static_cast<std::uint64_t>(first_position + by_tokens.rest(r));
        const auto values = all.row(r);
        row.loop(threads, [&](std::int64_t item) {
          // Neighbouring threads have neighbouring pairs, for coalesced access.
          const std::int64_t group = by_pairs.quotient(item), pair = by_pairs.rest(item) * n;
          float sine[n] = {}, cosine[n] = {};
          for (int i = 0; i < n; ++i) {
            const SineCosineFloat turned = sine_cosine_of_turns(position * table.of_pair(pair + i));
            sine[i] = inverse ? -turned.sine : turned.sine;
            cosine[i] = turned.cosine;
          }
          const std::int64_t end = smaller(heads, (group + 1) * heads_of_thread);
          for (std::int64_t head = group * heads_of_thread; head < end; ++head) {
            T* const low = values.data() + head * head_width + first_pair + pair;
            const Vector<T, n> a = load_vector<n>(low), b = load_vector<n>(low + half);
            Vector<T, n> turned_a, turned_b;
            for (int i = 0; i < n; ++i) {
              const float from_a = a.at[i], from_b = b.at[i];
              turned_a.at[i] = static_cast<T>(from_a * cosine[i] - from_b * sine[i]);
              turned_b.at[i] = static_cast<T>(from_b * cosine[i] + from_a * sine[i]);
            }
            store_vector<n>(low, turned_a);
            store_vector<n>(low + half, turned_b);
          }
        });
      });
}

template <class T>
void rotate_in_float(const Exec& exec, bool inverse, const View<T**>& x, std::int64_t head_width,
                     double base, std::int64_t tokens, std::int64_t first_position) {
  constexpr int n = vector_elements<T>();
  const std::int64_t half = head_width / 2;
  const bool in_vectors = begin_vectors<n>(x.data()) && x.stride() % n == 0 && half % n == 0;
  for (std::int64_t first = 0; first < half; first += Frequencies::pairs) {
    const std::int64_t pairs = smaller(Frequencies::pairs, half - first);
    const Frequencies frequencies(base, head_width, first);
    if (in_vectors)
      rotate_pairs<n>(exec, inverse, x, head_width, frequencies, first, pairs, tokens,
                      first_position);
    else
      rotate_pairs<1>(exec, inverse, x, head_width, frequencies, first, pairs, tokens,
                      first_position);
  }
}

#endif

}  // namespace

template <class T>
void rotate(const Exec& exec, Rotation rotation, View<T**> x, std::int64_t head_width, double base,
            std::int64_t tokens, std::int64_t first_position) {
  require(head_width >= 2 && head_width % 2 == 0 && x.columns() % head_width == 0 && tokens >= 1,
          "rotate: x (", x.rows(), ", ", x.columns(), ") of heads of width ", head_width,
          " and sequences of ", tokens, " tokens, expected whole heads of an even width");
#if OSTRAKON_ON_DEVICE
  if constexpr (!std::is_same<T, double>::value)
    return rotate_in_float<T>(exec, rotation == Rotation::inverse, x, head_width, base, tokens,
                              first_position);
  else
#endif
    rotate_rows<T>(exec, rotation, x, head_width, base, tokens, first_position);
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
