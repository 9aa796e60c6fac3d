// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/products/product_choice.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <optional>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/print.hpp>
#include <ostrakon/math/digest.hpp>
#include <ostrakon/math/half.hpp>
#include <ostrakon/math/products/gemm.hpp>
#include <ostrakon/math/random.hpp>
#include <ostrakon/math/transfer.hpp>
#if OSTRAKON_HAS_DEVICE
#include <ostrakon/device/stream.hpp>
#endif

namespace ostrakon::math {
namespace {

constexpr std::int64_t many = 4096;  // rows, and terms where there may be any number
constexpr int most_suggestions = 8;

std::int64_t round_up_to(std::int64_t size, std::int64_t granule) {
  return (size + granule - 1) / granule * granule;
}

/// A product of the kind with `many` rows, whose rows are aligned as well as they can be.
DeviceProduct standard(DeviceProduct product, const ProductKind& kind) {
  constexpr std::int64_t granule = 8;
  product.m = many;
  if (kind.k == 0) product.k = many;
  product.row_a = round_up_to(product.turn_a ? product.m : product.k, granule);
  product.row_b = round_up_to(product.turn_b ? product.k : product.n, granule);
  product.row_c = round_up_to(product.n, granule);
  product.count = kind.is_batched ? granule : 1;
  product.step_a = product.row_a * (product.turn_a ? product.k : product.m);
  product.step_b = product.row_b * (product.turn_b ? product.n : product.k);
  product.step_c = product.row_c * product.m;
  return product;
}

/// Elements from the first to the last of all matrices.
std::int64_t elements(std::int64_t rows, std::int64_t columns, std::int64_t row, std::int64_t count,
                      std::int64_t step) {
  return (count - 1) * step + (rows - 1) * row + columns;
}
std::int64_t elements_a(const DeviceProduct& p) {
  return elements(p.turn_a ? p.k : p.m, p.turn_a ? p.m : p.k, p.row_a, p.count, p.step_a);
}
std::int64_t elements_b(const DeviceProduct& p) {
  return elements(p.turn_b ? p.n : p.k, p.turn_b ? p.k : p.n, p.row_b, p.count, p.step_b);
}
std::int64_t elements_c(const DeviceProduct& p) {
  return elements(p.m, p.n, p.row_c, p.count, p.step_c);
}

template <class T>
void fill(const Exec& exec, char* to, std::int64_t count, std::uint64_t key) {
  fill_normal<T>(exec, View<T*>(reinterpret_cast<T*>(to), count), key, 0, 0.5);
}

void fill(const Exec& exec, ElementType type, char* to, std::int64_t count, std::uint64_t key) {
  switch (type) {
    case ElementType::fp64:
      return fill<double>(exec, to, count, key);
    case ElementType::fp32:
      return fill<float>(exec, to, count, key);
    case ElementType::bf16:
      return fill<bf16>(exec, to, count, key);
    case ElementType::fp16:
      return fill<fp16>(exec, to, count, key);
  }
}

/// Seconds of work of the device.
double seconds_of(const Exec& exec, const std::function<void()>& work) {
#if OSTRAKON_HAS_DEVICE
  device::Event begin(device::Timing::yes), end(device::Timing::yes);
  begin.record(stream_of(exec));
  work();
  end.record(stream_of(exec));
  end.wait();
  return end.seconds_since(begin);
#else
  using Clock = std::chrono::steady_clock;
  exec.fence();
  const Clock::time_point begin = Clock::now();
  work();
  exec.fence();
  return std::chrono::duration<double>(Clock::now() - begin).count();
#endif
}

/// A product of random numbers in device memory, which algorithms are tried on.
class Trial {
 public:
  /// How much of `memory` a product needs.
  static std::int64_t bytes(const DeviceProduct& p) {
    return digest_bytes + padded(elements_a(p), p.factors) + padded(elements_b(p), p.factors) +
           padded(elements_c(p), p.result) + padded(p.n, p.result);
  }

  Trial(const Exec& exec, ProductLibrary& library, const DeviceProduct& product, View<char*> memory)
      : exec_(exec), library_(library), product_(product) {
    char* next = memory.data();
    const auto take = [&next](std::int64_t count) {
      char* const taken = next;
      next += count;
      return taken;
    };
    digest_ = View<std::uint64_t*>(reinterpret_cast<std::uint64_t*>(take(digest_bytes)), 1);
    char* const a = take(padded(elements_a(product), product.factors));
    char* const b = take(padded(elements_b(product), product.factors));
    bytes_of_d_ = padded(elements_c(product), product.result);
    d_ = take(bytes_of_d_);
    char* const bias = take(padded(product.n, product.result));
    fill(exec, product.factors, a, elements_a(product), 1);
    fill(exec, product.factors, b, elements_b(product), 2);
    fill(exec, product.result, bias, product.n, 3);
    operands_.a = a;
    operands_.b = b;
    operands_.c = operands_.d = d_;
    if (product.has_bias) operands_.bias = bias;
  }

  /// A hash of the product as a whole, times alpha.
  std::uint64_t whole(const Algorithm& algorithm, double alpha = 1.0) {
    clear_d();
    ProductOperands operands = operands_;
    operands.alpha = alpha;
    library_.multiply(exec_, product_, algorithm, operands);
    return digest();
  }

  /// The product computed in two runs of rows, or of matrices.
  std::uint64_t in_two(const Algorithm& algorithm) {
    clear_d();
    const bool cuts_count = product_.count > 1;
    const std::int64_t size = cuts_count ? product_.count : product_.m;
    // Tiles are cut in their middle, but not what is read at a time of a row.
    const std::int64_t half = cuts_count        ? size / 2
                              : product_.turn_a ? size / 2 / 8 * 8
                                                : size / 2 + std::min<std::int64_t>(size / 4, 3);
    for (const auto& [begin, end] : {std::pair{std::int64_t{0}, half}, std::pair{half, size}})
      if (begin < end) part(algorithm, cuts_count, begin, end);
    return digest();
  }

  /// The product added to itself.
  std::uint64_t added(const Algorithm& algorithm) {
    clear_d();
    ProductOperands operands = operands_;
    library_.multiply(exec_, product_, algorithm, operands);
    operands.beta = 1.0;
    library_.multiply(exec_, product_, algorithm, operands);
    return digest();
  }

  /// Whether rows have their bits in products of fewer rows, and a sum adds finished products.
  bool is_by_row(const Algorithm& algorithm) {
    return (!can_be_cut() || in_two(algorithm) == whole(algorithm)) &&
           (!can_be_added() || added(algorithm) == whole(algorithm, 2.0));
  }

  double seconds(const Algorithm& algorithm) {
    constexpr int rounds = 3, repetitions = 3;
    library_.multiply(exec_, product_, algorithm, operands_);
    double least = std::numeric_limits<double>::infinity();
    for (int round = 0; round < rounds; ++round)
      least = std::min(least, seconds_of(exec_, [&] {
                         for (int i = 0; i < repetitions; ++i)
                           library_.multiply(exec_, product_, algorithm, operands_);
                       }));
    return least / repetitions;
  }

 private:
  static constexpr std::int64_t granule = 256, digest_bytes = granule;
  static std::int64_t padded(std::int64_t count, ElementType type) {
    return round_up_to(count * bytes_of(type), granule);
  }

  void part(const Algorithm& algorithm, bool cuts_count, std::int64_t begin, std::int64_t end) {
    DeviceProduct product = product_;
    ProductOperands operands = operands_;
    (cuts_count ? product.count : product.m) = end - begin;
    const std::int64_t step_a = cuts_count ? product.step_a : product.turn_a ? 1 : product.row_a;
    const std::int64_t step_c = cuts_count ? product.step_c : product.row_c;
    operands.a = static_cast<const char*>(operands.a) + begin * step_a * bytes_of(product.factors);
    if (cuts_count)
      operands.b =
          static_cast<const char*>(operands.b) + begin * product.step_b * bytes_of(product.factors);
    operands.d = static_cast<char*>(operands.d) + begin * step_c * bytes_of(product.result);
    operands.c = operands.d;
    library_.multiply(exec_, product, algorithm, operands);
  }

  bool can_be_cut() const {
    return product_.count > 1 ? product_.count >= 4 : product_.m >= 16;  // halves are of the kind
  }
  bool can_be_added() const {
    if (product_.has_bias || bytes_of(product_.result) < 4) return false;
    switch (product_.factors) {
      case ElementType::fp64:
        return adds_as_a_whole<double>(product_.k);
      case ElementType::fp32:
        return adds_as_a_whole<float>(product_.k);
      case ElementType::bf16:
        return adds_as_a_whole<bf16>(product_.k);
      case ElementType::fp16:
        return adds_as_a_whole<fp16>(product_.k);
    }
    return false;
  }

  /// Gaps between rows are in the hash, too.
  void clear_d() { clear(exec_, View<char*>(d_, bytes_of_d_)); }

  std::uint64_t digest() {
    clear(exec_, digest_);
    const auto floats = bytes_of_d_ / static_cast<std::int64_t>(sizeof(float));
    add_digest(exec_, View<const float*>(reinterpret_cast<const float*>(d_), floats), 1, 0,
               digest_);
    std::vector<std::uint64_t> result(1);
    copy_to_host(exec_, View<const std::uint64_t*>(digest_), host_view(result));
    return result.front();
  }

  const Exec exec_;
  ProductLibrary& library_;
  const DeviceProduct product_;
  ProductOperands operands_;
  View<std::uint64_t*> digest_;
  char* d_ = nullptr;
  std::int64_t bytes_of_d_ = 0;
};

/// The algorithms that the library can compute a product by, those suggested for many rows first.
std::vector<Algorithm> usual_algorithms(ProductLibrary& library, const DeviceProduct& product,
                                        const ProductKind& kind) {
  std::vector<Algorithm> usual;
  for (const DeviceProduct& suggested_for : {standard(product, kind), product})
    for (const Algorithm& one : library.suggest(suggested_for, kind, most_suggestions))
      if (library.supports(product, one)) usual.push_back(one);
  require(!usual.empty(), library.version(), " has no algorithm for the product ", text_of(kind));
  return usual;
}

/// Reduces rows until the product fits; whether it does.
bool fit(DeviceProduct& product, std::int64_t bytes) {
  while (Trial::bytes(product) > bytes) {
    if (product.turn_a || product.count > 1 || product.m < 2) return false;
    product.m /= 2;
  }
  return true;
}

}  // namespace

std::string write(const std::vector<NotedProduct>& products) {
  TextWriter out;
  for (const auto& [kind, p] : products) {
    for (const std::int64_t one : {std::int64_t{p.turn_a},
                                   std::int64_t{p.turn_b},
                                   std::int64_t{p.has_bias},
                                   static_cast<std::int64_t>(p.factors),
                                   static_cast<std::int64_t>(p.result),
                                   p.m,
                                   p.n,
                                   p.k,
                                   p.row_a,
                                   p.row_b,
                                   p.row_c,
                                   p.count,
                                   p.step_a,
                                   p.step_b,
                                   p.step_c,
                                   static_cast<std::int64_t>(p.varies),
                                   kind.m,
                                   kind.k,
                                   std::int64_t{kind.is_batched},
                                   kind.align_a,
                                   kind.align_b,
                                   kind.align_c})
      out << one << ' ';
    out << '\n';
  }
  return out.str();
}

std::vector<NotedProduct> read_products(const std::string& from) {
  std::vector<NotedProduct> products;
  TextReader in(from);
  std::array<std::int64_t, 22> all{};
  const auto read_one = [&] {
    for (std::int64_t& one : all)
      if (!(in >> one)) return false;
    return true;
  };
  while (read_one()) {
    NotedProduct one;
    DeviceProduct& p = one.product;
    ProductKind& kind = one.kind;
    std::size_t i = 0;
    const auto next = [&] { return all[i++]; };
    p.turn_a = kind.turn_a = next() != 0;
    p.turn_b = kind.turn_b = next() != 0;
    p.has_bias = kind.has_bias = next() != 0;
    p.factors = kind.factors = static_cast<ElementType>(next());
    p.result = kind.result = static_cast<ElementType>(next());
    p.m = next();
    p.n = kind.n = next();
    for (std::int64_t* to :
         {&p.k, &p.row_a, &p.row_b, &p.row_c, &p.count, &p.step_a, &p.step_b, &p.step_c})
      *to = next();
    p.varies = static_cast<Varies>(next());
    kind.m = next();
    kind.k = next();
    kind.is_batched = next() != 0;
    for (std::int64_t* to : {&kind.align_a, &kind.align_b, &kind.align_c}) *to = next();
    products.push_back(one);
  }
  return products;
}

void note(std::vector<NotedProduct>& products, const NotedProduct& one) {
  const auto same = [&](const NotedProduct& other) {
    return !(one.kind < other.kind) && !(other.kind < one.kind);
  };
  const auto found = std::find_if(products.begin(), products.end(), same);
  const auto work = [](const DeviceProduct& p) { return p.m * p.k * p.count; };
  if (found == products.end())
    products.push_back(one);
  else if (work(one.product) > work(found->product))
    found->product = one.product;
}

Algorithm first_algorithm(ProductLibrary& library, const DeviceProduct& product,
                          const ProductKind& kind) {
  return usual_algorithms(library, product, kind).front();
}

Choice choose_algorithm(const Exec& exec, ProductLibrary& library, const NotedProduct& noted,
                        View<char*> memory) {
  DeviceProduct product = noted.product;
  if (product.varies == Varies::rows) product.m = std::max(product.m, many);
  if (product.varies == Varies::terms) product.k = std::max(product.k, many);
  const std::vector<Algorithm> usual = usual_algorithms(library, product, noted.kind);
  Choice choice{usual.front()};
  if (!fit(product, memory.size())) return choice;
  Trial trial(exec, library, product, memory);
  const auto by_row = std::find_if(usual.begin(), usual.end(),
                                   [&](const auto& one) { return trial.is_by_row(one); });
  choice.is_by_row = by_row != usual.end();
  if (choice.is_by_row) choice.algorithm = *by_row;
  const std::uint64_t bits = trial.whole(choice.algorithm);
  choice.algorithm.seconds = trial.seconds(choice.algorithm);
  constexpr double noticeable = 0.99;
  for (Algorithm one : library.suggest(product, noted.kind, most_suggestions)) {
    if (one.opaque == choice.algorithm.opaque || !library.supports(product, one)) continue;
    if (trial.whole(one) != bits || (choice.is_by_row && !trial.is_by_row(one))) continue;
    one.seconds = trial.seconds(one);
    if (one.seconds < noticeable * choice.algorithm.seconds) choice.algorithm = one;
  }
  return choice;
}

}  // namespace ostrakon::math
