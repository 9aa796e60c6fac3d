// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/products/pinned_products.hpp>

#if OSTRAKON_PINS_PRODUCTS && defined(KOKKOS_ENABLE_DEFAULT_DEVICE_TYPE_CUDA)

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <cstring>
#include <memory>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/products/product_workspace.hpp>

namespace ostrakon::math {
namespace {

void check(cublasStatus_t status, const char* call) {
  require(status == CUBLAS_STATUS_SUCCESS, call, " failed: cuBLASLt status ",
          static_cast<int>(status));
}

cudaDataType_t cuda_type(ElementType type) {
  switch (type) {
    case ElementType::fp64:
      return CUDA_R_64F;
    case ElementType::fp32:
      return CUDA_R_32F;
    case ElementType::bf16:
      return CUDA_R_16BF;
    case ElementType::fp16:
      return CUDA_R_16F;
  }
  return CUDA_R_32F;
}

/// Stands for a bias where nothing is multiplied. It is aligned as arrays of a device are, and the
/// same each time: what the library suggests may depend on that.
alignas(256) constexpr std::byte some_bias{};

/// A product as cuBLASLt describes it. cuBLASLt is column-major, so it computes D^T = op(B)^T
/// op(A)^T: B comes first, and a bias for columns of D is one for its rows.
struct Description {
  /// `bias`: where the product has one; some_bias where nothing is multiplied.
  Description(const DeviceProduct& p, const void* bias) {
    const bool is_double = p.factors == ElementType::fp64;
    check(cublasLtMatmulDescInit(&operation, is_double ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                 is_double ? CUDA_R_64F : CUDA_R_32F),
          "cublasLtMatmulDescInit");
    set(CUBLASLT_MATMUL_DESC_TRANSA, p.turn_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, p.turn_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (p.has_bias) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    }
    lay_out(b, p.factors, p.turn_b ? p.n : p.k, p.turn_b ? p.k : p.n, p.row_b, p.count, p.step_b);
    lay_out(a, p.factors, p.turn_a ? p.k : p.m, p.turn_a ? p.m : p.k, p.row_a, p.count, p.step_a);
    lay_out(c, p.result, p.m, p.n, p.row_c, p.count, p.step_c);
  }

  cublasLtMatmulDescOpaque_t operation{};
  cublasLtMatrixLayoutOpaque_t a{}, b{}, c{};

 private:
  template <class Value>
  void set(cublasLtMatmulDescAttributes_t which, const Value& value) {
    check(cublasLtMatmulDescSetAttribute(&operation, which, &value, sizeof value),
          "cublasLtMatmulDescSetAttribute");
  }
  static void lay_out(cublasLtMatrixLayoutOpaque_t& matrix, ElementType type, std::int64_t rows,
                      std::int64_t columns, std::int64_t row, std::int64_t count,
                      std::int64_t step) {
    check(cublasLtMatrixLayoutInit(&matrix, cuda_type(type), static_cast<std::uint64_t>(columns),
                                   static_cast<std::uint64_t>(rows), row),
          "cublasLtMatrixLayoutInit");
    if (count == 1) return;
    const auto batches = static_cast<std::int32_t>(count);
    const auto set = [&](cublasLtMatrixLayoutAttribute_t which, const auto& value) {
      check(cublasLtMatrixLayoutSetAttribute(&matrix, which, &value, sizeof value),
            "cublasLtMatrixLayoutSetAttribute");
    };
    set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, batches);
    set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, step);
  }
};

cublasLtMatmulAlgo_t algorithm_of(const Algorithm& algorithm) {
  cublasLtMatmulAlgo_t own{};
  static_assert(sizeof own == sizeof algorithm.opaque, "cuBLASLt's algorithms have 64 bytes");
  std::memcpy(&own, algorithm.opaque.data(), sizeof own);
  return own;
}

Algorithm described(const cublasLtMatmulAlgo_t& own) {
  Algorithm algorithm;
  std::memcpy(algorithm.opaque.data(), &own, sizeof own);
  for (const auto& [which, name] :
       {std::pair{CUBLASLT_ALGO_CONFIG_ID, "id"}, std::pair{CUBLASLT_ALGO_CONFIG_TILE_ID, "tile"},
        std::pair{CUBLASLT_ALGO_CONFIG_STAGES_ID, "stages"},
        std::pair{CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, "cluster"},
        std::pair{CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, "inner shape"},
        std::pair{CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, "swizzle"},
        std::pair{CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, "custom option"},
        std::pair{CUBLASLT_ALGO_CONFIG_SPLITK_NUM, "split of sums"}}) {
    // The attributes have 16 or 32 bits.
    std::uint32_t value = 0;
    std::size_t written = 0;
    if (cublasLtMatmulAlgoConfigGetAttribute(&own, which, &value, sizeof value, &written) !=
        CUBLAS_STATUS_SUCCESS) {
      std::uint16_t half = 0;
      if (cublasLtMatmulAlgoConfigGetAttribute(&own, which, &half, sizeof half, &written) !=
          CUBLAS_STATUS_SUCCESS)
        continue;
      value = half;
    }
    algorithm.attributes.push_back({name, text(value)});
  }
  return algorithm;
}

/// What the library may use for a product. `splits_sums`: also algorithms that sum runs of terms by
/// themselves, and then these, in float and in a fixed order.
class Preference {
 public:
  Preference(const ProductKind& kind, bool splits_sums, std::size_t workspace_bytes) {
    check(cublasLtMatmulPreferenceInit(&all_), "cublasLtMatmulPreferenceInit");
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes);
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<std::uint32_t>(splits_sums ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
                                               : CUBLASLT_REDUCTION_SCHEME_NONE));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<std::uint32_t>(kind.align_b));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<std::uint32_t>(kind.align_a));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<std::uint32_t>(kind.align_c));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<std::uint32_t>(kind.align_c));
  }
  cublasLtMatmulPreference_t get() { return &all_; }

 private:
  template <class Value>
  void set(cublasLtMatmulPreferenceAttributes_t which, const Value& value) {
    check(cublasLtMatmulPreferenceSetAttribute(&all_, which, &value, sizeof value),
          "cublasLtMatmulPreferenceSetAttribute");
  }
  cublasLtMatmulPreferenceOpaque_t all_{};
};

/// The process's handle.
class CublasLt : public ProductLibrary {
 public:
  CublasLt() {
    check(cublasLtCreate(&handle_), "cublasLtCreate");
    int number = 0;
    cudaDeviceProp properties{};
    require(cudaGetDevice(&number) == cudaSuccess &&
                cudaGetDeviceProperties(&properties, number) == cudaSuccess,
            "CUDA does not say which device this is");
    device_ = text(properties.name, ", compute capability ", properties.major, ".",
                   properties.minor, ", ", properties.multiProcessorCount, " multiprocessors");
  }
  ~CublasLt() override { cublasLtDestroy(handle_); }
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  std::string version() const override {
    const std::size_t version = cublasLtGetVersion();
    return text("cuBLASLt ", version / 10000, ".", version / 100 % 100, ".", version % 100);
  }
  std::string device() const override { return device_; }

  std::vector<Algorithm> suggest(const DeviceProduct& product, const ProductKind& kind,
                                 int most) override {
    std::vector<Algorithm> algorithms = suggest(product, kind, false, most);
    if (algorithms.empty()) algorithms = suggest(product, kind, true, most);
    return algorithms;
  }

  bool supports(const DeviceProduct& product, const Algorithm& algorithm) override {
    Description all(product, &some_bias);
    const cublasLtMatmulAlgo_t own = algorithm_of(algorithm);
    cublasLtMatmulHeuristicResult_t result{};
    return cublasLtMatmulAlgoCheck(handle_, &all.operation, &all.b, &all.a, &all.c, &all.c, &own,
                                   &result) == CUBLAS_STATUS_SUCCESS &&
           result.state == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= workspace_bytes();
  }

  void multiply(const Exec& exec, const DeviceProduct& product, const Algorithm& algorithm,
                const ProductOperands& at) override {
    Description all(product, at.bias);
    const cublasLtMatmulAlgo_t own = algorithm_of(algorithm);
    const auto alpha = static_cast<float>(at.alpha), beta = static_cast<float>(at.beta);
    const bool is_double = product.factors == ElementType::fp64;
    const void* const of_product = is_double ? static_cast<const void*>(&at.alpha) : &alpha;
    const void* const of_c = is_double ? static_cast<const void*>(&at.beta) : &beta;
    check(cublasLtMatmul(handle_, &all.operation, of_product, at.b, &all.b, at.a, &all.a, of_c,
                         at.c, &all.c, at.d, &all.c, &own, ProductWorkspace::current().data(),
                         workspace_bytes(), exec.cuda_stream()),
          "cublasLtMatmul");
  }

 private:
  std::vector<Algorithm> suggest(const DeviceProduct& product, const ProductKind& kind,
                                 bool splits_sums, int most) {
    Description all(product, &some_bias);
    Preference preference(kind, splits_sums, workspace_bytes());
    std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<std::size_t>(most));
    int count = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle_, &all.operation, &all.b, &all.a, &all.c, &all.c,
                                       preference.get(), most, found.data(), &count);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) return {};
    check(status, "cublasLtMatmulAlgoGetHeuristic");
    std::vector<Algorithm> algorithms;
    for (int i = 0; i < count; ++i)
      if (found[static_cast<std::size_t>(i)].state == CUBLAS_STATUS_SUCCESS)
        algorithms.push_back(described(found[static_cast<std::size_t>(i)].algo));
    return algorithms;
  }

  static std::size_t workspace_bytes() {
    return static_cast<std::size_t>(ProductWorkspace::current().size());
  }

  cublasLtHandle_t handle_ = nullptr;
  std::string device_;
};

}  // namespace

ProductLibrary* product_library() {
  static std::unique_ptr<CublasLt> one;
  if (!one) {
    one = std::make_unique<CublasLt>();
    Kokkos::push_finalize_hook([] { one.reset(); });  // before CUDA ends
  }
  return one.get();
}
std::int64_t library_workspace_bytes() { return cublaslt_workspace_bytes; }

}  // namespace ostrakon::math

#elif !OSTRAKON_PINS_PRODUCTS

namespace ostrakon::math {

ProductLibrary* product_library() { return nullptr; }
std::int64_t library_workspace_bytes() { return 0; }

}  // namespace ostrakon::math

#endif
