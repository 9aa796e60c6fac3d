// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/fp8/cublaslt_fp8.hpp>

#if OSTRAKON_FP8_CUBLASLT
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <map>
#include <memory>
#include <ostrakon/math/products/product_workspace.hpp>
#include <ostrakon/math/work_items.hpp>
#include <tuple>
#endif

#if !OSTRAKON_FP8_CUBLASLT

namespace ostrakon::math::cublaslt {

template <class C>
void multiply(const Exec&, const Fp8Operand&, const Fp8Operand&, View<const C**>, View<C**>) {
  require(LaunchCount::takes_one("fp8_product"),
          "a build without cuBLASLt has no products of codes, and only counts them");
}

}  // namespace ostrakon::math::cublaslt

#elif CUBLAS_VERSION < 120900

namespace ostrakon::math::cublaslt {

std::string why_no_fp8(ProductDType) {
  return "this build's cuBLAS is older than 12.9, the first with scales of rows";
}

template <class C>
void multiply(const Exec&, const Fp8Operand& a, const Fp8Operand&, View<const C**>, View<C**>) {
  throw Error(
      text("precision.products = ", name(a.dtype), ": ", why_no_fp8(a.dtype), "; expected auto"));
}

}  // namespace ostrakon::math::cublaslt

#else

namespace ostrakon::math::cublaslt {
namespace {

void check(cublasStatus_t status, const char* call) {
  require(status == CUBLAS_STATUS_SUCCESS, call,
          " failed for a product in 8 bits: cuBLASLt status ", static_cast<int>(status));
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

/// Returns 90 for compute capability 9.0.
int compute_capability() {
  static const int found = [] {
    int device = 0, major = 0, minor = 0;
    require(cudaGetDevice(&device) == cudaSuccess &&
                cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) ==
                    cudaSuccess &&
                cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) ==
                    cudaSuccess,
            "CUDA does not say which device this is");
    return 10 * major + minor;
  }();
  return found;
}

/// Whether the device takes a scale for each block of 32 numbers of a row, rather than for each
/// row.
bool has_scales_of_blocks() { return compute_capability() >= 100; }

template <class C>
constexpr cudaDataType_t cuda_type = std::is_same<C, bf16>::value   ? CUDA_R_16BF
                                     : std::is_same<C, fp16>::value ? CUDA_R_16F
                                                                    : CUDA_R_32F;
cudaDataType_t cuda_type_of(Fp8Format format) {
  return format == Fp8Format::e4m3 ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2;
}

/// Writes the exponent of each row's scale for all blocks of the row. Those outside of the matrix
/// are 0.
void write_block_scales(const Exec& exec, const Fp8Operand& x) {
  const std::int64_t rows = x.codes.rows(), columns = x.codes.columns();
  const std::int64_t all_rows = items_for(rows, scale_tile_rows) * scale_tile_rows;
  const std::int64_t all_blocks = block_scales_bytes(rows, columns) / all_rows;
  const View<float*> scales = x.scales;
  const View<std::uint8_t*> to = x.block_scales;
  for_each_item(
      exec, "block_scales", all_rows * all_blocks, KOKKOS_LAMBDA(std::int64_t item) {
        const std::int64_t row = item / all_blocks, block = item % all_blocks;
        to[scale_index(row, block, columns)] =
            row < rows && block * mx_block < columns
                ? static_cast<std::uint8_t>(half_bits::of_float(scales[row]) >> 23)
                : std::uint8_t{0};
      });
}

/// A product as cuBLASLt describes it. It is column-major, so it computes C^T = B A^T: B comes
/// first, and is transposed, as 8-bit products require.
struct Description {
  cublasLtMatmulDescOpaque_t operation{};
  cublasLtMatrixLayoutOpaque_t a{}, b{}, c{};

  template <class Value>
  void set(cublasLtMatmulDescAttributes_t which, const Value& value) {
    check(cublasLtMatmulDescSetAttribute(&operation, which, &value, sizeof value),
          "cublasLtMatmulDescSetAttribute");
  }
  static void lay_out(cublasLtMatrixLayoutOpaque_t& matrix, cudaDataType_t type, std::int64_t rows,
                      std::int64_t columns, std::int64_t stride) {
    check(cublasLtMatrixLayoutInit(&matrix, type, static_cast<std::uint64_t>(columns),
                                   static_cast<std::uint64_t>(rows), stride),
          "cublasLtMatrixLayoutInit");
  }

  Description(const Fp8Operand& left, const Fp8Operand& right, cudaDataType_t type_c,
              std::int64_t m, std::int64_t stride_c, const void* scales_of_left,
              const void* scales_of_right) {
    check(cublasLtMatmulDescInit(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F),
          "cublasLtMatmulDescInit");
    set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
    const cublasLtMatmulMatrixScale_t mode = has_scales_of_blocks()
                                                 ? CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0
                                                 : CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, mode);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, mode);
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scales_of_right);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scales_of_left);
    const std::int64_t k = left.codes.columns(), n = right.codes.rows();
    lay_out(b, cuda_type_of(right.format), n, k, right.codes.stride());
    lay_out(a, cuda_type_of(left.format), m, k, left.codes.stride());
    lay_out(c, type_c, m, n, stride_c);
  }
};

std::size_t workspace_bytes() {
  return static_cast<std::size_t>(ProductWorkspace::current().size());
}

/// Returns the algorithm that cuBLASLt suggests without split sums.
cublasLtMatmulAlgo_t choose(Description& product, const Fp8Operand& left, const Fp8Operand& right) {
  cublasLtMatmulPreferenceOpaque_t preference{};
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t which, const auto& value) {
    check(cublasLtMatmulPreferenceSetAttribute(&preference, which, &value, sizeof value),
          "cublasLtMatmulPreferenceSetAttribute");
  };
  check(cublasLtMatmulPreferenceInit(&preference), "cublasLtMatmulPreferenceInit");
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes());
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE));
  constexpr std::uint32_t aligned_to = 16;  // bytes: those of workspaces, and of C's rows
  for (const auto which :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    prefer(which, aligned_to);
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  check(cublasLtMatmulAlgoGetHeuristic(handle(), &product.operation, &product.b, &product.a,
                                       &product.c, &product.c, &preference, 1, &found, &count),
        "cublasLtMatmulAlgoGetHeuristic");
  require(count > 0, "precision.products = ", name(left.dtype),
          ": cuBLASLt has no algorithm without split sums for (", left.codes.rows(), ", ",
          left.codes.columns(), ") ", name(left.format), " times (", right.codes.rows(), ", ",
          right.codes.columns(), ") ", name(right.format),
          ", transposed; expected precision.products: auto, or other precision.fp8_layers");
  return found.algo;
}

}  // namespace

std::string why_no_fp8(ProductDType dtype) {
  const bool is_mx = dtype == ProductDType::mxfp8;
  const int capability = compute_capability(), least = is_mx ? 100 : 90;
  if (capability >= least) return "";
  return text("the device has compute capability ", capability / 10, ".", capability % 10,
              ", but scales of ", is_mx ? "blocks" : "rows", " need ", least / 10, ".0");
}

template <class C>
void multiply(const Exec& exec, const Fp8Operand& a, const Fp8Operand& b, View<const C**> onto,
              View<C**> c) {
  require(!std::is_same<C, double>::value,
          "fp64 is not multiplied in 8 bits on a device; expected fp32, bf16 or fp16");
  const bool are_blocks = has_scales_of_blocks();
  if (are_blocks && a.dtype == ProductDType::fp8) {
    write_block_scales(exec, a);
    write_block_scales(exec, b);
  }
  if (LaunchCount::takes_one("fp8_product")) return;
  require(are_blocks || a.dtype == ProductDType::fp8, "precision.products = ", name(a.dtype), ": ",
          why_no_fp8(a.dtype), "; expected auto or fp8");
  const std::int64_t m = c.rows(), n = c.columns(), k = a.codes.columns();
  require(m % fp8_granule == 0 && n % fp8_granule == 0 && k % fp8_granule == 0 &&
              b.codes.columns() == k && c.stride() % fp8_granule == 0 &&
              (!onto || onto.stride() == c.stride()),
          "a product in 8 bits of (", m, ", ", k, ") and (", n, ", ", b.codes.columns(),
          ") transposed, into rows ", c.stride(), " apart; expected multiples of ", fp8_granule);
  const auto scales_of = [&](const Fp8Operand& x) {
    return are_blocks ? static_cast<const void*>(x.block_scales.data()) : x.scales.data();
  };
  const auto describe = [&](std::int64_t rows) {
    return Description(a, b, cuda_type<C>, rows, c.stride(), scales_of(a), scales_of(b));
  };
  using Key =
      std::tuple<std::int64_t, std::int64_t, std::int64_t, int, Fp8Format, Fp8Format, std::size_t>;
  static std::map<Key, cublasLtMatmulAlgo_t> chosen;
  const Key key{n,        k,        c.stride(),       static_cast<int>(cuda_type<C>),
                a.format, b.format, workspace_bytes()};
  auto found = chosen.find(key);
  if (found == chosen.end()) {
    constexpr std::int64_t many = 4096;  // rows: the algorithm must not depend on their number
    Description usual = describe(many);
    found = chosen.emplace(key, choose(usual, a, b)).first;
  }
  Description product = describe(m);
  const float alpha = 1.0f, beta = onto ? 1.0f : 0.0f;
  check(cublasLtMatmul(handle(), &product.operation, &alpha, b.codes.data(), &product.b,
                       a.codes.data(), &product.a, &beta, onto ? onto.data() : c.data(), &product.c,
                       c.data(), &product.c, &found->second, ProductWorkspace::current().data(),
                       workspace_bytes(), exec.cuda_stream()),
        "cublasLtMatmul");
}

}  // namespace ostrakon::math::cublaslt

#endif

namespace ostrakon::math::cublaslt {

#define OSTRAKON_INSTANTIATE(C)                                                                 \
  template void multiply<C>(const Exec&, const Fp8Operand&, const Fp8Operand&, View<const C**>, \
                            View<C**>);
OSTRAKON_FOR_ALL_NUMBERS(OSTRAKON_INSTANTIATE)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::math::cublaslt
