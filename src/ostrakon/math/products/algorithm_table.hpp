// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <ostrakon/math/products/device_product.hpp>
#include <string>

namespace ostrakon::math {

/// The algorithms of a run: one for each kind of product. As text it is JSON, products.json of a
/// run's folder.
struct AlgorithmTable {
  std::string library, device;  ///< ProductLibrary::version and device
  std::map<ProductKind, Algorithm> algorithms;

  /// Whether these algorithms mean something to this library on this device: "" or why not.
  std::string unlike(const ProductLibrary& other) const;
  /// A hash of all that determines bits, thus not of times.
  std::string digest() const;
  std::string json() const;
  /// Throws Error naming the field that is missing or of another form.
  static AlgorithmTable read(const std::string& json);
};

}  // namespace ostrakon::math
