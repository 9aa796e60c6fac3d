// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/model/decoder.hpp>
#include <string>
#include <vector>

namespace ostrakon::checkpoint {

/// The weight of a layer that an adapter may change: rows of a parameter of each block, which
/// several layers may share.
struct AdaptedRows {
  std::string layer;      ///< of model::adaptable_layers
  std::string parameter;  ///< "attention.qkv.weight"
  std::vector<std::int64_t> shape;
  std::int64_t first = 0, rows = 0;

  std::int64_t inputs() const { return shape[1]; }
  std::string lora_a() const { return layer + ".lora_a.weight"; }  ///< (rank, inputs)
  std::string lora_b() const { return layer + ".lora_b.weight"; }  ///< (rows, rank)
};

/// Returns all of a block's layers that may have adapters in a model, whether or not
/// `settings.lora` has them, in the order of model::adaptable_layers.
std::vector<AdaptedRows> adaptable_rows(const model::DecoderSettings& settings);
/// Returns those that have adapters.
std::vector<AdaptedRows> adapted_rows(const model::DecoderSettings& settings);

}  // namespace ostrakon::checkpoint
