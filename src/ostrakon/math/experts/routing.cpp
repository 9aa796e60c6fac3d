// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/experts/routing.hpp>

#include <algorithm>
#include <limits>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/elementary.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/equal_sizes.hpp>
#include <ostrakon/math/piece_tree.hpp>
#include <ostrakon/math/transfer.hpp>
#include <ostrakon/math/warm_up.hpp>
#include <ostrakon/math/work_items.hpp>
#include <utility>

namespace ostrakon::math {
namespace {

/// Keeps the quotient finite if every score of a row is 0, which is possible with sigmoid.
template <class C>
constexpr C least_sum = C(1e-20);

template <class C>
constexpr C below_all = -std::numeric_limits<C>::infinity();

template <class C>
void require_shapes(const char* function, const Router& router, const Routes<C>& routes) {
  require(1 <= router.per_token && router.per_token <= router.experts, function, ": ",
          router.per_token, " experts a row of ", router.experts, ", expected from 1 to all");
  require(1 <= router.groups && router.groups <= most_router_groups &&
              router.experts % router.groups == 0,
          function, ": ", router.experts, " experts in ", router.groups,
          " groups, expected a divisor, at most ", most_router_groups);
  require(1 <= router.groups_per_token && router.groups_per_token <= router.groups &&
              router.per_token <= router.groups_per_token * router.group_size(),
          function, ": ", router.per_token, " experts a row of ", router.groups_per_token,
          " groups of ", router.group_size(), ", expected groups with as many experts");
  const std::int64_t assignments = routes.scores.rows() * router.per_token;
  require_shape(function, "scores", routes.scores, routes.scores.rows(), router.experts);
  require_size(function, "chosen", routes.chosen, assignments);
  require_size(function, "weights", routes.weights, assignments);
  require_size(function, "slots", routes.slots, assignments);
  require_size(function, "assignments", routes.assignments, assignments);
}

/// Replaces the logits of a row by scores.
template <class C>
KOKKOS_INLINE_FUNCTION void score_row(RouterScore score, const View<C*>& row) {
  const std::int64_t experts = row.size();
  if (score == RouterScore::sigmoid) {
    for (std::int64_t e = 0; e < experts; ++e) row[e] = C(1) / (C(1) + fast_exp(-row[e]));
    return;
  }
  C most = row[0];
  for (std::int64_t e = 1; e < experts; ++e) most = row[e] > most ? row[e] : most;
  C sum = 0;
  for (std::int64_t e = 0; e < experts; ++e) {
    row[e] = fast_exp(row[e] - most);
    sum += row[e];
  }
  for (std::int64_t e = 0; e < experts; ++e) row[e] /= sum;
}

/// Whether (score, expert) is chosen before (other, other_expert).
template <class C>
KOKKOS_INLINE_FUNCTION bool precedes(C score, std::int64_t expert, C other,
                                     std::int64_t other_expert) {
  return score > other || (score == other && expert < other_expert);
}

/// The keys by which a row's experts are chosen. NaN comes last.
template <class C>
struct ChoiceKeys {
  View<const C*> scores, bias;

  KOKKOS_INLINE_FUNCTION C operator()(std::int64_t e) const {
    const C sum = bias ? scores[e] + bias[e] : scores[e];
    return sum == sum ? sum : below_all<C>;
  }
};

/// Returns the sum of the two highest keys of a group, its highest, or its only key.
template <class C>
KOKKOS_INLINE_FUNCTION C key_of_group(const ChoiceKeys<C>& key, RouterGroupScore score,
                                      std::int64_t group, std::int64_t size) {
  C first = below_all<C>, second = below_all<C>;
  for (std::int64_t e = group * size; e < (group + 1) * size; ++e) {
    const C mine = key(e);
    second = mine > first ? first : mine > second ? mine : second;
    first = mine > first ? mine : first;
  }
  return size == 1 || score == RouterGroupScore::max ? first : first + second;
}

/// Returns a bit mask: bit g is set if the row's experts may be in group g.
template <class C>
KOKKOS_INLINE_FUNCTION std::uint64_t groups_of_row(const ChoiceKeys<C>& key, RouterGroupScore score,
                                                   std::int64_t groups, std::int64_t size,
                                                   std::int64_t per_token) {
  if (groups == per_token) return ~std::uint64_t{0};
  std::uint64_t found = 0;
  for (std::int64_t k = 0; k < per_token; ++k) {
    std::int64_t best = -1;
    C best_key = 0;
    for (std::int64_t g = 0; g < groups; ++g) {
      if ((found >> g & 1) != 0) continue;
      const C mine = key_of_group(key, score, g, size);
      if (best >= 0 && !precedes(mine, g, best_key, best)) continue;
      best = g;
      best_key = mine;
    }
    found |= std::uint64_t{1} << best;
  }
  return found;
}

/// Chooses the first experts of the groups whose bit is set, in ascending order. Each round takes
/// the first expert after the one of the round before.
template <class C>
KOKKOS_INLINE_FUNCTION void choose_of_row(const ChoiceKeys<C>& key, std::uint64_t groups,
                                          std::int64_t group_size,
                                          const View<std::int32_t*>& chosen) {
  const std::int64_t experts = key.scores.size();
  C last_key = 0;
  std::int64_t last = -1;
  for (std::int64_t k = 0; k < chosen.size(); ++k) {
    std::int64_t best = -1;
    C best_key = 0;
    for (std::int64_t e = 0; e < experts; ++e) {
      if ((groups >> (e / group_size) & 1) == 0) {
        e += group_size - 1;
        continue;
      }
      const C mine = key(e);
      if (last >= 0 && !precedes(last_key, last, mine, e)) continue;
      if (best >= 0 && !precedes(mine, e, best_key, best)) continue;
      best = e;
      best_key = mine;
    }
    last = best;
    last_key = best_key;
    std::int64_t at = k;
    for (; at > 0 && chosen[at - 1] > best; --at) chosen[at] = chosen[at - 1];
    chosen[at] = static_cast<std::int32_t>(best);
  }
}

template <class C>
KOKKOS_INLINE_FUNCTION C sum_of_chosen(const View<const C*>& scores,
                                       const View<const std::int32_t*>& chosen) {
  C sum = 0;
  for (std::int64_t k = 0; k < chosen.size(); ++k) sum += scores[chosen[k]];
  return sum + least_sum<C>;
}

}  // namespace

OffsetsOnHost::OffsetsOnHost(const Exec& exec, View<const std::int64_t*> offsets, std::int64_t run,
                             std::int64_t ranks) {
  if (WarmUp::runs()) {
    const std::int64_t of_rank = offsets.size() / ranks;
    for (std::int64_t i = 0; i < offsets.size(); ++i) copy_.push_back(i % of_rank > run ? 1 : 0);
    view_ = host_view(std::as_const(copy_));
    return;
  }
  if (memory_is_host_accessible) {
    exec.fence();
    view_ = {offsets.data(), offsets.size()};
    return;
  }
  copy_.resize(static_cast<std::size_t>(offsets.size()));
  copy_to_host(exec, offsets, host_view(copy_));
  view_ = host_view(static_cast<const std::vector<std::int64_t>&>(copy_));
}

template <class C>
void choose_experts(const Exec& exec, const Router& router, View<const C*> bias,
                    const Routes<C>& routes) {
  require_shapes("choose_experts", router, routes);
  require_size_if_any("choose_experts", "bias", bias, router.experts);
  const std::int64_t per_token = router.per_token;
  const RouterScore score = router.score;
  const bool normalize = router.normalize;
  const C scale = static_cast<C>(router.scale);
  const std::int64_t groups = router.groups, of_token = router.groups_per_token;
  const std::int64_t size = router.group_size();
  const RouterGroupScore group_score = router.group_score;
  const Routes<C> to = routes;
  for_each_item(
      exec, "choose_experts", routes.scores.rows(), KOKKOS_LAMBDA(std::int64_t r) {
        const View<C*> scores = to.scores.row(r);
        const auto chosen = to.chosen.range(r * per_token, (r + 1) * per_token);
        const auto weights = to.weights.range(r * per_token, (r + 1) * per_token);
        score_row<C>(score, scores);
        const ChoiceKeys<C> key{scores, bias};
        choose_of_row<C>(key, groups_of_row(key, group_score, groups, size, of_token), size,
                         chosen);
        const C sum = normalize ? sum_of_chosen<C>(scores, chosen) : C(1);
        for (std::int64_t k = 0; k < per_token; ++k) weights[k] = scale * (scores[chosen[k]] / sum);
      });
}

// An item of work is an expert: it reads all choices, which takes little time compared with the
// products.
template <class C>
void sort_by_expert(const Exec& exec, const Router& router, std::int64_t leaves,
                    const Routes<C>& routes) {
  const char* const name = "sort_by_expert";
  require_shapes(name, router, routes);
  const std::int64_t assignments = routes.chosen.size(), experts = router.experts;
  require(leaves >= 1 && routes.scores.rows() % leaves == 0, name, ": ", routes.scores.rows(),
          " rows in ", leaves, " leaves, expected a multiple");
  require_size(name, "offsets", routes.offsets, experts * leaves + 1);
  const std::int64_t of_leaf = assignments / leaves;
  const Routes<C> to = routes;
  for_each_item(
      exec, "count_rows", experts, KOKKOS_LAMBDA(std::int64_t e) {
        for (std::int64_t leaf = 0; leaf < leaves; ++leaf) {
          const auto chosen = to.chosen.range(leaf * of_leaf, (leaf + 1) * of_leaf);
          std::int64_t count = 0;
          for (std::int64_t a = 0; a < of_leaf; ++a) count += chosen[a] == e ? 1 : 0;
          to.offsets[e * leaves + leaf + 1] = count;
        }
      });
  for_each_item(
      exec, "add_up_rows", 1, KOKKOS_LAMBDA(std::int64_t) {
        to.offsets[0] = 0;
        for (std::int64_t i = 0; i < experts * leaves; ++i) to.offsets[i + 1] += to.offsets[i];
      });
  for_each_item(
      exec, name, experts, KOKKOS_LAMBDA(std::int64_t e) {
        std::int64_t slot = to.offsets[e * leaves];
        for (std::int64_t a = 0; a < assignments; ++a) {
          if (to.chosen[a] != e) continue;
          to.slots[a] = static_cast<std::int32_t>(slot);
          to.assignments[slot++] = static_cast<std::int32_t>(a);
        }
      });
}

namespace {

/// Counts the assignments of one leaf.
template <class C>
void count_leaf(const Exec& exec, std::int64_t leaves, std::int64_t leaf,
                View<const std::int64_t*> offsets, C mean, View<C*> excess) {
  for_each_item(
      exec, "load_imbalance", excess.size(), KOKKOS_LAMBDA(std::int64_t e) {
        const std::int64_t count = offsets[e * leaves + leaf + 1] - offsets[e * leaves + leaf];
        excess[e] = static_cast<C>(count) - mean;
      });
}

}  // namespace

void add_counts(const Exec& exec, std::int64_t leaves, View<const std::int64_t*> offsets,
                View<std::int64_t*> counts) {
  require_size("add_counts", "offsets", offsets, counts.size() * leaves + 1);
  for_each_item(
      exec, "add_counts", counts.size(), KOKKOS_LAMBDA(std::int64_t e) {
        counts[e] += offsets[(e + 1) * leaves] - offsets[e * leaves];
      });
}

template <class C>
void load_imbalance(const Exec& exec, const Router& router, std::int64_t leaves,
                    const Routes<C>& routes, View<C*> excess, View<C*> workspace) {
  const char* const name = "load_imbalance";
  const std::int64_t experts = router.experts;
  require_size(name, "offsets", routes.offsets, experts * leaves + 1);
  require_size(name, "excess", excess, experts);
  require(workspace.size() >= excess_workspace(router, leaves), name, ": workspace of ",
          workspace.size(), " elements, expected at least ", excess_workspace(router, leaves));
  const std::int64_t assignments = routes.chosen.size() / leaves;
  const C mean = static_cast<C>(assignments) / static_cast<C>(experts);
  const auto slot = [&](std::int64_t index) {
    return index == 0 ? excess : workspace.range((index - 1) * experts, index * experts);
  };
  sum_pieces(
      leaves,
      [&](std::int64_t to, std::int64_t leaf) {
        count_leaf<C>(exec, leaves, leaf, routes.offsets, mean, slot(to));
      },
      [&](std::int64_t from, std::int64_t to) {
        add_to<C>(exec, View<const C*>(slot(from)), slot(to));
      });
}

std::int64_t excess_workspace(const Router& router, std::int64_t leaves) {
  return (tree_slots(leaves) - 1) * router.experts;
}

template <class C>
void router_backward(const Exec& exec, const Router& router, std::int64_t leaves, C balance,
                     const Routes<C>& routes, View<const C*> dweights, View<C**> dlogits) {
  const char* const name = "router_backward";
  require_shapes(name, router, routes);
  const std::int64_t rows = routes.scores.rows(), experts = router.experts;
  const std::int64_t per_token = router.per_token, of_leaf = rows / leaves;
  require_size(name, "offsets", routes.offsets, experts * leaves + 1);
  require_size(name, "dweights", dweights, rows * per_token);
  require_shape(name, "dlogits", dlogits, rows, experts);
  const RouterScore score = router.score;
  const bool normalize = router.normalize;
  const C scale = static_cast<C>(router.scale);
  // Multiplied by the number of the leaf's rows that go to the expert, it is the derivative with
  // respect to P, over the leaf's rows.
  const C pull = balance * static_cast<C>(experts) / static_cast<C>(of_leaf * per_token);
  const Routes<C> from = routes;
  for_each_item(
      exec, name, rows, KOKKOS_LAMBDA(std::int64_t r) {
        const View<const C*> scores = from.scores.row(r);
        const View<const std::int32_t*> chosen =
            from.chosen.range(r * per_token, (r + 1) * per_token);
        const auto dweight = dweights.range(r * per_token, (r + 1) * per_token);
        const View<C*> d = dlogits.row(r);  // gradient of scores, then of logits
        const std::int64_t first = r / of_leaf;
        const auto rows_of = [&](std::int64_t e) {
          const std::int64_t* const at = &from.offsets[e * leaves + first];
          return static_cast<C>(at[1] - at[0]);
        };
        C all = 1, mean_pull = 0;  // sum of scores; mean of pull, weighted by scores
        if (pull != C(0) && score == RouterScore::sigmoid) {
          all = least_sum<C>;
          for (std::int64_t e = 0; e < experts; ++e) all += scores[e];
          for (std::int64_t e = 0; e < experts; ++e)
            mean_pull += pull * rows_of(e) * scores[e] / all;
        }
        for (std::int64_t e = 0; e < experts; ++e)
          d[e] = pull == C(0) ? C(0) : multiply_add(pull, rows_of(e), -mean_pull) / all;
        const C sum = normalize ? sum_of_chosen<C>(scores, chosen) : C(1);
        C mean = 0;
        if (normalize)
          for (std::int64_t k = 0; k < per_token; ++k)
            mean = multiply_add(scale * dweight[k], scores[chosen[k]] / sum, mean);
        for (std::int64_t k = 0; k < per_token; ++k)
          d[chosen[k]] += multiply_add(scale, C(dweight[k]), -mean) / sum;
        if (score == RouterScore::sigmoid) {
          for (std::int64_t e = 0; e < experts; ++e) d[e] *= scores[e] * (C(1) - scores[e]);
          return;
        }
        C product = 0;
        for (std::int64_t e = 0; e < experts; ++e) product += d[e] * scores[e];
        for (std::int64_t e = 0; e < experts; ++e) d[e] = scores[e] * (d[e] - product);
      });
}

#define OSTRAKON_INSTANTIATE(C)                                                                   \
  template void choose_experts<C>(const Exec&, const Router&, View<const C*>, const Routes<C>&);  \
  template void sort_by_expert<C>(const Exec&, const Router&, std::int64_t, const Routes<C>&);    \
  template void load_imbalance<C>(const Exec&, const Router&, std::int64_t, const Routes<C>&,     \
                                  View<C*>, View<C*>);                                            \
  template void router_backward<C>(const Exec&, const Router&, std::int64_t, C, const Routes<C>&, \
                                   View<const C*>, View<C**>);
OSTRAKON_INSTANTIATE(float)
OSTRAKON_INSTANTIATE(double)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::math
