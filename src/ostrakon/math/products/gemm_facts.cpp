// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/products/gemm_facts.hpp>

#include <ostrakon/base/error.hpp>
#include <ostrakon/base/hdf5/hdf5.hpp>
#include <ostrakon/math/products/gemm.hpp>
#include <ostrakon/math/products/ordered_gemm.hpp>
#include <ostrakon/math/products/pinned_products.hpp>
#include <ostrakon/math/random.hpp>
#include <ostrakon/math/transfer.hpp>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#if OSTRAKON_HAS_DEVICE
#include <ostrakon/device/memory.hpp>
#endif
#if !OSTRAKON_PRODUCTS_ON_DEVICE && defined(OSTRAKON_HAVE_ONEDNN)
#include <dnnl.h>
#endif

namespace ostrakon::math {
namespace {

/// Values in `Memory`; Kokkos does not count host memory as the run's.
template <class T>
class Values {
 public:
  explicit Values(std::int64_t count) {
#if OSTRAKON_HAS_DEVICE
    values_ = device::DeviceBytes(count * static_cast<std::int64_t>(sizeof(T)));
#else
    values_.resize(static_cast<std::size_t>(count));
#endif
    count_ = count;
  }
  View<T*> view() { return {reinterpret_cast<T*>(values_.data()), count_}; }

 private:
#if OSTRAKON_HAS_DEVICE
  device::DeviceBytes values_;
#else
  std::vector<T> values_;
#endif
  std::int64_t count_ = 0;
};

/// Returns values between -1/2 and 1/2 that are the same on every machine.
template <class T>
std::vector<T> random_values(std::int64_t count, std::uint64_t key) {
  std::vector<T> values;
  for (std::int64_t i = 0; i < count; ++i)
    values.push_back(static_cast<T>(static_cast<float>(
        static_cast<double>(philox(key, static_cast<std::uint64_t>(i), 0).word[0]) * 0x1p-32 -
        0.5)));
  return values;
}

/// Adds op(A) (m, k) op(B) (k, n) to the checksum, with more terms than one block of a library.
template <class T, class C>
void add_product(Transpose transpose_a, Transpose transpose_b, hdf5::Checksum& sum) {
  constexpr std::int64_t m = 65, k = 1031, n = 97;
  const Exec exec;
  Values<T> a(m * k), b(k * n);
  Values<C> c(m * n);
  const std::vector<T> a_values = random_values<T>(m * k, 1), b_values = random_values<T>(k * n, 2);
  copy_to_device(exec, host_view(a_values), a.view());
  copy_to_device(exec, host_view(b_values), b.view());
  const bool turn_a = transpose_a == Transpose::yes, turn_b = transpose_b == Transpose::yes;
  gemm<T, C>(exec, transpose_a, transpose_b, 1.0f, a.view().matrix(turn_a ? k : m, turn_a ? m : k),
             b.view().matrix(turn_b ? n : k, turn_b ? k : n), 0.0f, c.view().matrix(m, n));
  std::vector<C> result(m * n);
  copy_to_host(exec, c.view(), host_view(result));
  sum.add(result.data(), static_cast<std::int64_t>(result.size() * sizeof(C)));
}

template <class T, class C>
void add_products(hdf5::Checksum& sum) {
  add_product<T, C>(Transpose::no, Transpose::no, sum);
  add_product<T, C>(Transpose::no, Transpose::yes, sum);
  add_product<T, C>(Transpose::yes, Transpose::no, sum);
}

#if !OSTRAKON_PRODUCTS_ON_DEVICE
/// `dtype`: bf16 or fp16.
HalfProducts half_products_of(DType dtype) {
  return dtype == DType::bf16 ? half_products<bf16>() : half_products<fp16>();
}
#endif

#if defined(OSTRAKON_HAVE_ONEDNN) && !OSTRAKON_PRODUCTS_ON_DEVICE
/// Names values of dnnl_cpu_isa_t, to which newer versions of oneDNN add.
std::string instructions_text(int instructions) {
  switch (instructions) {
    case 0x1:
      return "SSE4.1";
    case 0x3:
      return "AVX";
    case 0x7:
      return "AVX2";
    case 0x27:
      return "AVX-512";
    case 0x67:
      return "AVX-512 with VNNI";
    case 0x3e7:
      return "AVX-512 with AMX";
    case 0x407:
      return "AVX2 with VNNI";
    case 0xe7:
      return "AVX-512 with bf16";
    default:
      return text("set ", instructions, " (dnnl_cpu_isa_t)");
  }
}
#endif

}  // namespace

Facts gemm_facts(DType dtype) {
  Facts facts;
#if OSTRAKON_PRODUCTS_ON_DEVICE
  facts.push_back({"library of matrix products", gemm_kernel()});
  if (const ProductLibrary* const library = product_library()) {
    facts.push_back({"version of the library", library->version()});
    facts.push_back({"device", library->device()});
  }
#else
  // Sums of fp32 products have the same bits on every processor.
  facts.push_back({"sums of fp32 products", text("in order, chunks of ", product_chunk)});
  if (dtype != DType::fp32)
    facts.push_back({text("kernel of ", name(dtype), " products"), gemm_kernel_16bit(dtype)});
#if defined(OSTRAKON_HAVE_ONEDNN)
  if (dtype != DType::fp32 && half_products_of(dtype) == HalfProducts::onednn) {
    const dnnl_version_t& version = *dnnl_version();
    facts.push_back({"version of oneDNN", text(version.major, ".", version.minor, ".",
                                               version.patch, " (", version.hash, ")")});
    facts.push_back({"instruction set of oneDNN",
                     instructions_text(static_cast<int>(dnnl_get_effective_cpu_isa()))});
  }
#endif
#endif
  (void)dtype;
  return facts;
}

std::string gemm_digest(DType dtype) {
  hdf5::Checksum sum;
  switch (dtype) {
    case DType::fp32:
      add_products<float, float>(sum);
      break;
    case DType::bf16:
      add_products<bf16, bf16>(sum);
      add_products<bf16, float>(sum);
      break;
    case DType::fp16:
      add_products<fp16, fp16>(sum);
      add_products<fp16, float>(sum);
      break;
  }
  return sum.hex();
}

Facts gemm_digests(DType dtype) {
  Facts digests;
  for (const DType one : std::set<DType>{DType::fp32, dtype})
    digests.push_back({text("digest of ", name(one), " products"), gemm_digest(one)});
  return digests;
}

bool is_row_partition_invariant(DType dtype) {
  switch (dtype) {
    case DType::fp32:
      return is_partition_invariant<float>();
    case DType::bf16:
      return is_partition_invariant<bf16>();
    case DType::fp16:
      return is_partition_invariant<fp16>();
  }
  return false;
}

}  // namespace ostrakon::math
