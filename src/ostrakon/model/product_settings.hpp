// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <ostrakon/math/kernel_form.hpp>
#include <ostrakon/model/layer_pattern.hpp>

namespace ostrakon::model {

/// How linear layers of blocks multiply.
struct ProductSettings {
  math::ProductDType dtype = math::ProductDType::as_stored;
  /// In 8 bits, the format of gradients; activations and weights are e4m3.
  math::Fp8Format fp8_gradients = math::Fp8Format::e5m2;
  /// In 8 bits, the blocks whose linear layers multiply so; none: all but the first and the last.
  std::optional<LayerPattern> fp8_layers = {};
  /// In 8 bits, whether the weights of these layers are gathered so, too.
  bool fp8_gather = false;

  /// Whether block `layer` of `layers` multiplies in 8 bits.
  bool are_8bit(std::int64_t layer, std::int64_t layers) const {
    if (!math::is_8bit(dtype)) return false;
    return fp8_layers ? fp8_layers->has(layer) : layer > 0 && layer < layers - 1;
  }
};

}  // namespace ostrakon::model
