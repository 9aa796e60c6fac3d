// SPDX-License-Identifier: Apache-2.0
#pragma once

// Norms of rows that a team of a device's threads holds in registers, and sums for their weights.

#include <ostrakon/math/rows/cluster_row.hpp>
#include <ostrakon/math/rows/held_row.hpp>
#include <ostrakon/math/rows/norm.hpp>
#include <ostrakon/math/rows/row_blocks.hpp>

namespace ostrakon::math {

#if OSTRAKON_ON_DEVICE

/// y of an element, of which norms made again have the bits.
template <NormWeight gain, class C>
KOKKOS_INLINE_FUNCTION C normalized(C value, C center, C scale, C factor) {
  return (value - center) * scale * gain_of<gain>(factor);
}
template <NormWeight gain, class C>
KOKKOS_INLINE_FUNCTION C normalized(C value, C center, C scale, C factor, C term) {
  return multiply_add((value - center) * scale, gain_of<gain>(factor), term);
}

/// Vectors of a row in each thread: of forward and, as this holds more arrays and sums, of
/// backward. The fewer there are, the more teams a multiprocessor has, of which some load while
/// others sum; long rows need more.
constexpr int held_forward = 2, long_forward = 4, held_backward = 1, long_backward = 2;
/// Teams of a multiprocessor, at least, in forward.
template <int vectors>
constexpr int teams_of_forward = vectors == held_forward ? 2 : 1;

/// Does what `normalize` does, for rows that a team can hold.
template <NormWeight gain, int vectors, class T>
static void normalize_held(const Exec& exec, const char* name, bool centered,
                           bool compute_statistics, compute_t<T> epsilon, View<const T**> x,
                           View<const T*> weight, View<const T*> bias, View<T**> y,
                           View<compute_t<T>*> mean, View<compute_t<T>*> rstd,
                           View<const compute_t<T>*> saved_mean,
                           View<const compute_t<T>*> saved_rstd) {
  using C = compute_t<T>;
  using NormRow = HeldRow<vector_elements<T>(), vectors>;
  const C over_width = C(1) / static_cast<C>(x.columns());
  for_each_held<vector_elements<T>(), vectors, most_threads_of_held_row, teams_of_forward<vectors>>(
      exec, name, x.rows(), x.columns(), KOKKOS_LAMBDA(const NormRow& row, std::int64_t r) {
        const auto in = row.load(x.row(r));
        auto factors = in, terms = in;
        if (gain != NormWeight::none) factors = row.load(weight);
        if (bias) terms = row.load(bias);
        C center = 0, scale;
        if (compute_statistics) {
          if (centered)
            center = row.template sum<C>([](C value) { return value; }, in) * over_width;
          const C squares = row.template sum<C>(
              [=](C value) {
                return Product<C>{value - center, value - center};
              },
              in);
          scale = C(1) / sqrt(multiply_add(squares, over_width, epsilon));
          row.once([=]() {
            if (mean) mean[r] = center;
            rstd[r] = scale;
          });
        } else {
          if (centered) center = saved_mean[r];
          scale = saved_rstd[r];
        }
        if (bias)
          row.store(
              y.row(r),
              [=](int, C value, C factor, C term) {
                return normalized<gain>(value, center, scale, factor, term);
              },
              in, factors, terms);
        else
          row.store(
              y.row(r),
              [=](int, C value, C factor) {
                return normalized<gain>(value, center, scale, factor);
              },
              in, factors);
      });
}

/// The term of an element in the gradient of the weight.
template <class C>
KOKKOS_INLINE_FUNCTION C with_weight_term(C sum, C d, C value, C center, C scale) {
  return multiply_add(d, (value - center) * scale, sum);
}

/// dx and, unless empty, the norm made again and the sums of blocks of rows (blocks, columns of all
/// results), for rows that a team or a cluster can hold. Sums of a column are in registers for a
/// block, which has at least one row. `has_bias`: whether the norm made again has one, or its
/// gradient is wanted.
template <NormWeight gain, bool has_bias, class T>
struct NormBackward {
  using C = compute_t<T>;

  bool centered, adds;
  View<const T**> x;
  View<const T*> weight, bias;
  View<const C*> mean, rstd;
  View<const T**> dy;
  View<T**> dx, again;
  RowBlocks blocks;
  View<C**> of_weight, of_bias;

  template <class NormRow>
  KOKKOS_FUNCTION void operator()(const NormRow& row, std::int64_t block) const {
    auto weight_sums = row.filled(C(0)), bias_sums = row.filled(C(0));
    const std::int64_t begin = blocks.begin(block), end = blocks.end(block);
    // The next row is loaded while the threads wait for each other in this one, unless rows are so
    // long that registers are few.
    constexpr std::int64_t ahead = NormRow::vectors_of_thread == held_backward ? 1 : 0;
    auto next_in = row.load(x.row(begin)), next_dout = row.load(dy.row(begin));
    auto next_before = next_dout, factors = next_dout;
    if (adds) next_before = row.load(dx.row(begin));
    if (gain != NormWeight::none) factors = row.load(weight);
    for (std::int64_t r = begin; r < end; ++r) {
      const auto load_next = [&] {
        next_in = row.load(x.row(r + ahead));
        next_dout = row.load(dy.row(r + ahead));
        if (adds) next_before = row.load(dx.row(r + ahead));
      };
      if (ahead == 0 && r > begin) load_next();
      const auto in = next_in, dout = next_dout, before = next_before;
      if (ahead > 0 && r + ahead < end) load_next();
      const C over_width = C(1) / static_cast<C>(x.columns());
      const C center = centered ? mean[r] : C(0), scale = rstd[r];
      C average = 0;
      if (centered)
        average = row.template sum<C>(
                      [](C d, C factor) {
                        return Product<C>{d, gain_of<gain>(factor)};
                      },
                      dout, factors) *
                  over_width;
      const C projection = row.template sum<C>(
                               [=](C d, C factor, C value) {
                                 return Product<C>{d * gain_of<gain>(factor), value - center};
                               },
                               dout, factors, in) *
                           scale * over_width;
      const bool is_added = adds;
      row.store(
          dx.row(r),
          [=](int, C d, C factor, C value, C sum) {
            const C rest = multiply_add(-((value - center) * scale), projection,
                                        multiply_add(d, gain_of<gain>(factor), -average));
            return is_added ? multiply_add(scale, rest, sum) : scale * rest;
          },
          dout, factors, in, before);
      if (of_weight)
        row.update(
            weight_sums,
            [=](C sum, C d, C value) { return with_weight_term(sum, d, value, center, scale); },
            dout, in);
      if (of_bias)
        row.update(
            bias_sums, [](C sum, C d) { return sum + d; }, dout);
      if (!again) continue;
      if (has_bias && bias)
        row.store(
            again.row(r),
            [=](int, C value, C factor, C term) {
              return normalized<gain>(value, center, scale, factor, term);
            },
            in, factors, row.load(bias));
      else
        row.store(
            again.row(r),
            [=](int, C value, C factor) { return normalized<gain>(value, center, scale, factor); },
            in, factors);
    }
    const auto same = [](int, C sum) { return sum; };
    if (of_weight) row.store(of_weight.row(block), same, weight_sums);
    if (has_bias && of_bias) row.store(of_bias.row(block), same, bias_sums);
  }
};

/// What holds a row in backward.
enum class NormHolder { nothing, team, team_of_long_rows, cluster };

/// Returns it for rows of `width` elements. Where a team can't hold long rows with a bias, nothing
/// does it: dx is computed apart then, as without one, so that a bias changes no order of sums.
template <class T>
NormHolder holder_of_backward(const Exec& exec, NormKind kind, bool has_bias, std::int64_t width) {
  constexpr int n = vector_elements<T>();
  if (can_hold<n, held_backward>(width)) return NormHolder::team;
  const bool together = can_hold<n, held_backward>(items_for(width, teams_of_cluster(exec)));
  if (together && kind == NormKind::layernorm) return NormHolder::cluster;
  if (can_hold<n, long_backward>(width))
    return has_bias ? NormHolder::nothing : NormHolder::team_of_long_rows;
  return together ? NormHolder::cluster : NormHolder::nothing;
}

/// Runs `kernel` with rows that are held.
template <NormWeight gain, bool has_bias, class T>
void differentiate_held(const Exec& exec, const char* name, NormHolder holder,
                        const NormBackward<gain, has_bias, T>& kernel) {
  constexpr int n = vector_elements<T>(), most = most_threads_of_held_row;
  const std::int64_t blocks = kernel.blocks.count(), width = kernel.x.columns();
  if (holder == NormHolder::cluster)
    for_each_held_by_cluster<n, held_backward, most>(exec, name, blocks, width, kernel);
  else if (holder == NormHolder::team)
    for_each_held<n, held_backward>(exec, name, blocks, width, kernel);
  else if constexpr (!has_bias)
    for_each_held<n, long_backward>(exec, name, blocks, width, kernel);
}

/// The contribution of a row to the gradients of the weight and of the bias, whichever are wanted.
template <class T, bool has_weight, bool has_bias>
struct NormTerms {
  using C = compute_t<T>;
  static constexpr int n = vector_elements<T>(), outputs = int(has_weight) + int(has_bias);
  View<const T**> x, dy;
  View<const C*> mean;  ///< null for RMS norm
  View<const C*> rstd;

  KOKKOS_INLINE_FUNCTION void add(std::int64_t r, std::int64_t column, C* sums) const {
    const auto dout = load_lanes<n>(dy.data() + r * dy.stride(), column, dy.columns());
    if (has_weight) {
      const auto in = load_lanes<n>(x.data() + r * x.stride(), column, x.columns());
      const C center = mean ? mean[r] : C(0), scale = rstd[r];
      for (int k = 0; k < n; ++k)
        sums[k] = with_weight_term<C>(sums[k], dout.at[k], in.at[k], center, scale);
    }
    if (has_bias)
      for (int k = 0; k < n; ++k) sums[(outputs - 1) * n + k] += C(dout.at[k]);
  }
};

template <class C>
void add_norm_blocks(const Exec& exec, const View<C**>& partial, const RowSums<C>& sums,
                     const View<C*>& dweight, const View<C*>& dbias) {
  const char* const name = "add_blocks";
  if (dweight && dbias)
    add_blocks<C, 2>(exec, name, partial, sums, {{dweight, dbias}});
  else
    add_blocks<C, 1>(exec, name, partial, sums, {{dweight ? dweight : dbias}});
}

/// f(has a weight, has a bias) as constants, unless nothing is wanted.
template <class F>
void with_terms(bool has_weight, bool has_bias, const F& f) {
  const auto yes = std::true_type();
  const auto no = std::false_type();
  if (has_weight && has_bias) return f(yes, yes);
  if (has_weight) return f(yes, no);
  if (has_bias) return f(no, yes);
}

#endif

}  // namespace ostrakon::math
