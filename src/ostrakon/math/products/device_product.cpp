// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/products/device_product.hpp>

#include <initializer_list>
#include <numeric>
#include <ostrakon/base/text.hpp>
#include <tuple>

namespace ostrakon::math {
namespace {

auto tie(const ProductKind& x) {
  return std::tie(x.turn_a, x.turn_b, x.has_bias, x.is_batched, x.factors, x.result, x.m, x.n, x.k,
                  x.align_a, x.align_b, x.align_c);
}

/// The largest power of two, at most 16, that divides all of the numbers of bytes.
std::int64_t alignment(std::initializer_list<std::int64_t> bytes) {
  std::int64_t all = 16;
  for (const std::int64_t one : bytes) all = std::gcd(all, one);
  return all;
}

std::int64_t address(const void* data) {
  return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(data));
}

std::string extent(std::int64_t size) { return size == 0 ? "any" : text(size); }

std::string matrix(std::int64_t rows, std::int64_t columns, bool turned) {
  return turned ? text("(", extent(columns), ", ", extent(rows), ")^T")
                : text("(", extent(rows), ", ", extent(columns), ")");
}

}  // namespace

bool operator<(const ProductKind& one, const ProductKind& other) { return tie(one) < tie(other); }

ProductKind kind_of(const DeviceProduct& p, const ProductOperands& at) {
  const std::int64_t of_factor = bytes_of(p.factors), of_result = bytes_of(p.result);
  const bool has_any_rows = !p.turn_a || p.varies == Varies::rows;
  const bool is_batched = p.count > 1;
  ProductKind kind;
  kind.turn_a = p.turn_a;
  kind.turn_b = p.turn_b;
  kind.has_bias = p.has_bias;
  kind.is_batched = is_batched;
  kind.factors = p.factors;
  kind.result = p.result;
  kind.m = has_any_rows ? 0 : p.m;
  kind.n = p.n;
  kind.k = p.varies == Varies::terms ? 0 : p.k;
  const auto align = [&](const void* data, std::int64_t row, std::int64_t step,
                         std::int64_t bytes) {
    return alignment({address(data), row * bytes, is_batched ? step * bytes : 0});
  };
  kind.align_a = align(at.a, p.row_a, p.step_a, of_factor);
  kind.align_b = align(at.b, p.row_b, p.step_b, of_factor);
  kind.align_c = align(at.c, p.row_c, p.step_c, of_result);
  for (const std::int64_t other : {align(at.d, p.row_c, p.step_c, of_result), address(at.bias)})
    kind.align_c = std::gcd(kind.align_c, other);
  return kind;
}

std::string text_of(const ProductKind& kind) {
  return text(name(kind.factors), " ", matrix(kind.m, kind.k, kind.turn_a), " x ",
              matrix(kind.k, kind.n, kind.turn_b), kind.has_bias ? " + bias" : "", " -> ",
              name(kind.result), kind.is_batched ? ", several" : "", ", rows aligned to ",
              kind.align_a, ", ", kind.align_b, ", ", kind.align_c, " bytes");
}

}  // namespace ostrakon::math
