// SPDX-License-Identifier: Apache-2.0
#pragma once

// The algorithms by which this process multiplies on its device.

#include <ostrakon/math/products/algorithm_table.hpp>
#include <ostrakon/math/products/product_choice.hpp>
#include <string>
#include <type_traits>
#include <vector>

// Whether products on the device are computed by algorithms of a table: 1 or 0.
#if (OSTRAKON_PRODUCTS_ON_DEVICE &&                                                             \
     ((defined(KOKKOS_ENABLE_DEFAULT_DEVICE_TYPE_CUDA) && defined(OSTRAKON_HAVE_CUBLAS)) ||     \
      (defined(KOKKOS_ENABLE_DEFAULT_DEVICE_TYPE_HIP) && defined(OSTRAKON_HAVE_HIPBLASLT)))) || \
    defined(OSTRAKON_FAKE_DEVICE)
#define OSTRAKON_PINS_PRODUCTS 1
#else
#define OSTRAKON_PINS_PRODUCTS 0
#endif

namespace ostrakon::math {

/// Whether products of this build have pinned algorithms.
constexpr bool pins_products = OSTRAKON_PINS_PRODUCTS == 1;

/// Whether products of T do: hipBLASLt multiplies no double.
template <class T>
constexpr bool pins_products_of =
#if defined(KOKKOS_ENABLE_DEFAULT_DEVICE_TYPE_HIP)
    pins_products && !std::is_same<T, double>::value;
#else
    pins_products;
#endif

/// Computes a product by the algorithm that the table has for its kind, by first_algorithm() where
/// it has none. In a LaunchCount the product is counted, and noted by the ProductNotes of the
/// calling thread. Not thread-safe, as the library is not.
void multiply_pinned(const Exec& exec, const DeviceProduct& product,
                     const ProductOperands& operands);

/// Makes the process multiply by these algorithms from now on. The table must be of
/// product_library().
void pin_products(AlgorithmTable table);

/// Kinds of products that were computed by another algorithm than the table's, as the table has
/// none, or one that the library refuses for the product.
std::vector<std::string> unpinned_products();

/// While one exists, the calling thread's LaunchCount also notes which products it counts.
class ProductNotes {
 public:
  ProductNotes();
  ~ProductNotes();
  ProductNotes(const ProductNotes&) = delete;
  ProductNotes& operator=(const ProductNotes&) = delete;

  /// One for each kind.
  const std::vector<NotedProduct>& all() const { return products_; }
  /// The one in which the calling thread notes; null: none.
  static ProductNotes* current();
  void add(const NotedProduct& product) { note(products_, product); }

 private:
  std::vector<NotedProduct> products_;
};

}  // namespace ostrakon::math
