// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/trainer/kernel_facts.hpp>

#include <ostrakon/base/error.hpp>
#include <ostrakon/base/version.hpp>
#include <ostrakon/math/host_threads.hpp>
#include <ostrakon/math/products/gemm_facts.hpp>
#include <set>

namespace ostrakon::train {
namespace {

/// Names those instruction sets enabled by -march that change sums in loops.
std::string compiled_instructions() {
  std::string all = "base";
#if defined(__FMA__)
  all += " FMA";
#endif
#if defined(__AVX2__)
  all += " AVX2";
#endif
#if defined(__AVX512F__)
  all += " AVX-512";
#endif
#if defined(__AVX512BF16__)
  all += " bf16";
#endif
#if defined(__AVX512FP16__)
  all += " fp16";
#endif
#if defined(__ARM_FEATURE_SVE)
  all += " SVE";
#endif
  return all;
}

}  // namespace

Facts kernel_facts(const config::Settings& settings, int matrix_threads) {
  Facts facts = math::gemm_facts(settings.precision.gather);
  facts.push_back({"number of threads in matrix products", std::to_string(matrix_threads)});
  facts.push_back({"Kokkos", text(KOKKOS_VERSION, " ", Exec::name())});
  facts.push_back({"number of threads of kernels", std::to_string(host_threads())});
  facts.push_back({"subnormal numbers", name_in(subnormals_names, settings.runtime.subnormals)});
  facts.push_back({"build", build()});
  facts.push_back({"instruction set compiled for", compiled_instructions()});
  for (const DType dtype : std::set<DType>{DType::fp32, settings.precision.gather})
    facts.push_back({text("digest of ", name(dtype), " products"), math::gemm_digest(dtype)});
  return facts;
}

}  // namespace ostrakon::train
