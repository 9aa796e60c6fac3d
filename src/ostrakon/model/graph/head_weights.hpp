// SPDX-License-Identifier: Apache-2.0
#pragma once

// What calls that make logits, or compute losses of them, do with the weight and the bias of these.

#include <ostrakon/math/cross_entropy/logits.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/model/graph/kernel.hpp>
#include <ostrakon/model/graph/operations.hpp>

namespace ostrakon::model::graph {

/// What is made of products of so many words, whose bias a call takes after their weight.
template <class T>
math::Logits<T> logits_of(const Arguments& a, const Head& head, std::int64_t words) {
  return math::Logits<T>{head.form, a.weight<T>(1)}.range(0, words);
}

/// Clears the gradients of the tied unit behind those of its first weight: this unit computes with
/// that weight alone.
template <class T>
void clear_rest(const Exec& exec, const Arguments& a, const Weight& weight, std::int64_t written) {
  using C = compute_t<T>;
  if (weight.tied && weight.trained)
    math::fill<C>(exec, a.all_tied_gradients<C>(weight.stride).range(written, weight.stride), C(0));
}

}  // namespace ostrakon::model::graph
