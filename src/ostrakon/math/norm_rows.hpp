// SPDX-License-Identifier: Apache-2.0
#pragma once

// Norms of rows that a team of a device's threads holds in registers, and sums for their weights.

#include <ostrakon/math/cluster_row.hpp>
#include <ostrakon/math/held_row.hpp>
#include <ostrakon/math/norm.hpp>
#include <ostrakon/math/row_blocks.hpp>

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
/// backward.
constexpr int held_forward = 4, held_backward = 2;
/// Threads of a team, at most, in backward with a bias, whose sums take registers, too.
constexpr int most_threads_with_bias = 256;

/// Does what `normalize` does, for rows that a team can hold.
template <NormWeight gain, class T>
void normalize_held(const Exec& exec, const char* name, bool centered, bool compute_statistics,
                    compute_t<T> epsilon, View<const T**> x, View<const T*> weight,
                    View<const T*> bias, View<T**> y, View<compute_t<T>*> mean,
                    View<compute_t<T>*> rstd, View<const compute_t<T>*> saved_mean,
                    View<const compute_t<T>*> saved_rstd) {
  using C = compute_t<T>;
  using NormRow = HeldRow<vector_elements<T>(), held_forward>;
  const C over_width = C(1) / static_cast<C>(x.columns());
  for_each_held<vector_elements<T>(), held_forward>(
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
/// block. `has_bias`: whether the norm made again has one, or its gradient is wanted.
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
    const std::int64_t end = blocks.end(block);
    for (std::int64_t r = blocks.begin(block); r < end; ++r) {
      const auto in = row.load(x.row(r)), dout = row.load(dy.row(r));
      auto before = dout, factors = dout;
      if (adds) before = row.load(dx.row(r));
      if (gain != NormWeight::none) factors = row.load(weight);
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
enum class NormHolder { nothing, team, cluster };

/// Returns it for rows of `width` elements. Whether there is a bias must not change the order of a
/// row's sums, so that a team holds rows of layer norms up to the width to which it can with one.
template <class T>
NormHolder holder_of_backward(const Exec& exec, NormKind kind, bool has_bias, std::int64_t width) {
  constexpr int n = vector_elements<T>();
  const bool alone_with_bias = can_hold<n, held_backward, most_threads_with_bias>(width);
  const bool alone =
      kind == NormKind::layernorm ? alone_with_bias : can_hold<n, held_backward>(width);
  if (alone) return has_bias && !alone_with_bias ? NormHolder::nothing : NormHolder::team;
  const std::int64_t of_team = items_for(width, teams_of_cluster(exec));
  const bool together = has_bias ? can_hold<n, held_backward, most_threads_with_bias>(of_team)
                                 : can_hold<n, held_backward>(of_team);
  return together ? NormHolder::cluster : NormHolder::nothing;
}

/// Runs `kernel` with rows that are held.
template <NormWeight gain, bool has_bias, class T>
void differentiate_held(const Exec& exec, const char* name, NormHolder holder,
                        const NormBackward<gain, has_bias, T>& kernel) {
  constexpr int n = vector_elements<T>();
  constexpr int most = has_bias ? most_threads_with_bias : most_threads_of_held_row;
  const std::int64_t blocks = kernel.blocks.count(), width = kernel.x.columns();
  if (holder == NormHolder::cluster)
    for_each_held_by_cluster<n, held_backward, most>(exec, name, blocks, width, kernel);
  else
    for_each_held<n, held_backward, most>(exec, name, blocks, width, kernel);
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
void add_norm_blocks(const Exec& exec, const View<C**>& partial, std::int64_t leaves,
                     const View<C*>& dweight, const View<C*>& dbias) {
  const char* const name = "add_blocks";
  if (dweight && dbias)
    add_blocks<C, 2>(exec, name, partial, leaves, {{dweight, dbias}});
  else
    add_blocks<C, 1>(exec, name, partial, leaves, {{dweight ? dweight : dbias}});
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
