// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/base/names.hpp>
#include <ostrakon/math/half.hpp>
#include <ostrakon/math/rows/row_sums.hpp>
#include <ostrakon/math/view.hpp>

namespace ostrakon::math {

/// What an MLP activates its inner columns by. Gated ones multiply f(gate) by up.
enum class Activation {
  gelu,        ///< tanh form (Hendrycks & Gimpel 2016, eq. 2), as GPT-2 uses it
  gelu_exact,  ///< x Phi(x) (Hendrycks & Gimpel 2016, eq. 1)
  relu,
  relu_squared,   ///< So et al. 2021
  swiglu,         ///< silu(gate) up (Shazeer 2020)
  geglu,          ///< gelu(gate) up (Shazeer 2020)
  geglu_exact,    ///< gelu_exact(gate) up
  swiglu_clamped  ///< gate sigmoid(1.702 gate) (up + 1), gate <= 7, |up| <= 7 (OpenAI 2025,
                  ///< gpt-oss)
};
constexpr Named<Activation> activation_names[] = {{Activation::gelu, "gelu"},
                                                  {Activation::gelu_exact, "gelu_exact"},
                                                  {Activation::relu, "relu"},
                                                  {Activation::relu_squared, "relu_squared"},
                                                  {Activation::swiglu, "swiglu"},
                                                  {Activation::geglu, "geglu"},
                                                  {Activation::geglu_exact, "geglu_exact"},
                                                  {Activation::swiglu_clamped, "swiglu_clamped"}};
constexpr const char* name(Activation activation) { return name_in(activation_names, activation); }
/// Whether an activation takes gate and up side by side.
constexpr bool is_gated(Activation activation) {
  return activation == Activation::swiglu || activation == Activation::geglu ||
         activation == Activation::geglu_exact || activation == Activation::swiglu_clamped;
}

/// y (rows, n) = the activation of x (rows, n); of gated ones x is (rows, 2n), with gate in columns
/// [0, n) and up in [n, 2n).
template <class T>
void activation_forward(const Exec& exec, Activation activation, View<const T**> x, View<T**> y);

/// dx, shaped as x, = the gradient of x from dy (rows, n), overwritten. What is clamped has a
/// gradient of 0. dx may be x, and without a gate dy.
template <class T>
void activation_backward(const Exec& exec, Activation activation, View<const T**> x,
                         View<const T**> dy, View<T**> dx);

/// Does what activation_forward(`again`), activation_backward(`dx`) and sum_columns(dx, `dbias`)
/// do, with their bits; on a device with one read of x and of dy. What is empty of again and dbias
/// is not computed. dx may be x, and without a gate dy. `again` may be dy on a device; else it
/// shares no memory with other arrays.
template <class T>
void activation_backward(const Exec& exec, Activation activation, View<const T**> x,
                         View<const T**> dy, View<T**> dx, View<T**> again,
                         View<compute_t<T>*> dbias, const RowSums<compute_t<T>>& sums);

/// y = x * sigmoid(gate). x, y (rows, n); gate (rows, 1), for each row, or (rows, n), for each
/// element.
template <class T>
void gate_forward(const Exec& exec, View<const T**> x, View<const T**> gate, View<T**> y);
/// dx and dgate = gradients from dy, overwritten; dx may be dy, and dgate of each element gate.
template <class T>
void gate_backward(const Exec& exec, View<const T**> x, View<const T**> gate, View<const T**> dy,
                   View<T**> dx, View<T**> dgate);

/// y = cap * tanh(x / cap) (Gemma Team 2024, "logit soft-capping"). x, y (rows, n).
template <class T>
void soft_cap_forward(const Exec& exec, compute_t<T> cap, View<const T**> x, View<T**> y);
/// dx = gradient from dy, overwritten; dx and dy may be the same matrix.
template <class T>
void soft_cap_backward(const Exec& exec, compute_t<T> cap, View<const T**> y, View<const T**> dy,
                       View<T**> dx);

}  // namespace ostrakon::math
