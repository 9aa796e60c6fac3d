// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/products/pinned_products.hpp>

#if OSTRAKON_PINS_PRODUCTS && defined(KOKKOS_ENABLE_DEFAULT_DEVICE_TYPE_HIP)

#include <hip/hip_runtime_api.h>
#include <hipblaslt/hipblaslt.h>

#include <cstring>
#include <hipblaslt/hipblaslt-ext.hpp>
#include <memory>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/products/hipblaslt_names.hpp>

namespace ostrakon::math {
namespace {

void check(hipblasStatus_t status, const char* call) {
  require(status == HIPBLAS_STATUS_SUCCESS, call, " failed: hipBLAS status ",
          static_cast<int>(status));
}

hipDataType hip_type(ElementType type) {
  switch (type) {
    case ElementType::bf16:
      return HIP_R_16BF;
    case ElementType::fp16:
      return HIP_R_16F;
    case ElementType::fp32:
    case ElementType::fp64:  // pins_products_of<double> is false
      break;
  }
  return HIP_R_32F;
}

class Layout {
 public:
  Layout(ElementType type, std::int64_t rows, std::int64_t columns, std::int64_t row,
         std::int64_t count, std::int64_t step) {
    // hipBLASLt is column-major: columns come first.
    check(hipblasLtMatrixLayoutCreate(&all_, hip_type(type), static_cast<std::uint64_t>(columns),
                                      static_cast<std::uint64_t>(rows), row),
          "hipblasLtMatrixLayoutCreate");
    if (count == 1) return;
    set(HIPBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(count));
    set(HIPBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, step);
  }
  ~Layout() { static_cast<void>(hipblasLtMatrixLayoutDestroy(all_)); }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  hipblasLtMatrixLayout_t get() const { return all_; }

 private:
  template <class Value>
  void set(hipblasLtMatrixLayoutAttribute_t which, Value value) {
    check(hipblasLtMatrixLayoutSetAttribute(all_, which, &value, sizeof value),
          "hipblasLtMatrixLayoutSetAttribute");
  }
  hipblasLtMatrixLayout_t all_ = nullptr;
};

class Operation {
 public:
  Operation(const DeviceProduct& p, const void* bias) {
    check(hipblasLtMatmulDescCreate(&all_, HIPBLAS_COMPUTE_32F, HIP_R_32F),
          "hipblasLtMatmulDescCreate");
    set(HIPBLASLT_MATMUL_DESC_TRANSA, p.turn_b ? HIPBLAS_OP_T : HIPBLAS_OP_N);
    set(HIPBLASLT_MATMUL_DESC_TRANSB, p.turn_a ? HIPBLAS_OP_T : HIPBLAS_OP_N);
    if (!p.has_bias) return;
    set(HIPBLASLT_MATMUL_DESC_EPILOGUE, HIPBLASLT_EPILOGUE_BIAS);
    set(HIPBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, hip_type(p.result));
    set(HIPBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  }
  ~Operation() { static_cast<void>(hipblasLtMatmulDescDestroy(all_)); }
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  hipblasLtMatmulDesc_t get() const { return all_; }

 private:
  template <class Value>
  void set(hipblasLtMatmulDescAttributes_t which, Value value) {
    check(hipblasLtMatmulDescSetAttribute(all_, which, &value, sizeof value),
          "hipblasLtMatmulDescSetAttribute");
  }
  hipblasLtMatmulDesc_t all_ = nullptr;
};

/// A product as hipBLASLt describes it: D^T = op(B)^T op(A)^T, so B comes first.
struct Description {
  /// `bias`: where the product has one; any address where nothing is multiplied.
  Description(const DeviceProduct& p, const void* bias)
      : operation(p, bias),
        a(p.factors, p.turn_a ? p.k : p.m, p.turn_a ? p.m : p.k, p.row_a, p.count, p.step_a),
        b(p.factors, p.turn_b ? p.n : p.k, p.turn_b ? p.k : p.n, p.row_b, p.count, p.step_b),
        c(p.result, p.m, p.n, p.row_c, p.count, p.step_c) {}
  Operation operation;
  Layout a, b, c;
};

hipblasLtMatmulAlgo_t algorithm_of(const Algorithm& algorithm) {
  hipblasLtMatmulAlgo_t own;
  static_assert(sizeof own <= sizeof algorithm.opaque, "hipBLASLt's algorithms have 64 bytes");
  std::memcpy(static_cast<void*>(&own), algorithm.opaque.data(), sizeof own);
  return own;
}

/// The process's handle. Products have no workspace: what needs one splits sums.
class HipblasLt : public ProductLibrary {
 public:
  HipblasLt() {
    check(hipblasLtCreate(&handle_), "hipblasLtCreate");
    int version = 0, number = 0;
    check(hipblasLtGetVersion(handle_, &version), "hipblasLtGetVersion");
    version_ = text("hipBLASLt ", version / 100000, ".", version / 100 % 1000, ".", version % 100);
    hipDeviceProp_t properties{};
    require(hipGetDevice(&number) == hipSuccess &&
                hipGetDeviceProperties(&properties, number) == hipSuccess,
            "HIP does not say which device this is");
    device_ = text(properties.name, ", ", properties.gcnArchName, ", ",
                   properties.multiProcessorCount, " compute units");
  }
  ~HipblasLt() override { static_cast<void>(hipblasLtDestroy(handle_)); }
  HipblasLt(const HipblasLt&) = delete;
  HipblasLt& operator=(const HipblasLt&) = delete;

  std::string version() const override { return version_; }
  std::string device() const override { return device_; }

  std::vector<Algorithm> suggest(const DeviceProduct& product, const ProductKind& /*kind*/,
                                 int most) override {
    // Many, as some of them do not add alike in all rows.
    const int asked = most * 32;
    const Description all(product, &product);
    std::vector<hipblasLtMatmulHeuristicResult_t> found(static_cast<std::size_t>(asked));
    int count = 0;
    const hipblasStatus_t status = hipblasLtMatmulAlgoGetHeuristic(
        handle_, all.operation.get(), all.b.get(), all.a.get(), all.c.get(), all.c.get(),
        Preference().get(), asked, found.data(), &count);
    if (status == HIPBLAS_STATUS_NOT_SUPPORTED || status == HIPBLAS_STATUS_INVALID_VALUE) return {};
    check(status, "hipblasLtMatmulAlgoGetHeuristic");
    found.resize(static_cast<std::size_t>(count));
    std::vector<Algorithm> algorithms;
    for (hipblasLtMatmulHeuristicResult_t& one : found) {
      if (static_cast<int>(algorithms.size()) == most) break;
      if (one.state != HIPBLAS_STATUS_SUCCESS || one.workspaceSize != 0) continue;
      const std::string solution = hipblaslt_ext::getSolutionNameFromAlgo(handle_, one.algo);
      if (!adds_alike_in_all_rows(solution)) continue;
      Algorithm algorithm;
      algorithm.attributes = {{"index", text(hipblaslt_ext::getIndexFromAlgo(one.algo))},
                              {"solution", solution}};
      std::memcpy(algorithm.opaque.data(), &one.algo, sizeof one.algo);
      algorithms.push_back(std::move(algorithm));
    }
    return algorithms;
  }

  bool supports(const DeviceProduct& product, const Algorithm& algorithm) override {
    const Description all(product, &product);
    const float one = 1.0F;
    hipblasLtMatmulAlgo_t own = algorithm_of(algorithm);
    std::size_t workspace_bytes = 0;
    return hipblaslt_ext::matmulIsAlgoSupported(handle_, all.operation.get(), &one, all.b.get(),
                                                all.a.get(), &one, all.c.get(), all.c.get(), own,
                                                workspace_bytes) == HIPBLAS_STATUS_SUCCESS &&
           workspace_bytes == 0;
  }

  void multiply(const Exec& exec, const DeviceProduct& product, const Algorithm& algorithm,
                const ProductOperands& at) override {
    const Description all(product, at.bias);
    const auto alpha = static_cast<float>(at.alpha), beta = static_cast<float>(at.beta);
    const hipblasLtMatmulAlgo_t own = algorithm_of(algorithm);
    check(hipblasLtMatmul(handle_, all.operation.get(), &alpha, at.b, all.b.get(), at.a,
                          all.a.get(), &beta, at.c, all.c.get(), at.d, all.c.get(), &own, nullptr,
                          0, exec.hip_stream()),
          "hipblasLtMatmul");
  }

 private:
  /// What the library may use: no workspace, which is what it has if nothing is set.
  class Preference {
   public:
    Preference() {
      check(hipblasLtMatmulPreferenceCreate(&all_), "hipblasLtMatmulPreferenceCreate");
    }
    ~Preference() { static_cast<void>(hipblasLtMatmulPreferenceDestroy(all_)); }
    Preference(const Preference&) = delete;
    Preference& operator=(const Preference&) = delete;
    hipblasLtMatmulPreference_t get() const { return all_; }

   private:
    hipblasLtMatmulPreference_t all_ = nullptr;
  };

  hipblasLtHandle_t handle_ = nullptr;
  std::string version_, device_;
};

}  // namespace

ProductLibrary* product_library() {
  static std::unique_ptr<HipblasLt> one;
  if (!one) {
    one = std::make_unique<HipblasLt>();
    Kokkos::push_finalize_hook([] { one.reset(); });  // before HIP ends
  }
  return one.get();
}
std::int64_t library_workspace_bytes() { return 0; }

}  // namespace ostrakon::math

#endif
