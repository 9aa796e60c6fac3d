// SPDX-License-Identifier: Apache-2.0
#pragma once

// The row kernels between the products of attention, for attention.cpp alone.

#include <ostrakon/math/attention/attention_blocks.hpp>
#include <ostrakon/math/elementary.hpp>
#include <ostrakon/math/fast_divide.hpp>
#include <ostrakon/math/rows/row_kernel.hpp>
#include <ostrakon/math/scratch.hpp>

namespace ostrakon::math {

/// The scores of a block's rows: row i has query i % queries of head i / queries, which is one of
/// another key/value head or, where there are several members, the next one of the same; and the
/// keys from the block's first on.
class BlockScores {
 public:
  BlockScores(const AttentionShape& shape, const QueryRuns& queries, const AttentionBlock& block)
      : scores_(shape.scores),
        document_begins_(queries.document_begins(block.sequence, block.row)),
        head_step_(block.members > 1 ? 1 : shape.heads / shape.kv_heads),
        first_head_(block.kv_head * (shape.heads / shape.kv_heads) + block.member),
        begin_(block.begin),
        first_key_(block.first_key) {}

  KOKKOS_INLINE_FUNCTION bool change() const { return scores_.soft_cap > 0 || scores_.slopes > 0; }
  KOKKOS_INLINE_FUNCTION bool capped() const { return scores_.soft_cap > 0; }
  /// Keys [first(query), end(query)) are those that a query sees, counted from the first key.
  KOKKOS_INLINE_FUNCTION std::int64_t end(std::int64_t query) const {
    return begin_ + query + 1 - first_key_;
  }
  KOKKOS_INLINE_FUNCTION std::int64_t first(std::int64_t query) const {
    return first_key_of(begin_ + query, scores_.window,
                        document_begins_ ? std::int64_t{document_begins_[query]} : 0) -
           first_key_;
  }
  KOKKOS_INLINE_FUNCTION std::int64_t query_head(std::int64_t head) const {
    return first_head_ + head * head_step_;
  }
  template <class C>
  KOKKOS_INLINE_FUNCTION ChangedScores<C> of_head(std::int64_t head) const {
    return {static_cast<C>(scores_.soft_cap),
            static_cast<C>(slope_of_head(scores_, query_head(head)))};
  }

 private:
  AttentionScores scores_;
  View<const std::int32_t*> document_begins_;
  std::int64_t head_step_, first_head_, begin_, first_key_;
};

/// probabilities (heads * queries, keys) = the softmax of each row of scaled products over the keys
/// that its query sees and its head's sink, if there are `sinks`; 0 for other keys. Scores are
/// clobbered.
template <class T, class C = compute_t<T>>
static void softmax_rows(const Exec& exec, const AttentionBlock& block, const BlockScores& of,
                         View<C**> scores, View<const T*> sinks, View<T**> probabilities,
                         View<C*> log_sum_exp, std::int64_t log_sum_exp_stride) {
  const std::int64_t queries = block.queries();
  const std::int64_t keys = block.keys();
  if (queries == 0) return;
  const FastDivide by_queries(queries);
  for_each_row(
      exec, "attend_softmax", block.count * block.rows(), keys,
      KOKKOS_LAMBDA(const Row& row, std::int64_t index) {
        const std::int64_t query = by_queries.rest(index), head = by_queries.quotient(index);
        const std::int64_t first = of.first(query), seen = of.end(query);
        [[maybe_unused]] const std::int64_t unseen = keys - seen;
        const View<C*> p = scores.row(index);
        const View<T*> stored = stored_at(p, probabilities.row(index));
        if (of.change()) {
          const ChangedScores<C> changed = of.template of_head<C>(head);
          const bool capped = of.capped();
          row.map(
              [=](std::int64_t key, C score) {
                return changed(score, capped ? changed.capped(score) : C(0), seen - 1 - key);
              },
              p, p);
        }
        const View<C*> visible = p.range(first, seen);
        const C sink = sinks ? static_cast<C>(sinks[of.query_head(head)]) : C(0);
        C largest = row.maximum_of([](std::int64_t, C score) { return score; }, p[seen - 1],
                                   p.range(first, seen - 1));
        if (sinks && sink > largest) largest = sink;
        const C total_of_sink = sinks ? fast_exp(sink - largest) : C(0);
        C total;
        if constexpr (on_device) {  // computed twice, not stored and loaded
          total = total_of_sink +
                  row.template sum_of<C>(
                      [=](std::int64_t, C score) { return fast_exp(score - largest); }, visible);
          const C inverse = C(1) / total;
          row.map(
              [=](std::int64_t key, C score) {
                return key >= first && key < seen ? fast_exp(score - largest) * inverse : C(0);
              },
              stored, p);
        } else {
          total = row.template sum<C>(seen - first, [&](std::int64_t key) {
            visible[key] = fast_exp(visible[key] - largest);
            return visible[key];
          });
          total += total_of_sink;
          const C inverse = C(1) / total;
          row.loop(first, [&](std::int64_t key) { stored[key] = T(0); });
          row.loop(seen - first, [&](std::int64_t key) {
            stored[first + key] = static_cast<T>(visible[key] * inverse);
          });
          row.loop(unseen, [&](std::int64_t key) { stored[seen + key] = T(0); });
        }
        row.once([&] { log_sum_exp[head * log_sum_exp_stride + query] = largest + log(total); });
      });
}

/// Inputs of the backward kernel besides the scores, by row.
template <class T>
struct RowOperands {
  View<const compute_t<T>*> log_sum_exp;
  std::int64_t log_sum_exp_stride;
  View<const T**> out, dout;  ///< (queries, heads * value_width)
  std::int64_t value_width;
  std::int64_t first_column, head_stride;  ///< column of the first head; distance of heads
};

/// Computes probabilities P from scaled products, and dscores = P (dP - sum(dO O)) scale from
/// dprobabilities, times the derivative of capped scores.
template <class T, class C = compute_t<T>>
static void softmax_backward_rows(const Exec& exec, const AttentionBlock& block,
                                  const BlockScores& of, const RowOperands<T>& operands, C scale,
                                  View<C**> scores, View<C**> dprobabilities,
                                  View<T**> probabilities, View<T**> dscores) {
  const std::int64_t queries = block.queries();
  const std::int64_t keys = block.keys();
  const RowOperands<T> from = operands;
  if (queries == 0) return;
  const FastDivide by_queries(queries);
  for_each_row(
      exec, "attend_backward", block.count * queries, keys,
      KOKKOS_LAMBDA(const Row& row, std::int64_t index) {
        const std::int64_t query = by_queries.rest(index);
        const std::int64_t head = by_queries.quotient(index);
        const std::int64_t before = of.first(query), seen = of.end(query);
        [[maybe_unused]] const std::int64_t unseen = keys - seen;
        const C times = scale;
        const std::int64_t first = from.first_column + head * from.head_stride;
        const auto out = from.out.row(query).range(first, first + from.value_width);
        const auto dout = from.dout.row(query).range(first, first + from.value_width);
        const C delta = row.template sum_of<C>(
            [](std::int64_t, C o, C d) {
              return Product<C>{o, d};
            },
            out, dout);
        const C shift = from.log_sum_exp[head * from.log_sum_exp_stride + query];
        const View<C*> s = scores.row(index);
        const View<C*> dp = dprobabilities.row(index);
        const View<T*> p = stored_at(s, probabilities.row(index));
        const View<T*> ds = stored_at(dp, dscores.row(index));
        if (of.change()) {
          const ChangedScores<C> changed = of.template of_head<C>(head);
          const bool is_capped = of.capped();
          row.map_two(
              [=](std::int64_t key, C score, C d) {
                const C capped = is_capped ? changed.capped(score) : C(0);
                const bool sees = key >= before && key < seen;
                const C probability =
                    sees ? fast_exp(changed(score, capped, seen - 1 - key) - shift) : C(0);
                const C gradient =
                    probability * (d - delta) * times * multiply_add(-capped, capped, C(1));
                return Two<C, C>{sees ? gradient : C(0), probability};
              },
              ds, p, s, dp);
        } else if constexpr (on_device) {
          row.map_two(
              [=](std::int64_t key, C score, C d) {
                const bool sees = key >= before && key < seen;
                const C probability = sees ? fast_exp(score - shift) : C(0);
                return Two<C, C>{sees ? probability * (d - delta) * times : C(0), probability};
              },
              ds, p, s, dp);
        } else {
          const auto clear = [&](std::int64_t begin, std::int64_t count) {
            row.loop(count, [&](std::int64_t key) {
              p[begin + key] = T(0);
              ds[begin + key] = T(0);
            });
          };
          clear(0, before);
          row.loop(seen - before, [&](std::int64_t i) {
            const std::int64_t key = before + i;
            const C probability = fast_exp(s[key] - shift);
            ds[key] = static_cast<T>(probability * (dp[key] - delta) * times);
            p[key] = static_cast<T>(probability);
          });
          clear(seen, unseen);
        }
      });
}

/// Computes attention_backward_sinks; `of_sequence`: rows of each sequence.
template <class T, class C = compute_t<T>>
static void sum_sink_gradients(const Exec& exec, const AttentionShape& shape, View<const T*> sinks,
                               View<const T**> out, View<const C*> log_sum_exp,
                               View<const T**> dout, std::int64_t first_row,
                               std::int64_t of_sequence, View<C*> dsinks) {
  const std::int64_t rows = out.rows(), heads = shape.heads, width = shape.width_of_values();
  for_each_row(
      exec, "attend_dsinks", heads, rows, KOKKOS_LAMBDA(const Row& row, std::int64_t head) {
        const C sink = static_cast<C>(sinks[head]);
        const C sum = row.template sum<C>(rows, [&](std::int64_t r) {
          C delta = 0;
          for (std::int64_t j = head * width; j < (head + 1) * width; ++j)
            delta = multiply_add(static_cast<C>(out(r, j)), static_cast<C>(dout(r, j)), delta);
          const std::int64_t sequence = (first_row + r) / of_sequence;
          const std::int64_t place =
              (sequence * heads + head) * of_sequence + (first_row + r) % of_sequence;
          return Product<C>{fast_exp(sink - log_sum_exp[place]), delta};
        });
        row.once([&] { dsinks[head] = -sum; });
      });
}

}  // namespace ostrakon::math
