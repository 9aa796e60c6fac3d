// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/cross_entropy/logits.hpp>

#include <cstring>
#include <ostrakon/math/cross_entropy/row_loss.hpp>
#include <ostrakon/math/cross_entropy/row_parts.hpp>
#include <ostrakon/math/cross_entropy/softmax_row.hpp>
#include <ostrakon/math/elementary.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/equal_sizes.hpp>
#include <ostrakon/math/piece_tree.hpp>
#include <ostrakon/math/rows/row_kernel.hpp>

namespace ostrakon::math {

template <class T>
void make_logits(const Exec& exec, const Logits<T>& logits, View<compute_t<T>**> products) {
  using C = compute_t<T>;
  if (logits.are_products()) return;
  require_size_if_any("make_logits", "bias", logits.bias, products.columns());
  const C scale = static_cast<C>(logits.form.scale), cap = static_cast<C>(logits.form.soft_cap);
  const C inverse = cap > C(0) ? C(1) / cap : C(0);
  const View<const T*> bias = logits.bias;
  for_each_row(
      exec, "make_logits", products.rows(), products.columns(),
      KOKKOS_LAMBDA(const Row& row, std::int64_t index) {
        const auto z = products.row(index);
        if (bias)
          row.map([=](std::int64_t, C product, C term) { return scale * (product + term); }, z, z,
                  bias);
        else if (scale != C(1))
          row.map([=](std::int64_t, C product) { return scale * product; }, z, z);
        if (cap > C(0))
          row.map([=](std::int64_t, C logit) { return cap * fast_tanh(logit * inverse); }, z, z);
      });
}

namespace {

/// Writes the gradients of a row whose target does not count, which are 0.
template <class R, class T>
KOKKOS_INLINE_FUNCTION void clear(const R& row, const View<T*>& dlogits) {
  row.loop(dlogits.size(), [&](std::int64_t i) { dlogits[i] = T(0); });
}

/// Writes the loss, 0, and the gradients of a row whose target does not count. No logit is read, as
/// gradients may be in the memory of the logits.
template <class R, class C, class T>
KOKKOS_INLINE_FUNCTION void leave_out(const R& row, C& loss, const View<T*>& dlogits) {
  row.once([&] { loss = C(0); });
  clear(row, dlogits);
}

}  // namespace

template <class C>
void sums_of_logits(const Exec& exec, View<const C**> logits, View<C*> sums) {
  for_each_row(
      exec, "sums_of_logits", logits.rows(), logits.columns(),
      KOKKOS_LAMBDA(const Row& row, std::int64_t index) {
        const C sum =
            row.template sum_of<C>([](std::int64_t, C logit) { return logit; }, logits.row(index));
        row.once([&] { sums[index] = sum; });
      });
}

template <class T>
void losses_of(const Exec& exec, View<const T**> logits, const Targets<T>& targets, View<T*> losses,
               View<T*> log_sums, View<T*> margins) {
  const View<const std::int32_t*> words = targets.words;
  const RowLoss<T> form(targets.form);
#if OSTRAKON_ON_DEVICE
  for_each_row_of_logits<T>(
      exec, "cross_entropy", logits.rows(), logits.columns(),
      KOKKOS_LAMBDA(const LogitRow<T>& row, std::int64_t index) {
        const auto z = logits.row(index);
        const std::int64_t target = words[index];
        const Softmax<T> all = softmax_of(row, own_softmax<T>(row, z));
        row.once([&] {
          const T log_total = log(all.total), sum = form.smooths() ? losses[index] : T(0);
          losses[index] = counts(target) ? form.loss(all.largest, log_total, z[target], sum) : T(0);
          if (log_sums) log_sums[index] = all.largest + log_total;
          if (margins) margins[index] = counts(target) ? z[target] - all.largest : T(0);
        });
      });
#else
  for_each_row(
      exec, "cross_entropy", logits.rows(), logits.columns(),
      KOKKOS_LAMBDA(const Row& row, std::int64_t index) {
        const auto z = logits.row(index);
        const std::int64_t target = words[index];
        const T largest = row.maximum_of([](std::int64_t, T logit) { return logit; }, z[0], z);
        const T total = row.template sum_of<T>(
            [=](std::int64_t, T logit) { return fast_exp(logit - largest); }, z);
        row.once([&] {
          const T log_total = log(total), sum = form.smooths() ? losses[index] : T(0);
          losses[index] = counts(target) ? form.loss(largest, log_total, z[target], sum) : T(0);
          if (log_sums) log_sums[index] = largest + log_total;
          if (margins) margins[index] = counts(target) ? z[target] - largest : T(0);
        });
      });
#endif
}

namespace {

#if OSTRAKON_ON_DEVICE

/// Writes zeros to a row, with however many threads the team has.
template <class T>
KOKKOS_INLINE_FUNCTION void clear_by_vector(const BlockTeam& team, const View<T*>& row) {
  constexpr int n = vector_elements<T>();
  const int size = static_cast<int>(row.size());
#if OSTRAKON_IN_DEVICE_CODE
#pragma unroll 1
#endif
  for (int begin = team.rank() * n; begin < size; begin += team.size() * n)
    store_lanes<n>(row.data(), begin, size, Vector<T, n>{});
}

/// Reads logits once, but those that stay neither in registers nor in memory twice.
template <bool is_capped, class T, class C = compute_t<T>>
void losses_and_dlogits_held(const Exec& exec, C cap, View<C**> logits, const Targets<C>& targets,
                             C scale, View<C*> losses, View<T**> dlogits) {
  const C inverse = is_capped ? C(1) / cap : C(0);
  const RowLoss<C> form(targets.form);
  const View<const std::int32_t*> words = targets.words;
  const View<const C*> factors = targets.factors;
  const LogitParts parts =
      logit_parts<C>(logits.columns(), team_memory(exec), teams_of_cluster(exec));
  const auto part = static_cast<int>(parts.words), in_memory = static_cast<int>(parts.in_memory);
  for_each_cluster<most_threads_of_logits>(
      exec, "dcross_entropy", logits.rows(), parts.teams, threads_of_logits<C>(part),
      items_for(in_memory, vector_elements<C>()) * 16, KOKKOS_LAMBDA(const TeamCluster& cluster) {
        const std::int64_t index = cluster.index();
        const auto z = logits.row(index);
        const auto dz = dlogits.row(index);
        const int size = static_cast<int>(z.size());
        const auto of_team = [=](const auto& row, int t) {
          const int end = (t + 1) * part;
          return row.range(t * part, end < size ? end : size);
        };
        if (!counts(words[index])) {
          cluster.once([&] { losses[index] = C(0); });
          cluster.for_own_teams([&](int t) { clear_by_vector(cluster.team(), of_team(dz, t)); });
          return;
        }
        OwnParts<is_capped, C> own;
        Softmax<C> all;
        cluster.for_own_teams([&](int t) {
          all =
              own.at(t).read(cluster.team(), of_team(z, t), C(z[0]), cluster.memory(t), in_memory);
          if (cluster.teams() > 1) cluster.share(t, all);
        });
        // What further logits do not need is read behind them, as registers are few, and before the
        // last wait for other threads: their gradients may replace the target's logit.
        const int target = words[index];
        const C at_target = z[target], times = factors ? scale * factors[index] : scale;
        if (cluster.teams() > 1)
          all = softmax_of_cluster<C>(cluster);
        else
          cluster.team().barrier();
        const C log_total = log(all.total);
        cluster.once([&] {
          losses[index] =
              form.loss(all.largest, log_total, at_target, form.smooths() ? losses[index] : C(0));
        });
        const C by = inverse;
        const LogitFactors<C> factors_here = form.factors(times, all.largest + log_total);
        cluster.for_own_teams([&](int t) {
          own.at(t).store(cluster.team(), of_team(z, t), cluster.memory(t), in_memory, all,
                          factors_here, target - t * part, by, of_team(dz, t));
        });
      });
}

#else

/// to[i] = f(i, x[i]), rounded, on the host; `to` may begin at the same address as x.
template <class C, class F, class T>
void store_by_run(const View<C*>& x, const F& f, const View<T*>& to) {
  constexpr std::int64_t run = 512;
  T stored[run];  // does not alias, so that the loop vectorises
  for (std::int64_t begin = 0; begin < x.size(); begin += run) {
    const std::int64_t count = smaller(run, x.size() - begin);
    const C* const from = x.range(begin, begin + count).data();
    for (std::int64_t i = 0; i < count; ++i) stored[i] = static_cast<T>(f(begin + i, from[i]));
    std::memcpy(to.range(begin, begin + count).data(), stored,
                static_cast<std::size_t>(count) * sizeof(T));
  }
}

template <class T, class C = compute_t<T>>
void losses_and_plain_dlogits(const Exec& exec, View<C**> logits, const Targets<C>& targets,
                              C scale, View<C*> losses, View<T**> dlogits) {
  const RowLoss<C> form(targets.form);
  const View<const std::int32_t*> words = targets.words;
  const View<const C*> factors = targets.factors;
  for_each_row(
      exec, "dcross_entropy", logits.rows(), logits.columns(),
      KOKKOS_LAMBDA(const Row& row, std::int64_t index) {
        const auto z = logits.row(index);
        const auto dz = dlogits.row(index);
        const std::int64_t target = words[index];
        C& loss = losses[index];
        if (!counts(target)) return leave_out(row, loss, dz);
        const C at_target = z[target], times = factors ? scale * factors[index] : scale;
        const C largest = row.maximum_of([](std::int64_t, C logit) { return logit; }, z[0], z);
        const C total = row.template sum<C>(logits.columns(), [&](std::int64_t i) {
          z[i] = fast_exp(z[i] - largest);
          return z[i];
        });
        const C log_total = log(total);
        loss = form.loss(largest, log_total, at_target, form.smooths() ? loss : C(0));
        const LogitFactors<C> by = form.factors(times, largest + log_total);
        const C factor = by.softmax / total, everywhere = by.everywhere;
        if constexpr (is_16bit<T>) {
          const C gradient_at_target = multiply_add(C(z[target]), factor, -by.target) - everywhere;
          store_by_run(
              z, [=](std::int64_t, C power) { return power * factor - everywhere; }, dz);
          dz[target] = static_cast<T>(gradient_at_target);
        } else {
          row.loop(logits.columns(), [&](std::int64_t i) { z[i] = z[i] * factor - everywhere; });
          z[target] -= by.target;
        }
      });
}

/// Exponentials are computed twice, as the logits are needed with them.
template <class T, class C = compute_t<T>>
void losses_and_capped_dlogits(const Exec& exec, C cap, View<C**> logits, const Targets<C>& targets,
                               C scale, View<C*> losses, View<T**> dlogits) {
  const C inverse = C(1) / cap;
  const RowLoss<C> form(targets.form);
  const View<const std::int32_t*> words = targets.words;
  const View<const C*> factors = targets.factors;
  for_each_row(
      exec, "dcross_entropy", logits.rows(), logits.columns(),
      KOKKOS_LAMBDA(const Row& row, std::int64_t index) {
        const auto z = logits.row(index);
        const auto dz = dlogits.row(index);
        const std::int64_t target = words[index];
        C& loss = losses[index];
        if (!counts(target)) return leave_out(row, loss, dz);
        const C at_target = z[target], by = inverse;
        const C times = factors ? scale * factors[index] : scale;
        const C largest = row.maximum_of([](std::int64_t, C logit) { return logit; }, z[0], z);
        const C total = row.template sum_of<C>(
            [=](std::int64_t, C logit) { return fast_exp(logit - largest); }, z);
        const C log_total = log(total);
        row.once(
            [&] { loss = form.loss(largest, log_total, at_target, form.smooths() ? loss : C(0)); });
        const LogitFactors<C> factors_here = form.factors(times, largest + log_total);
        const C factor = factors_here.softmax / total, of_target = factors_here.target,
                everywhere = factors_here.everywhere;
        const auto gradient = [=](std::int64_t i, C logit) {
          const C part = fast_exp(logit - largest) * factor;
          return ((i == target ? part - of_target : part) - everywhere) *
                 slope_of_capped(logit, by);
        };
        if constexpr (!is_16bit<T>)
          row.map(gradient, dz, z);
        else
          store_by_run(z, gradient, dz);
      });
}

#endif

/// dlogits = what RowLoss::factors says, through slope(logit), of the words from `first` on.
template <class T, class Slope>
void dlogits_of_slope(const Exec& exec, View<const compute_t<T>**> logits,
                      const Targets<compute_t<T>>& targets, View<const compute_t<T>*> log_sums,
                      std::int64_t first, compute_t<T> scale, const Slope& slope,
                      View<T**> dlogits) {
  using C = compute_t<T>;
  const Slope through = slope;
  const RowLoss<C> form(targets.form);
  const View<const std::int32_t*> words = targets.words;
  const View<const C*> factors = targets.factors;
  for_each_row(
      exec, "dlogits", logits.rows(), logits.columns(),
      KOKKOS_LAMBDA(const Row& row, std::int64_t index) {
        const auto z = logits.row(index);
        const auto dz = dlogits.row(index);
        if (!counts(words[index])) return clear(row, dz);
        const C log_sum = log_sums[index], times = factors ? scale * factors[index] : scale;
        const std::int64_t target = words[index] - first;
        const LogitFactors<C> by = form.factors(times, log_sum);
        row.map(
            [=](std::int64_t i, C logit) {
              const C part = fast_exp(logit - log_sum) * by.softmax;
              return through(logit, (i == target ? part - by.target : part) - by.everywhere);
            },
            dz, z);
      });
}

/// The gradient of a logit as it is, or through its cap.
template <class C>
struct PlainSlope {
  KOKKOS_INLINE_FUNCTION C operator()(C, C gradient) const { return gradient; }
};
template <class C>
struct CappedSlope {
  C inverse_cap;
  KOKKOS_INLINE_FUNCTION C operator()(C logit, C gradient) const {
    return gradient * slope_of_capped(logit, inverse_cap);
  }
};

}  // namespace

template <class T>
void losses_and_dlogits(const Exec& exec, const LogitForm& form, View<compute_t<T>**> logits,
                        const Targets<compute_t<T>>& targets, compute_t<T> scale,
                        View<compute_t<T>*> losses, View<T**> dlogits) {
  using C = compute_t<T>;
  const C of_products = scale * static_cast<C>(form.scale), cap = static_cast<C>(form.soft_cap);
#if OSTRAKON_ON_DEVICE
  if (cap > C(0))
    losses_and_dlogits_held<true, T>(exec, cap, logits, targets, of_products, losses, dlogits);
  else
    losses_and_dlogits_held<false, T>(exec, cap, logits, targets, of_products, losses, dlogits);
#else
  if (cap > C(0))
    losses_and_capped_dlogits<T>(exec, cap, logits, targets, of_products, losses, dlogits);
  else
    losses_and_plain_dlogits<T>(exec, logits, targets, of_products, losses, dlogits);
#endif
}

template <class T>
void dlogits_of(const Exec& exec, const LogitForm& form, View<const compute_t<T>**> logits,
                const Targets<compute_t<T>>& targets, View<const compute_t<T>*> log_sums,
                std::int64_t first, compute_t<T> scale, View<T**> dlogits) {
  using C = compute_t<T>;
  const C of_products = scale * static_cast<C>(form.scale), cap = static_cast<C>(form.soft_cap);
  if (cap > C(0))
    dlogits_of_slope<T>(exec, logits, targets, log_sums, first, of_products,
                        CappedSlope<C>{C(1) / cap}, dlogits);
  else
    dlogits_of_slope<T>(exec, logits, targets, log_sums, first, of_products, PlainSlope<C>(),
                        dlogits);
}

template <class T>
void bias_gradient(const Exec& exec, View<const T**> dlogits, View<compute_t<T>*> dbias,
                   std::int64_t pieces, View<compute_t<T>*> room) {
  using C = compute_t<T>;
  if (!dbias) return;
  const std::int64_t words = dbias.size(), rows = dlogits.rows() / pieces;
  const auto slot = [&](std::int64_t index) {
    return index == 0 ? dbias : room.range((index - 1) * words, index * words);
  };
  sum_pieces(
      pieces,
      [&](std::int64_t to, std::int64_t piece) {
        column_sums<T>(exec, dlogits.row_range(piece * rows, (piece + 1) * rows), slot(to));
      },
      [&](std::int64_t from, std::int64_t to) {
        add_to<C>(exec, View<const C*>(slot(from)), slot(to));
      });
}

std::int64_t bias_gradient_workspace(std::int64_t words, std::int64_t pieces) {
  return (tree_slots(pieces) - 1) * words;
}

template void sums_of_logits<float>(const Exec&, View<const float**>, View<float*>);
template void sums_of_logits<double>(const Exec&, View<const double**>, View<double*>);
template void losses_of<float>(const Exec&, View<const float**>, const Targets<float>&,
                               View<float*>, View<float*>, View<float*>);
template void losses_of<double>(const Exec&, View<const double**>, const Targets<double>&,
                                View<double*>, View<double*>, View<double*>);
#define OSTRAKON_INSTANTIATE(T)                                                                   \
  template void make_logits<T>(const Exec&, const Logits<T>&, View<compute_t<T>**>);              \
  template void losses_and_dlogits<T>(const Exec&, const LogitForm&, View<compute_t<T>**>,        \
                                      const Targets<compute_t<T>>&, compute_t<T>,                 \
                                      View<compute_t<T>*>, View<T**>);                            \
  template void dlogits_of<T>(const Exec&, const LogitForm&, View<const compute_t<T>**>,          \
                              const Targets<compute_t<T>>&, View<const compute_t<T>*>,            \
                              std::int64_t, compute_t<T>, View<T**>);                             \
  template void bias_gradient<T>(const Exec&, View<const T**>, View<compute_t<T>*>, std::int64_t, \
                                 View<compute_t<T>*>);
OSTRAKON_FOR_ALL_NUMBERS(OSTRAKON_INSTANTIATE)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::math
