// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/portability.hpp>

#if OSTRAKON_PRODUCTS_ON_DEVICE && defined(KOKKOS_ENABLE_CUDA) && defined(OSTRAKON_HAVE_CUBLAS)

#include <map>
#include <memory>
#include <numeric>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/products/cublaslt_product.hpp>
#include <tuple>

namespace ostrakon::math {
namespace {

void check(cublasStatus_t status, const char* call) {
  require(status == CUBLAS_STATUS_SUCCESS, call, " failed: cuBLASLt status ",
          static_cast<int>(status));
}

/// Returns the process's handle, which is destroyed before CUDA ends.
cublasLtHandle_t handle() {
  struct Handle {
    cublasLtHandle_t made = nullptr;
    Handle() { check(cublasLtCreate(&made), "cublasLtCreate"); }
    ~Handle() { cublasLtDestroy(made); }
  };
  static std::unique_ptr<Handle> one;
  if (!one) {
    one = std::make_unique<Handle>();
    Kokkos::push_finalize_hook([] { one.reset(); });
  }
  return one->made;
}

/// Matrix layouts. cuBLASLt is column-major, so it computes C^T = op(B)^T op(A)^T: B comes first.
struct Layouts {
  explicit Layouts(const CublasLtProduct& p) {
    const bool is_double = p.type_ab == CUDA_R_64F;
    check(cublasLtMatmulDescInit(&operation, is_double ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                 is_double ? CUDA_R_64F : CUDA_R_32F),
          "cublasLtMatmulDescInit");
    const auto turn = [&](cublasLtMatmulDescAttributes_t which, bool turns) {
      const cublasOperation_t value = turns ? CUBLAS_OP_T : CUBLAS_OP_N;
      check(cublasLtMatmulDescSetAttribute(&operation, which, &value, sizeof value),
            "cublasLtMatmulDescSetAttribute");
    };
    turn(CUBLASLT_MATMUL_DESC_TRANSA, p.turn_b);
    turn(CUBLASLT_MATMUL_DESC_TRANSB, p.turn_a);
    const auto lay_out = [](cublasLtMatrixLayoutOpaque_t& matrix, cudaDataType_t type,
                            std::int64_t rows, std::int64_t columns, std::int64_t stride) {
      check(cublasLtMatrixLayoutInit(&matrix, type, static_cast<std::uint64_t>(columns),
                                     static_cast<std::uint64_t>(rows), stride),
            "cublasLtMatrixLayoutInit");
    };
    lay_out(b, p.type_ab, p.turn_b ? p.n : p.k, p.turn_b ? p.k : p.n, p.ldb);
    lay_out(a, p.type_ab, p.turn_a ? p.k : p.m, p.turn_a ? p.m : p.k, p.lda);
    lay_out(c, p.type_c, p.m, p.n, p.ldc);
  }

  cublasLtMatmulDescOpaque_t operation{};
  cublasLtMatrixLayoutOpaque_t a{}, b{}, c{};
};

std::size_t bytes_of_element(cudaDataType_t type) {
  return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2;
}

/// Returns the algorithm that cuBLASLt suggests for many rows, or terms. The alignment of rows
/// follows from their stride.
cublasLtMatmulAlgo_t choose(CublasLtProduct product, std::size_t workspace_bytes) {
  constexpr std::int64_t many = 4096;
  if (product.varies_m) product.m = many;
  if (product.varies_k) product.k = many;
  struct Preference {
    cublasLtMatmulPreferenceOpaque_t all{};
    void set(cublasLtMatmulPreferenceAttributes_t which, const void* value, std::size_t bytes) {
      check(cublasLtMatmulPreferenceSetAttribute(&all, which, value, bytes),
            "cublasLtMatmulPreferenceSetAttribute");
    }
  } preference;
  check(cublasLtMatmulPreferenceInit(&preference.all), "cublasLtMatmulPreferenceInit");
  preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes,
                 sizeof workspace_bytes);
  const std::uint32_t no_split_sums = CUBLASLT_REDUCTION_SCHEME_NONE;
  preference.set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &no_split_sums, sizeof no_split_sums);
  const auto align = [&](cublasLtMatmulPreferenceAttributes_t which, std::int64_t stride,
                         cudaDataType_t type) {
    constexpr std::size_t most = 16;
    const auto bytes = static_cast<std::uint32_t>(
        std::gcd(most, static_cast<std::size_t>(stride) * bytes_of_element(type)));
    preference.set(which, &bytes, sizeof bytes);
  };
  align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, product.ldb, product.type_ab);
  align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, product.lda, product.type_ab);
  align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, product.ldc, product.type_c);
  align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, product.ldc, product.type_c);
  Layouts layouts(product);
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  check(cublasLtMatmulAlgoGetHeuristic(handle(), &layouts.operation, &layouts.b, &layouts.a,
                                       &layouts.c, &layouts.c, &preference.all, 1, &found, &count),
        "cublasLtMatmulAlgoGetHeuristic");
  require(count > 0, "cuBLASLt has no algorithm without split sums for a product of (", product.m,
          ", ", product.k, ") and (", product.k, ", ", product.n, ")");
  return found.algo;
}

}  // namespace

void multiply_by_one_algorithm(const CublasLtProduct& product, const void* alpha, const void* a,
                               const void* b, const void* beta, void* c, void* workspace,
                               std::size_t workspace_bytes, cudaStream_t stream) {
  const CublasLtProduct& p = product;
  using Key = std::tuple<bool, bool, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                         std::int64_t, std::int64_t, int, int>;
  const Key key{p.turn_a,
                p.turn_b,
                p.varies_m ? -1 : p.m,
                p.n,
                p.varies_k ? -1 : p.k,
                p.lda,
                p.ldb,
                p.ldc,
                static_cast<int>(p.type_ab),
                static_cast<int>(p.type_c)};
  static std::map<Key, cublasLtMatmulAlgo_t> chosen;
  auto found = chosen.find(key);
  if (found == chosen.end()) found = chosen.emplace(key, choose(p, workspace_bytes)).first;
  Layouts layouts(p);
  check(
      cublasLtMatmul(handle(), &layouts.operation, alpha, b, &layouts.b, a, &layouts.a, beta, c,
                     &layouts.c, c, &layouts.c, &found->second, workspace, workspace_bytes, stream),
      "cublasLtMatmul");
}

}  // namespace ostrakon::math

#endif
