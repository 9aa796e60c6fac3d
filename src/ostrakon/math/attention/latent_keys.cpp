// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/attention/latent_keys.hpp>

#include <ostrakon/base/error.hpp>
#include <ostrakon/math/rows/row_kernel.hpp>

namespace ostrakon::math {
namespace {

template <class A>
void require_shape(const char* what, const View<A**>& x, std::int64_t rows, std::int64_t columns) {
  require(x.rows() == rows && x.columns() == columns, what, " (", x.rows(), ", ", x.columns(),
          "), expected (", rows, ", ", columns, ")");
}

/// Copies a run of elements.
template <class Row, class T>
KOKKOS_INLINE_FUNCTION void copy_run(const Row& row, const View<T*>& to, const View<const T*>& x) {
  row.map([](std::int64_t, T element) { return element; }, to, x);
}

}  // namespace

template <class T>
void join_keys(const Exec& exec, const LatentHeads& heads, View<const T**> own,
               View<const T**> shared, View<T**> kv) {
  const std::int64_t keys = heads.key_columns(), values = heads.value_columns();
  require_shape("join_keys: own parts and values", own, kv.rows(), heads.own_columns());
  require_shape("join_keys: shared part", shared, kv.rows(), heads.shared_width);
  require_shape("join_keys: keys and values", kv, own.rows(), keys + values);
  const LatentHeads of = heads;
  for_each_row(
      exec, "join_keys", kv.rows(), kv.columns(), KOKKOS_LAMBDA(const Row& row, std::int64_t r) {
        const View<const T*> from = own.row(r), first = shared.row(r);
        const View<T*> to = kv.row(r);
        for (std::int64_t head = 0; head < of.heads; ++head) {
          const std::int64_t key = head * (of.shared_width + of.own_width);
          const std::int64_t behind = key + of.shared_width, part = head * of.own_width;
          copy_run(row, to.range(key, behind), first);
          copy_run(row, to.range(behind, behind + of.own_width),
                   from.range(part, part + of.own_width));
        }
        copy_run(row, to.range(keys, keys + values), from.range(from.size() - values, from.size()));
      });
}

template <class T>
void split_keys(const Exec& exec, const LatentHeads& heads, View<const T**> dkv, View<T**> down) {
  const std::int64_t keys = heads.key_columns(), values = heads.value_columns();
  require_shape("split_keys: gradients of keys and values", dkv, down.rows(), keys + values);
  require_shape("split_keys: gradients of own parts", down, dkv.rows(), heads.own_columns());
  const LatentHeads of = heads;
  for_each_row(
      exec, "split_keys", down.rows(), down.columns(),
      KOKKOS_LAMBDA(const Row& row, std::int64_t r) {
        const View<const T*> from = dkv.row(r);
        const View<T*> to = down.row(r);
        for (std::int64_t head = 0; head < of.heads; ++head) {
          const std::int64_t behind = head * (of.shared_width + of.own_width) + of.shared_width;
          const std::int64_t part = head * of.own_width;
          copy_run(row, to.range(part, part + of.own_width),
                   from.range(behind, behind + of.own_width));
        }
        copy_run(row, to.range(to.size() - values, to.size()), from.range(keys, keys + values));
      });
}

template <class T, class S>
void sum_shared_keys(const Exec& exec, const LatentHeads& heads, View<const T**> dkeys,
                     View<S**> dshared) {
  using C = compute_t<T>;
  require_shape("sum_shared_keys: gradients of keys", dkeys, dshared.rows(), heads.key_columns());
  require_shape("sum_shared_keys: their sum", dshared, dkeys.rows(), heads.shared_width);
  const LatentHeads of = heads;
  for_each_row(
      exec, "sum_shared_keys", dshared.rows(), dkeys.columns(),
      KOKKOS_LAMBDA(const Row& row, std::int64_t r) {
        const View<const T*> from = dkeys.row(r);
        const View<S*> to = dshared.row(r);
        row.loop(of.shared_width, [&](std::int64_t i) {
          C sum = 0;
          for (std::int64_t head = 0; head < of.heads; ++head)
            sum += static_cast<C>(from[head * (of.shared_width + of.own_width) + i]);
          to[i] = static_cast<S>(sum);
        });
      });
}

#define OSTRAKON_INSTANTIATE_SUM(T, S) \
  template void sum_shared_keys<T, S>(const Exec&, const LatentHeads&, View<const T**>, View<S**>);
#define OSTRAKON_INSTANTIATE(T)                                                                 \
  template void join_keys<T>(const Exec&, const LatentHeads&, View<const T**>, View<const T**>, \
                             View<T**>);                                                        \
  template void split_keys<T>(const Exec&, const LatentHeads&, View<const T**>, View<T**>);
OSTRAKON_FOR_ALL_NUMBERS(OSTRAKON_INSTANTIATE)
OSTRAKON_FOR_ALL_SUMS(OSTRAKON_INSTANTIATE_SUM)
#undef OSTRAKON_INSTANTIATE
#undef OSTRAKON_INSTANTIATE_SUM

}  // namespace ostrakon::math
