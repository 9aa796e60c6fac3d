// SPDX-License-Identifier: Apache-2.0
#pragma once

// The fake device's library of products. Its algorithms are the host's products, as a whole or cut
// into runs of terms that are added one after the other, which has other bits.

#include <functional>
#include <ostrakon/math/products/device_product.hpp>
#include <string>
#include <vector>

namespace fake {

/// An algorithm of the fake library.
struct ProductAlgorithm {
  std::string name;
  std::int64_t terms = 0;      ///< summed at a time; 0: all
  double seconds = 0.0;        ///< by which each product takes longer
  std::int64_t most_rows = 0;  ///< 0: any number
  bool is_by_row = true;       ///< else products of fewer than 40 rows are cut into single terms
  bool adds_at_end = true;     ///< else products that are added to C are
};

/// What the library suggests from now on, in this order, for any product. By default the host's
/// product, its terms in runs of 8, and the host's product again.
void suggest_products(std::vector<ProductAlgorithm> algorithms);
std::vector<ProductAlgorithm> default_products();

/// Bytes that each product works in where it is given a workspace: it writes them, and ends the
/// process if another product, on a stream that overlaps with its own, writes them meanwhile.
constexpr std::int64_t product_workspace_bytes = 4096;

/// Called at each product with its kind and the name of its algorithm; none: null.
using ProductObserver =
    std::function<void(const ostrakon::math::DeviceProduct&, const std::string& algorithm)>;
void observe_products(ProductObserver observer);

}  // namespace fake
