// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/gemm.hpp>

#include <limits>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/work_items.hpp>
#include <string>
#include <type_traits>

#if OSTRAKON_ON_DEVICE
#if defined(KOKKOS_ENABLE_CUDA) && defined(OSTRAKON_HAVE_CUBLAS)
#define OSTRAKON_GEMM_CUBLAS
#include <cublas_v2.h>
#endif
#else
#if defined(OSTRAKON_HAVE_ONEDNN)
#define OSTRAKON_GEMM_ONEDNN
#include <dnnl.h>
#endif
#if defined(OSTRAKON_HAVE_CBLAS)
#define OSTRAKON_GEMM_CBLAS
#include <cblas.h>
#endif
#endif
#if defined(_OPENMP)
#include <omp.h>
#endif

namespace ostrakon::math {
namespace {

/// One product, checked: op(A) (m, k), op(B) (k, n), C (m, n).
struct Extents {
  std::int64_t m, n, k;
};

template <class T>
std::string shape_text(const Matrix<T>& x, Transpose transpose) {
  return text("(", x.rows, ", ", x.columns, ")", transpose == Transpose::yes ? " transposed" : "");
}

template <class T>
Extents checked_extents(Transpose transpose_a, Transpose transpose_b, const Matrix<const T>& a,
                        const Matrix<const T>& b, const Matrix<T>& c) {
  const bool turn_a = transpose_a == Transpose::yes;
  const bool turn_b = transpose_b == Transpose::yes;
  const std::int64_t m = turn_a ? a.columns : a.rows;
  const std::int64_t k = turn_a ? a.rows : a.columns;
  const std::int64_t k_of_b = turn_b ? b.columns : b.rows;
  const std::int64_t n = turn_b ? b.rows : b.columns;
  const bool fits = k == k_of_b && c.rows == m && c.columns == n && m >= 0 && n >= 0 && k >= 0;
  const bool strides_fit = a.stride >= a.columns && b.stride >= b.columns && c.stride >= c.columns;
  if (!fits || !strides_fit)
    throw Error(text("gemm: A ", shape_text(a, transpose_a), " and B ", shape_text(b, transpose_b),
                     " do not multiply into C ", shape_text(c, Transpose::no), "; row strides are ",
                     a.stride, ", ", b.stride, " and ", c.stride));
  return {m, n, k};
}

/// The type of sizes in CBLAS and cuBLAS.
[[maybe_unused]] int blas_int(std::int64_t value, const char* what) {
  require(value <= std::numeric_limits<int>::max(), "gemm: ", what, " is ", value,
          ", but the BLAS counts with 32 bits, so at most ", std::numeric_limits<int>::max());
  return static_cast<int>(value);
}

template <class T>
void scale(const Exec& exec, T beta, Matrix<T> c) {
  const std::int64_t columns = c.columns;
  for_each_item(
      exec, "gemm_scale", c.rows * columns, KOKKOS_LAMBDA(std::int64_t item) {
        T& element = c(item / columns, item % columns);
        element = beta == T(0) ? T(0) : beta * element;
      });
}

/// The product without a library: an item of work is a run of columns of one row of C.
template <class T>
[[maybe_unused]] void plain_gemm(const Exec& exec, bool turn_a, bool turn_b, const Extents& extents,
                                 T alpha, Matrix<const T> a, Matrix<const T> b, T beta,
                                 Matrix<T> c) {
  constexpr std::int64_t run = per_item(64);
  const std::int64_t runs = items_for(extents.n, run);
  const std::int64_t n = extents.n;
  const std::int64_t k = extents.k;
  const std::int64_t a_row = turn_a ? 1 : a.stride;
  const std::int64_t a_term = turn_a ? a.stride : 1;
  const std::int64_t b_term = turn_b ? 1 : b.stride;
  const std::int64_t b_column = turn_b ? b.stride : 1;
  for_each_item(
      exec, "gemm", extents.m * runs, KOKKOS_LAMBDA(std::int64_t item) {
        const std::int64_t row = item / runs;
        const std::int64_t first = item % runs * run;
        const std::int64_t width = smaller(run, n - first);
        T sums[run] = {};
        for (std::int64_t term = 0; term < k; ++term) {
          const T factor = a.data[row * a_row + term * a_term];
          const T* terms = b.data + term * b_term + first * b_column;
          for (std::int64_t j = 0; j < width; ++j) sums[j] += factor * terms[j * b_column];
        }
        T* out = c.row(row) + first;
        for (std::int64_t j = 0; j < width; ++j)
          out[j] = alpha * sums[j] + (beta == T(0) ? T(0) : beta * out[j]);
      });
}

#if defined(OSTRAKON_GEMM_CUBLAS)

void check_cublas(cublasStatus_t status, const char* call) {
  require(status == CUBLAS_STATUS_SUCCESS, call, " failed: cuBLAS status ",
          static_cast<int>(status));
}

/// The process's handle, set to the stream of `exec`. It dies with Kokkos, before CUDA does.
cublasHandle_t cublas_handle(const Exec& exec) {
  static cublasHandle_t handle = nullptr;
  if (handle == nullptr) {
    check_cublas(cublasCreate(&handle), "cublasCreate");
    Kokkos::push_finalize_hook([] {
      cublasDestroy(handle);
      handle = nullptr;
    });
  }
  check_cublas(cublasSetStream(handle, exec.cuda_stream()), "cublasSetStream");
  return handle;
}

// cuBLAS stores by columns, and so sees C^T = op(B)^T op(A)^T: operands and sizes change places.
template <class T>
void library_gemm(const Exec& exec, bool turn_a, bool turn_b, const Extents& extents, T alpha,
                  Matrix<const T> a, std::int64_t stride_a, Matrix<const T> b,
                  std::int64_t stride_b, T beta, Matrix<T> c, std::int64_t stride_c,
                  std::int64_t count) {
  const auto operation_a = turn_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  const auto operation_b = turn_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  const int m = blas_int(extents.m, "the number of rows");
  const int n = blas_int(extents.n, "the number of columns");
  const int k = blas_int(extents.k, "the number of terms");
  const int lda = blas_int(a.stride, "the row stride of A");
  const int ldb = blas_int(b.stride, "the row stride of B");
  const int ldc = blas_int(c.stride, "the row stride of C");
  const int batches = blas_int(count, "the number of products");
  const cublasHandle_t handle = cublas_handle(exec);
  if constexpr (std::is_same<T, float>::value) {
    check_cublas(cublasSgemmStridedBatched(handle, operation_b, operation_a, n, m, k, &alpha,
                                           b.data, ldb, stride_b, a.data, lda, stride_a, &beta,
                                           c.data, ldc, stride_c, batches),
                 "cublasSgemmStridedBatched");
  } else {
    check_cublas(cublasDgemmStridedBatched(handle, operation_b, operation_a, n, m, k, &alpha,
                                           b.data, ldb, stride_b, a.data, lda, stride_a, &beta,
                                           c.data, ldc, stride_c, batches),
                 "cublasDgemmStridedBatched");
  }
}

#else

#if defined(OSTRAKON_GEMM_ONEDNN)
void onednn_gemm(bool turn_a, bool turn_b, const Extents& extents, float alpha,
                 Matrix<const float> a, Matrix<const float> b, float beta, Matrix<float> c) {
  const dnnl_status_t status =
      dnnl_sgemm(turn_a ? 'T' : 'N', turn_b ? 'T' : 'N', extents.m, extents.n, extents.k, alpha,
                 a.data, a.stride, b.data, b.stride, beta, c.data, c.stride);
  require(status == dnnl_success, "dnnl_sgemm failed: oneDNN status ", static_cast<int>(status));
}
#endif

#if defined(OSTRAKON_GEMM_CBLAS)
template <class T>
void cblas_gemm(bool turn_a, bool turn_b, const Extents& extents, T alpha, Matrix<const T> a,
                Matrix<const T> b, T beta, Matrix<T> c) {
  const auto operation_a = turn_a ? CblasTrans : CblasNoTrans;
  const auto operation_b = turn_b ? CblasTrans : CblasNoTrans;
  const int m = blas_int(extents.m, "the number of rows");
  const int n = blas_int(extents.n, "the number of columns");
  const int k = blas_int(extents.k, "the number of terms");
  const int lda = blas_int(a.stride, "the row stride of A");
  const int ldb = blas_int(b.stride, "the row stride of B");
  const int ldc = blas_int(c.stride, "the row stride of C");
  if constexpr (std::is_same<T, float>::value) {
    cblas_sgemm(CblasRowMajor, operation_a, operation_b, m, n, k, alpha, a.data, lda, b.data, ldb,
                beta, c.data, ldc);
  } else {
    cblas_dgemm(CblasRowMajor, operation_a, operation_b, m, n, k, alpha, a.data, lda, b.data, ldb,
                beta, c.data, ldc);
  }
}
#endif

template <class T>
void one_gemm(const Exec& exec, bool turn_a, bool turn_b, const Extents& extents, T alpha,
              Matrix<const T> a, Matrix<const T> b, T beta, Matrix<T> c) {
#if defined(OSTRAKON_GEMM_ONEDNN)
  if constexpr (std::is_same<T, float>::value) {
    onednn_gemm(turn_a, turn_b, extents, alpha, a, b, beta, c);
    return;
  }
#endif
#if defined(OSTRAKON_GEMM_CBLAS)
  cblas_gemm(turn_a, turn_b, extents, alpha, a, b, beta, c);
#else
  plain_gemm(exec, turn_a, turn_b, extents, alpha, a, b, beta, c);
#endif
  (void)exec;
}

template <class T>
void library_gemm(const Exec& exec, bool turn_a, bool turn_b, const Extents& extents, T alpha,
                  Matrix<const T> a, std::int64_t stride_a, Matrix<const T> b,
                  std::int64_t stride_b, T beta, Matrix<T> c, std::int64_t stride_c,
                  std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    one_gemm(exec, turn_a, turn_b, extents, alpha, a, b, beta, c);
    a.data += stride_a;
    b.data += stride_b;
    c.data += stride_c;
  }
}

#endif

}  // namespace

template <class T>
void gemm_batched(const Exec& exec, Transpose transpose_a, Transpose transpose_b, T alpha,
                  ConstMatrix<T> a, std::int64_t stride_a, ConstMatrix<T> b, std::int64_t stride_b,
                  T beta, Matrix<T> c, std::int64_t stride_c, std::int64_t count) {
  const Extents extents = checked_extents<T>(transpose_a, transpose_b, a, b, c);
  if (extents.m == 0 || extents.n == 0 || count == 0) return;
  if (extents.k == 0) {  // BLAS libraries differ on this one
    for (std::int64_t i = 0; i < count; ++i)
      scale(exec, beta, Matrix<T>(c.data + i * stride_c, c.rows, c.columns, c.stride));
    return;
  }
  library_gemm<T>(exec, transpose_a == Transpose::yes, transpose_b == Transpose::yes, extents,
                  alpha, a, stride_a, b, stride_b, beta, c, stride_c, count);
}

template <class T>
void gemm(const Exec& exec, Transpose transpose_a, Transpose transpose_b, T alpha, ConstMatrix<T> a,
          ConstMatrix<T> b, T beta, Matrix<T> c) {
  gemm_batched<T>(exec, transpose_a, transpose_b, alpha, a, 0, b, 0, beta, c, 0, 1);
}

const char* gemm_library() {
#if defined(OSTRAKON_GEMM_CUBLAS)
  return "cuBLAS";
#elif defined(OSTRAKON_GEMM_ONEDNN)
  return "oneDNN";
#elif defined(OSTRAKON_GEMM_CBLAS)
  return "CBLAS";
#else
  return "Kokkos";
#endif
}

void set_gemm_threads(int threads) {
  require(threads >= 1, "gemm: ", threads, " threads, expected at least 1");
#if defined(_OPENMP)
  omp_set_num_threads(threads);
#endif
#if defined(OSTRAKON_GEMM_CBLAS) && defined(OSTRAKON_HAVE_OPENBLAS)
  openblas_set_num_threads(threads);
#endif
}

#define OSTRAKON_INSTANTIATE(T)                                                                  \
  template void gemm<T>(const Exec&, Transpose, Transpose, T, ConstMatrix<T>, ConstMatrix<T>, T, \
                        Matrix<T>);                                                              \
  template void gemm_batched<T>(const Exec&, Transpose, Transpose, T, ConstMatrix<T>,            \
                                std::int64_t, ConstMatrix<T>, std::int64_t, T, Matrix<T>,        \
                                std::int64_t, std::int64_t);
OSTRAKON_INSTANTIATE(float)
OSTRAKON_INSTANTIATE(double)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::math
