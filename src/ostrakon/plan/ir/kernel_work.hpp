// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

namespace ostrakon::plan {

/// Quantities that the time of a phase's kernels depends on besides its floating-point operations,
/// as sums over kernels. They are doubles, as a phase may have a share of a kernel.
struct KernelWork {
  double products = 0.0;  ///< number of matrix products, without attention's
  /// Floating-point operations of each product divided by the narrower side of its weight, as
  /// narrow products are slower. Without products in 8 bits.
  double products_by_width = 0.0;
  double flops_in_8_bits = 0.0;     ///< operations of products whose operands have 8 bits
  double in_8_bits_by_width = 0.0;  ///< as products_by_width, of products in 8 bits
  /// Floating-point operations of attention: queries times keys, probabilities times values, and
  /// their gradients. All others of the phase are in matrix products, in 8 bits or not.
  double attention_flops = 0.0;
  double attention_by_width = 0.0;  ///< attention_flops divided by the width of a head
  double row_bytes = 0.0;    ///< bytes that kernels without products read and write, each array
                             ///< once: norms, activations, rotary embedding, residual sums, losses
  double row_kernels = 0.0;  ///< number of kernels without products
  double activations = 0.0;  ///< number of elements of activation functions, or of their
                             ///< derivatives

  KernelWork& operator+=(const KernelWork& more) {
    products += more.products;
    products_by_width += more.products_by_width;
    flops_in_8_bits += more.flops_in_8_bits;
    in_8_bits_by_width += more.in_8_bits_by_width;
    attention_flops += more.attention_flops;
    attention_by_width += more.attention_by_width;
    row_bytes += more.row_bytes;
    row_kernels += more.row_kernels;
    activations += more.activations;
    return *this;
  }
  friend KernelWork operator+(KernelWork a, const KernelWork& b) { return a += b; }
  friend KernelWork operator*(double times, KernelWork work) {
    for (double* sum : {&work.products, &work.products_by_width, &work.flops_in_8_bits,
                        &work.in_8_bits_by_width, &work.attention_flops, &work.attention_by_width,
                        &work.row_bytes, &work.row_kernels, &work.activations})
      *sum *= times;
    return work;
  }
};

/// Returns the work of as many kernels, each of which does `times` as much.
inline KernelWork times_as_long(KernelWork work, double times) {
  const double products = work.products, row_kernels = work.row_kernels;
  work = times * work;
  work.products = products;
  work.row_kernels = row_kernels;
  return work;
}
/// The work of a product of `flops` operations with a weight (inputs, outputs).
inline KernelWork product_work(double flops, std::int64_t inputs, std::int64_t outputs) {
  KernelWork work;
  work.products = 1.0;
  work.products_by_width = flops / static_cast<double>(std::min(inputs, outputs));
  return work;
}
/// Returns the work with all products in 8 bits. `flops`: the operations of these products.
inline KernelWork in_8_bits(KernelWork work, double flops) {
  work.flops_in_8_bits = flops;
  work.in_8_bits_by_width = work.products_by_width;
  work.products_by_width = 0.0;
  return work;
}
/// The work of attention with heads of `head_width`.
inline KernelWork attention_work(double flops, std::int64_t head_width) {
  KernelWork work;
  work.attention_flops = flops;
  work.attention_by_width = flops / static_cast<double>(head_width);
  return work;
}
/// The work of `kernels` kernels without products that together read and write `bytes`.
inline KernelWork row_work(double bytes, double kernels = 1.0) {
  KernelWork work;
  work.row_bytes = bytes;
  work.row_kernels = kernels;
  return work;
}
/// The work of an activation function of `elements`, in a kernel that reads and writes `bytes`.
inline KernelWork activation_work(double elements, double bytes) {
  KernelWork work = row_work(bytes);
  work.activations = elements;
  return work;
}

}  // namespace ostrakon::plan
