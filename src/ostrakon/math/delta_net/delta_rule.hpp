// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/half.hpp>
#include <ostrakon/math/view.hpp>

namespace ostrakon::math {

// The gated delta rule (Yang, Kautz, Hatamizadeh 2024, arXiv 2412.06464). Each head of values keeps
// a state S (key_width, value_width), at first 0. Token t has a query q, a key k, a value v, a
// decay e^g and a rate beta:
//
//     S = e^g S;  d = beta (v - S^T k);  S = S + k d^T;  o = S^T q
//
// q and k are divided by sqrt(the sum of their squares + 1e-6), q also by sqrt(key_width). Tokens
// are computed in chunks: with the state at the start of a chunk all of its d solve a triangular
// system, and what is left are products of small matrices (section 3.3 there). A head of keys
// serves value_heads / key_heads neighbouring heads of values. What a sequence's head gets depends
// on nothing else that is computed.

/// Tokens that are computed together from the state before them.
constexpr std::int64_t delta_rule_chunk = 64;

struct DeltaRuleShape {
  std::int64_t sequences = 1, tokens = 1;  ///< rows: those of a sequence are neighbours
  std::int64_t key_heads = 1, value_heads = 1;
  std::int64_t key_width = 1, value_width = 1;

  std::int64_t rows() const { return sequences * tokens; }
  KOKKOS_INLINE_FUNCTION std::int64_t key_columns() const { return key_heads * key_width; }
  std::int64_t value_columns() const { return value_heads * value_width; }
  /// Columns of x: queries, keys and values of all heads.
  std::int64_t columns() const { return 2 * key_columns() + value_columns(); }
  /// Elements of the states of all heads: (value_heads, key_width, value_width).
  std::int64_t state_columns() const { return key_width * value_columns(); }
  std::int64_t chunks() const { return (tokens + delta_rule_chunk - 1) / delta_rule_chunk; }
};

/// out (rows, value_columns) of x (rows, columns) and of gates (rows, 2 value_heads), the logits of
/// beta and then the steps: beta = sigmoid(logit), g = -e^decay softplus(step + bias); decay and
/// bias (value_heads). state (sequences, state_columns): before the first token, where `continues`,
/// else not read; in the end behind the last one. states (sequences * chunks, state_columns): those
/// before each chunk, for backward; empty: they are not stored.
template <class T>
void delta_rule_forward(const Exec& exec, const DeltaRuleShape& shape, bool continues,
                        View<const T**> x, View<const T**> gates, View<const T*> decay,
                        View<const T*> bias, View<compute_t<T>**> state,
                        View<compute_t<T>**> states, View<T**> out, View<compute_t<T>*> workspace);
std::int64_t delta_rule_forward_workspace(const DeltaRuleShape& shape);

/// dx and dgates = gradients from dout, overwritten; `states` of forward from a state of 0. terms
/// (rows, 2 value_heads): what a row adds to the gradients of decay and, behind them, of bias.
template <class T>
void delta_rule_backward(const Exec& exec, const DeltaRuleShape& shape, View<const T**> x,
                         View<const T**> gates, View<const T*> decay, View<const T*> bias,
                         View<const compute_t<T>**> states, View<const T**> dout, View<T**> dx,
                         View<T**> dgates, View<compute_t<T>**> terms,
                         View<compute_t<T>*> workspace);
std::int64_t delta_rule_backward_workspace(const DeltaRuleShape& shape);

}  // namespace ostrakon::math
