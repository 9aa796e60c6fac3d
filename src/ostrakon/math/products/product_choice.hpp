// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which algorithm a kind of product gets.

#include <functional>
#include <ostrakon/math/products/algorithm_table.hpp>
#include <ostrakon/math/products/device_product.hpp>
#include <ostrakon/math/view.hpp>
#include <string>
#include <vector>

namespace ostrakon::math {

/// A product that a run computes: of its kind one of the largest.
struct NotedProduct {
  ProductKind kind;
  DeviceProduct product;
};

/// Text of products, to send between ranks.
std::string write(const std::vector<NotedProduct>& products);
std::vector<NotedProduct> read_products(const std::string& text);

/// Adds a product, or enlarges the one of its kind.
void note(std::vector<NotedProduct>& products, const NotedProduct& one);

/// The algorithm of a kind where none was chosen by timing, and the one whose bits a chosen one
/// must have: the first that the library suggests for 4096 rows of C, and as many terms if the kind
/// has any number of them. So it depends neither on how many rows are computed at once nor on
/// times. If the library can't compute `product` by it, the next suggestion is taken; those for
/// `product` itself come last. Throws Error naming the kind if there is none.
Algorithm first_algorithm(ProductLibrary& library, const DeviceProduct& product,
                          const ProductKind& kind);

/// The choice for a kind.
struct Choice {
  Algorithm algorithm;
  /// Whether rows of C were found to have the same bits when fewer of them are computed, and a
  /// product that is added to C (beta = 1) those of the finished product added to it.
  bool is_by_row = true;
};

/// Times at most eight suggestions of the library for a product of random numbers, and returns the
/// fastest of those that have the bits of first_algorithm() in every element, whether all rows are
/// computed at once or in two parts: the time decides only between algorithms of equal bits, so
/// the bits of a run do not depend on it. `memory`: of the device, overwritten; with too little of
/// it the product is timed with fewer rows, and without enough for any the choice is
/// first_algorithm().
Choice choose_algorithm(const Exec& exec, ProductLibrary& library, const NotedProduct& noted,
                        View<char*> memory);

}  // namespace ostrakon::math
