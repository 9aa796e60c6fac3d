// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/half.hpp>
#include <ostrakon/math/view.hpp>

namespace ostrakon::math {

/// Widths of heads whose keys and values are made of a latent (multi-head latent attention,
/// DeepSeek-AI 2024, V2, section 2.1): the first elements of a key are those of all heads.
struct LatentHeads {
  std::int64_t heads = 1;
  std::int64_t shared_width = 1;  ///< of the elements of a key that all heads share
  std::int64_t own_width = 1;     ///< of the elements of a key behind them
  std::int64_t value_width = 1;

  std::int64_t key_width() const { return shared_width + own_width; }
  std::int64_t key_columns() const { return heads * key_width(); }
  std::int64_t value_columns() const { return heads * value_width; }
  /// Columns of the heads' own parts of keys, then of their values.
  std::int64_t own_columns() const { return heads * own_width + value_columns(); }
};

/// kv (rows, key_columns() + value_columns()) = keys of all heads, each `shared` (rows,
/// shared_width) and then its own part, and values; `own` (rows, own_columns()) has these.
template <class T>
void join_keys(const Exec& exec, const LatentHeads& heads, View<const T**> own,
               View<const T**> shared, View<T**> kv);

/// Backward: down, shape of `own`, is overwritten from dkv, shape of `kv`.
template <class T>
void split_keys(const Exec& exec, const LatentHeads& heads, View<const T**> dkv, View<T**> down);

/// Backward: dshared (rows, shared_width) is overwritten by the sum over heads, in their order and
/// in compute_t<T>, of the first elements of dkeys (rows, key_columns()). S: T or compute_t<T>.
template <class T, class S>
void sum_shared_keys(const Exec& exec, const LatentHeads& heads, View<const T**> dkeys,
                     View<S**> dshared);

}  // namespace ostrakon::math
