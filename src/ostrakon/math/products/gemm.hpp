// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/base/dtype.hpp>
#include <ostrakon/math/half.hpp>
#include <ostrakon/math/kernel_form.hpp>
#include <ostrakon/math/piece_tree.hpp>
#include <ostrakon/math/view.hpp>

namespace ostrakon::math {

enum class Transpose { no, yes };

/// The name of a product among launched kernels.
constexpr const char* product_name(bool turn_a, bool turn_b) {
  return turn_a ? "product At B" : turn_b ? "product A Bt" : "product A B";
}

/// C = alpha op(A) op(B) + beta C. Shapes: op(A) (m, k), op(B) (k, n), C (m, n), all row-major.
/// With beta == 0, C is not read. This is the only interface to BLAS libraries. On the host
/// ordered_gemm() multiplies float, and amx_gemm() multiplies bf16 if the processor has AMX; with
/// both, rows and columns of C have the same bits when they are computed alone. On other processors
/// with instructions for 16-bit matrices oneDNN multiplies them, else they are converted to float;
/// a CBLAS multiplies double. On CUDA all products are cuBLAS's. Instantiated for T = C = float or
/// double, and for T = bf16 or fp16 with C = T or float, which are multiplied and summed in float.
/// Throws Error naming both shapes if they do not match.
template <class T, class C = T>
void gemm(const Exec& exec, Transpose transpose_a, Transpose transpose_b, compute_t<T> alpha,
          View<const T**> a, View<const T**> b, compute_t<T> beta, View<C**> c);

/// What is added to a product (m, n), each where it is given. With `onto` neither it nor the
/// product has gaps between rows, and they do not overlap.
template <class T>
struct Addends {
  View<const T**> onto = {};  ///< (m, n)
  View<const T*> bias = {};   ///< (n), added to each row
};

/// C = op(A) op(B) + onto + bias, overwritten. On CUDA it is one kernel, which adds in float and
/// rounds once. Elsewhere the product is added to a copy of `onto`, then the bias, each rounded to
/// T.
template <class T>
void gemm_plus(const Exec& exec, Transpose transpose_a, Transpose transpose_b, View<const T**> a,
               View<const T**> b, const Addends<T>& addends, View<T**> c);

// Checked views differ in size; a separate namespace makes mixing builds a link error.
#if defined(OSTRAKON_CHECK_VIEWS)
inline namespace checked_views {
#endif

/// One or more matrices of one shape at equal distances in a larger matrix, which contains all of
/// their elements.
template <class T>
class Batch {
 public:
  explicit Batch(View<T**> matrix) : first_(matrix) {}
  /// Converts a batch of writable matrices to a batch of read-only ones.
  template <class U, class = std::enable_if_t<std::is_same<const U, T>::value>>
  Batch(const Batch<U>& other)
      : first_(other.first_), stride_(other.stride_), count_(other.count_) {}
  /// Makes a batch of `count` runs of `columns` columns; each begins `distance` columns after the
  /// one before.
  static Batch of_columns(View<T**> all, std::int64_t columns, std::int64_t distance,
                          std::int64_t count) {
    const View<T**> used = all.column_range(0, (count - 1) * distance + columns);
    return {used.column_range(0, columns), distance, count};
  }
  /// Makes a batch of `count` runs of rows; each begins `distance` rows after the one before.
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

/// Computes C = alpha op(A) op(B) + beta C for all matrices of the batches. Throws Error also if
/// the batches differ in number.
template <class T, class C = T>
void gemm_batched(const Exec& exec, Transpose transpose_a, Transpose transpose_b,
                  compute_t<T> alpha, const Batch<const T>& a, const Batch<const T>& b,
                  compute_t<T> beta, const Batch<C>& c);

/// to += from; both have the same shape.
template <class T>
void add_matrix(const Exec& exec, View<const T**> from, View<T**> to);

/// Whether a product of so many terms of T that is added to C (beta = 1) has the same bits as the
/// finished product added to C.
template <class T>
bool adds_as_a_whole(std::int64_t terms);

/// Adds the product of piece `piece`, of `terms` terms, to the sum over `pieces` pieces by the tree
/// of piece_tree.hpp: multiply(beta, to) computes to = product + beta to, with beta 0 or 1.
/// slot(i): matrices for pending sums, i < tree_slots(pieces); slot(0) receives the result.
template <class T, class Slot, class Multiply>
void sum_product(const Exec& exec, std::int64_t piece, std::int64_t pieces, std::int64_t terms,
                 const Slot& slot, const Multiply& multiply) {
  using C = compute_t<T>;
  // The second of a pair needs no memory of its own if it can be added in one step.
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

/// Elements of compute_t<T> of workspace for gemm_by_piece().
std::int64_t gemm_by_piece_workspace(std::int64_t m, std::int64_t n, std::int64_t pieces);

/// C = A^T B, overwritten, for A (k, m) and B (k, n) whose rows are in `pieces` equal runs: the
/// product of each run is summed from zero on, and the products by the tree of piece_tree.hpp. One
/// piece gives the plain product, which may be added to C (`beta` = 1). C is (m, n).
template <class T>
void gemm_by_piece(const Exec& exec, View<const T**> a, View<const T**> b, View<compute_t<T>**> c,
                   std::int64_t pieces, View<compute_t<T>*> workspace, compute_t<T> beta = 0);

/// Does what gemm_by_piece does for runs of rows of different lengths: piece i is rows [offsets[i],
/// offsets[i + 1]), where offsets[0] need not be 0. A run without rows adds zeros. `offsets` is
/// host memory.
template <class T>
void gemm_by_run(const Exec& exec, View<const T**> a, View<const T**> b, View<compute_t<T>**> c,
                 HostView<const std::int64_t*> offsets, View<compute_t<T>*> workspace);

/// One run of gemm_by_run(), or a part of one that begins a multiple of product_chunk rows after
/// its begin: C = beta C + A^T B, with beta 0 for the first part and 1 for others.
template <class T>
void gemm_of_run(const Exec& exec, View<const T**> a, View<const T**> b, compute_t<T> beta,
                 View<compute_t<T>**> c);

/// Number of rows of A per product of gemm_by_row(); 0: no limit. A build may use the host's
/// products although its kernels have the form of a device (OSTRAKON_DEVICE_KERNELS).
template <class T>
constexpr std::int64_t rows_of_a_product_in(KernelForm form) {
  const bool is_on_device = form == kernel_form ? products_on_device : is_of_device(form);
  return is_16bit<T> && !is_on_device ? 64 : 0;
}
template <class T>
constexpr std::int64_t rows_of_a_product = rows_of_a_product_in<T>(kernel_form);

/// Elements of T of workspace for gemm_by_row().
template <class T>
constexpr std::int64_t gemm_by_row_workspace(std::int64_t k, std::int64_t n,
                                             std::int64_t at_once = rows_of_a_product<T>) {
  return at_once * (k + n);
}

/// C = A op(B) for A (m, k) and C (m, n), overwritten, where the bits of a row do not depend on the
/// number of rows. Unless is_partition_invariant(), a library may choose 16-bit kernels by the
/// number of rows: then `at_once` rows are multiplied at a time, the last ones padded with zeros,
/// so that all products have one shape. In double and on a device the bits may depend on the number
/// of rows.
template <class T>
void gemm_by_row(const Exec& exec, Transpose transpose_b, View<const T**> a, View<const T**> b,
                 View<T**> c, View<T*> workspace, std::int64_t at_once = rows_of_a_product<T>);

/// Makes the device's BLAS library allocate its memory now, not at the first product, as this
/// memory is in no plan.
void warm_up_products();

/// Returns the kernel that multiplies float matrices: "AVX-512", "AVX2", "plain loops",
/// "cuBLASLt", "hipBLASLt" or "a plain kernel, slow".
const char* gemm_kernel();

/// Whether rows and columns of a product of T have the same bits when they are computed alone: true
/// for ordered_gemm() and amx_gemm(), not for libraries.
template <class T>
bool is_partition_invariant();

/// How the host multiplies matrices of bf16 or fp16.
enum class HalfProducts { amx, onednn, in_float };
template <class T>
HalfProducts half_products();

/// Returns the kernel of both 16-bit types: "AMX", "oneDNN", "in float", or e.g. "AMX (bf16), in
/// float (fp16)". On a device gemm_kernel().
const char* gemm_kernel_16bit();
/// Returns the kernel of one 16-bit type.
const char* gemm_kernel_16bit(DType dtype);

/// Bytes of workspace that kernels of the host keep per thread, outside of plans. 0 on a device.
std::int64_t thread_scratch_bytes();
/// Threads of this rank for kernels and products, as set by set_gemm_threads().
int kernel_threads();

/// Sets the number of threads in products that the calling thread starts. In 16 bits and in double
/// the bits of a product may depend on it, so all ranks set the same number: see
/// trainer/threads.hpp.
void set_gemm_threads(int threads);

}  // namespace ostrakon::math
