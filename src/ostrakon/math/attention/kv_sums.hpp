// SPDX-License-Identifier: Apache-2.0
#pragma once

// Sums of the gradients of keys and values in backward's products, for attention.cpp alone.

#include <ostrakon/math/attention/attention_blocks.hpp>
#include <ostrakon/math/attention/attention_on_chip.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/fast_divide.hpp>
#include <ostrakon/math/piece_tree.hpp>
#include <ostrakon/math/rows/row_kernel.hpp>
#include <ostrakon/math/scratch.hpp>

namespace ostrakon::math {

/// Elements of the gradient of keys, or of values, with heads of `width` columns, that backward
/// sums in compute_t<T> before it is stored; 0 if it is summed in place.
template <class T>
std::int64_t kv_sum_elements(const AttentionShape& shape, std::int64_t width, std::int64_t pieces,
                             KernelForm form = kernel_form) {
  const bool rounds = is_16bit<T> && !attention_on_chip<T>(shape, form);
  return rounds || pieces > 1
             ? attention_heads_at_once(shape, form) * shape.tokens * width * tree_slots(pieces)
             : 0;
}

template <class T>
static void clear_rows(const Exec& exec, View<T**> x) {
  for_each_row(
      exec, "attend_clear", x.rows(), x.columns(),
      KOKKOS_LAMBDA(const Row& row, std::int64_t index) {
        row.map([](std::int64_t) { return T(0); }, x.row(index));
      });
}

/// Stores the sums of `count` heads, keys and values (heads * tokens, width of a head), in the
/// heads' columns of dkeys and dvalues (tokens, heads * width of a head).
template <class K, class C>
static void store_heads(const Exec& exec, std::int64_t count, std::int64_t tokens,
                        std::int64_t key_width, std::int64_t value_width, View<const C*> keys,
                        View<const C*> values, View<K**> dkeys, View<K**> dvalues) {
  const FastDivide by_tokens(tokens);
  for_each_row(
      exec, "attend_store", count * tokens, key_width + value_width,
      KOKKOS_LAMBDA(const Row& row, std::int64_t index) {
        const std::int64_t token = by_tokens.rest(index), head = by_tokens.quotient(index);
        const auto store = [&](const View<K**>& to, const View<const C*>& sums,
                               std::int64_t width) {
          row.map([](std::int64_t, C sum) { return sum; },
                  to.row(token).range(head * width, (head + 1) * width),
                  sums.range(index * width, (index + 1) * width));
        };
        store(dkeys, keys, key_width);
        store(dvalues, values, value_width);
      });
}

/// Sums the gradients of keys and values over blocks of queries and heads of a group, in place: in
/// their rows of dkv.
template <class T, bool apart>
class KvSums {
 public:
  KvSums(const AttentionShape&, std::int64_t, Scratch<T>&) {}
  Batch<T> keys(const Batch<T>& in_place, std::int64_t, std::int64_t) const { return in_place; }
  Batch<T> values(const Batch<T>& in_place, std::int64_t, std::int64_t) const { return in_place; }
  /// Clears the gradients of tokens from `seen` on, which no query of the first block sees.
  void clear(const Exec& exec, View<T**> dkeys, View<T**> dvalues, std::int64_t,
             std::int64_t seen) const {
    if (seen == dkeys.rows()) return;
    clear_rows<T>(exec, dkeys.row_range(seen, dkeys.rows()));
    clear_rows<T>(exec, dvalues.row_range(seen, dvalues.rows()));
  }
  void add(const Exec&, std::int64_t, std::int64_t) const {}
  void store(const Exec&, const View<T**>&, const View<T**>&, std::int64_t) const {}
};

/// Sums them in separate slots, in compute_t<T>: in 16 bits every block would round the sum, and
/// pieces are summed separately.
template <class T>
class KvSums<T, true> {
 public:
  using C = compute_t<T>;

  KvSums(const AttentionShape& shape, std::int64_t pieces, Scratch<T>& scratch)
      : tokens_(shape.tokens),
        key_width_(shape.head_width),
        value_width_(shape.width_of_values()),
        slots_(tree_slots(pieces)),
        keys_(scratch.template take<C>(kv_sum_elements<T>(shape, key_width_, pieces))),
        values_(scratch.template take<C>(kv_sum_elements<T>(shape, value_width_, pieces))) {}
  /// The sums of the tokens that `in_place` has, from token `first` on.
  template <class K>
  Batch<C> keys(const Batch<K>& in_place, std::int64_t slot, std::int64_t first) const {
    return like(in_place, in_slot(keys_, slot), first);
  }
  template <class K>
  Batch<C> values(const Batch<K>& in_place, std::int64_t slot, std::int64_t first) const {
    return like(in_place, in_slot(values_, slot), first);
  }

  /// The sums of a slot: (heads at once * tokens, width of a head).
  View<C**> key_rows(std::int64_t slot) const { return in_rows(in_slot(keys_, slot), key_width_); }
  View<C**> value_rows(std::int64_t slot) const {
    return in_rows(in_slot(values_, slot), value_width_);
  }

  template <class K>
  void clear(const Exec& exec, const View<K**>& dkeys, const View<K**>&, std::int64_t slot,
             std::int64_t seen) const {
    if (seen == dkeys.rows()) return;
    clear_rows<C>(exec, key_rows(slot));
    clear_rows<C>(exec, value_rows(slot));
  }

  void add(const Exec& exec, std::int64_t from, std::int64_t to) const {
    for (const View<C*>& sums : {keys_, values_})
      add_to<C>(exec, View<const C*>(in_slot(sums, from)), in_slot(sums, to));
  }

  /// Stores the sums of `count` heads from the first slot in their columns of dkeys and dvalues.
  template <class K>
  void store(const Exec& exec, View<K**> dkeys, View<K**> dvalues, std::int64_t count) const {
    store_heads<K, C>(exec, count, tokens_, key_width_, value_width_, keys_, values_, dkeys,
                      dvalues);
  }

 private:
  View<C*> in_slot(const View<C*>& all, std::int64_t slot) const {
    const std::int64_t elements = all.size() / slots_;
    return all.range(slot * elements, (slot + 1) * elements);
  }
  static View<C**> in_rows(View<C*> sums, std::int64_t width) {
    return sums.matrix(sums.size() / width, width);
  }
  template <class K>
  Batch<C> like(const Batch<K>& in_place, View<C*> sums, std::int64_t first) const {
    const std::int64_t rows = in_place.count() * tokens_, width = in_place.first().columns();
    return Batch<C>::of_rows(sums.matrix(rows, width).row_range(first, rows),
                             in_place.first().rows(), tokens_, in_place.count());
  }

  std::int64_t tokens_;
  std::int64_t key_width_, value_width_;
  std::int64_t slots_;
  View<C*> keys_;
  View<C*> values_;
};

}  // namespace ostrakon::math
