// SPDX-License-Identifier: Apache-2.0
#pragma once

// These functions choose the algorithm that a kind of product gets.

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

/// The algorithm of a kind where none was chosen: the first that the library suggests for 4096 rows
/// of C, and as many terms if the kind has any number of them, so it depends neither on how many
/// rows are computed at once nor on times. If the library can't compute `product` by it, the next
/// suggestion is taken; those for `product` itself come last. Throws Error naming the kind if there
/// is none.
Algorithm first_algorithm(ProductLibrary& library, const DeviceProduct& product,
                          const ProductKind& kind);

/// The choice for a kind.
struct Choice {
  Algorithm algorithm;
  bool is_by_row = true;  ///< false: none of the algorithms was found to be
};

/// Chooses by products of random numbers. An algorithm is *by row* if rows of C have the same bits
/// when they are computed in two parts, and, where adds_as_a_whole() says so, a product that is
/// added to C has those of the finished product added. The bits are those of the first suggestion
/// for 4096 rows that is by row. Of at most eight suggestions for the product itself the fastest is
/// taken that is by row and has these bits in every element. So the time decides between equal bits
/// only. `memory`: of the device, overwritten; with too little of it the product is timed with
/// fewer rows, and without enough for any the choice is first_algorithm().
Choice choose_algorithm(const Exec& exec, ProductLibrary& library, const NotedProduct& noted,
                        View<char*> memory);

}  // namespace ostrakon::math
