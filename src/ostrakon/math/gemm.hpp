// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/base/dtype.hpp>
#include <ostrakon/math/half.hpp>
#include <ostrakon/math/kernel_form.hpp>
#include <ostrakon/math/piece_tree.hpp>
#include <ostrakon/math/view.hpp>

namespace ostrakon::math {

enum class Transpose { no, yes };

/// C = alpha op(A) op(B) + beta C. Shapes: op(A) (m, k), op(B) (k, n), C (m, n), all row-major.
/// With beta == 0, C is not read. The one seam to libraries. On the host ordered_gemm() multiplies
/// float, and any rows and columns of C have the same bits when they are computed alone; so they
/// have where amx_gemm() multiplies bf16. On other processors with instructions for 16-bit matrices
/// oneDNN multiplies them, else they become float; a CBLAS multiplies double. On CUDA all is
/// cuBLAS. Instantiated for T = C = float or double, and for T = bf16 or fp16 with C = T or float,
/// which are multiplied and summed in float. Throws Error naming both shapes where they do not fit.
template <class T, class C = T>
void gemm(const Exec& exec, Transpose transpose_a, Transpose transpose_b, compute_t<T> alpha,
          View<const T**> a, View<const T**> b, compute_t<T> beta, View<C**> c);

// Checked views differ in size; a namespace of their own makes mixing a link error.
#if defined(OSTRAKON_CHECK_VIEWS)
inline namespace checked_views {
#endif

/// At least one matrix: all of one shape and equally far apart in a larger one, which has all of
/// their elements.
template <class T>
class Batch {
 public:
  explicit Batch(View<T**> matrix) : first_(matrix) {}
  /// Converts matrices that may be written to those that are only read.
  template <class U, class = std::enable_if_t<std::is_same<const U, T>::value>>
  Batch(const Batch<U>& other)
      : first_(other.first_), stride_(other.stride_), count_(other.count_) {}
  /// `count` of `columns` columns each; every one begins `distance` columns after the one before.
  static Batch of_columns(View<T**> all, std::int64_t columns, std::int64_t distance,
                          std::int64_t count) {
    const View<T**> used = all.column_range(0, (count - 1) * distance + columns);
    return {used.column_range(0, columns), distance, count};
  }
  /// Makes a batch of runs of rows.
  static Batch of_rows(View<T**> all, std::int64_t rows, std::int64_t distance,
                       std::int64_t count) {
    const View<T**> used = all.row_range(0, (count - 1) * distance + rows);
    return {used.row_range(0, rows), distance * all.stride(), count};
  }

  const View<T**>& first() const { return first_; }
  std::int64_t stride() const { return stride_; }  ///< elements from one matrix to the next
  std::int64_t count() const { return count_; }

 private:
  template <class U>
  friend class Batch;
  Batch(View<T**> first, std::int64_t stride, std::int64_t count)
      : first_(first), stride_(stride), count_(count) {}

  View<T**> first_;
  std::int64_t stride_ = 0;
  std::int64_t count_ = 1;
};

#if defined(OSTRAKON_CHECK_VIEWS)
}  // namespace checked_views
#endif

/// Computes as many such products as each operand has matrices. Throws Error also where their
/// numbers differ.
template <class T, class C = T>
void gemm_batched(const Exec& exec, Transpose transpose_a, Transpose transpose_b,
                  compute_t<T> alpha, const Batch<const T>& a, const Batch<const T>& b,
                  compute_t<T> beta, const Batch<C>& c);

/// to += from, of one shape.
template <class T>
void add_matrix(const Exec& exec, View<const T**> from, View<T**> to);

/// Whether products of so many terms of T that are added to what C has (beta = 1) have the bits of
/// the product added to it as a whole.
template <class T>
bool adds_as_a_whole(std::int64_t terms);

/// Takes the product of piece `piece`, of `terms` terms, into the sum of those of `pieces` pieces
/// by the tree of piece_tree.hpp: multiply(beta, to) writes to = product + beta to, with beta 0
/// or 1. slot(i): matrices for sums that wait, i < tree_slots(pieces); the first is that of the
/// sum.
template <class T, class Slot, class Multiply>
void sum_product(const Exec& exec, std::int64_t piece, std::int64_t pieces, std::int64_t terms,
                 const Slot& slot, const Multiply& multiply) {
  using C = compute_t<T>;
  // The second of a pair needs no memory of its own where it is added as a whole.
  bool is_added = piece % 2 == 1 && adds_as_a_whole<T>(terms);
  sum_piece(
      piece, pieces,
      [&](std::int64_t to, std::int64_t) {
        multiply(is_added ? C(1) : C(0), slot(is_added ? to - 1 : to));
      },
      [&](std::int64_t from, std::int64_t to) {
        if (!is_added) add_matrix<C>(exec, slot(from), slot(to));
        is_added = false;
      });
}

/// Elements of compute_t<T> of the workspace of gemm_by_piece().
std::int64_t gemm_by_piece_workspace(std::int64_t m, std::int64_t n, std::int64_t pieces);

/// C = A^T B, overwritten, for A (k, m) and B (k, n) whose rows come in `pieces` equal runs: each
/// run's product is summed from zero on, and the products by the tree of piece_tree.hpp. With one
/// piece, the product as above. C is (m, n).
template <class T>
void gemm_by_piece(const Exec& exec, View<const T**> a, View<const T**> b, View<compute_t<T>**> c,
                   std::int64_t pieces, View<compute_t<T>*> workspace);

/// Does the same as gemm_by_piece for runs of rows that need not be equal, nor the first to begin
/// with row 0: piece i is rows [offsets[i], offsets[i + 1]). A run without rows adds zeros. Host
/// memory.
template <class T>
void gemm_by_run(const Exec& exec, View<const T**> a, View<const T**> b, View<compute_t<T>**> c,
                 HostView<const std::int64_t*> offsets, View<compute_t<T>*> workspace);

/// One run of gemm_by_run(), or a part of one that begins a multiple of product_chunk rows after
/// it: C = beta C + A^T B, with beta 0 for its begin and 1 for what follows.
template <class T>
void gemm_of_run(const Exec& exec, View<const T**> a, View<const T**> b, compute_t<T> beta,
                 View<compute_t<T>**> c);

/// Rows of A in a product of gemm_by_row(): 0 where all may be in one. Products of this build may
/// be the host's although its kernels have the form of a device (OSTRAKON_DEVICE_KERNELS).
template <class T>
constexpr std::int64_t rows_of_a_product_in(KernelForm form) {
  const bool is_on_device = form == kernel_form ? products_on_device : is_of_device(form);
  return is_16bit<T> && !is_on_device ? 64 : 0;
}
template <class T>
constexpr std::int64_t rows_of_a_product = rows_of_a_product_in<T>(kernel_form);

/// Elements of T of the workspace of gemm_by_row().
template <class T>
constexpr std::int64_t gemm_by_row_workspace(std::int64_t k, std::int64_t n,
                                             std::int64_t at_once = rows_of_a_product<T>) {
  return at_once * (k + n);
}

/// C = A op(B) for A (m, k) and C (m, n), overwritten, where any number of rows is to have the bits
/// that each row has in other company. Where parts_have_bits_of_whole() does not say so of all
/// products, a library may choose kernels of 16 bits by the number of rows: `at_once` rows are
/// multiplied at a time, the last ones with zeros below them, so that all products have one shape.
/// In double and on a device nothing is done about it.
template <class T>
void gemm_by_row(const Exec& exec, Transpose transpose_b, View<const T**> a, View<const T**> b,
                 View<T**> c, View<T*> workspace, std::int64_t at_once = rows_of_a_product<T>);

/// Makes the library that multiplies on a device take its memory now, not at the first product:
/// what it takes is in no plan.
void warm_up_products();

/// What multiplies matrices of float here: "AVX-512", "AVX2", "plain loops", "cuBLAS" or "Kokkos".
const char* gemm_kernel();

/// Whether any rows and columns of a product of T have its bits when they are computed alone: so
/// with ordered_gemm() and amx_gemm(), not with libraries.
template <class T>
bool parts_have_bits_of_whole();

/// How the host multiplies matrices of T, bf16 or fp16, here.
enum class HalfProducts { amx, onednn, in_float };
template <class T>
HalfProducts half_products();

/// Names the kernel of both types of 16 bits: "AMX", "oneDNN", "in float", or e.g. "AMX (bf16), in
/// float (fp16)". On a device gemm_kernel().
const char* gemm_kernel_16bit();
/// For one of them.
const char* gemm_kernel_16bit(DType dtype);

/// Bytes that kernels of the host keep for each thread, besides what plans have. 0 on a device.
std::int64_t room_bytes_of_a_thread();
/// Threads of this rank that kernels and products run on, as set_gemm_threads() has set it.
int kernel_threads();

/// Threads in products from now on, of the thread that calls this. In 16 bits and in double the
/// bits of a product may depend on it, so all ranks set the same number: see train/threads.hpp.
void set_gemm_threads(int threads);

}  // namespace ostrakon::math
