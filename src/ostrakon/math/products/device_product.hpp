// SPDX-License-Identifier: Apache-2.0
#pragma once

// Products on a device, and the algorithms by which a library computes them, whatever the library.

#include <array>
#include <cstddef>
#include <cstdint>
#include <ostrakon/base/facts.hpp>
#include <ostrakon/base/names.hpp>
#include <ostrakon/math/portability.hpp>
#include <string>
#include <vector>

namespace ostrakon::math {

/// The extent of a product that depends on data. On a device one algorithm serves all its values,
/// as no new kernel may be loaded after ranks have begun to communicate (WarmUp).
enum class Varies { nothing, rows, terms };

/// The type of a matrix's elements.
enum class ElementType { fp64, fp32, bf16, fp16 };
constexpr Named<ElementType> element_type_names[] = {{ElementType::fp64, "fp64"},
                                                     {ElementType::fp32, "fp32"},
                                                     {ElementType::bf16, "bf16"},
                                                     {ElementType::fp16, "fp16"}};
constexpr const char* name(ElementType type) { return name_in(element_type_names, type); }
constexpr std::int64_t bytes_of(ElementType type) {
  return type == ElementType::fp64 ? 8 : type == ElementType::fp32 ? 4 : 2;
}

/// Addresses and factors of D = alpha op(A) op(B) + beta C + bias. `c` is `d`, or an array of its
/// layout that does not overlap it; it is not read with beta = 0.
struct ProductOperands {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* c = nullptr;
  void* d = nullptr;
  const void* bias = nullptr;  ///< (n) of D's type, added to each row; null: none
  double alpha = 1.0, beta = 0.0;
};

/// One or more products of row-major matrices on a device: op(A) (m, k), op(B) (k, n), C and D
/// (m, n).
struct DeviceProduct {
  bool turn_a = false, turn_b = false, has_bias = false;
  ElementType factors = ElementType::fp32;  ///< of A and B; sums are in fp32, of fp64 in fp64
  ElementType result = ElementType::fp32;   ///< of C and D
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t row_a = 0, row_b = 0, row_c = 0;  ///< elements from a row to the next
  std::int64_t count = 1;                        ///< products; their matrices are equally far apart
  std::int64_t step_a = 0, step_b = 0, step_c = 0;  ///< elements from a matrix to the next
  Varies varies = Varies::nothing;
};

/// Products that one algorithm computes, so that their bits do not depend on how many rows of C
/// are computed at once, nor on how many matrices. Rows of C are no part of a kind unless they are
/// columns of A: then `m` is for speed only (choose_algorithm()).
struct ProductKind {
  bool turn_a = false, turn_b = false, has_bias = false, is_batched = false;
  ElementType factors = ElementType::fp32, result = ElementType::fp32;
  std::int64_t m = 0, n = 0, k = 0;  ///< 0: any
  /// Each row begins at a multiple of so many bytes, 2 to 16; align_c holds for D and the bias,
  /// too.
  std::int64_t align_a = 0, align_b = 0, align_c = 0;
};
bool operator<(const ProductKind& one, const ProductKind& other);

/// The kind of a product whose operands are at these addresses.
ProductKind kind_of(const DeviceProduct& product, const ProductOperands& operands);

/// "bf16 (any, 2048) x (6144, 2048)^T + bias -> bf16, rows aligned to 16, 16, 16 bytes"
std::string text_of(const ProductKind& kind);

/// How a library computes products of a kind.
struct Algorithm {
  Facts attributes;                       ///< by their names, for people
  std::array<std::uint64_t, 8> opaque{};  ///< the library's own 64 bytes
  double seconds = 0.0;                   ///< as measured when it was chosen; 0: it was not
};

/// A library that multiplies on a device by an algorithm that the caller names. None of its
/// algorithms splits a sum, unless there is no other, and all give the same bits each time. Not
/// thread-safe.
class ProductLibrary {
 public:
  virtual ~ProductLibrary() = default;
  virtual std::string version() const = 0;  ///< with the library's name
  virtual std::string device() const = 0;   ///< the kind of device
  /// At most `most` algorithms for a product, the one first that the library expects to be fastest
  /// of those that take no more than ProductWorkspace::current(). `kind`: has the alignments.
  virtual std::vector<Algorithm> suggest(const DeviceProduct& product, const ProductKind& kind,
                                         int most) = 0;
  /// Whether an algorithm can compute a product in ProductWorkspace::current().
  virtual bool supports(const DeviceProduct& product, const Algorithm& algorithm) = 0;
  /// Works in ProductWorkspace::current(). Throws Error where the library fails.
  virtual void multiply(const Exec& exec, const DeviceProduct& product, const Algorithm& algorithm,
                        const ProductOperands& operands) = 0;
};

/// The library of this build's device, made at the first call; null where products have no
/// algorithms to choose from. Defined next to each library's calls.
ProductLibrary* product_library();
/// The most bytes of workspace that its algorithms for a product may take; asks no device. Defined
/// there, too.
std::int64_t library_workspace_bytes();

}  // namespace ostrakon::math
