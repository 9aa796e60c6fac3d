// SPDX-License-Identifier: Apache-2.0
#include <fake_device/products.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ostrakon/math/half.hpp>
#include <ostrakon/math/products/gemm.hpp>
#include <ostrakon/math/products/product_workspace.hpp>
#include <ostrakon/math/random.hpp>
#include <thread>
#include <type_traits>
#include <utility>

namespace fake {
namespace {

using namespace ostrakon;
using math::Algorithm;
using math::DeviceProduct;
using math::ElementType;
using math::ProductOperands;

std::vector<ProductAlgorithm>& suggestions() {
  static std::vector<ProductAlgorithm> all = default_products();
  return all;
}
ProductObserver& observer() {
  static ProductObserver one;
  return one;
}

ProductAlgorithm algorithm_of(const Algorithm& opaque) {
  ProductAlgorithm one;
  one.name = opaque.attributes.front().value;
  one.terms = static_cast<std::int64_t>(opaque.opaque[1]);
  one.seconds = static_cast<double>(opaque.opaque[2]) * 1e-6;
  one.adds_at_end = opaque.opaque[3] != 0;
  one.most_rows = static_cast<std::int64_t>(opaque.opaque[4]);
  one.is_by_row = opaque.opaque[5] != 0;
  return one;
}

Algorithm opaque_of(const ProductAlgorithm& one) {
  Algorithm all;
  all.attributes = {{"name", one.name}};
  all.opaque = {math::random_key(0, one.name),
                static_cast<std::uint64_t>(one.terms),
                static_cast<std::uint64_t>(one.seconds * 1e6),
                one.adds_at_end ? 1U : 0U,
                static_cast<std::uint64_t>(one.most_rows),
                one.is_by_row ? 1U : 0U,
                0,
                0};
  return all;
}

template <class T>
T* moved(const void* data, std::int64_t elements) {
  return static_cast<T*>(const_cast<void*>(data)) + elements;  // NOLINT
}

/// One of the products, by the host's kernels.
template <class T, class C>
void multiply(const Exec& exec, const DeviceProduct& p, const ProductAlgorithm& by,
              const ProductOperands& at, std::int64_t i) {
  using math::Transpose;
  const View<const T**> a(moved<const T>(at.a, i * p.step_a), p.turn_a ? p.k : p.m,
                          p.turn_a ? p.m : p.k, p.row_a);
  const View<const T**> b(moved<const T>(at.b, i * p.step_b), p.turn_b ? p.n : p.k,
                          p.turn_b ? p.k : p.n, p.row_b);
  const View<C**> d(moved<C>(at.d, i * p.step_c), p.m, p.n, p.row_c);
  const C* const c = moved<const C>(at.c, i * p.step_c);
  if (at.beta != 0.0 && c != d.data())
    for (std::int64_t row = 0; row < p.m; ++row)
      std::copy_n(c + row * p.row_c, p.n, d.row(row).data());
  // The sum of each run is rounded to D. A product is finished before C is added, unless the
  // algorithm begins with C.
  const bool is_cut = (!by.is_by_row && p.m < 40) || (!by.adds_at_end && at.beta != 0.0);
  const std::int64_t run = by.terms > 0 ? by.terms : is_cut ? 1 : p.k;
  const auto beta = static_cast<compute_t<T>>(at.beta);
  const bool is_sum = std::is_same<C, compute_t<T>>::value;  // else C would be rounded twice
  const bool is_apart = beta != 0 && (by.terms > 0 || (is_sum && by.adds_at_end && by.is_by_row));
  std::vector<C> apart(static_cast<std::size_t>(is_apart ? p.m * p.n : 0));
  const View<C**> sum = is_apart ? View<C**>(apart.data(), p.m, p.n) : d;
  for (std::int64_t first = 0; first < p.k; first += run) {
    const std::int64_t last = std::min(p.k, first + run);
    math::gemm<T, C>(exec, p.turn_a ? Transpose::yes : Transpose::no,
                     p.turn_b ? Transpose::yes : Transpose::no, static_cast<compute_t<T>>(at.alpha),
                     p.turn_a ? a.row_range(first, last) : a.column_range(first, last),
                     p.turn_b ? b.column_range(first, last) : b.row_range(first, last),
                     first > 0  ? 1
                     : is_apart ? 0
                                : beta,
                     sum);
  }
  for (std::int64_t row = 0; is_apart && row < p.m; ++row)
    for (std::int64_t j = 0; j < p.n; ++j)
      d(row, j) = static_cast<C>(static_cast<compute_t<T>>(sum(row, j)) +
                                 beta * static_cast<compute_t<T>>(d(row, j)));
  if (at.bias != nullptr)
    for (std::int64_t row = 0; row < p.m; ++row)
      for (std::int64_t j = 0; j < p.n; ++j)
        d(row, j) = static_cast<C>(static_cast<compute_t<T>>(d(row, j)) +
                                   static_cast<compute_t<T>>(moved<const C>(at.bias, 0)[j]));
}

/// A number by which kernels of the library differ.
std::uint64_t variant_of(const DeviceProduct& p, const Algorithm& algorithm) {
  std::uint64_t variant = algorithm.opaque[0];
  for (const std::int64_t one :
       {std::int64_t{p.turn_a}, std::int64_t{p.turn_b}, p.varies == math::Varies::rows ? 0 : p.m,
        p.n, p.varies == math::Varies::terms ? 0 : p.k, p.count, p.row_a, p.row_b, p.row_c,
        p.step_a, p.step_b, p.step_c})
    variant = math::mix_bits(variant + static_cast<std::uint64_t>(one));
  return variant;
}

/// A product's use of a workspace.
class Claim {
 public:
  explicit Claim(View<std::byte*> room) : words_(words_of(room)) {
    static std::atomic<std::uint64_t> last{0};
    own_ = ++last;
    std::fill(words_.begin(), words_.end(), own_);
  }
  ~Claim() {
    if (std::any_of(words_.begin(), words_.end(), [&](std::uint64_t word) { return word != own_; }))
      Kokkos::abort("a workspace of products is another's, too");
  }
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;

 private:
  struct Words {
    std::uint64_t* first = nullptr;
    std::int64_t count = 0;
    std::uint64_t* begin() const { return first; }
    std::uint64_t* end() const { return first + count; }
  };
  static Words words_of(View<std::byte*> room) {
    return {reinterpret_cast<std::uint64_t*>(room.data()),
            room.size() / static_cast<std::int64_t>(sizeof(std::uint64_t))};
  }

  Words words_;
  std::uint64_t own_ = 0;
};

class Library : public math::ProductLibrary {
 public:
  std::string version() const override { return "fake products 1"; }
  std::string device() const override { return "fake device"; }
  std::vector<Algorithm> suggest(const DeviceProduct&, const math::ProductKind&,
                                 int most) override {
    std::vector<Algorithm> all;
    for (const ProductAlgorithm& one : suggestions())
      if (static_cast<int>(all.size()) < most) all.push_back(opaque_of(one));
    return all;
  }
  bool supports(const DeviceProduct& product, const Algorithm& algorithm) override {
    const std::int64_t most = algorithm_of(algorithm).most_rows;
    return most == 0 || product.m <= most;
  }
  void multiply(const Exec& exec, const DeviceProduct& product, const Algorithm& algorithm,
                const ProductOperands& operands) override {
    const ProductAlgorithm by = algorithm_of(algorithm);
    if (observer()) observer()(product, by.name);
    const View<std::byte*> room = math::ProductWorkspace::current();
    launch(
        exec, math::product_name(product.turn_a, product.turn_b),
        [=](const KernelSpace&) {
          const Claim claim(room);
          for (std::int64_t i = 0; i < product.count; ++i) one(exec, product, by, operands, i);
          if (by.seconds > 0.0)
            std::this_thread::sleep_for(std::chrono::duration<double>(by.seconds));
        },
        variant_of(product, algorithm));
  }

 private:
  static void one(const Exec& exec, const DeviceProduct& product, const ProductAlgorithm& by,
                  const ProductOperands& at, std::int64_t i) {
    const bool sums = product.result == ElementType::fp32;
    switch (product.factors) {
      case ElementType::fp64:
        return fake::multiply<double, double>(exec, product, by, at, i);
      case ElementType::fp32:
        return fake::multiply<float, float>(exec, product, by, at, i);
      case ElementType::bf16:
        return sums ? fake::multiply<bf16, float>(exec, product, by, at, i)
                    : fake::multiply<bf16, bf16>(exec, product, by, at, i);
      case ElementType::fp16:
        return sums ? fake::multiply<fp16, float>(exec, product, by, at, i)
                    : fake::multiply<fp16, fp16>(exec, product, by, at, i);
    }
  }
};

}  // namespace

std::vector<ProductAlgorithm> default_products() {
  std::vector<ProductAlgorithm> all(3);
  all[0].name = "whole";
  all[1].name = "runs of 8";
  all[1].terms = 8;
  all[2].name = "whole, too";
  return all;
}

void suggest_products(std::vector<ProductAlgorithm> algorithms) {
  suggestions() = std::move(algorithms);
}

void observe_products(ProductObserver to) { observer() = std::move(to); }

}  // namespace fake

namespace ostrakon::math {

ProductLibrary* product_library() {
  static fake::Library one;
  return &one;
}
std::int64_t library_workspace_bytes() { return fake::product_workspace_bytes; }

}  // namespace ostrakon::math
